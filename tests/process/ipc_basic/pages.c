/* ipc_pages CASE: blocks on pages of expandable segments between this process and others (peer.h):
 * what their exporter gives by its socket, and what becomes of an importer where it does not. */
#include "blocks.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "accelcache.h"
#include "harness.h"
#include "simcuda.h"

static const char *program;

static int64_t milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* What this process has open of others, and where: nothing may stay. */
static uint64_t open_here(void) {
    return simcuda_live("imports") * 1000 + simcuda_live("reservations");
}

static CUipcMemHandle exported_of(peer_t *peer, size_t size, CUdeviceptr *address) {
    peer_answer_t answer =
        peer_ask(peer, (peer_ask_t){.what = PEER_ALLOC, .size = size, .word = 11});
    GIVES(answer.result, CUDA_SUCCESS);
    *address = answer.address;
    return answer.handle;
}

static CUresult open_one(CUipcMemHandle handle, CUdeviceptr *address) {
    return cuIpcOpenMemHandle_v2(address, handle, LAZY);
}

/* The socket of a process. */
static void socket_of(pid_t pid, char *path, size_t size) {
    struct stat st;
    NEED(stat("/proc/self/ns/pid", &st) == 0);
    int n = snprintf(path, size, "%s/accelcache-%u/%u-%d.sock", getenv("ACCEL_LIVE_DIR"),
                     (unsigned)geteuid(), (unsigned)st.st_ino, (int)pid);
    NEED(n > 0 && (size_t)n < size);
}

static bool has_socket(pid_t pid) {
    char path[512];
    struct stat st;
    socket_of(pid, path, sizeof path);
    if (lstat(path, &st) != 0)
        return false;
    EXPECT(S_ISSOCK(st.st_mode) && (st.st_mode & 0777) == 0600);
    return true;
}

/* Sockets among the descriptors of this process; no function that a fork child may not call. */
static unsigned sockets(void) {
    unsigned count = 0;
    struct stat st;
    for (int fd = 0; fd < 1024; fd++)
        count += fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
    return count;
}

/* A block over several pages, beside another one on its first: right to the last byte, both ways. */
static void spans(void) {
    enum { SIZE = 300 * MIB + 1000, STEP = MIB };
    peer_t peer = peer_start(program, 0, true);
    CUdeviceptr beside = taken(MIB, 1), block = taken(SIZE, 2);
    EXPECT(!has_socket(getpid()));
    for (unsigned at = 0; at + STEP <= SIZE; at += STEP)
        fill(block + at, 4, 100 + at / STEP);
    CUipcMemHandle handle = handle_of(block);
    EXPECT(has_socket(getpid()) && same(handle, handle_of(block + SIZE - 1)));
    CUdeviceptr there = opened(&peer, handle);
    for (unsigned at = 0; at + STEP <= SIZE; at += STEP)
        EXPECT(peer_reads(&peer, there + at, 4, 100 + at / STEP));
    EXPECT(peer_reads(&peer, there + SIZE - 1000, 1000, 2));
    peer_ask(&peer,
             (peer_ask_t){.what = PEER_FILL, .address = there + SIZE - 8, .size = 8, .word = 7});
    EXPECT(word_at(block + SIZE - 8) == 7 && word_at(beside) == 1);
    peer_answer_t range =
        peer_ask(&peer, (peer_ask_t){.what = PEER_RANGE, .address = there + SIZE - 1});
    EXPECT(range.result == CUDA_SUCCESS && range.address == there && range.size == SIZE);
    GIVES(peer_close(&peer, there), CUDA_SUCCESS);
    peer_stop(&peer);
}

/* Two blocks of a page, in this process: each a mapping of its own, and nothing else to be seen. */
static void shares(void) {
    peer_t peer = peer_start(program, 0, true);
    CUdeviceptr a, b, there[2];
    uint64_t before = open_here();
    CUipcMemHandle first = exported_of(&peer, 4 * KIB, &a),
                   second = exported_of(&peer, 4 * KIB, &b);
    GIVES(open_one(first, &there[0]), CUDA_SUCCESS);
    GIVES(open_one(second, &there[1]), CUDA_SUCCESS);
    peer_ask(&peer, (peer_ask_t){.what = PEER_FILL, .address = b, .size = 4 * KIB, .word = 12});
    EXPECT(word_at(there[0]) == 11 && word_at(there[1]) == 12);
    CUmemGenericAllocationHandle none;
    CUcontext context = NULL, current;
    uint64_t types = 1;
    GIVES(cuMemRetainAllocationHandle(&none, (void *)(uintptr_t)there[0]),
          CUDA_ERROR_INVALID_VALUE);
    MUST(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, there[0]));
    MUST(cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, there[0]));
    MUST(cuCtxGetCurrent(&current));
    EXPECT(context == current && types == 0);
    GIVES(cuMemFree_v2(there[0]), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuIpcCloseMemHandle(there[0]), CUDA_SUCCESS);
    GIVES(cuIpcCloseMemHandle(there[0]), CUDA_ERROR_INVALID_VALUE);
    EXPECT(word_at(there[1]) == 12);
    GIVES(cuIpcCloseMemHandle(there[1]), CUDA_SUCCESS);
    EXPECT(open_here() == before);
    peer_stop(&peer);
}

/* Opened twice; its owner frees it and gives its pages back, and another owner comes there. */
static void twice(void) {
    typedef __typeof__(&accel_empty_cache) empty_fn;
    empty_fn empty;
    NEED(test_find("accel_empty_cache", &empty));
    peer_t peer = peer_start(program, 0, true);
    CUdeviceptr block = taken(20 * MIB, 5);
    CUipcMemHandle handle = handle_of(block);
    CUdeviceptr there = opened(&peer, handle), address = 0;
    EXPECT(opened(&peer, handle) == there);
    GIVES(peer_close(&peer, there), CUDA_SUCCESS);
    MUST(cuMemFree_v2(block));
    GIVES(peer_open(&peer, handle, &address), CUDA_ERROR_INVALID_HANDLE);
    NEED(empty() == 0);
    EXPECT(simcuda_used_memory(0) < 4 * MIB);
    EXPECT(peer_reads(&peer, there, 20 * MIB,
                      5)); /* the memory is the importer's until it closes it */
    block = taken(20 * MIB, 6);
    GIVES(peer_open(&peer, handle, &address), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(peer_reads(&peer, opened(&peer, handle_of(block)), 20 * MIB, 6));
    GIVES(peer_close(&peer, there), CUDA_SUCCESS);
    peer_stop(&peer);
}

/* Opened with another device current: both devices can use it, and a third context of the first one's
 * when it gets peer access. */
static void peers(void) {
    peer_t peer = peer_start(program, 0, true);
    CUdeviceptr address, there, own;
    CUipcMemHandle handle = exported_of(&peer, 20 * MIB, &address);
    CUcontext first = test_device(0), second = test_device(1);
    GIVES(open_one(handle, &there), CUDA_SUCCESS);
    EXPECT(word_at(there + 19 * MIB) == 11);
    own = taken(MIB, 3);
    MUST(cuMemcpyDtoD_v2(there, own, 4));
    MUST(cuCtxSetCurrent(first));
    EXPECT(word_at(there) == 3 && word_at(there + 4) == 11);
    GIVES(open_one(handle, &address), CUDA_SUCCESS);
    EXPECT(address != there); /* a context has its own */
    EXPECT(simcuda_writable(address, 1));
    GIVES(cuIpcCloseMemHandle(address), CUDA_SUCCESS);
    MUST(cuCtxSetCurrent(second));
    GIVES(cuIpcCloseMemHandle(there), CUDA_SUCCESS);
    peer_stop(&peer);
}

static void lasts(void *unused) {
    (void)unused;
    usleep(300000);
}

/* Closed beside work of another context that may use it: a second one of the device that it
 * was opened for; one of the device that it lies on.  The simulated driver waits for such work when
 * pages are unmapped, but reports who relies on that. */
static void used(void) {
    peer_t peer = peer_start(program, 0, true);
    CUdeviceptr address, there;
    CUipcMemHandle handle = exported_of(&peer, 20 * MIB, &address);
    CUcontext first = test_device(0), second;
    MUST(cuCtxCreate_v2(&second, 0, 0));
    for (int i = 0; i < 2; i++) {
        MUST(cuCtxSetCurrent(i ? test_device(1) : first));
        GIVES(open_one(handle, &there), CUDA_SUCCESS);
        MUST(cuCtxSetCurrent(i ? first : second));
        CUstream stream = test_stream();
        MUST(cuLaunchHostFunc(stream, lasts, NULL));
        MUST(cuMemsetD32Async(there, 12, MIB, stream));
        MUST(cuCtxSetCurrent(i ? test_device(1) : first));
        GIVES(cuIpcCloseMemHandle(there), CUDA_SUCCESS);
        EXPECT(simcuda_race_reports() == 0);
    }
    peer_stop(&peer);
}

/* Closed while a stream captures, beside work on it: the pages stay until that is over. */
static void captured(void) {
    peer_t peer = peer_start(program, 0, true);
    CUdeviceptr address, there, again;
    CUipcMemHandle handle = exported_of(&peer, 20 * MIB, &address);
    CUstream stream = test_stream(), other = test_stream();
    CUgraph graph;
    uint64_t before = open_here();
    for (int turn = 0; turn < 2; turn++) {
        GIVES(open_one(handle, &there), CUDA_SUCCESS);
        MUST(cuLaunchHostFunc(stream, lasts, NULL));
        MUST(cuMemsetD32Async(there, 12, MIB, stream));
        MUST(cuStreamBeginCapture_v2(other, CU_STREAM_CAPTURE_MODE_RELAXED));
        GIVES(cuIpcCloseMemHandle(there), CUDA_SUCCESS);
        EXPECT(open_here() > before);
        EXPECT(cuMemGetAddressRange_v2(NULL, NULL, there) == CUDA_ERROR_NOT_FOUND);
        GIVES(open_one(handle, &again), CUDA_SUCCESS); /* another mapping */
        EXPECT(again != there);
        MUST(cuStreamEndCapture(other, &graph));
        MUST(cuGraphDestroy(graph));
        EXPECT(open_here() > before);
        if (turn) /* a close waits */
            MUST(cuCtxSynchronize());
        GIVES(cuIpcCloseMemHandle(again), CUDA_SUCCESS);
        EXPECT(open_here() == before && simcuda_race_reports() == 0);
    }
    /* Or when the capture ends. */
    GIVES(open_one(handle, &there), CUDA_SUCCESS);
    MUST(cuStreamBeginCapture_v2(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    GIVES(cuIpcCloseMemHandle(there), CUDA_SUCCESS);
    EXPECT(open_here() > before);
    MUST(cuStreamEndCapture(other, &graph));
    EXPECT(open_here() == before);
    MUST(cuGraphDestroy(graph));
    peer_stop(&peer);
}

/* An import that does not succeed, and how long it takes. */
enum { PATIENCE_MS = 5000 }; /* with an exporter that runs */
static int64_t refused(CUipcMemHandle handle) {
    CUdeviceptr address = 5;
    uint64_t before = open_here();
    unsigned sockets_before = sockets();
    int64_t begin = milliseconds();
    GIVES(open_one(handle, &address), CUDA_ERROR_INVALID_HANDLE);
    int64_t spent = milliseconds() - begin;
    EXPECT(address == 5 && open_here() == before && sockets() == sockets_before);
    EXPECT(spent < 4 * PATIENCE_MS);
    return spent;
}

/* It waits for nothing: shown by one of a few, for the machine may be busy. */
static void refused_at_once(CUipcMemHandle handle) {
    enum { TIMES = 5, SOON_MS = 500 };
    int times = 1;
    while (refused(handle) >= SOON_MS)
        EXPECT(times++ < TIMES);
}

static void opens(CUipcMemHandle handle, size_t size) {
    CUdeviceptr there;
    uint64_t before = open_here();
    GIVES(open_one(handle, &there), CUDA_SUCCESS);
    EXPECT(word_at(there) == 11 && word_at(there + size - 4) == 11);
    GIVES(cuIpcCloseMemHandle(there), CUDA_SUCCESS);
    EXPECT(open_here() == before);
}

static void stop(pid_t pid) {
    int status;
    NEED(!kill(pid, SIGSTOP) && waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
}

/* One limit for all of a block. */
static void stopped(void) {
    enum { SIZE = 100 * MIB };
    peer_t peer = peer_start(program, 0, true);
    CUdeviceptr address;
    CUipcMemHandle handle = exported_of(&peer, SIZE, &address);
    stop(peer.pid);
    int64_t spent = refused(handle);
    EXPECT(spent >= 900 && spent < PATIENCE_MS - 500);
    EXPECT(test_figure("ipc_unresolved") == 1);
    NEED(!kill(peer.pid, SIGCONT));
    opens(handle, SIZE);
    peer_kill(&peer);
    refused_at_once(handle);
}

/* An exporter that runs is given longer, as long as pages come: the machine may be busy. */
static void slow(void) {
    enum { SIZE = 40 * MIB };
    peer_t peer = peer_start(program, 0, true);
    CUdeviceptr address;
    CUipcMemHandle handle = exported_of(&peer, SIZE, &address);
    int64_t begin = milliseconds();
    opens(handle, SIZE);
    EXPECT(milliseconds() - begin > PATIENCE_MS); /* as ACCEL_SIM says */
    peer_stop(&peer);
}

/* ---- many and much ---- */

static unsigned descriptors(void) {
    unsigned count = 0;
    DIR *folder = opendir("/proc/self/fd");
    NEED(folder != NULL);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static void all_open(CUipcMemHandle handle, size_t size, unsigned count) {
    peer_t peer[64];
    peer_ask_t ask = {.what = PEER_OPEN, .handle = handle};
    for (unsigned i = 0; i < count; i++)
        peer[i] = peer_start(program, 0, true);
    for (unsigned i = 0; i < count; i++)
        peer_ask(&peer[i], (peer_ask_t){.what = PEER_RANGE}); /* it has started */
    for (unsigned i = 0; i < count; i++)
        peer_tell(&peer[i], ask);
    for (unsigned i = 0; i < count; i++) {
        peer_answer_t answer = peer_answer(&peer[i]);
        GIVES(answer.result, CUDA_SUCCESS);
        EXPECT(peer_reads(&peer[i], answer.address, size, 11));
        peer_stop(&peer[i]);
    }
}

/* Many importers at once of one exporter, whose driver takes its time (ACCEL_SIM): all are served, and
 * it keeps no descriptor of theirs. */
static void crowd(void) {
    enum { SIZE = 160 * MIB };
    static const unsigned counts[] = {16, 24, 32, 64};
    CUdeviceptr block = taken(SIZE, 11);
    CUipcMemHandle handle = handle_of(block);
    all_open(handle, SIZE, 1);
    while (sockets() != 1) /* the test's limit ends it */
        usleep(1000);
    unsigned before = descriptors();
    for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++)
        all_open(handle, SIZE, counts[i]);
    while (descriptors() != before)
        usleep(1000);
}

/* All descriptors that are on their way count against the limit of the exporter, for its user: it sends
 * fewer, and importers ask again.  If none of them is received: an error after the limit, and not before. */
static void flight(void) {
    enum { SIZE = 512 * MIB, MAY = 40, SENT = 200 };
    peer_t peer = peer_start(program, 0, true);
    CUdeviceptr address;
    peer_ask(&peer, (peer_ask_t){.what = PEER_POOR, .size = MAY}); /* and threads from then on */
    CUipcMemHandle handle = exported_of(&peer, SIZE, &address);
    all_open(handle, SIZE, 16);
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(SENT * sizeof(int))];
    } rights;
    int pair[2];
    struct iovec data = {&pair, 1};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = &rights,
                             .msg_controllen = sizeof rights};
    memset(&rights, 0, sizeof rights); /* standard input, again and again */
    rights.head.cmsg_level = SOL_SOCKET;
    rights.head.cmsg_type = SCM_RIGHTS;
    rights.head.cmsg_len = CMSG_LEN(SENT * sizeof(int));
    NEED(!socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) && sendmsg(pair[0], &message, 0) == 1);
    EXPECT(refused(handle) >= PATIENCE_MS - 100);
    close(pair[0]);
    close(pair[1]);
    opens(handle, SIZE);
    peer_stop(&peer);
}

/* A block of thousands of pages, each of which costs the simulated importer a descriptor. */
static int large(void) {
    const size_t size = (size_t)40 << 30;
    struct rlimit limit;
    NEED(!getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = limit.rlim_max;
    NEED(!setrlimit(RLIMIT_NOFILE, &limit));
    if (limit.rlim_max < 6000 || getenv("AC_EMULATED")) /* which has few addresses */
        return TEST_SKIPPED;
    peer_t peer = peer_start(program, 0, true);
    CUdeviceptr address;
    CUipcMemHandle handle = exported_of(&peer, size, &address);
    opens(handle, size);
    EXPECT(descriptors() < 100);
    peer_stop(&peer);
    return TEST_GOOD;
}

/* ---- filters ---- */

/* Whether the process warned so: its live page has it (a process behind a filter prints nothing). */
static bool has_warned(pid_t pid, const char *words) {
    static char text[1 << 20];
    char path[512];
    socket_of(pid, path, sizeof path);
    *strrchr(path, '.') = '\0';
    int file = open(path, O_RDONLY | O_CLOEXEC);
    NEED(file >= 0);
    ssize_t length = read(file, text, sizeof text);
    close(file);
    return length > 0 && memmem(text, (size_t)length, words, strlen(words));
}

/* An exporter behind a filter that allows what its thread does: handles from before and after open. */
static void allowed(unsigned which) {
    peer_t peer = peer_start(program, 0, true);
    CUdeviceptr address;
    CUipcMemHandle handle = exported_of(&peer, 20 * MIB, &address);
    peer_ask(&peer, (peer_ask_t){.what = PEER_FILTER, .word = which});
    for (int turn = 0; turn < 2; turn++) {
        opens(handle, 20 * MIB);
        opens(exported_of(&peer, 20 * MIB, &address), 20 * MIB);
        usleep(600000); /* its thread looks at filters twice a second */
    }
    peer_stop(&peer);
}

/* An exporter behind a filter that may forbid what its thread does.  Nothing more is exported, and both
 * sides say why.  The exporter goes on. */
static void forbidden(unsigned which, bool asked) {
    peer_t peer = peer_start(program, 0, true);
    CUdeviceptr address;
    CUipcMemHandle handle = exported_of(&peer, 20 * MIB, &address);
    peer_ask(&peer, (peer_ask_t){.what = PEER_FILTER, .word = which});
    if (asked) /* its thread has ended */
        refused(handle);
    peer_answer_t answer =
        peer_ask(&peer, (peer_ask_t){.what = PEER_ALLOC, .size = 20 * MIB, .word = 11});
    EXPECT(answer.result == CUDA_ERROR_INVALID_VALUE);
    answer = peer_ask(&peer, (peer_ask_t){.what = PEER_EXPORT, .address = address});
    EXPECT(answer.result == CUDA_ERROR_INVALID_VALUE);
    EXPECT(has_warned(peer.pid, "refused: the program installed a seccomp filter"));
    peer_stop(&peer);
}

static void filtered(void) {
    peer_t peer;
    CUipcMemHandle handle;
    CUdeviceptr other;
    allowed(PEER_FILTER_ONE);
    allowed(PEER_FILTER_ALL);
    allowed(PEER_FILTER_DENIES);
    forbidden(PEER_FILTER_NO_SOCKET, false);
    for (unsigned which = PEER_FILTER_NO_SOCKET; which <= PEER_FILTER_STRICT; which++)
        forbidden(which, which == PEER_FILTER_STRICT);
#ifdef __x86_64__
    forbidden(PEER_FILTER_UNSEEN, false);
#endif
    EXPECT(has_warned(getpid(), "not opened: it did not give its pages in time"));
    /* An importer behind a filter. */
    peer = peer_start(program, 0, true);
    handle = handle_of(taken(20 * MIB, 1));
    peer_ask(&peer, (peer_ask_t){.what = PEER_ALLOC, .size = MIB}); /* it uses CUDA */
    peer_ask(&peer, (peer_ask_t){.what = PEER_FILTER, .word = 1});
    GIVES(peer_open(&peer, handle, &other), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(has_warned(peer.pid, "not opened: this program installed a seccomp filter"));
    peer_stop(&peer);
}

/* ---- others at the sockets ---- */

static int connected(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char folder[512];
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = '\0';
    NEED(chdir(folder) == 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", strrchr(path, '/') + 1);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    NEED(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

/* Who answers nothing, nonsense or with nothing in place of an exporter; who asks an exporter nothing
 * or nonsense, and many at a time. */
static void strangers(void) {
    enum { MANY = 20 };
    char path[512];
    peer_t peer = peer_start(program, 0, true);
    CUdeviceptr address;
    CUipcMemHandle handle = exported_of(&peer, 20 * MIB, &address);
    int fd[MANY];
    socket_of(peer.pid, path, sizeof path);
    for (int i = 0; i < MANY; i++) {
        char nonsense[300] = "nonsense";
        fd[i] = connected(path);
        if (i % 2)
            NEED(send(fd[i], nonsense, i % 4 == 1 ? 300 : 40, MSG_NOSIGNAL) > 0);
    }
    opens(handle, 20 * MIB);
    for (int i = 0; i < MANY; i++)
        close(fd[i]);
    opens(handle, 20 * MIB);
    peer_ask_t ask = {.what = PEER_BAIT};
    snprintf(ask.path, sizeof ask.path, "%s", path);
    for (ask.word = 0; ask.word < BAITS; ask.word++) {
        /* The one that never answers comes last: it keeps its thread. */
        peer_ask_t now = ask;
        now.word = (ask.word + 1) % BAITS;
        peer_ask(&peer, now);
        int64_t spent = refused(handle);
        EXPECT(now.word != BAIT_SILENT || spent >= PATIENCE_MS - 100);
    }
    peer_kill(&peer);
    /* A process that is not the exporter is not even asked. */
    peer = peer_start(program, 0, true);
    handle = exported_of(&peer, 4 * KIB, &address);
    peer_t other = peer_start(program, 0, true);
    socket_of(peer.pid, ask.path, sizeof ask.path);
    ask.word = BAIT_SILENT;
    peer_ask(&other, ask);
    refused_at_once(handle);
    peer_kill(&other);
    peer_stop(&peer);
}

/* ---- descriptors ---- */

static _Atomic bool done;

static void *open_and_close(void *arg) {
    test_device(0);
    while (!done)
        opens(*(CUipcMemHandle *)arg, 20 * MIB);
    return NULL;
}

/* A child has no socket, of its parent's importing nor of its exporting. */
static void forks(void) {
    enum { CHILDREN = 200 };
    peer_t peer = peer_start(program, 0, true);
    CUdeviceptr address;
    pthread_t thread;
    CUipcMemHandle theirs = exported_of(&peer, 20 * MIB, &address);
    CUdeviceptr mine = taken(20 * MIB, 13);
    CUipcMemHandle handle = handle_of(mine);
    NEED(sockets() == 1);
    NEED(!pthread_create(&thread, NULL, open_and_close, &theirs));
    for (int i = 0; i < CHILDREN; i++) {
        int status = -1;
        pid_t child = fork();
        if (child == 0)
            _exit((int)sockets());
        NEED(child > 0 && waitpid(child, &status, 0) == child);
        if (!WIFEXITED(status) || WEXITSTATUS(status))
            test_stop(TEST_WRONG, "child %d: status %x", i, status);
    }
    done = true;
    NEED(!pthread_join(thread, NULL));
    pid_t child = fork();
    if (child == 0)
        exit(0); /* with its exit handlers */
    NEED(waitpid(child, NULL, 0) == child);
    EXPECT(has_socket(getpid()));
    EXPECT(peer_reads(&peer, opened(&peer, handle), 20 * MIB, 13));
    peer_stop(&peer);
}

/* The socket goes with its process, whose main thread may have gone before; the thread that answers
 * keeps no process. */
static void exits(void) {
    CUdeviceptr address;
    for (int detached = 0; detached < 2; detached++) {
        peer_t peer = peer_start(program, 0, true);
        CUipcMemHandle handle = exported_of(&peer, 20 * MIB, &address);
        EXPECT(has_socket(peer.pid));
        if (detached)
            peer_ask(&peer, (peer_ask_t){.what = PEER_DETACH});
        opens(handle, 20 * MIB);
        pid_t pid = peer.pid;
        int64_t begin = milliseconds();
        peer_stop(&peer);
        EXPECT(milliseconds() - begin < 20000 && !has_socket(pid));
        refused_at_once(handle);
    }
}

/* The exporter's program closes all descriptors that it does not know. */
static void closed(void) {
    peer_t peer = peer_start(program, 0, true);
    CUdeviceptr address;
    CUipcMemHandle handle = exported_of(&peer, 20 * MIB, &address);
    opens(handle, 20 * MIB);
    for (int i = 0; i < 2; i++) {
        peer_answer_t answer = peer_ask(&peer, (peer_ask_t){.what = PEER_FORGET});
        EXPECT(answer.size >= 1); /* a client may not have gone yet */
        usleep(600000);           /* it looks twice a second */
        opens(handle, 20 * MIB);
    }
    peer_ask(&peer, (peer_ask_t){.what = PEER_FORGET});
    opens(handle, 20 * MIB); /* while it was waiting */
    peer_stop(&peer);
}

/* Without standard streams in both processes: no descriptor takes their numbers. */
static void low(void) {
    peer_t peer = peer_start(program, 0, true), other = peer_start(program, 0, true);
    CUdeviceptr address;
    /* The simulated device has files of its own from its first pages on. */
    MUST(peer_ask(&other, (peer_ask_t){.what = PEER_ALLOC, .size = MIB}).result);
    peer_close(&other, opened(&other, exported_of(&peer, MIB, &address)));
    peer_ask(&peer, (peer_ask_t){.what = PEER_LOW});
    peer_ask(&other, (peer_ask_t){.what = PEER_LOW});
    for (int i = 0; i < 40; i++) { /* a write meets a descriptor in one round of ten or so */
        CUipcMemHandle handle = exported_of(&peer, 4 * MIB, &address);
        CUdeviceptr there = opened(&other, handle);
        EXPECT(peer_reads(&other, there, 4 * MIB, 11));
        GIVES(peer_close(&other, there), CUDA_SUCCESS);
    }
    EXPECT(peer_ask(&peer, (peer_ask_t){.what = PEER_LOW}).word == 0);
    EXPECT(peer_ask(&other, (peer_ask_t){.what = PEER_LOW}).word == 0);
    peer_kill(&other);
    peer_kill(&peer);
}

/* An importer that may have few descriptors gets an error, and no part of the block. */
static void few(void) {
    enum { SIZE = 300 * MIB };
    peer_t peer = peer_start(program, 0, true);
    CUdeviceptr address, there = 5;
    CUipcMemHandle handle = exported_of(&peer, SIZE, &address);
    uint64_t before = open_here();
    struct rlimit limit, old;
    NEED(!getrlimit(RLIMIT_NOFILE, &old));
    int next = dup(0);
    close(next);
    for (int more = 0; more < 12; more++) {
        limit = (struct rlimit){(rlim_t)(next + more), old.rlim_max};
        NEED(!setrlimit(RLIMIT_NOFILE, &limit));
        EXPECT(open_one(handle, &there) != CUDA_SUCCESS && there == 5);
        EXPECT(open_here() == before && sockets() == 0);
    }
    /* The simulated device keeps one for each page; a few more are enough. */
    limit.rlim_cur = (rlim_t)(next + SIZE / (8 * MIB) + 10);
    NEED(!setrlimit(RLIMIT_NOFILE, &limit));
    opens(handle, SIZE);
    NEED(!setrlimit(RLIMIT_NOFILE, &old));
    opens(handle, SIZE);
    peer_stop(&peer);
}

/* Where pages have no handles, all that is asked says so. */
static void refused_all(void) {
    CUdeviceptr block = taken(20 * MIB, 1);
    unsigned legacy = 2;
    for (int i = 1; i < 3; i++) {
        CUipcMemHandle handle;
        GIVES(cuIpcGetMemHandle(&handle, block), CUDA_ERROR_INVALID_VALUE);
        EXPECT(test_figure("ipc_refused") == i && test_figure("ipc_exported") == 0);
    }
    MUST(cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, block));
    EXPECT(legacy == 0 && sockets() == 0);
}

/* The exporter's driver does not go on with what it promised: an error at once. */
static void unexported(void) {
    peer_t peer = peer_start(program, 0, true);
    CUdeviceptr address;
    CUipcMemHandle handle = exported_of(&peer, 20 * MIB, &address);
    refused_at_once(handle);
    peer_stop(&peer);
}

/* The Nth call of one kind fails, for all N of an import. */
static void failing(void) {
    char plan[128];
    peer_t peer = peer_start(program, 0, true);
    CUdeviceptr address, there = 5;
    CUipcMemHandle handle = exported_of(&peer, 40 * MIB, &address);
    opens(handle, 40 * MIB);
    unsigned long long calls = simcuda_calls(getenv("FAILING"));
    opens(handle, 40 * MIB);
    calls = simcuda_calls(getenv("FAILING")) - calls;
    NEED(calls > 0);
    uint64_t before = open_here();
    for (unsigned n = 1; n <= calls; n++) {
        snprintf(plan, sizeof plan, "fail:%s@%u=999", getenv("FAILING"), n);
        NEED(simcuda_configure(plan) == 0);
        EXPECT(open_one(handle, &there) != CUDA_SUCCESS);
        EXPECT(there == 5 && open_here() == before && sockets() == 0);
    }
    opens(handle, 40 * MIB);
    peer_stop(&peer);
}

/* Nowhere to write to, before a driver that finds the handle wrong first. */
static void nowhere(void) {
    peer_t peer = peer_start(program, 0, true);
    CUdeviceptr address;
    CUipcMemHandle handle = exported_of(&peer, 40 * MIB, &address);
    NEED(simcuda_configure("fail:cuIpcOpenMemHandle@1=400") == 0);
    GIVES(cuIpcOpenMemHandle_v2(NULL, handle, LAZY), CUDA_ERROR_INVALID_HANDLE);
    opens(handle, 40 * MIB);
    peer_stop(&peer);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"spans", spans},
    {"shares", shares},
    {"twice", twice},
    {"stopped", stopped},
    {"strangers", strangers},
    {"forks", forks},
    {"exits", exits},
    {"closed", closed},
    {"low", low},
    {"few", few},
    {"peers", peers},
    {"refused", refused_all},
    {"used", used},
    {"unexported", unexported},
    {"failing", failing},
    {"captured", captured},
    {"slow", slow},
    {"nowhere", nowhere},
    {"crowd", crowd},
    {"flight", flight},
    {"filtered", filtered},
};

int main(int argc, char **argv) {
    program = argv[0];
    if (argc == 3 && !strcmp(argv[1], "peer"))
        return peer_main(atoi(argv[2]));
    if (argc == 2 && !strcmp(argv[1], "large")) {
        test_device(0);
        return large();
    }
    for (unsigned i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(argv[1], cases[i].name)) {
            test_title = argv[1];
            test_device(0);
            cases[i].run();
            return TEST_GOOD;
        }
    fprintf(stderr, "usage: ipc_pages CASE\n");
    return TEST_USAGE;
}

/* See peer.h. */
#include "peer.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

extern char **environ;

/* The environment without LD_PRELOAD. */
static char **bare_environment(void) {
    static char *bare[256];
    unsigned n = 0;
    for (char **at = environ; *at && n < 255; at++)
        if (strncmp(*at, "LD_PRELOAD=", 11) != 0)
            bare[n++] = *at;
    bare[n] = NULL;
    return bare;
}

peer_t peer_start(const char *program, int device, bool preloaded) {
    peer_t peer;
    int ask[2], answer[2];
    char number[16];
    posix_spawn_file_actions_t actions;
    NEED(pipe2(ask, O_CLOEXEC) == 0 && pipe2(answer, O_CLOEXEC) == 0);
    NEED(!posix_spawn_file_actions_init(&actions));
    posix_spawn_file_actions_adddup2(&actions, ask[0], 3);
    posix_spawn_file_actions_adddup2(&actions, answer[1], 4);
    snprintf(number, sizeof number, "%d", device);
    char name[512];
    snprintf(name, sizeof name, "%s", program);
    char *arguments[] = {name, (char[]){"peer"}, number, NULL};
    NEED(!posix_spawn(&peer.pid, "/proc/self/exe", &actions, NULL, arguments,
                      preloaded ? environ : bare_environment()));
    close(ask[0]);
    close(answer[1]);
    posix_spawn_file_actions_destroy(&actions);
    peer.to = ask[1];
    peer.from = answer[0];
    return peer;
}

void peer_tell(peer_t *peer, peer_ask_t ask) {
    NEED(write(peer->to, &ask, sizeof ask) == sizeof ask);
}

peer_answer_t peer_answer(peer_t *peer) {
    peer_answer_t answer;
    NEED(read(peer->from, &answer, sizeof answer) == sizeof answer);
    return answer;
}

peer_answer_t peer_ask(peer_t *peer, peer_ask_t ask) {
    peer_tell(peer, ask);
    return peer_answer(peer);
}

static void forget(peer_t *peer) {
    close(peer->to);
    close(peer->from);
}

void peer_stop(peer_t *peer) {
    int status = -1;
    peer_ask(peer, (peer_ask_t){.what = PEER_STOP});
    NEED(waitpid(peer->pid, &status, 0) == peer->pid);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    forget(peer);
}

void peer_kill(peer_t *peer) {
    int status;
    kill(peer->pid, SIGKILL);
    NEED(waitpid(peer->pid, &status, 0) == peer->pid);
    forget(peer);
}

CUresult peer_open(peer_t *peer, CUipcMemHandle handle, CUdeviceptr *address) {
    peer_answer_t answer = peer_ask(peer, (peer_ask_t){.what = PEER_OPEN, .handle = handle});
    *address = answer.address;
    return answer.result;
}

CUresult peer_close(peer_t *peer, CUdeviceptr address) {
    return peer_ask(peer, (peer_ask_t){.what = PEER_CLOSE, .address = address}).result;
}

bool peer_reads(peer_t *peer, CUdeviceptr address, size_t size, unsigned word) {
    peer_answer_t answer =
        peer_ask(peer, (peer_ask_t){.what = PEER_READ, .address = address, .size = size});
    return answer.result == CUDA_SUCCESS && answer.word == word && answer.last == word;
}

void fill(CUdeviceptr address, size_t size, unsigned word) {
    enum { ENDS = 1 << 20 };
    bool large = size > PEER_LARGE;
    MUST(cuMemsetD32_v2(address, word, (large ? ENDS : size) / sizeof word));
    if (large)
        MUST(cuMemsetD32_v2(address + size - ENDS, word, ENDS / sizeof word));
    MUST(cuCtxSynchronize());
}

/* ---- what it does ---- */

static CUcontext created;

static _Atomic unsigned worked;

static void work(void *unused) {
    (void)unused;
    usleep(50000);
    worked = 1;
}

/* Close the descriptors that are sockets. */
static unsigned forget_sockets(void) {
    unsigned closed = 0;
    struct stat st;
    for (int fd = 0; fd < 1024; fd++)
        if (fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode) && close(fd) == 0)
            closed++;
    return closed;
}

/* Without standard streams: what another thread of the program writes there meanwhile goes nowhere. */
static _Atomic unsigned written;

static void *write_there(void *unused) {
    for (;;)
        for (int fd = 0; fd < 3; fd++)
            if (write(fd, "x", 1) >= 0)
                written = 1;
    return unused;
}

static unsigned without_streams(void) {
    static bool writing;
    pthread_t thread;
    for (int fd = 0; fd < 3 && !writing; fd++)
        close(fd);
    if (!writing)
        NEED(!pthread_create(&thread, NULL, write_there, NULL));
    writing = true;
    return written;
}

#define FIELD(name)     BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, name))
#define UNLESS(k, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, k, 0, skip)
#define KILL            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
#define ALLOW           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* The system call itself, in place of the C library's function. */
static long unseen(long number, long a, long b, const void *c) {
    long result;
#ifdef __x86_64__
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c)
                     : "rcx", "r11", "memory");
#else
    result = syscall(number, a, b, c);
#endif
    return result;
}

static void install(struct sock_filter *code, size_t count, long flags, bool seen) {
    struct sock_fprog filter = {(unsigned short)count, code};
    NEED(!(seen ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter)
                : unseen(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter)));
}

#define INSTALL(code, flags, seen) install(code, sizeof(code) / sizeof *(code), flags, seen)

static void filter(unsigned which) {
    enum { ALL = SECCOMP_FILTER_FLAG_TSYNC };
    struct sock_filter all[] = {ALLOW};
    struct sock_filter denies[] = {FIELD(arch),
                                   UNLESS(0, 1), /* no architecture */
                                   KILL,
                                   FIELD(nr),
                                   UNLESS(SYS_ptrace, 1),
                                   KILL,
                                   UNLESS(SYS_prctl, 3),
                                   FIELD(args[0]),
                                   UNLESS(PR_SET_DUMPABLE, 1),
                                   KILL,
                                   ALLOW};
    struct sock_filter no_socket[] = {FIELD(nr), UNLESS(SYS_accept4, 1), KILL, ALLOW};
    struct sock_filter argument[] = {FIELD(nr),           UNLESS(SYS_ioctl, 3), FIELD(args[1]),
                                     UNLESS(0x5412, 1), KILL,                 ALLOW};
    NEED(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    switch (which) {
    case PEER_FILTER_ONE:
        INSTALL(all, 0, true);
        break;
    case PEER_FILTER_STRICT:
        INSTALL(all, ALL, true);
        INSTALL(no_socket, ALL, true);
        break;
    case PEER_FILTER_DENIES:
        INSTALL(denies, ALL, true);
        INSTALL(denies, ALL, true);
        break;
    case PEER_FILTER_NO_SOCKET:
        INSTALL(no_socket, ALL, true);
        break;
    case PEER_FILTER_ARGUMENT:
        INSTALL(argument, ALL, true);
        break;
    default:
        INSTALL(all, ALL, which != PEER_FILTER_UNSEEN);
    }
}

/* The kernel's limits for descriptors bind from then on, those of root as well. */
static void become_poor(size_t descriptors) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
    struct rlimit limit = {descriptors, descriptors};
    NEED(!setrlimit(RLIMIT_NOFILE, &limit) && !syscall(SYS_capset, &header, none));
}

static void range(peer_answer_t *answer, CUdeviceptr address) {
    answer->result = cuMemGetAddressRange_v2(&answer->address, &answer->size, address);
    if (answer->result == CUDA_SUCCESS)
        answer->result =
            cuPointerGetAttribute(&answer->id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address);
}

static void carry_out(const peer_ask_t *ask, peer_answer_t *answer) {
    enum { LAZY = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS };
    switch (ask->what) {
    case PEER_ALLOC:
        answer->result = cuMemAlloc_v2(&answer->address, ask->size);
        if (answer->result == CUDA_SUCCESS) {
            fill(answer->address, ask->size, ask->word);
            answer->result = cuIpcGetMemHandle(&answer->handle, answer->address);
        }
        break;
    case PEER_EXPORT:
        answer->result = cuIpcGetMemHandle(&answer->handle, ask->address);
        break;
    case PEER_FILTER:
        filter(ask->word);
        break;
    case PEER_POOR:
        become_poor(ask->size);
        break;
    case PEER_FREE:
        answer->result = cuMemFree_v2(ask->address);
        break;
    case PEER_OPEN:
        answer->result = cuIpcOpenMemHandle_v2(&answer->address, ask->handle, LAZY);
        break;
    case PEER_CLOSE:
        answer->result = cuIpcCloseMemHandle(ask->address);
        break;
    case PEER_WORK:
        worked = 0;
        MUST(cuLaunchHostFunc(test_stream(), work, NULL));
        answer->result = cuIpcCloseMemHandle(ask->address);
        answer->word = worked;
        MUST(cuCtxSynchronize());
        break;
    case PEER_READ:
        answer->result = cuMemcpyDtoH_v2(&answer->word, ask->address, sizeof answer->word);
        if (answer->result == CUDA_SUCCESS)
            answer->result =
                cuMemcpyDtoH_v2(&answer->last, ask->address + ask->size - sizeof answer->last,
                                sizeof answer->last);
        break;
    case PEER_RANGE:
        range(answer, ask->address);
        break;
    case PEER_CONTEXT:
        answer->result = ask->size ? cuCtxDestroy_v2(created) : cuCtxCreate_v2(&created, 0, 0);
        break;
    case PEER_FILL:
        fill(ask->address, ask->size, ask->word);
        break;
    case PEER_FORGET:
        answer->size = forget_sockets();
        break;
    case PEER_LOW:
        answer->word = without_streams();
        break;
    case PEER_BAIT:
        bait_start(ask->path, (bait_t)ask->word);
        break;
    case PEER_DETACH:
    case PEER_STOP:
        break;
    }
}

static void *go_on(void *main_thread);

static int serve(void) {
    peer_ask_t ask = {.what = PEER_OPEN};
    while (ask.what != PEER_STOP) {
        peer_answer_t answer = {.result = CUDA_SUCCESS};
        if (read(3, &ask, sizeof ask) != sizeof ask)
            return 1; /* who asks has ended */
        if (ask.what == PEER_DETACH) {
            static pthread_t main_thread;
            pthread_t thread;
            main_thread = pthread_self();
            NEED(!pthread_create(&thread, NULL, go_on, &main_thread));
            pthread_exit(NULL);
        }
        carry_out(&ask, &answer);
        NEED(write(4, &answer, sizeof answer) == sizeof answer);
    }
    return 0;
}

static void *go_on(void *main_thread) {
    peer_answer_t answer = {.result = CUDA_SUCCESS};
    NEED(!pthread_join(*(pthread_t *)main_thread, NULL));
    test_device(0);
    NEED(write(4, &answer, sizeof answer) == sizeof answer);
    NEED(serve() == 0);
    return NULL; /* the last thread: the process is to end */
}

int peer_main(int device) {
    test_device(device);
    return serve();
}

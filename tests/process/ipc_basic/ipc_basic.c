/* ipc_basic CASE: this process exports, another one (peer.h) imports.  What is expected is what
 * CUDA's documentation says of allocations, though many lie in one segment here. */
#include "blocks.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "accelcache.h"
#include "harness.h"
#include "simcuda.h"

static const char *program;

static void freed(CUdeviceptr address) {
    MUST(cuMemFree_v2(address));
}

/* Allocate until a block lies at `address` again: threads keep some others for themselves. */
static CUdeviceptr taken_at(CUdeviceptr address, size_t size, unsigned word) {
    for (int i = 0; i < 200; i++)
        if (taken(size, word) == address)
            return address;
    return 0;
}

static bool on_pages(void) {
    const char *conf = getenv("ACCEL_ALLOC_CONF");
    return conf && strstr(conf, "expandable_segments:true");
}

static long long reserved(bool peak) {
    __typeof__(&accel_get_device_stats) read;
    accel_device_stats_t stats = {.size = sizeof stats};
    NEED(test_find("accel_get_device_stats", &read));
    NEED(read(0, &stats) == 0);
    return peak ? stats.reserved_bytes.all.peak : stats.reserved_bytes.all.current;
}

/* --- each opens as what it is --- */

static size_t size_of(int i) {
    static const size_t sizes[] = {512, 4 * KIB, 1000, 70 * KIB, 96, 300 * KIB, 2560, 2 * MIB};
    return sizes[i % 8];
}

static void many(void) {
    enum { BLOCKS = 200 };
    CUdeviceptr block[BLOCKS];
    peer_t peer = peer_start(program, 0, true);
    for (int i = 0; i < BLOCKS; i++)
        block[i] = taken(size_of(i), 1000u + (unsigned)i);
    for (int i = 0; i < BLOCKS; i++) {
        size_t size = size_of(i);
        CUdeviceptr there = opened(&peer, handle_of(block[i]));
        EXPECT(peer_reads(&peer, there, size, 1000u + (unsigned)i));
        peer_answer_t answer =
            peer_ask(&peer, (peer_ask_t){.what = PEER_RANGE, .address = there + size - 1});
        EXPECT(answer.result == CUDA_SUCCESS && answer.address == there && answer.size == size);
        if (i % 3)
            GIVES(peer_close(&peer, there), CUDA_SUCCESS);
    }
    peer_stop(&peer);
}

/* The same pointer each time; closed as often, and no more. */
static void counted(void) {
    peer_t peer = peer_start(program, 0, true);
    CUipcMemHandle handle = handle_of(taken(4 * KIB, 7));
    CUdeviceptr there = opened(&peer, handle);
    for (int i = 0; i < 2; i++)
        EXPECT(opened(&peer, handle) == there);
    for (int i = 0; i < 2; i++)
        GIVES(peer_close(&peer, there), CUDA_SUCCESS);
    EXPECT(peer_reads(&peer, there, 4 * KIB, 7));
    GIVES(peer_close(&peer, there), CUDA_SUCCESS);
    EXPECT(!peer_reads(&peer, there, 4 * KIB, 7));
    GIVES(peer_close(&peer, there), CUDA_ERROR_INVALID_VALUE);
    peer_kill(&peer); /* whose context is broken by the read */
}

/* Two blocks of a segment, closed in either order; the first one twice. */
static void two_views(void) {
    for (int turn = 0; turn < 2; turn++) {
        peer_t peer = peer_start(program, 0, true);
        CUdeviceptr a = opened(&peer, handle_of(taken(4 * KIB, 1)));
        CUdeviceptr b = opened(&peer, handle_of(taken(4 * KIB, 2)));
        GIVES(peer_close(&peer, turn ? a : b), CUDA_SUCCESS);
        GIVES(peer_close(&peer, turn ? a : b), CUDA_ERROR_INVALID_VALUE);
        EXPECT(peer_reads(&peer, turn ? b : a, 4 * KIB, turn ? 2 : 1));
        /* What lies beside it is no memory of the importer. */
        peer_answer_t beside =
            peer_ask(&peer, (peer_ask_t){.what = PEER_RANGE, .address = turn ? a : b});
        GIVES(beside.result, CUDA_ERROR_NOT_FOUND);
        GIVES(peer_close(&peer, turn ? b : a), CUDA_SUCCESS);
        EXPECT(!peer_reads(&peer, turn ? b : a, 4 * KIB, turn ? 2 : 1));
        peer_kill(&peer);
    }
}

/* The last close of a block waits for work of the context, whether the segment is closed or not. */
static void waits(void) {
    peer_t peer = peer_start(program, 0, true);
    CUipcMemHandle handle[2] = {handle_of(taken(4 * KIB, 1)), handle_of(taken(4 * KIB, 2))};
    CUdeviceptr there[2] = {opened(&peer, handle[0]), opened(&peer, handle[1])};
    opened(&peer, handle[0]);
    for (int i = 0; i < 3; i++) {
        peer_answer_t answer =
            peer_ask(&peer, (peer_ask_t){.what = PEER_WORK, .address = there[i / 2]});
        EXPECT(answer.result == CUDA_SUCCESS && answer.word == (i > 0));
    }
    peer_stop(&peer);
}

/* A handle denotes the block, wherever in it the address was. */
static void interior(void) {
    peer_t peer = peer_start(program, 0, true);
    CUdeviceptr block = taken(5000, 3);
    CUipcMemHandle handle = handle_of(block);
    EXPECT(same(handle_of(block + 4000), handle));
    EXPECT(peer_reads(&peer, opened(&peer, handle), 5000, 3));
    CUipcMemHandle none;
    GIVES(cuIpcGetMemHandle(&none, block + 5000), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuIpcGetMemHandle(NULL, block), CUDA_ERROR_INVALID_VALUE);
    peer_stop(&peer);
}

/* --- lifetimes --- */

static void lifetimes(void) {
    CUdeviceptr block = taken(4 * KIB, 4);
    CUipcMemHandle first = handle_of(block), again = handle_of(block);
    EXPECT(same(first, again));
    freed(block);
    CUdeviceptr next = taken_at(block, 4 * KIB, 5);
    EXPECT(next == block); /* else this shows nothing */
    EXPECT(!same(handle_of(next), first));
}

/* A block that was exported serves again, and so do its neighbours meanwhile. */
static void reused(void) {
    CUdeviceptr kept = taken(4 * KIB, 1), exported = taken(4 * KIB, 2),
                beside = taken(4 * KIB, 3);
    handle_of(exported);
    freed(beside);
    EXPECT(taken_at(beside, 4 * KIB, 4));
    freed(exported);
    EXPECT(taken_at(exported, 4 * KIB, 5));
    freed(kept);
}

static void expect_freed(peer_t *peer, CUipcMemHandle handle) {
    CUdeviceptr address = 77;
    GIVES(peer_open(peer, handle, &address), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(address == 0); /* as the peer had it before the call */
}

/* Freed before it is opened, and its address another owner's. */
static void freed_before(void) {
    peer_t peer = peer_start(program, 0, true);
    CUdeviceptr block = taken(4 * KIB, 6), other = taken(4 * KIB, 9);
    CUipcMemHandle handle = handle_of(block);
    CUdeviceptr there = opened(&peer, handle_of(other));
    freed(block);
    expect_freed(&peer, handle);
    EXPECT(taken_at(block, 4 * KIB, 8));
    expect_freed(&peer, handle);
    CUipcMemHandle anew = handle_of(block);
    expect_freed(&peer, handle);
    EXPECT(peer_reads(&peer, opened(&peer, anew), 4 * KIB, 8));
    EXPECT(peer_reads(&peer, there, 4 * KIB, 9));
    peer_stop(&peer);
}

/* Freed after its entry was read, while the driver opens the segment (the library calls this back):
 * an error, and nothing stays open. */
static peer_t *exporter;
static CUdeviceptr to_free;
__attribute__((visibility("default"))) void ac_test_window(const char *name);
void ac_test_window(const char *name) {
    if (exporter && !strcmp(name, "segment_opened")) {
        peer_t *peer = exporter;
        exporter = NULL;
        MUST(peer_ask(peer, (peer_ask_t){.what = PEER_FREE, .address = to_free}).result);
    }
}

static void meanwhile(void) {
    peer_t peer = peer_start(program, 0, true);
    CUdeviceptr other, there = 5;
    for (int turn = 0; turn < 2; turn++) {
        CUipcMemHandle handle = exported_there(&peer, &to_free);
        exporter = &peer;
        GIVES(cuIpcOpenMemHandle_v2(&there, handle, LAZY), CUDA_ERROR_INVALID_HANDLE);
        EXPECT(there == 5 && !exporter && test_figure("ipc_imported") == 0);
    }
    CUipcMemHandle handle = exported_there(&peer, &other);
    GIVES(cuIpcOpenMemHandle_v2(&there, handle, LAZY), CUDA_SUCCESS);
    EXPECT(word_at(there) == 11);
    GIVES(cuIpcCloseMemHandle(there), CUDA_SUCCESS);
    GIVES(cuIpcCloseMemHandle(there), CUDA_ERROR_INVALID_VALUE);
    peer_stop(&peer);
}

/* Freed while it is open: the importer's view stays until it is closed. */
static void gone(void) {
    peer_t peer = peer_start(program, 0, true);
    CUdeviceptr block = taken(4 * KIB, 1);
    CUdeviceptr there = opened(&peer, handle_of(block));
    freed(block);
    CUdeviceptr next = taken_at(block, 4 * KIB, 2);
    EXPECT(next == block);
    /* One address, two lifetimes of which the first was not closed: one view, counted; but of pages
     * each has a mapping of its own. */
    peer_answer_t before = peer_ask(&peer, (peer_ask_t){.what = PEER_RANGE, .address = there});
    CUdeviceptr again = opened(&peer, handle_of(next));
    EXPECT(on_pages() ? again != there : again == there);
    EXPECT(before.result == CUDA_SUCCESS && before.address == there);
    GIVES(peer_close(&peer, there), CUDA_SUCCESS);
    EXPECT(peer_reads(&peer, again, 4 * KIB, 2));
    GIVES(peer_close(&peer, again), CUDA_SUCCESS);
    peer_stop(&peer);
}

/* Not in the exporting process; and nothing of that process's own arguments is taken. */
static void own(void) {
    CUdeviceptr block = taken(4 * KIB, 1), address = 5;
    CUipcMemHandle handle = handle_of(block);
    GIVES(cuIpcOpenMemHandle_v2(&address, handle, LAZY), CUDA_ERROR_INVALID_CONTEXT);
    GIVES(cuIpcOpenMemHandle(&address, handle, LAZY), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT(address == 5);
    GIVES(cuIpcCloseMemHandle(block), CUDA_ERROR_INVALID_VALUE);
    peer_t peer = peer_start(program, 0, true);
    CUipcMemHandle theirs =
        peer_ask(&peer, (peer_ask_t){.what = PEER_ALLOC, .size = 4 * KIB, .word = 3}).handle;
    GIVES(cuIpcOpenMemHandle_v2(NULL, theirs, LAZY), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuIpcOpenMemHandle_v2(&address, theirs, 0), CUDA_ERROR_INVALID_VALUE);
    CUcontext context;
    MUST(cuCtxPopCurrent_v2(&context));
    GIVES(cuIpcOpenMemHandle_v2(&address, theirs, LAZY), CUDA_ERROR_INVALID_CONTEXT);
    GIVES(cuIpcGetMemHandle(&handle, block), CUDA_ERROR_INVALID_CONTEXT);
    MUST(cuCtxPushCurrent_v2(context));
    GIVES(cuIpcOpenMemHandle_v2(&address, theirs, LAZY), CUDA_SUCCESS);
    /* Wrong arguments are wrong where the memory is open already, too. */
    CUdeviceptr again = 5;
    GIVES(cuIpcOpenMemHandle_v2(&again, theirs, 2), CUDA_ERROR_INVALID_VALUE);
    MUST(cuCtxPopCurrent_v2(&context));
    GIVES(cuIpcOpenMemHandle_v2(&again, theirs, LAZY), CUDA_ERROR_INVALID_CONTEXT);
    GIVES(cuIpcCloseMemHandle(address), CUDA_ERROR_INVALID_CONTEXT);
    MUST(cuCtxPushCurrent_v2(context));
    EXPECT(again == 5);
    GIVES(cuIpcCloseMemHandle(address), CUDA_SUCCESS);
    peer_stop(&peer);
}

/* --- the exporter has ended --- */

static int tables(void) {
    char path[512];
    int count = 0;
    snprintf(path, sizeof path, "%s/accelcache-%u", getenv("ACCEL_LIVE_DIR"),
             (unsigned)geteuid());
    DIR *folder = opendir(path);
    NEED(folder != NULL);
    for (const struct dirent *entry; (entry = readdir(folder));)
        count += strlen(entry->d_name) > 4 &&
                 !strcmp(entry->d_name + strlen(entry->d_name) - 4, ".ipc");
    closedir(folder);
    return count;
}

static void over(void (*end)(peer_t *peer)) {
    peer_t peer = peer_start(program, 0, true);
    CUdeviceptr address, there;
    int before = tables();
    CUipcMemHandle open = exported_there(&peer, &address), late = exported_there(&peer, &address);
    EXPECT(tables() == before + 1);
    GIVES(cuIpcOpenMemHandle_v2(&there, open, LAZY), CUDA_SUCCESS);
    end(&peer);
    EXPECT(tables() == before + (end == peer_kill));
    /* What was open stays; nothing more is opened that was not, and no file stays. */
    EXPECT(word_at(there) == 11);
    GIVES(cuIpcCloseMemHandle(there), CUDA_SUCCESS);
    GIVES(cuIpcOpenMemHandle_v2(&there, late, LAZY), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(tables() == before);
}

static void ended(void) {
    over(peer_stop);
}

static void killed(void) {
    over(peer_kill);
}

/* --- processes without the library --- */

/* A token is an error to it; a block that fills its segment is not. */
static void bare(void) {
    peer_t peer = peer_start(program, 0, false);
    CUdeviceptr there;
    CUipcMemHandle token = handle_of(taken(4 * KIB, 1));
    for (int i = 0; i < 100; i++)
        GIVES(peer_open(&peer, token, &there), CUDA_ERROR_INVALID_VALUE);
    for (unsigned at = 0; at < sizeof token.reserved; at++) {
        CUipcMemHandle bent = token;
        bent.reserved[at] ^= 1;
        GIVES(cuIpcOpenMemHandle_v2(&there, bent, LAZY), CUDA_ERROR_INVALID_VALUE);
    }
    peer_stop(&peer);
}

static void filled(void) {
    peer_t peer = peer_start(program, 0, false), other = peer_start(program, 0, true);
    enum { SIZE = 64 * MIB };
    CUdeviceptr block = taken(SIZE, 21);
    CUipcMemHandle handle = handle_of(block);
    EXPECT(test_figure("ipc_exported") == 0);
    CUdeviceptr there = opened(&peer, handle), again = opened(&other, handle);
    EXPECT(peer_reads(&peer, there, SIZE, 21) && peer_reads(&other, again, SIZE, 21));
    GIVES(peer_close(&peer, there), CUDA_SUCCESS);
    GIVES(peer_close(&other, again), CUDA_SUCCESS);
    /* Its handle ends with it: the memory goes back to the driver. */
    long long before = reserved(false);
    freed(block);
    EXPECT(reserved(false) == before - SIZE);
    taken(SIZE, 22);
    expect_freed(&peer, handle);
    expect_freed(&other, handle);
    peer_stop(&peer);
    peer_stop(&other);
}

static void exported_by_bare(void) {
    peer_t peer = peer_start(program, 0, false);
    CUdeviceptr address, there;
    CUipcMemHandle handle = exported_there(&peer, &address);
    GIVES(cuIpcOpenMemHandle_v2(&there, handle, LAZY), CUDA_SUCCESS);
    EXPECT(word_at(there) == 11);
    GIVES(cuIpcCloseMemHandle(there), CUDA_SUCCESS);
    GIVES(cuIpcCloseMemHandle(there), CUDA_ERROR_INVALID_VALUE);
    EXPECT(test_figure("ipc_imported") == 0);
    peer_stop(&peer);
}

/* --- other devices and contexts --- */

/* Opened with another device current, which gets access to the memory's device then: what this
 * process frees there waits for work of both devices from then on. */
static void peers(void) {
    peer_t peer = peer_start(program, 0, true);
    CUdeviceptr address, there;
    CUipcMemHandle handle = exported_there(&peer, &address);
    CUcontext first = test_device(0), second = test_device(1);
    CUdeviceptr beside = taken(KIB, 1);
    CUstream stream = test_stream();
    for (int turn = 0; turn < 2; turn++) {
        MUST(cuCtxSetCurrent(first));
        CUdeviceptr block = taken(4 * KIB, 1);
        MUST(cuCtxSetCurrent(second));
        MUST(cuMemsetD8Async(beside, 0, KIB, stream)); /* nothing says that it is over */
        MUST(cuCtxSetCurrent(first));
        freed(block);
        EXPECT((test_figure("fenced_frees") > 0) == turn);
        MUST(cuCtxSetCurrent(second));
        MUST(cuStreamSynchronize(stream));
        GIVES(cuIpcOpenMemHandle_v2(&there, handle, LAZY), CUDA_SUCCESS);
    }
    EXPECT(word_at(there) == 11);
    for (int i = 0; i < 2; i++)
        GIVES(cuIpcCloseMemHandle(there), CUDA_SUCCESS);
    peer_stop(&peer);
}

/* One handle opened in two contexts, maybe at one address, and closed in the second one first: what the
 * first one has open stays until that closes it. */
static void two_contexts(void) {
    peer_t peer = peer_start(program, 0, true);
    CUdeviceptr address, there[2];
    CUcontext first = test_device(0), second;
    CUipcMemHandle handle = exported_there(&peer, &address);
    GIVES(cuIpcOpenMemHandle_v2(&there[0], handle, LAZY), CUDA_SUCCESS);
    MUST(cuCtxCreate_v2(&second, 0, 0));
    GIVES(cuIpcOpenMemHandle_v2(&there[1], handle, LAZY), CUDA_SUCCESS);
    GIVES(cuIpcCloseMemHandle(there[1]), CUDA_SUCCESS);
    MUST(cuCtxDestroy_v2(second));
    MUST(cuCtxSetCurrent(first));
    EXPECT(word_at(there[0]) == 11);
    GIVES(cuIpcCloseMemHandle(there[0]), CUDA_SUCCESS);
    GIVES(cuIpcCloseMemHandle(there[0]), CUDA_ERROR_INVALID_VALUE);
    EXPECT(simcuda_live("imports") == 0);
    peer_stop(&peer);
}

/* A context ends with what was open in it, and another one opens it anew. */
static void contexts(void) {
    peer_t peer = peer_start(program, 0, true);
    CUipcMemHandle handle = handle_of(taken(4 * KIB, 12));
    for (int i = 0; i < 3; i++) {
        MUST(peer_ask(&peer, (peer_ask_t){.what = PEER_CONTEXT}).result);
        CUdeviceptr there = opened(&peer, handle);
        EXPECT(peer_reads(&peer, there, 4 * KIB, 12));
        MUST(peer_ask(&peer, (peer_ask_t){.what = PEER_CONTEXT, .size = 1}).result);
        GIVES(peer_close(&peer, there), CUDA_ERROR_INVALID_VALUE);
    }
    peer_stop(&peer);
    /* Other memory at the address where something was open is a matter of its own. */
    peer = peer_start(program, 0, true);
    MUST(peer_ask(&peer, (peer_ask_t){.what = PEER_CONTEXT}).result);
    CUdeviceptr there = opened(&peer, handle);
    MUST(peer_ask(&peer, (peer_ask_t){.what = PEER_CONTEXT, .size = 1}).result);
    enum { LARGE = 2 * MIB };
    peer_t plain = peer_start(program, 0, false);
    peer_ask_t ask = {.what = PEER_ALLOC, .size = LARGE, .word = 1};
    CUdeviceptr other = opened(&peer, peer_ask(&plain, ask).handle);
    EXPECT(there - other < LARGE); /* else this shows nothing */
    peer_answer_t range = peer_ask(&peer, (peer_ask_t){.what = PEER_RANGE, .address = there});
    EXPECT(range.address == other && range.size == LARGE);
    GIVES(peer_close(&peer, other), CUDA_SUCCESS);
    peer_stop(&plain);
    EXPECT(!peer_reads(&peer, other, LARGE, 1)); /* it was closed */
    peer_kill(&peer);
}

/* In a context that the library does not follow, whose end would go unnoticed. */
static void crowded(void) {
    enum { FOLLOWED = 256, MORE = 4 };
    peer_t peer = peer_start(program, 0, true);
    CUdeviceptr address, there;
    CUipcMemHandle handle = exported_there(&peer, &address);
    CUcontext context[FOLLOWED + MORE];
    for (int i = 0; i < FOLLOWED + MORE; i++)
        MUST(cuCtxCreate_v2(&context[i], 0, 0));
    GIVES(cuIpcOpenMemHandle_v2(&there, handle, LAZY), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(test_figure("ipc_unresolved") == 1);
    MUST(cuCtxSetCurrent(context[0]));
    GIVES(cuIpcOpenMemHandle_v2(&there, handle, LAZY), CUDA_SUCCESS);
    EXPECT(word_at(there) == 11);
    GIVES(cuIpcCloseMemHandle(there), CUDA_SUCCESS);
    peer_stop(&peer);
}

/* A fork child has no part in the exports of its parent, and its end takes none away. */
static void forks(void) {
    peer_t peer = peer_start(program, 0, true);
    CUdeviceptr block = taken(4 * KIB, 13);
    CUipcMemHandle handle = handle_of(block);
    pid_t child = fork();
    if (child == 0) {
        CUipcMemHandle mine;
        if (system("grep -q '[.]ipc$' /proc/$PPID/maps") == 0) /* of this process */
            _exit(1);
        cuMemFree_v2(block);
        cuIpcGetMemHandle(&mine, block);
        exit(0);
    }
    int status = -1;
    NEED(waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT(peer_reads(&peer, opened(&peer, handle), 4 * KIB, 13));
    peer_stop(&peer);
}

/* Triton compares the range of what it opened with what was registered; UCX and MPICH the ids. */
static void attributes(void) {
    peer_t peer = peer_start(program, 0, true);
    CUdeviceptr first, second, there[2];
    CUipcMemHandle handle[2] = {exported_there(&peer, &first), exported_there(&peer, &second)};
    unsigned long long id[2];
    for (int i = 0; i < 2; i++) {
        CUdeviceptr base = 0;
        size_t size = 0;
        GIVES(cuIpcOpenMemHandle_v2(&there[i], handle[i], LAZY), CUDA_SUCCESS);
        CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                       CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                       CU_POINTER_ATTRIBUTE_BUFFER_ID};
        void *data[] = {&base, &size, &id[i]};
        GIVES(cuPointerGetAttributes(3, asked, data, there[i] + 100), CUDA_SUCCESS);
        EXPECT(base == there[i] && size == 4 * KIB);
        base = 0;
        GIVES(cuPointerGetAttribute(&base, asked[0], there[i] + 4 * KIB - 1), CUDA_SUCCESS);
        EXPECT(base == there[i]);
    }
    EXPECT(id[0] != id[1]);
    GIVES(cuIpcCloseMemHandle(there[1]), CUDA_SUCCESS);
    CUdeviceptr base;
    GIVES(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, there[1]),
          CUDA_ERROR_INVALID_VALUE);
    peer_stop(&peer);
}

/* --- what it costs --- */

static void cost(void) {
    enum { EXPORTS = 1000 };
    CUdeviceptr block[EXPORTS];
    for (int i = 0; i < EXPORTS; i++) {
        MUST(cuMemAlloc_v2(&block[i], 4 * KIB));
        handle_of(block[i]);
    }
    EXPECT(test_figure("ipc_exported") == EXPORTS);
    EXPECT(reserved(true) <= EXPORTS * 4 * KIB * 11 / 10 + 2 * MIB);
    for (int i = 0; i < EXPORTS; i++)
        freed(block[i]);
    EXPECT(test_figure("ipc_exported_bytes") == 0);
    for (int i = 0; i < EXPORTS; i++)
        MUST(cuMemAlloc_v2(&block[i], 4 * KIB));
    EXPECT(reserved(true) <= EXPORTS * 4 * KIB * 11 / 10 + 2 * MIB);
}

/* A random program, in a process of its own: what it reserves at the end where it exports a tenth of
 * its blocks, or none. */
static void churn(uint64_t random, bool exporting, int channel) {
    enum { BLOCKS = 400, STEPS = 20000 };
    static CUdeviceptr block[BLOCKS];
    test_device(0);
    for (int step = 0; step < STEPS; step++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        unsigned i = (unsigned)(random >> 33) % BLOCKS;
        if (block[i]) {
            freed(block[i]);
            block[i] = 0;
            continue;
        }
        size_t size = (size_t)512 << (random >> 50) % 12;
        MUST(cuMemAlloc_v2(&block[i], size + (random >> 40) % size));
        if (exporting && step % 10 == 0)
            handle_of(block[i]);
    }
    long long bytes = reserved(true);
    EXPECT(!exporting || test_figure("ipc_exported") > 500);
    NEED(write(channel, &bytes, sizeof bytes) == sizeof bytes);
}

/* Of one program it is a page more or less by chance: of several together. */
static void tenth(void) {
    enum { PROGRAMS = 12 };
    long long sum[2] = {0, 0}, bytes;
    int channel[2], status;
    NEED(pipe(channel) == 0);
    for (int i = 0; i < 2 * PROGRAMS; i++) {
        pid_t child = fork(); /* before CUDA is used */
        NEED(child >= 0);
        if (child == 0) {
            churn((uint64_t)i / 2 + 1, i % 2, channel[1]);
            exit(0);
        }
        NEED(waitpid(child, &status, 0) == child && status == 0);
        NEED(read(channel[0], &bytes, sizeof bytes) == sizeof bytes);
        sum[i % 2] += bytes;
    }
    if (sum[1] > sum[0] + sum[0] / 20)
        test_stop(TEST_WRONG, "reserved %lld with exports, %lld without", sum[1], sum[0]);
}

static void figures(void) {
    peer_t peer = peer_start(program, 0, true);
    CUdeviceptr a = taken(4 * KIB, 1), b = taken(3000, 2), there;
    CUipcMemHandle handle = handle_of(a);
    handle_of(b);
    handle_of(a);
    EXPECT(test_figure("ipc_exported") == 2 &&
           test_figure("ipc_exported_bytes") == 4 * KIB + 3072);
    freed(b);
    EXPECT(test_figure("ipc_exported") == 2 && test_figure("ipc_exported_bytes") == 4 * KIB);
    GIVES(peer_open(&peer, handle, &there), CUDA_SUCCESS);
    CUdeviceptr theirs;
    CUipcMemHandle from = exported_there(&peer, &theirs);
    GIVES(cuIpcOpenMemHandle_v2(&there, from, LAZY), CUDA_SUCCESS);
    GIVES(cuIpcCloseMemHandle(there), CUDA_SUCCESS);
    EXPECT(test_figure("ipc_imported") == 1 && test_figure("ipc_unresolved") == 0);
    peer_stop(&peer);
    GIVES(cuIpcOpenMemHandle_v2(&there, from, LAZY), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(test_figure("ipc_imported") == 1);
}

/* Another kind of file where a table is looked for; a table that was cut short. */
static void table(void) {
    char path[512];
    struct stat st;
    peer_t peer = peer_start(program, 0, true);
    CUdeviceptr address, there;
    CUipcMemHandle handle = exported_there(&peer, &address);
    NEED(stat("/proc/self/ns/pid", &st) == 0);
    snprintf(path, sizeof path, "%s/accelcache-%u/%u-%d.ipc", getenv("ACCEL_LIVE_DIR"),
             (unsigned)geteuid(), (unsigned)st.st_ino, (int)peer.pid);
    NEED(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);
    char aside[600];
    snprintf(aside, sizeof aside, "%s.aside", path);
    NEED(rename(path, aside) ==
         0); /* the page is there without it: as of another program image */
    GIVES(cuIpcOpenMemHandle_v2(&there, handle, LAZY), CUDA_ERROR_INVALID_HANDLE);
    NEED(mkfifo(path, 0600) == 0);
    GIVES(cuIpcOpenMemHandle_v2(&there, handle, LAZY), CUDA_ERROR_INVALID_VALUE);
    NEED(unlink(path) == 0 && symlink(aside, path) == 0);
    GIVES(cuIpcOpenMemHandle_v2(&there, handle, LAZY), CUDA_ERROR_INVALID_VALUE);
    NEED(unlink(path) == 0 && mkdir(path, 0700) == 0);
    GIVES(cuIpcOpenMemHandle_v2(&there, handle, LAZY), CUDA_ERROR_INVALID_VALUE);
    EXPECT(test_figure("ipc_unresolved") == 3);
    NEED(rmdir(path) == 0 && rename(aside, path) == 0);
    GIVES(cuIpcOpenMemHandle_v2(&there, handle, LAZY), CUDA_SUCCESS);
    EXPECT(word_at(there) == 11);
    NEED(truncate(path, 100) == 0); /* the exporter touches it no more */
    CUdeviceptr again;
    GIVES(cuIpcOpenMemHandle_v2(&again, handle, LAZY), CUDA_ERROR_INVALID_VALUE);
    EXPECT(word_at(there) == 11);
    peer_kill(&peer);
}

/* Another file of this user takes the place of this process's table, which has to grow: a refusal, and the
 * file stays as it is.  Once the table is back, all goes on. */
static void replaced(void) {
    char path[512], aside[600], text[64] = "";
    static const char theirs[] = "another program's";
    struct stat st;
    CUipcMemHandle handle = handle_of(taken(4 * KIB, 1));
    NEED(stat("/proc/self/ns/pid", &st) == 0);
    snprintf(path, sizeof path, "%s/accelcache-%u/%u-%d.ipc", getenv("ACCEL_LIVE_DIR"),
             (unsigned)geteuid(), (unsigned)st.st_ino, (int)getpid());
    snprintf(aside, sizeof aside, "%s.aside", path);
    NEED(rename(path, aside) == 0);
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    NEED(file >= 0 && write(file, theirs, sizeof theirs) == sizeof theirs);
    int count = 0;
    while (count < 2000 && cuIpcGetMemHandle(&handle, taken(512, 1)) == CUDA_SUCCESS)
        count++;
    EXPECT(count > 0 && count < 2000 && test_figure("ipc_refused") == 1);
    NEED(fstat(file, &st) == 0 && pread(file, text, sizeof text, 0) >= 0);
    EXPECT(st.st_size == sizeof theirs && !strcmp(text, theirs));
    NEED(unlink(path) == 0 && rename(aside, path) == 0 && close(file) == 0);
    peer_t peer = peer_start(program, 0, true);
    EXPECT(peer_reads(&peer, opened(&peer, handle_of(taken(4 * KIB, 7))), 4 * KIB, 7));
    peer_stop(&peer);
}

/* --- the key --- */

static void native(void) {
    peer_t peer = peer_start(program, 0, false);
    static const size_t sizes[] = {4 * KIB,  1 * MIB, 2 * MIB, 3 * MIB,
                                   20 * MIB, 2 * MIB, 5 * MIB};
    for (int round = 0; round < 2; round++)
        for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            CUdeviceptr block = taken(sizes[i], 30 + i);
            CUipcMemHandle handle = handle_of(block);
            CUdeviceptr there = opened(&peer, handle);
            EXPECT(peer_reads(&peer, there, sizes[i], 30 + i));
            GIVES(peer_close(&peer, there), CUDA_SUCCESS);
            if (i % 2)
                freed(block);
        }
    EXPECT(test_figure("ipc_exported") == 0 && test_figure("ipc_refused") == 0);
    peer_stop(&peer);
}

/* Stream-ordered memory: as the driver's pools have it, or with async_ipc:true as plain memory.  What
 * its place was used for before is over when another process gets to know it. */
static void async_memory(bool shareable) {
    peer_t peer = peer_start(program, 0, true);
    CUstream stream = test_stream();
    CUdeviceptr block, there;
    CUipcMemHandle handle;
    taken(4 * KIB, 1); /* so that none fills a segment */
    for (int i = 0; i < 3; i++) {
        MUST(cuMemAllocAsync(&block, 70 * KIB, stream));
        MUST(cuMemsetD32Async(block, 9, 70 * KIB / 4, stream));
        if (i < 2)
            MUST(cuMemFreeAsync(block, stream));
    }
    if (!shareable) {
        GIVES(cuIpcGetMemHandle(&handle, block), CUDA_ERROR_INVALID_VALUE);
        EXPECT(test_figure("ipc_refused") == 0); /* the driver gives none either */
    } else {
        GIVES(cuIpcGetMemHandle(&handle, block), CUDA_SUCCESS);
        EXPECT(cuStreamQuery(stream) == CUDA_SUCCESS);
        /* Once is enough. */
        MUST(cuMemsetD32Async(block, 9, 70 * KIB / 4, stream));
        EXPECT(same(handle_of(block), handle) && cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
        MUST(cuStreamSynchronize(stream));
        there = opened(&peer, handle);
        EXPECT(peer_reads(&peer, there, 70 * KIB, 9));
        MUST(cuMemFreeAsync(block, stream));
        GIVES(peer_open(&peer, handle, &there), CUDA_ERROR_INVALID_HANDLE);
    }
    peer_stop(&peer);
}

static void async(void) {
    async_memory(false);
}

static void async_ipc(void) {
    async_memory(true);
}

static void off(void) {
    CUipcMemHandle handle;
    GIVES(cuIpcGetMemHandle(&handle, taken(4 * KIB, 1)), CUDA_ERROR_INVALID_VALUE);
    EXPECT(test_figure("ipc_refused") == 1 && test_figure("ipc_exported") == 0);
    handle_of(taken(64 * MIB, 2));
}

/* Nowhere to put a table: an error, but for what needs none; and no longer than that lasts. */
static void roomless(void) {
    CUipcMemHandle handle;
    CUdeviceptr block = taken(4 * KIB, 1);
    struct rlimit none, before;
    handle_of(taken(64 * MIB, 2)); /* the driver has its files now */
    NEED(getrlimit(RLIMIT_FSIZE, &before) == 0);
    none = before;
    none.rlim_cur = 0;
    NEED(setrlimit(RLIMIT_FSIZE, &none) == 0);
    for (int i = 1; i < 3; i++) {
        GIVES(cuIpcGetMemHandle(&handle, block), CUDA_ERROR_INVALID_VALUE);
        EXPECT(test_figure("ipc_refused") == i && test_figure("ipc_exported_bytes") == 0);
    }
    handle_of(taken(64 * MIB, 2));
    NEED(setrlimit(RLIMIT_FSIZE, &before) == 0);
    handle_of(block);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"many", many},
    {"counted", counted},
    {"two_views", two_views},
    {"interior", interior},
    {"waits", waits},
    {"lifetimes", lifetimes},
    {"reused", reused},
    {"freed", freed_before},
    {"gone", gone},
    {"meanwhile", meanwhile},
    {"own", own},
    {"ended", ended},
    {"killed", killed},
    {"bare", bare},
    {"filled", filled},
    {"exported_by_bare", exported_by_bare},
    {"peers", peers},
    {"contexts", contexts},
    {"crowded", crowded},
    {"forks", forks},
    {"attributes", attributes},
    {"cost", cost},
    {"tenth", tenth},
    {"figures", figures},
    {"table", table},
    {"two_contexts", two_contexts},
    {"replaced", replaced},
    {"native", native},
    {"roomless", roomless},
    {"async", async},
    {"async_ipc", async_ipc},
    {"off", off},
};

int main(int argc, char **argv) {
    program = argv[0];
    if (argc == 3 && !strcmp(argv[1], "peer"))
        return peer_main(atoi(argv[2]));
    for (unsigned i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(argv[1], cases[i].name)) {
            test_title = argv[1];
            if (cases[i].run != tenth)
                test_device(0);
            cases[i].run();
            return TEST_GOOD;
        }
    fprintf(stderr, "usage: ipc_basic CASE\n");
    return TEST_USAGE;
}

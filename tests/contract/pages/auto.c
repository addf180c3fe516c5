/* expandable_segments:auto under a program: pages as long as it keeps its memory to itself, native
 * segments from the moment on at which others get to know a block by its address.
 *
 * usage: auto CASE (a name of the table at the end).  Exit status 0: as it should be. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"

#define MIB ((size_t)1 << 20)

static CUcontext context;

static CUdeviceptr take(size_t bytes) {
    CUdeviceptr p = 0;
    MUST(cuMemAlloc_v2(&p, bytes));
    return p;
}

static void fill(CUdeviceptr p, size_t bytes, unsigned char byte) {
    MUST(cuMemsetD8_v2(p, byte, bytes));
}

static void holds(CUdeviceptr p, size_t bytes, unsigned char byte) {
    unsigned char first = 0, last = 0;
    MUST(cuMemcpyDtoH_v2(&first, p, 1));
    MUST(cuMemcpyDtoH_v2(&last, p + bytes - 1, 1));
    EXPECT(first == byte && last == byte);
}

static unsigned long long segments(void) {
    return simcuda_calls("cuMemAlloc_v2");
}

/* Does the calls of a program without partners, including queries that do not export a block. */
static void alone(void) {
    CUdeviceptr block[16];
    CUcontext owner;
    unsigned type;
    for (unsigned round = 0; round < 20; round++) {
        for (unsigned i = 0; i < 16; i++) {
            size_t bytes = (1 + (i * 7 + round * 3) % 23) * MIB;
            block[i] = take(bytes);
            fill(block[i], bytes, (unsigned char)(round + i));
            MUST(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, block[i]));
            MUST(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block[i]));
            EXPECT(owner == context && type == CU_MEMORYTYPE_DEVICE);
            holds(block[i], bytes, (unsigned char)(round + i));
        }
        for (unsigned i = 0; i < 16; i++)
            MUST(cuMemFree_v2(block[i]));
    }
    EXPECT(segments() == 0);
    EXPECT(simcuda_live("mappings") > 0);
}

/* --- a block becomes known --- */

static void ask_range(CUdeviceptr p, size_t bytes) {
    CUdeviceptr base;
    size_t size;
    MUST(cuMemGetAddressRange_v2(&base, &size, p + 5));
    EXPECT(base == p && size == bytes);
}

static void ask_id(CUdeviceptr p, size_t bytes) {
    unsigned long long id, again;
    MUST(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
    MUST(cuPointerGetAttribute(&again, CU_POINTER_ATTRIBUTE_BUFFER_ID, p + bytes - 1));
    EXPECT(id == again);
}

static void ask_sync(CUdeviceptr p, size_t bytes) {
    unsigned on = 1;
    (void)bytes;
    MUST(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
}

static void ask_ipc(CUdeviceptr p, size_t bytes) {
    CUipcMemHandle handle;
    (void)bytes;
    GIVES(cuIpcGetMemHandle(&handle, p), CUDA_SUCCESS);
}

static void ask_dmabuf(CUdeviceptr p, size_t bytes) {
    int descriptor = -1;
    MUST(cuMemGetHandleForAddressRange(&descriptor, p, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                       0));
    EXPECT(descriptor >= 0 && close(descriptor) == 0);
}

/* Queries that pages refuse (ipc:off). The first one fails; later blocks, which fill a native
 * segment, can be shared. */
static void ask_refused(CUdeviceptr p, size_t bytes) {
    static bool known;
    CUipcMemHandle handle;
    (void)bytes;
    EXPECT((cuIpcGetMemHandle(&handle, p) == CUDA_SUCCESS) == known);
    known = true;
}

/* The known block does not change. Later blocks lie in native segments. */
static void becomes_known(void ask(CUdeviceptr, size_t)) {
    CUdeviceptr beside = take(12 * MIB), known = take(16 * MIB), gone = take(16 * MIB);
    fill(beside, 12 * MIB, 1);
    fill(known, 16 * MIB, 2);
    MUST(cuMemFree_v2(gone));
    EXPECT(segments() == 0);
    ask(known, 16 * MIB);
    unsigned long long before = segments(), created = simcuda_calls("cuMemCreate");
    CUdeviceptr next = take(16 * MIB), more = take(40 * MIB), small = take(100);
    EXPECT(segments() > before);
    EXPECT(simcuda_calls("cuMemCreate") == created);
    fill(next, 16 * MIB, 3);
    fill(more, 40 * MIB, 4);
    fill(small, 100, 5);
    ask(next, 16 * MIB);
    holds(beside, 12 * MIB, 1);
    holds(known, 16 * MIB, 2);
    holds(next, 16 * MIB, 3);
    MUST(cuMemFree_v2(known));
    MUST(cuMemFree_v2(beside));
    holds(more, 40 * MIB, 4);
    holds(small, 100, 5);
    MUST(cuMemFree_v2(next));
    MUST(cuMemFree_v2(more));
    MUST(cuMemFree_v2(small));
    created = simcuda_calls("cuMemCreate");
    take(64 * MIB);
    EXPECT(simcuda_calls("cuMemCreate") == created);
}

static void range(void) {
    becomes_known(ask_range);
}
static void id(void) {
    becomes_known(ask_id);
}
static void sync_memops(void) {
    becomes_known(ask_sync);
}
static void ipc(void) {
    becomes_known(ask_ipc);
}
static void dmabuf(void) {
    becomes_known(ask_dmabuf);
}
static void refused(void) {
    becomes_known(ask_refused);
}

/* Pages that `auto` left do not stay reserved: the device has room for nearly all their bytes
 * again. */
static void gives_back(void) {
    CUdeviceptr known = take(16 * MIB), gone = take(600 * MIB);
    MUST(cuMemFree_v2(gone));
    ask_range(known, 16 * MIB);
    CUdeviceptr native = take(600 * MIB); /* of 1 GiB: with the pages it would not fit */
    fill(native, 600 * MIB, 9);
    holds(native, 600 * MIB, 9);
    MUST(cuCtxSynchronize());
    EXPECT(simcuda_used_memory(0) < 700 * MIB);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"alone", alone}, {"range", range},     {"id", id},
             {"sync", sync_memops}, {"ipc", ipc},    {"dmabuf", dmabuf},
             {"refused", refused},  {"gives_back", gives_back}};

int main(int argc, char **argv) {
    for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(argv[1], cases[i].name)) {
            MUST(cuInit(0));
            MUST(cuDevicePrimaryCtxRetain(&context, 0));
            MUST(cuCtxSetCurrent(context));
            simcuda_reset_calls();
            cases[i].run();
            return simcuda_race_reports() ? 1 : 0;
        }
    fprintf(stderr, "usage: auto CASE\n");
    return TEST_USAGE;
}

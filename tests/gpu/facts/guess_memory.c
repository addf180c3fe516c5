/* Probes of allocation, pointers and copies. */
#include "guesses.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 70000, LARGE_MIB = 64, TRIES = 16 };

void guess_alloc_errors(void) {
    CUdeviceptr memory;
    CUresult with = cu.cuMemAlloc_v2(&memory, 0);
    MUST(cu.cuCtxSetCurrent(NULL));
    CUresult without = cu.cuMemAlloc_v2(&memory, 0);
    MUST(cu.cuCtxSetCurrent(gpu.primary));
    say("%s; with a context %s", gpu_error(without), gpu_error(with));
}

static size_t free_now(void) {
    size_t available, total;
    MUST(cu.cuMemGetInfo_v2(&available, &total));
    return available;
}

/* Allocates until free memory shrinks, and returns the difference.  *unnoticed counts the earlier
 * allocations. */
static size_t charged(size_t bytes, unsigned *unnoticed) {
    CUdeviceptr memory[64];
    size_t before = free_now(), taken = 0;
    unsigned count = 0;
    while (count < 64 && !taken) {
        memory[count++] = some_memory(bytes);
        taken = before - free_now();
    }
    for (unsigned i = 0; i < count; i++)
        MUST(cu.cuMemFree_v2(memory[i]));
    *unnoticed = count - 1;
    return taken;
}

void guess_alloc_charge(void) {
    static const size_t sizes[] = {1, 513, 300000, 3 * MIB + 1};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned unnoticed;
        size_t taken = charged(sizes[i], &unnoticed);
        say("%s%zu: %zu", i ? ", " : "", sizes[i], taken);
        if (unnoticed)
            say(" once in several");
    }
}

static unsigned long long alignment(size_t from, size_t to) {
    unsigned long long bits = 2 * MIB;
    CUdeviceptr memory[TRIES];
    for (int i = 0; i < TRIES; i++) {
        memory[i] = some_memory(from + (to - from) / TRIES * (size_t)i + 1);
        bits |= memory[i];
    }
    for (int i = 0; i < TRIES; i++)
        MUST(cu.cuMemFree_v2(memory[i]));
    return bits & -bits;
}

void guess_alloc_alignment(void) {
    unsigned long long large = alignment(MIB, 9 * MIB), small = alignment(0, MIB - 1);
    say("%llu from 1 MiB on, else %llu", large, small);
}

void guess_free_without_context(void) {
    CUdeviceptr memory = some_memory(BLOCK), others = 0;
    if (gpu_beside()) {
        MUST(cu.cuCtxSetCurrent(gpu_beside()->context));
        others = some_memory(BLOCK);
    }
    MUST(cu.cuCtxSetCurrent(NULL));
    CUresult own = cu.cuMemFree_v2(memory), other = cu.cuMemFree_v2(others);
    MUST(cu.cuCtxSetCurrent(gpu.primary));
    say("primary context's memory %s, another one's %s", gpu_error(own), gpu_error(other));
}

void guess_free_nothing(void) {
    MUST(cu.cuCtxSetCurrent(NULL));
    CUresult result = cu.cuMemFree_v2(0);
    MUST(cu.cuCtxSetCurrent(gpu.primary));
    say("%s", gpu_error(result));
}

void guess_free_inside(void) {
    CUdeviceptr memory = some_memory(BLOCK);
    say("%s", gpu_error(cu.cuMemFree_v2(memory + 512)));
}

static const char variable_text[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                                    ".visible .global .align 4 .u32 gpu_variable = 7;\n";

static CUdeviceptr variable(void) {
    CUmodule module;
    CUdeviceptr address;
    size_t bytes;
    MUST(cu.cuModuleLoadData(&module, variable_text));
    MUST(cu.cuModuleGetGlobal_v2(&address, &bytes, module, "gpu_variable"));
    return address;
}

void guess_free_others(void) {
    void *pinned;
    size_t bytes;
    MUST(cu.cuMemHostAlloc(&pinned, 4096, 0));
    CUdeviceptr mapped = mapped_memory(&bytes);
    say("variable %s, ", gpu_error(cu.cuMemFree_v2(variable())));
    say("mapping %s, ", mapped ? gpu_error(cu.cuMemFree_v2(mapped)) : "not here");
    say("pinned memory %s", gpu_error(cu.cuMemFree_v2((CUdeviceptr)(uintptr_t)pinned)));
}

static CUresult free_another(void *arg) {
    CUdeviceptr **next = arg;
    return cu.cuMemFree_v2(*(*next)++);
}

void guess_free_waits(void) {
    CUdeviceptr blocks[2 * TRIES], *next = blocks;
    for (int i = 0; i < 2 * TRIES; i++)
        blocks[i] = some_memory(2 * MIB);
    say_waits_for(free_another, &next);
}

static CUresult free_host(void *arg) {
    void ***next = arg;
    return cu.cuMemFreeHost(*(*next)++);
}

void guess_free_host_waits(void) {
    void *blocks[2 * TRIES], **next = blocks;
    for (int i = 0; i < 2 * TRIES; i++)
        MUST(cu.cuMemHostAlloc(&blocks[i], 4096, CU_MEMHOSTALLOC_PORTABLE));
    say_waits_for(free_host, &next);
}

/* Makes the context unusable, so it runs in a process of its own. */
void guess_free_after_error(void) {
    CUdeviceptr memory = some_memory(BLOCK);
    gpu_launch(gpu.quick, NULL, 8, 16);
    CUresult error = cu.cuCtxSynchronize();
    CUresult result = cu.cuMemFree_v2(memory);
    say("%s", !error            ? "a bad address is no error"
              : error == result ? "that error"
                                : gpu_error(result));
}

void guess_range_of_nothing(void) {
    CUdeviceptr base;
    size_t size;
    say("%s", gpu_error(cu.cuMemGetAddressRange_v2(&base, &size, 4096)));
}

static CUdeviceptr managed(void) {
    CUdeviceptr memory = 0;
    if (!GPU_HAS(cuMemAllocManaged) || cu.cuMemAllocManaged(&memory, BLOCK, 1))
        memory = 0;
    return memory;
}

void guess_range_of_host(void) {
    CUdeviceptr base, memory = managed();
    size_t size;
    say("pinned %s, ", gpu_error(cu.cuMemGetAddressRange_v2(&base, &size, gpu_word(0))));
    say("managed %s",
        memory ? gpu_error(cu.cuMemGetAddressRange_v2(&base, &size, memory)) : "not here");
}

void guess_attribute_without_context(void) {
    unsigned type;
    CUdeviceptr memory = some_memory(BLOCK);
    MUST(cu.cuCtxSetCurrent(NULL));
    CUresult result = cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory);
    MUST(cu.cuCtxSetCurrent(gpu.primary));
    say("%s", gpu_error(result));
}

void guess_attribute_bytes(void) {
    static const CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                                CU_POINTER_ATTRIBUTE_SYNC_MEMOPS};
    CUdeviceptr memory = some_memory(BLOCK);
    for (int i = 0; i < 2; i++) {
        unsigned char value[16];
        unsigned changed = 0;
        memset(value, 0xa5, sizeof value);
        CUresult result = cu.cuPointerGetAttribute(value, which[i], memory);
        while (changed < sizeof value && value[changed] != 0xa5)
            changed++;
        if (result)
            say("%s%s %s", i ? ", " : "", i ? "SYNC_MEMOPS" : "IS_MANAGED", gpu_error(result));
        else
            say("%s%s %u", i ? ", " : "", i ? "SYNC_MEMOPS" : "IS_MANAGED", changed);
    }
}

static void attribute(CUpointer_attribute which) {
    unsigned long long value[2] = {0};
    say("%s", gpu_error(cu.cuPointerGetAttribute(value, which, some_memory(BLOCK))));
}

void guess_attribute_host_pointer(void) {
    attribute(CU_POINTER_ATTRIBUTE_HOST_POINTER);
}

void guess_attribute_tokens(void) {
    attribute(CU_POINTER_ATTRIBUTE_P2P_TOKENS);
}

void guess_attribute_ids(void) {
    unsigned long long id = 0, block = 0;
    CUdeviceptr memory = some_memory(BLOCK);
    MUST(cu.cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory));
    CUresult result =
        cu.cuPointerGetAttribute(&block, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, memory);
    say("%s, highest bit %s",
        result        ? gpu_error(result)
        : id == block ? "equal"
                      : "different",
        (id | block) >> 63 ? "set" : "clear");
}

/* Asks for a handle of a page that several allocations share. */
void guess_range_rounded(void) {
    CUdeviceptr page = (CUdeviceptr)sysconf(_SC_PAGESIZE), memory;
    int fd = -1;
    do
        memory = some_memory(512);
    while (memory % page == 0);
    CUresult result = cu.cuMemGetHandleForAddressRange(&fd, memory & -page, page,
                                                       CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    if (fd >= 0)
        close(fd);
    say("%s", gpu_error(result));
}

void guess_unregister_nothing(void) {
    void *memory = malloc(1 << 16);
    say("%s", gpu_error(cu.cuMemHostUnregister(memory)));
    free(memory);
}

void guess_unregister_pinned(void) {
    void *memory;
    MUST(cu.cuMemHostAlloc(&memory, 4096, 0));
    say("%s", gpu_error(cu.cuMemHostUnregister(memory)));
}

void guess_host_alloc_nothing(void) {
    void *memory;
    say("%s", gpu_error(cu.cuMemHostAlloc(&memory, 0, 0)));
}

void guess_flags_without_context(void) {
    unsigned flags;
    MUST(cu.cuCtxSetCurrent(NULL));
    CUresult result = cu.cuMemHostGetFlags(&flags, (void *)(uintptr_t)gpu_word(0));
    MUST(cu.cuCtxSetCurrent(gpu.primary));
    say("%s", gpu_error(result));
}

void guess_copy_nothing(void) {
    say("%s with bad pointers", gpu_error(cu.cuMemcpyHtoD_v2(8, (const void *)16, 0)));
}

/* May make the context unusable, so it runs in a process of its own. */
void guess_copy_beyond(void) {
    static char bytes[8 << 20];
    CUdeviceptr memory = some_memory(BLOCK);
    CUresult now = cu.cuMemcpyHtoD_v2(memory, bytes, sizeof bytes);
    CUresult later = cu.cuCtxSynchronize();
    say("%s, then %s", gpu_error(now), gpu_error(later));
}

void guess_copy_freed(void) {
    CUdeviceptr memory = some_memory(BLOCK);
    CUstream busy = a_stream(CU_STREAM_NON_BLOCKING), other = a_stream(CU_STREAM_NON_BLOCKING);
    MUST(cu.cuMemFree_v2(memory));
    say("cuMemFree %s; ", gpu_error(cu.cuMemsetD8Async(memory, 0, KIB, other)));
    if (!GPU_HAS(cuMemFreeAsync)) {
        say("no cuMemFreeAsync");
        return;
    }
    memory = some_memory(BLOCK);
    gpu_launch(gpu.slow, busy, gpu_word(0), gpu_word(24));
    MUST(cu.cuMemFreeAsync(memory, busy));
    say("cuMemFreeAsync, the stream is not there %s, ",
        gpu_error(cu.cuMemsetD8Async(memory, 0, KIB, other)));
    MUST(cu.cuStreamSynchronize(busy));
    say("is there %s", gpu_error(cu.cuMemsetD8Async(memory, 0, KIB, other)));
}

void guess_copy_node_beyond(void) {
    CUgraph graph;
    CUgraphNode copies, fills, node;
    CUdeviceptr memory = some_memory(BLOCK), freed = some_memory(BLOCK);
    static char bytes[8 << 20];
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = bytes,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = memory,
                          .WidthInBytes = KIB,
                          .Height = 1,
                          .Depth = 1};
    CUDA_MEMSET_NODE_PARAMS fill = {
        .dst = memory, .elementSize = 1, .width = KIB, .height = 1};
    MUST(cu.cuGraphCreate(&graph, 0));
    MUST(cu.cuMemFree_v2(freed));
    MUST(cu.cuGraphAddMemcpyNode(&copies, graph, NULL, 0, &copy, gpu.primary));
    MUST(cu.cuGraphAddMemsetNode(&fills, graph, NULL, 0, &fill, gpu.primary));
    copy.WidthInBytes = fill.width = sizeof bytes;
    say("copy %s, ",
        gpu_error(cu.cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, gpu.primary)));
    CUresult changed = cu.cuGraphMemcpyNodeSetParams(copies, &copy);
    copy.WidthInBytes = KIB;
    copy.dstDevice = freed;
    say("freed %s, changed %s, ",
        gpu_error(cu.cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, gpu.primary)),
        gpu_error(changed));
    say("fill %s, ",
        gpu_error(cu.cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, gpu.primary)));
    changed = cu.cuGraphMemsetNodeSetParams(fills, &fill);
    fill.width = KIB;
    fill.dst = freed;
    say("freed %s, changed %s",
        gpu_error(cu.cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, gpu.primary)),
        gpu_error(changed));
}

typedef struct {
    CUdeviceptr to, from;
    void *host;
    size_t bytes;
} copy_t;

static CUresult copy_in(void *arg) {
    const copy_t *copy = arg;
    return cu.cuMemcpyHtoD_v2(copy->to, copy->host, copy->bytes);
}

void guess_copy_pageable(void) {
    size_t large = LARGE_MIB * MIB;
    copy_t copy = {some_memory(large), 0, malloc(large), KIB};
    memset(copy.host, 1, large);
    say("1 KiB behind a kernel %s, ", say_waits(NULL, gpu.slow, NULL, copy_in, &copy));
    copy.bytes = large;
    MUST(copy_in(&copy));
    CUresult left = cu.cuStreamQuery(NULL);
    say("after 64 MiB the stream is %s", left ? gpu_error(left) : "idle");
    free(copy.host);
}

static CUresult copy_within(void *arg) {
    const copy_t *copy = arg;
    return cu.cuMemcpyDtoD_v2(copy->to, copy->from, copy->bytes);
}

void guess_copy_within(void) {
    copy_t copy = {some_memory(MIB), some_memory(MIB), NULL, MIB};
    say("behind a kernel %s", say_waits(NULL, gpu.slow, NULL, copy_within, &copy));
}

static CUresult fill(void *arg) {
    const copy_t *copy = arg;
    return cu.cuMemsetD8_v2(copy->to, 0, copy->bytes);
}

void guess_fill(void) {
    copy_t device = {some_memory(MIB), 0, NULL, MIB}, pinned = {gpu_word(100), 0, NULL, 256};
    say("behind a kernel, device memory %s, ", say_waits(NULL, gpu.slow, NULL, fill, &device));
    say("pinned memory %s", say_waits(NULL, gpu.slow, NULL, fill, &pinned));
}

static CUresult unmap(void *arg) {
    CUdeviceptr **next = arg;
    return cu.cuMemUnmap(*(*next)++, 2 * MIB);
}

void guess_unmap_waits(void) {
    CUdeviceptr memory[2 * TRIES], *next = memory;
    size_t bytes = 2 * MIB;
    for (int i = 0; i < 2 * TRIES; i++)
        if (!(memory[i] = mapped_memory(&bytes)) || bytes != 2 * MIB) {
            say("not here");
            return;
        }
    say_waits_for(unmap, &next);
}

void guess_global_contents(void) {
    unsigned value = 0;
    MUST(cu.cuMemcpyDtoH_v2(&value, variable(), sizeof value));
    say("%u where the image says 7", value);
}

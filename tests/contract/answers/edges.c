/* Sequences of calls with answers that depend on earlier calls: contexts that come and go, other
 * threads, several devices, odd sizes, sticky errors, captures.
 *
 * usage: edges        Runs every case in its own child process and prints one line for each
 * call. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "answers.h"

#define SAY(call) say_answer(#call, call)

static CUcontext primary(CUdevice device) {
    CUcontext context;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    return context;
}

static CUdeviceptr block(size_t bytes) {
    CUdeviceptr pointer;
    MUST(cuMemAlloc_v2(&pointer, bytes));
    return pointer;
}

/* Prints if the memory works: fills all of it and reads both ends back. */
static void say_usable(const char *what, CUdeviceptr pointer, size_t bytes) {
    unsigned char first = 0, last = 0;
    CUresult result = cuMemsetD8_v2(pointer, 0x5c, bytes);
    if (!result)
        result = cuMemcpyDtoH_v2(&first, pointer, 1);
    if (!result)
        result = cuMemcpyDtoH_v2(&last, pointer + bytes - 1, 1);
    printf("%s: %s is usable => %s %d\n", title, what, code(result),
           first == 0x5c && last == 0x5c);
}

static void sizes(void) {
    static const size_t size[] = {1,           2,        511,      512,      513, 4096,
                                  65535,       65536,    65537,    MIB - 1,  MIB, 2 * MIB,
                                  2 * MIB + 1, 20 * MIB, 33 * MIB, 200 * MIB};
    static const size_t hopeless[] = {(size_t)2 << 30, (size_t)1 << 40, (size_t)1 << 47,
                                      (size_t)1 << 48, SIZE_MAX / 2,    SIZE_MAX - 511,
                                      SIZE_MAX};
    primary(0);
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        CUdeviceptr pointer = 0, start = 0;
        size_t length = 0;
        SAY(cuMemAlloc_v2(&pointer, size[i]));
        printf("%s: %zu bytes, aligned => %d\n", title, size[i], pointer % 512 == 0);
        say_usable("it", pointer, size[i]);
        SAY(cuMemGetAddressRange_v2(&start, &length, pointer + size[i] - 1));
        printf("%s: range => %lld %zu\n", title, (long long)(pointer - start), length);
        SAY(cuMemFree_v2(pointer));
        SAY(cuMemFree_v2(pointer));
    }
    for (size_t i = 0; i < sizeof hopeless / sizeof *hopeless; i++) {
        CUdeviceptr pointer = POISONED;
        size_t pitch = POISONED;
        SAY(cuMemAlloc_v2(&pointer, hopeless[i]));
        printf("%s: untouched => %d\n", title, pointer == POISONED);
        SAY(cuMemAllocPitch_v2(&pointer, &pitch, hopeless[i], 3, 4));
        SAY(cuMemAllocPitch_v2(&pointer, &pitch, 3, hopeless[i], 4));
        printf("%s: untouched => %d %d\n", title, pointer == POISONED, pitch == POISONED);
    }
}

static void pitches(void) {
    static const struct {
        size_t width, height;
        unsigned element;
    } shape[] = {{1, 1, 4},   {512, 3, 8}, {513, 3, 16}, {0, 3, 4},      {3, 0, 4},
                 {64, 64, 3}, {64, 64, 0}, {64, 64, 32}, {100000, 20, 4}};
    primary(0);
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        CUdeviceptr pointer = POISONED;
        size_t pitch = POISONED;
        CUresult result = SAY(cuMemAllocPitch_v2(&pointer, &pitch, shape[i].width,
                                                 shape[i].height, shape[i].element));
        if (result) {
            printf("%s: untouched => %d %d\n", title, pointer == POISONED, pitch == POISONED);
            continue;
        }
        printf("%s: pitch => %zu\n", title, pitch);
        say_usable("all rows", pointer, pitch * shape[i].height);
        SAY(cuMemFree_v2(pointer));
    }
    CUdeviceptr pointer;
    size_t pitch;
    SAY(cuMemAllocPitch_v2(NULL, &pitch, 1, 1, 4));
    SAY(cuMemAllocPitch_v2(&pointer, NULL, 1, 1, 4));
}

static void contexts(void) {
    CUcontext first = primary(0), made, again;
    CUdeviceptr ours = block(MIB), theirs, late;
    SAY(cuCtxCreate_v2(&made, 0, 0));
    theirs = block(MIB);
    SAY(cuMemFree_v2(ours)); /* of another context of the device */
    SAY(cuMemFree_v2(ours));
    SAY(cuCtxPopCurrent_v2(&again));
    printf("%s: popped the made one => %d\n", title, again == made);
    SAY(cuCtxGetCurrent(&again));
    printf("%s: the first is current => %d\n", title, again == first);
    say_usable("memory of the made context", theirs, MIB);
    SAY(cuCtxDestroy_v2(made));
    SAY(cuMemFree_v2(theirs));
    SAY(cuMemcpyDtoH_v2(&late, theirs, 8));
    ours = block(MIB);
    SAY(cuCtxSetCurrent(NULL));
    SAY(cuMemFree_v2(ours));
    SAY(cuMemAlloc_v2(&late, MIB));
    SAY(cuCtxSetCurrent(first));
    SAY(cuMemFree_v2(ours));
    SAY(cuMemFree_v2(ours));
}

static void reset(void) {
    CUcontext context = primary(0);
    CUdeviceptr old = block(MIB), small = block(1000), fresh;
    CUstream stream;
    SAY(cuStreamCreate(&stream, 0));
    SAY(cuMemsetD8Async(old, 1, MIB, stream));
    SAY(cuDevicePrimaryCtxReset_v2(0));
    SAY(cuMemFree_v2(old));
    SAY(cuMemFree_v2(small));
    SAY(cuMemFreeAsync(small, NULL));
    SAY(cuMemAlloc_v2(&fresh, MIB));
    SAY(cuDevicePrimaryCtxRetain(&context, 0));
    SAY(cuCtxSetCurrent(context));
    SAY(cuMemAlloc_v2(&fresh, MIB));
    say_usable("memory after the reset", fresh, MIB);
    SAY(cuMemFree_v2(fresh));
    SAY(cuMemFree_v2(small));
}

static void release(void) {
    CUcontext context = primary(0), again;
    unsigned flags;
    int active = -1;
    CUdeviceptr old = block(MIB), fresh;
    SAY(cuDevicePrimaryCtxRetain(&again, 0));
    SAY(cuDevicePrimaryCtxRelease_v2(0));
    say_usable("memory while retained once more", old, MIB);
    SAY(cuDevicePrimaryCtxRelease_v2(0));
    SAY(cuDevicePrimaryCtxGetState(0, &flags, &active));
    printf("%s: active => %d\n", title, active);
    SAY(cuMemFree_v2(old));
    SAY(cuMemAlloc_v2(&fresh, MIB));
    SAY(cuDevicePrimaryCtxRelease_v2(0));
    for (int i = 0; i < 3; i++) {
        SAY(cuDevicePrimaryCtxRetain(&context, 0));
        SAY(cuCtxSetCurrent(context));
        SAY(cuMemAlloc_v2(&fresh, MIB));
        say_usable("memory after retaining again", fresh, MIB);
        SAY(cuMemFree_v2(old == fresh ? fresh + 512 : old));
        SAY(cuDevicePrimaryCtxRelease_v2(0));
        SAY(cuMemFree_v2(fresh));
    }
}

static void devices(void) {
    CUcontext first = primary(0), second = primary(1);
    size_t room, total;
    int ordinal = -1;
    CUdeviceptr far = block(MIB), near;
    SAY(cuCtxSetCurrent(first));
    near = block(MIB);
    SAY(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, far));
    printf("%s: ordinal => %d\n", title, ordinal);
    SAY(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, near));
    printf("%s: ordinal => %d\n", title, ordinal);
    SAY(cuMemcpyPeer(far, second, near, first, MIB));
    SAY(cuCtxSynchronize());
    SAY(cuMemFree_v2(far));
    SAY(cuMemFree_v2(near));
    SAY(cuMemFree_v2(far));
    SAY(cuCtxSetCurrent(second));
    SAY(cuMemGetInfo_v2(&room, &total));
    SAY(cuDevicePrimaryCtxReset_v2(0));
    SAY(cuMemAlloc_v2(&far, MIB));
    say_usable("memory of the other device", far, MIB);
    SAY(cuMemFree_v2(near));
    SAY(cuMemFree_v2(far));
}

static void *free_in_thread(void *arg) {
    CUdeviceptr pointer = *(CUdeviceptr *)arg;
    CUcontext context;
    SAY(cuMemFree_v2(pointer)); /* no context is current in this thread */
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    SAY(cuCtxSetCurrent(context));
    SAY(cuMemFree_v2(pointer));
    SAY(cuMemFree_v2(pointer));
    return NULL;
}

static void in_thread(void *(*body)(void *), void *arg) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, arg) == 0)
        pthread_join(thread, NULL);
}

static void threads(void) {
    primary(0);
    CUdeviceptr pointer = block(MIB);
    in_thread(free_in_thread, &pointer);
    SAY(cuMemFree_v2(pointer));
}

static void attributes(void) {
    CUdeviceptr pointer, start = 0, before, after;
    size_t length = 0;
    unsigned long long id[2] = {0, 0};
    int on = 1, type = -1;
    primary(0);
    before = block(5 * MIB);
    pointer = block(5 * MIB + 100);
    after = block(5 * MIB);
    const CUdeviceptr place[] = {pointer, pointer + 1, pointer + 5 * MIB + 99,
                                 pointer + 5 * MIB + 100};
    for (size_t i = 0; i < sizeof place / sizeof *place; i++) {
        start = POISONED, length = POISONED;
        SAY(cuMemGetAddressRange_v2(&start, &length, place[i]));
        printf("%s: range => %d %d\n", title, start == pointer, length == 5 * MIB + 100);
        SAY(cuMemGetAddressRange_v2(&start, NULL, place[i]));
        SAY(cuMemGetAddressRange_v2(NULL, &length, place[i]));
        SAY(cuMemGetAddressRange_v2(NULL, NULL, place[i]));
        SAY(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, place[i]));
        SAY(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, place[i]));
        printf("%s: device pointer => %d\n", title, start == place[i]);
    }
    SAY(cuPointerGetAttribute(&id[0], CU_POINTER_ATTRIBUTE_BUFFER_ID, pointer));
    SAY(cuPointerGetAttribute(&id[1], CU_POINTER_ATTRIBUTE_BUFFER_ID, pointer + 4096));
    printf("%s: one buffer => %d\n", title, id[0] == id[1]);
    SAY(cuPointerGetAttribute(&id[1], CU_POINTER_ATTRIBUTE_BUFFER_ID, after));
    printf("%s: another buffer => %d\n", title, id[0] != id[1]);
    SAY(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer));
    SAY(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer));
    SAY(cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer));
    SAY(cuMemFree_v2(pointer));
    SAY(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer));
    SAY(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer));
    SAY(cuMemGetAddressRange_v2(&start, &length, pointer));
    SAY(cuMemFree_v2(before));
    SAY(cuMemFree_v2(after));
}

/* Shares the block at the start of a segment, and uses it afterwards. */
static void sharing(void) {
    CUipcMemHandle handle;
    CUdeviceptr pointer, next;
    int fd = -1;
    primary(0);
    pointer = block(21 * MIB);
    next = block(MIB);
    SAY(cuIpcGetMemHandle(&handle, pointer));
    SAY(cuMemGetHandleForAddressRange(&fd, pointer, 2 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                      0));
    SAY(cuMemGetHandleForAddressRange(&fd, pointer, 64 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                      0));
    SAY(cuMemFree_v2(pointer));
    SAY(cuIpcGetMemHandle(&handle, pointer));
    SAY(cuMemGetHandleForAddressRange(&fd, pointer, 2 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                      0));
    SAY(cuMemFree_v2(pointer));
    SAY(cuMemFree_v2(next));
}

static void pools(void) {
    CUdeviceptr pooled, mine = 0, managed;
    CUstream stream, other;
    void *pinned;
    primary(0);
    MUST(cuStreamCreate(&stream, 0));
    MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    SAY(cuMemAllocAsync(&pooled, MIB, stream));
    SAY(cuMemFree_v2(pooled)); /* a pool's pointer given to the plain free */
    SAY(cuMemFree_v2(pooled));
    SAY(cuMemAllocAsync(&pooled, MIB, stream));
    SAY(cuMemFreeAsync(pooled, other));
    SAY(cuMemFreeAsync(pooled, other));
    for (int i = 0; i < 3; i++) {
        mine = block(MIB);
        SAY(cuMemFreeAsync(mine, i == 0 ? stream : i == 1 ? NULL : CU_STREAM_PER_THREAD));
        SAY(cuMemFreeAsync(mine, stream));
        SAY(cuMemFree_v2(mine));
    }
    mine = block(MIB);
    SAY(cuMemFreeAsync(mine + 512, stream));
    SAY(cuMemFreeAsync_ptsz(mine, NULL));
    SAY(cuMemAllocManaged(&managed, MIB, CU_MEM_ATTACH_GLOBAL));
    SAY(cuMemFreeAsync(managed, stream));
    SAY(cuMemFree_v2(managed));
    SAY(cuMemFree_v2(managed));
    SAY(cuMemHostAlloc(&pinned, MIB, 0));
    SAY(cuMemFree_v2((CUdeviceptr)(uintptr_t)pinned));
    SAY(cuMemFreeHost(pinned));
    SAY(cuMemFreeHost(pinned));
    SAY(cuStreamSynchronize(stream));
    SAY(cuMemFreeAsync(mine, stream));
    SAY(cuStreamDestroy_v2(stream));
    SAY(cuStreamDestroy_v2(stream));
    mine = block(MIB);
    SAY(cuMemFreeAsync(mine, stream)); /* the stream no longer exists */
    SAY(cuMemFree_v2(mine));
}

static void say_attributes(CUdeviceptr pointer, CUmemoryPool own) {
    CUmemoryPool pool = NULL;
    CUcontext context = NULL;
    CUdeviceptr start = 0;
    size_t length = 0;
    unsigned shared = 9, rdma = 9, ordinal = 9;
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
                                   CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
    void *data[] = {&pool, &shared};
    CUipcMemHandle handle;
    SAY(cuPointerGetAttribute(&pool, names[0], pointer));
    SAY(cuPointerGetAttribute(&shared, names[1], pointer));
    SAY(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, pointer));
    SAY(cuPointerGetAttribute(&rdma, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, pointer));
    SAY(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer));
    SAY(cuMemGetAddressRange_v2(&start, &length, pointer + 100));
    printf("%s: pool %d, context %d, shared %u, rdma %u, ordinal %u, range %d %zu => all\n",
           title, pool == own, context != NULL, shared, rdma, ordinal, start == pointer, length);
    pool = NULL, shared = 9;
    SAY(cuPointerGetAttributes(2, names, data, pointer));
    printf("%s: pool %d, shared %u => both\n", title, pool == own, shared);
    SAY(cuIpcGetMemHandle(&handle, pointer));
}

/* Prints the attributes of a stream-ordered pointer and the answers of its pool. */
static void pool_identity(void) {
    CUdeviceptr first, second, third;
    CUstream stream;
    CUmemoryPool own, current, explicit;
    cuuint64_t used = 0, high = 0, reset = 0;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    primary(0);
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    SAY(cuDeviceGetDefaultMemPool(&own, 0));
    SAY(cuDeviceGetMemPool(&current, 0));
    SAY(cuMemAllocAsync(&first, MIB, stream));
    SAY(cuStreamSynchronize(stream));
    say_attributes(first, own);
    SAY(cuMemAllocAsync(&second, 2 * MIB, stream));
    SAY(cuMemFreeAsync(second, stream));
    SAY(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    SAY(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &high));
    printf("%s: used %llu, at most %llu => figures\n", title, (unsigned long long)used,
           (unsigned long long)high);
    SAY(cuMemAllocAsync(&third, MIB, stream));
    SAY(cuStreamSynchronize(stream));
    say_attributes(first, own);
    say_attributes(third, own);
    SAY(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    printf("%s: used %llu => figure\n", title, (unsigned long long)used);
    SAY(cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &reset));
    SAY(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &high));
    printf("%s: at most %llu => figure\n", title, (unsigned long long)high);
    SAY(cuMemFreeAsync(first, stream));
    SAY(cuMemFreeAsync(third, stream));
    SAY(cuMemFreeAsync(first, stream));
    SAY(cuStreamSynchronize(stream));
    SAY(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    printf("%s: used %llu => figure\n", title, (unsigned long long)used);
    SAY(cuMemPoolTrimTo(own, 0));
    SAY(cuMemPoolCreate(&explicit, &props));
    SAY(cuMemAllocFromPoolAsync(&third, MIB, explicit, stream));
    SAY(cuMemFreeAsync(third, stream));
    SAY(cuMemPoolDestroy(explicit));
}

static void sticky(void) {
    CUcontext first = primary(0), second, made;
    CUmodule module;
    CUfunction function;
    CUdeviceptr kept = block(MIB), freed = block(MIB), fresh = POISONED;
    CUstream stream;
    CUevent event;
    size_t room, total;
    MUST(cuStreamCreate(&stream, 0));
    MUST(cuEventCreate(&event, 0));
    MUST(cuModuleLoadData(&module, "stand-in"));
    MUST(cuModuleGetFunction(&function, module, "anything"));
    MUST(cuMemFree_v2(freed));
    simcuda_sticky(1);
    SAY(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    SAY(cuCtxSynchronize());
    SAY(cuMemAlloc_v2(&fresh, MIB)); /* a hit, if the cache served a broken context */
    printf("%s: untouched => %d\n", title, fresh == POISONED);
    SAY(cuMemFree_v2(kept));
    SAY(cuMemFree_v2(freed));
    SAY(cuMemFreeAsync(kept, stream));
    SAY(cuMemGetInfo_v2(&room, &total));
    SAY(cuStreamSynchronize(stream));
    SAY(cuEventRecord(event, stream));
    SAY(cuStreamCreate(&stream, 0));
    SAY(cuMemGetAddressRange_v2(&fresh, &room, kept));
    SAY(cuMemsetD8_v2(kept, 1, 10));
    SAY(cuDevicePrimaryCtxRetain(&second, 1)); /* the other device still works */
    SAY(cuCtxSetCurrent(second));
    SAY(cuMemAlloc_v2(&fresh, MIB));
    SAY(cuMemFree_v2(fresh));
    SAY(cuCtxCreate_v2(&made, 0, 0));
    SAY(cuMemAlloc_v2(&fresh, MIB));
    SAY(cuCtxSetCurrent(first));
    SAY(cuDevicePrimaryCtxReset_v2(0));
    SAY(cuDevicePrimaryCtxRetain(&first, 0));
    SAY(cuCtxSetCurrent(first));
    SAY(cuMemAlloc_v2(&fresh, MIB));
    SAY(cuMemFree_v2(fresh));
}

/* A call that is not the context's synchronisation reports the error. */
static void sticky_seen(void) {
    primary(0);
    CUmodule module;
    CUfunction function;
    CUdeviceptr freed = block(MIB), fresh = POISONED;
    CUstream stream;
    CUevent event;
    MUST(cuStreamCreate(&stream, 0));
    MUST(cuEventCreate(&event, 0));
    MUST(cuModuleLoadData(&module, "stand-in"));
    MUST(cuModuleGetFunction(&function, module, "anything"));
    MUST(cuMemFree_v2(freed));
    simcuda_sticky(1);
    MUST(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    MUST(cuEventRecord(event, stream));
    SAY(cuEventSynchronize(event));
    SAY(cuMemAlloc_v2(&fresh, MIB));
    printf("%s: untouched => %d\n", title, fresh == POISONED);
}

static void capture(void) {
    primary(0);
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr pointer = block(MIB), other;
    CUstreamCaptureStatus status;
    MUST(cuStreamCreate(&stream, 0));
    SAY(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    SAY(cuMemsetD8Async(pointer, 7, MIB, stream));
    SAY(cuMemAlloc_v2(&other, MIB));
    SAY(cuMemFreeAsync(pointer, stream)); /* the graph does not own this memory */
    SAY(cuMemFree_v2(other));
    SAY(cuStreamIsCapturing(stream, &status));
    printf("%s: status => %u\n", title, status);
    SAY(cuStreamEndCapture(stream, &graph));
    SAY(cuStreamEndCapture(stream, &graph));
    SAY(cuGraphInstantiateWithFlags(&exec, graph, 0));
    SAY(cuGraphLaunch(exec, stream));
    SAY(cuStreamSynchronize(stream));
    SAY(cuMemFree_v2(pointer));
    /* A capture that the program itself spoils ends as invalid. */
    pointer = block(MIB);
    SAY(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    SAY(cuMemsetD8Async(pointer, 7, MIB, stream));
    SAY(cuStreamSynchronize(stream));
    SAY(cuMemFree_v2(pointer));
    SAY(cuStreamEndCapture(stream, &graph));
    SAY(cuMemAlloc_v2(&other, MIB));
    say_usable("memory after a spoilt capture", other, MIB);
    SAY(cuMemFree_v2(other));
}

/* Memory allocated under a green context belongs to the device's primary context. It outlives the
 * green context. */
static void green(void) {
    CUgreenCtx part;
    CUcontext view, whole = primary(0);
    CUstream stream;
    CUdeviceptr first, second, third;
    int description;
    MUST(cuGreenCtxCreate(&part, (CUdevResourceDesc)(void *)&description, 0, 1));
    SAY(cuCtxFromGreenCtx(&view, part));
    SAY(cuCtxSetCurrent(view));
    SAY(cuMemAlloc_v2(&first, MIB));
    SAY(cuMemAlloc_v2(&second, MIB));
    SAY(cuGreenCtxStreamCreate(&stream, part, CU_STREAM_NON_BLOCKING, 0));
    SAY(cuMemsetD8Async(first, 1, MIB, stream));
    SAY(cuStreamSynchronize(stream));
    SAY(cuStreamDestroy_v2(stream));
    SAY(cuCtxSetCurrent(whole));
    SAY(cuGreenCtxDestroy(part));
    SAY(cuMemFree_v2(first));
    say_usable("memory of a green context that has gone", second, MIB);
    SAY(cuMemAlloc_v2(&third, MIB));
    printf("%s: two owners => %d\n", title, third < second + MIB && second < third + MIB);
    say_usable("its neighbour", third, MIB);
    SAY(cuMemFree_v2(second));
    SAY(cuMemFree_v2(third));
}

/* A stream of another context joins a capture by waiting for an event. A call of the library in
 * that context would spoil the capture, too. */
static void wide_capture(void) {
    CUcontext other, here = primary(0);
    CUstream origin, joined;
    CUevent fork, join;
    CUgraph graph;
    CUdeviceptr freed, there;
    MUST(cuStreamCreate(&origin, CU_STREAM_NON_BLOCKING));
    MUST(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    MUST(cuDevicePrimaryCtxRetain(&other, 1));
    MUST(cuCtxSetCurrent(other));
    MUST(cuStreamCreate(&joined, CU_STREAM_NON_BLOCKING));
    MUST(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    freed = block(MIB);
    there = block(MIB);
    MUST(cuMemsetD8Async(freed, 1, MIB, joined));
    MUST(cuMemFree_v2(freed)); /* waits for a fence that the next submission would record */
    MUST(cuCtxSetCurrent(here));
    SAY(cuStreamBeginCapture_v2(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
    SAY(cuEventRecord(fork, origin));
    SAY(cuCtxSetCurrent(other));
    SAY(cuStreamWaitEvent(joined, fork, 0));
    SAY(cuMemsetD8Async(there, 2, MIB, joined));
    SAY(cuEventRecord(join, joined));
    SAY(cuCtxSetCurrent(here));
    SAY(cuStreamWaitEvent(origin, join, 0));
    SAY(cuStreamEndCapture(origin, &graph));
}

static void uninitialised(void) {
    CUdeviceptr pointer = POISONED;
    CUcontext context;
    size_t room, total;
    SAY(cuMemAlloc_v2(&pointer, MIB));
    SAY(cuMemFree_v2(0x1000));
    SAY(cuMemFree_v2(0));
    SAY(cuMemGetInfo_v2(&room, &total));
    SAY(cuDevicePrimaryCtxRetain(&context, 0));
    SAY(cuInit(1));
    SAY(cuInit(0));
    SAY(cuInit(0));
    SAY(cuMemAlloc_v2(&pointer, MIB));
    SAY(cuMemFree_v2(0));
    SAY(cuDevicePrimaryCtxRetain(&context, 0));
    SAY(cuCtxSetCurrent(context));
    SAY(cuMemFree_v2(0));
    SAY(cuMemAlloc_v2(&pointer, MIB));
    SAY(cuMemFree_v2(pointer));
}

/* --- calls in functions that the driver calls --- */

static CUdeviceptr kept;
static CUstream used;

static void call_inside(void *unused) {
    CUdeviceptr pointer = POISONED;
    CUcontext context = NULL;
    CUgraph graph = NULL;
    size_t room = 0, total = 0;
    (void)unused;
    SAY(cuMemAlloc_v2(&pointer, MIB));
    SAY(cuMemAllocPitch_v2(&pointer, &room, 100, 100, 4));
    SAY(cuMemAllocAsync(&pointer, MIB, used));
    SAY(cuMemGetInfo_v2(&room, &total));
    SAY(cuMemGetAddressRange_v2(&pointer, &room, kept));
    SAY(cuMemsetD8Async(kept, 1, 16, used));
    SAY(cuMemFreeAsync(kept, used));
    SAY(cuMemFree_v2(kept));
    SAY(cuMemFree_v2(kept));
    SAY(cuMemFree((CUdeviceptr_v1)kept));
    SAY(cuCtxSynchronize());
    SAY(cuStreamSynchronize(used));
    SAY(cuStreamBeginCapture_v2(used, CU_STREAM_CAPTURE_MODE_RELAXED));
    SAY(cuStreamEndCapture(used, &graph));
    SAY(cuStreamDestroy_v2(used));
    SAY(cuDevicePrimaryCtxReset_v2(0));
    SAY(cuCtxCreate_v2(&context, 0, 0));
    printf("%s: nothing was set => %d\n", title, pointer == POISONED && !context && !graph);
}

static void called_back(CUstream stream, CUresult status, void *unused) {
    printf("%s: called for its stream => %d %s\n", title, stream == used, code(status));
    call_inside(unused);
}

/* Launches the graph twice. Only the host function prints, because the device decides when it
 * runs. */
static void launch_graph(CUgraph graph) {
    CUgraphExec exec;
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 2; i++)
        MUST(cuGraphLaunch(exec, used));
    MUST(cuStreamSynchronize(used));
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
}

static void host_functions(void) {
    CUDA_HOST_NODE_PARAMS host = {.fn = call_inside};
    CUdeviceptr other;
    CUgraph graph;
    CUgraphNode node;
    primary(0);
    MUST(cuStreamCreate(&used, CU_STREAM_NON_BLOCKING));
    kept = block(MIB);
    other = block(2 * MIB);
    MUST(cuMemsetD8Async(other, 1, MIB, used));
    MUST(cuMemFree_v2(other)); /* waits for its fence */
    MUST(cuLaunchHostFunc(used, call_inside, NULL));
    MUST(cuStreamSynchronize(used));
    MUST(cuStreamAddCallback(used, called_back, NULL, 0));
    MUST(cuStreamSynchronize(used));
    MUST(cuStreamBeginCapture_v2(used, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuLaunchHostFunc(used, call_inside, NULL));
    MUST(cuStreamEndCapture(used, &graph));
    launch_graph(graph);
    MUST(cuGraphCreate(&graph, 0));
    MUST(cuGraphAddHostNode(&node, graph, NULL, 0, &host));
    launch_graph(graph);
    say_usable("memory that was not freed", kept, MIB);
    SAY(cuMemFree_v2(kept));
    SAY(cuMemFree_v2(kept));
    kept = block(MIB);
    say_usable("memory afterwards", kept, MIB);
    SAY(cuMemFree_v2(kept));
}

/* The driver refuses to map a block although its size is one of whole pages. The block does not
 * change. */
static void no_mapping(void) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc none = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_NONE};
    CUmemGenericAllocationHandle physical;
    unsigned long long flags = 77;
    primary(0);
    CUdeviceptr pointer = block(64 * MIB);
    MUST(cuMemCreate(&physical, 64 * MIB, &prop, 0));
    SAY(cuMemGetAccess(&flags, &prop.location, pointer));
    printf("%s: flags => %llu\n", title, flags);
    SAY(cuMemSetAccess(pointer, 64 * MIB, &none, 1));
    SAY(cuMemUnmap(pointer, 8 * MIB));
    SAY(cuMemUnmap(pointer, 64 * MIB));
    SAY(cuMemMap(pointer, 64 * MIB, 0, physical, 0));
    SAY(cuMemAddressFree(pointer, 64 * MIB));
    say_usable("it", pointer, 64 * MIB);
    SAY(cuMemFree_v2(pointer));
    SAY(cuMemUnmap(pointer, 64 * MIB));
    SAY(cuMemAddressFree(pointer, 64 * MIB));
    SAY(cuCtxSynchronize());
}

/* Copies and fills beyond a block fail and write nothing. A batch reports the entry that
 * failed. */
static void ranges(void) {
    CUdeviceptr pointer, to[2], from[2];
    size_t bytes[] = {512, 513}, failed = 77;
    CUstream stream;
    primary(0);
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    pointer = block(4096);
    to[0] = from[0] = from[1] = pointer;
    to[1] = pointer + 4096 - 512;
    SAY(cuMemsetD8_v2(pointer + 4095, 1, 2));
    SAY(cuMemsetD32_v2(pointer, 1, 4096));
    SAY(cuMemcpyDtoD_v2(pointer, pointer + 512, 3585));
    SAY(cuMemcpyDtoD_v2(pointer, pointer + 512, 3584));
    SAY(cuMemcpyBatchAsync(to, from, bytes, 2, NULL, NULL, 0, &failed, stream));
    printf("%s: entry => %zu\n", title, failed);
}

static const answers_case_t cases[] = {{"sizes", sizes},
                                       {"no mapping", no_mapping},
                                       {"ranges", ranges},
                                       {"pitches", pitches},
                                       {"contexts", contexts},
                                       {"reset", reset},
                                       {"release", release},
                                       {"devices", devices},
                                       {"threads", threads},
                                       {"attributes", attributes},
                                       {"sharing", sharing},
                                       {"pools", pools},
                                       {"pool identity", pool_identity},
                                       {"sticky", sticky},
                                       {"sticky seen", sticky_seen},
                                       {"capture", capture},
                                       {"uninitialised", uninitialised},
                                       {"green", green},
                                       {"wide capture", wide_capture},
                                       {"host functions", host_functions}};

int main(void) {
    in_children(cases, sizeof cases / sizeof *cases);
    return 0; /* each child's exit status is one of the compared lines */
}

/* Programs for chaos.h, which makes their driver calls fail. They have no races of their own, so
 * a report of the race detector is an error of the library. */
#include <pthread.h>
#include <string.h>

#include "chaos.h"

/* Checks the driver's answers about the block. */
static void ask_about(int i) {
    const block_t *b = &world.block[i];
    CUdeviceptr base;
    size_t bytes;
    unsigned ordinal;
    if (!b->there)
        return;
    if (CALL(cuMemGetAddressRange_v2, &base, &bytes, b->address + 7) &&
        (base != b->address || bytes != b->bytes))
        wrong("block %d is said to be of %zu bytes, not %zu", i, bytes, b->bytes);
    if (CALL(cuPointerGetAttribute, &ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, b->address) &&
        ordinal != (unsigned)b->device)
        wrong("block %d is said to be on device %u", i, ordinal);
}

/* Uses small and large blocks in one stream. Only stream order protects them. */
static void one_stream(void) {
    static const size_t size[] = {100, 4 * KIB, 300 * KIB, 3 * MIB};
    world_streams(1, CU_STREAM_NON_BLOCKING);
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < 4; i++) {
            block_get(i, size[(i + turn) % 4]);
            block_use(i, world.stream[0]);
        }
        if (turn == 1)
            ask_about(2);
        if (turn == 1)
            world_check();
        for (int i = 0; i < 4 && turn < 2; i++)
            block_give(i);
    }
}

/* Uses blocks on four streams, and frees them while their work is pending. They are so large
 * that each later request must reuse one. */
static void four_streams(void) {
    enum { LARGE = 6 << 20 };
    world_streams(4, CU_STREAM_NON_BLOCKING);
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < 4; i++) {
            block_get(i, LARGE);
            block_use(i, world.stream[i]);
        }
        stream_order(world.stream[turn], world.stream[3]);
        block_use(turn, world.stream[3]);
        if (world.stream[1])
            CALL(cuStreamQuery, world.stream[1]);
        if (world.event[0])
            CALL(cuEventQuery, world.event[0]);
        for (int i = 0; i < 4; i++)
            block_give((turn + i) % 4);
        for (int i = 0; i < 4; i++) {
            block_get(4 + i, LARGE);
            block_use(4 + i, i < 3 ? world.stream[2 - i] : CU_STREAM_LEGACY);
        }
        if (turn == 1 && world.event[0])
            CALL(cuEventSynchronize, world.event[0]);
        for (int i = 4; i < 8; i++)
            block_give(i);
    }
    block_get(9, 600 * KIB);
    block_use(9, world.stream[2]);
}

/* Mixes the stream-ordered API and the plain one. Each frees the other's allocations. */
static void mixed(void) {
    CUstream a, b;
    world_streams(2, CU_STREAM_NON_BLOCKING);
    a = world.stream[0];
    b = world.stream[1];
    for (int turn = 0; turn < 2; turn++) {
        block_get_async(0, 100 * KIB, a);
        block_get_async(1, 100 * KIB, b);
        block_get(2, 100 * KIB);
        block_use(0, a);
        block_use(1, b);
        block_use(2, a);
        block_give_async(0, a);
        block_get_async(3, 100 * KIB, a); /* at once, in the same stream */
        block_use(3, a);
        stream_order(a, b);
        block_give_async(3, b);
        block_get_async(4, 100 * KIB, b); /* by a recorded order */
        block_use(4, b);
        block_give_async(2, a);
        if (a)
            TWICE(cuStreamSynchronize, a);
        if (b)
            TWICE(cuStreamSynchronize, b);
        block_give(1); /* from a pool, freed by the plain call */
        block_get(5, 100 * KIB);
        block_use(5, b);
        block_give_async(4, b);
        block_give(5);
    }
    block_get_async(6, 50 * KIB, a);
    block_use(6, a);
}

/* Captures and launches a graph, and allocates and frees blocks meanwhile. */
static void graph(void) {
    CUgraph captured = NULL;
    CUgraphExec exec = NULL;
    world_streams(2, CU_STREAM_NON_BLOCKING);
    CUstream on = world.stream[0], other = world.stream[1];
    for (int i = 0; i < 3; i++)
        block_get(i, 300 * KIB);
    block_use(1, other);
    bool begun = on && CALL(cuStreamBeginCapture_v2, on, CU_STREAM_CAPTURE_MODE_RELAXED);
    world.capturing = begun;
    if (begun)
        block_use(0, on);
    block_give(1); /* its work is pending, and no fence can be recorded now */
    block_get(3, 300 * KIB);
    block_get(4, 5 * MIB);
    block_give(4);
    if (begun)
        TWICE(cuStreamEndCapture, on, &captured);
    world.capturing = false;
    block_use(3, other);
    bool ready = captured && CALL(cuGraphInstantiateWithFlags, &exec, captured, 0);
    for (int turn = 0; ready && turn < 2; turn++) {
        CALL(cuGraphLaunch, exec, on);
        block_use(2, on);
        block_give(2);
        block_get(2, 300 * KIB);
        block_use(2, other);
    }
    block_give(0); /* the launches are pending */
    if (ready)
        TWICE(cuGraphExecDestroy, exec);
    if (captured)
        TWICE(cuGraphDestroy, captured);
    block_get(0, 300 * KIB);
    block_use(0, other);
}

/* Two devices copy to each other. */
static void copy_around(int turn) {
    block_get(0, 100 * KIB);
    block_use(0, world.stream[0]);
    if (!world_go(1))
        return;
    block_get(1, 100 * KIB);
    block_use(1, CU_STREAM_LEGACY);
    wait_all();
    if (!world_go(0))
        return;
    if (world.block[0].there && world.block[1].there && world.stream[0] &&
        CALL(cuMemcpyPeerAsync, world.block[1].address, world.ctx[1], world.block[0].address,
             world.ctx[0], 4, world.stream[0]))
        world.block[1].value = world.block[0].value;
    block_give(0); /* a pending copy reads the block */
    if (world.stream[0])
        TWICE(cuStreamSynchronize, world.stream[0]); /* a free waits only for its own device */
    block_give(1);
    if (!world_go(1))
        return;
    block_get(2 + turn, 100 * KIB);
    block_use(2 + turn, CU_STREAM_LEGACY);
    if (!world_go(0))
        return;
    block_get(4 + turn, 100 * KIB);
    block_use(4 + turn, CU_STREAM_LEGACY);
}

/* Uses a context in addition to the primary one. */
static void made_context(void) {
    CUcontext made, popped;
    CUdeviceptr inside = 0;
    CUstream there;
    if (!CALL(cuCtxCreate_v2, &made, 0, 0))
        return;
    if (CALL(cuStreamCreate, &there, CU_STREAM_NON_BLOCKING) &&
        CALL(cuMemAlloc_v2, &inside, 2 * MIB))
        CALL(cuMemsetD8Async, inside, 1, 4 * KIB, there);
    block_give(4); /* a block of the first context */
    TWICE(cuCtxPopCurrent_v2, &popped);
    if (inside && !TWICE(cuMemFree_v2, inside))
        simcuda_owner_end(inside); /* the memory ends with its context */
    block_get(6, 2 * MIB);
    block_use(6, world.stream[0]);
    TWICE(cuCtxDestroy_v2, made);
}

static void two_contexts(void) {
    bool peers = CALL(cuCtxEnablePeerAccess, world.ctx[1], 0);
    world_streams(1, CU_STREAM_NON_BLOCKING);
    for (int turn = 0; turn < 2; turn++)
        copy_around(turn);
    made_context();
    if (peers)
        TWICE(cuCtxDisablePeerAccess, world.ctx[1]);
}

/* Requests nearly all memory, repeatedly. The library must release idle blocks and wait for
 * pending ones, or a request fails without need. */
static void tight(void) {
    CUDA_ARRAY_DESCRIPTOR shape = {
        .Width = 64, .Height = 4, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    CUarray array;
    size_t room, total;
    world_streams(2, CU_STREAM_NON_BLOCKING);
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < 4; i++) {
            block_get(i, 10 * MIB);
            block_use(i, world.stream[i % 2]);
        }
        for (int i = 0; i < 4; i++)
            block_give(i);
        CALL(cuMemGetInfo_v2, &room, &total);
        block_get(5, 44 * MIB);
        block_use(5, world.stream[0]);
        block_give(5);
        if (CALL(cuArrayCreate_v2, &array, &shape))
            TWICE(cuArrayDestroy, array);
        for (int i = 0; i < 3; i++) {
            block_get(i, 100 * KIB);
            block_use(i, world.stream[1]);
            block_give(i);
        }
    }
    block_get(6, 46 * MIB);
    block_use(6, world.stream[1]);
}

/* Creates and destroys streams with pending work. */
static void churn(void) {
    for (int turn = 0; turn < 6; turn++) {
        CUstream stream = NULL;
        if (!CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING))
            continue;
        block_get(turn, 150 * KIB);
        block_use(turn, stream);
        if (turn % 2)
            block_give(turn);
        TWICE(cuStreamDestroy_v2, stream);
        if (turn % 3 == 2)
            block_give(turn - 2);
        block_get(10 + turn, 150 * KIB);
        block_use(10 + turn, CU_STREAM_LEGACY);
    }
}

/* Allocates in another thread, uses its per-thread stream, and leaves blocks. */
static void *other_thread(void *device) {
    if (!TWICE(cuCtxSetCurrent, world.ctx[*(int *)device]))
        return NULL;
    for (int i = 0; i < 3; i++) {
        block_get(i, 100 * KIB);
        block_use(i, CU_STREAM_PER_THREAD);
    }
    block_give(1);
    return NULL;
}

static void threads(void) {
    world_streams(1, CU_STREAM_NON_BLOCKING);
    for (int turn = 0; turn < 2; turn++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, other_thread, &world.here) == 0)
            pthread_join(thread, NULL);
        block_give(0); /* a stream that this thread cannot name has work pending */
        block_get(3, 100 * KIB);
        block_get(4, 100 * KIB);
        block_use(3, world.stream[0]);
        block_use(4, CU_STREAM_PER_THREAD);
        block_give(2);
        block_give(3);
        if (turn == 0)
            block_give(4);
    }
}

const program_t programs[] = {
    {"one_stream", 1, one_stream}, {"four_streams", 1, four_streams}, {"mixed", 1, mixed},
    {"graph", 1, graph},           {"two_contexts", 2, two_contexts}, {"tight", 1, tight},
    {"churn", 1, churn},           {"threads", 1, threads},
};
const size_t program_count = sizeof programs / sizeof *programs;

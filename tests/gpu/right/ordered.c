/* right_ordered [plain]: stream-ordered allocations.
 *
 * Buffers are allocated on one stream, used on another after an event, and freed on a third.  They
 * come from the default pool and from the program's own pool.  Memory of each API is also freed by
 * the other API. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "right.h"

enum { STREAMS = 6, ROUNDS = 60, LIVE = 10, MOST_WORDS = 1 << 16 };

typedef struct {
    CUdeviceptr at;
    unsigned words;
    CUevent ready;
} buffer_t;

static CUstream streams[STREAMS];
static CUmemoryPool pool;
static unsigned long long seed = 3;
static bool plain;

static CUstream any_stream(void) {
    return streams[right_below(&seed, STREAMS)];
}

static buffer_t make(void) {
    buffer_t made = {0, 1 + right_below(&seed, MOST_WORDS), NULL};
    CUstream stream = any_stream();
    size_t bytes = made.words * sizeof(uint32_t);
    switch (plain ? 1 : right_below(&seed, 3)) {
    case 0:
        MUST(cu.cuMemAllocFromPoolAsync(&made.at, bytes, pool, stream));
        break;
    case 1:
        made.at = right_alloc(bytes);
        break;
    default:
        MUST(cu.cuMemAllocAsync(&made.at, bytes, stream));
    }
    MUST(cu.cuMemsetD32Async(made.at, right_below(&seed, 1000), made.words, stream));
    right_mix(made.at, made.words, 5, RIGHT_LANE(stream));
    MUST(cu.cuEventCreate(&made.ready, CU_EVENT_DISABLE_TIMING));
    MUST(cu.cuEventRecord(made.ready, stream));
    return made;
}

static unsigned long long end(buffer_t *buffer) {
    CUstream stream = any_stream();
    MUST(cu.cuStreamWaitEvent(stream, buffer->ready, 0));
    right_mix(buffer->at, buffer->words, 9, RIGHT_LANE(stream));
    unsigned long long sum = right_sum(buffer->at, buffer->words, RIGHT_LANE(stream));
    right_last_work(buffer->at, buffer->words, RIGHT_LANE(stream));
    if (plain) {
        MUST(cu.cuMemFree_v2(buffer->at));
    } else if (right_below(&seed, 4)) {
        MUST(cu.cuMemFreeAsync(buffer->at, stream));
    } else {
        MUST(cu.cuStreamSynchronize(stream)); /* cuMemFree of ordered memory does not wait */
        MUST(cu.cuMemFree_v2(buffer->at));
    }
    MUST(cu.cuEventDestroy_v2(buffer->ready));
    return sum;
}

static void open_pool(void) {
    CUmemPoolProps props;
    int supported = 0;
    cu.cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, gpu.device);
    if (!supported || !GPU_HAS(cuMemAllocAsync))
        right_skip("the device has no memory pools");
    memset(&props, 0, sizeof props);
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    props.location.id = gpu.device;
    MUST(cu.cuMemPoolCreate(&pool, &props));
}

int main(int argc, char **argv) {
    buffer_t live[LIVE];
    plain = argc > 1 && !strcmp(argv[1], "plain");
    right_open();
    if (!plain)
        open_pool();
    for (int i = 0; i < STREAMS; i++)
        streams[i] = right_stream();
    if (plain) {
        streams[0] = CU_STREAM_PER_THREAD;
        streams[1] = CU_STREAM_LEGACY;
    }
    for (int i = 0; i < LIVE; i++)
        live[i] = make();
    for (int round = 0; round < ROUNDS; round++) {
        unsigned long long sum = 0;
        for (int i = 0; i < LIVE; i++) {
            unsigned which = right_below(&seed, LIVE);
            sum = sum * 31 + end(&live[which]);
            live[which] = make();
        }
        printf("round %d: %016llx\n", round, sum);
    }
    for (int i = 0; i < LIVE; i++)
        end(&live[i]);
    MUST(cu.cuCtxSynchronize());
    if (!plain)
        MUST(cu.cuMemPoolDestroy(pool));
    return 0;
}

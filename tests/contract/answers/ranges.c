/* Random copies and fills: inside one block, to its end, past it, and in memory that was freed just before.
 * Blocks are whole granules and every range begins in a block, so that no answer depends on an address. The
 * program also prints the final contents of each block.
 *
 * usage: ranges SEED */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answers.h"

enum { BLOCKS = 12, OPERATIONS = 3000, HOST = 8 << 20 };

static struct {
    CUdeviceptr at;
    size_t size;
    bool ordered; /* of cuMemAllocAsync */
} block[BLOCKS];
static unsigned char *host;
static CUstream stream;
static CUcontext context;
static CUgraph graph;
static CUgraphNode copies, fills;
static uint64_t state;

static uint64_t any(uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
}

static void make(unsigned i) {
    static const size_t most[] = {8 << 10, 64 << 10, 1 << 20, 3 << 20};
    block[i].size = (1 + any(most[any(4)] / 512)) * 512;
    block[i].ordered = any(4) == 0;
    if (block[i].ordered)
        MUST(cuMemAllocAsync(&block[i].at, block[i].size, stream));
    else
        MUST(cuMemAlloc_v2(&block[i].at, block[i].size));
    MUST(cuMemsetD8Async(block[i].at, (unsigned char)i, block[i].size, stream));
    MUST(cuStreamSynchronize(stream));
}

/* A range of a copy or a fill: its rows, planes and begin. */
typedef struct {
    CUdeviceptr at;
    size_t x, y, z, width, rows, planes, pitch, height;
} range_t;

/* Chooses the begin of a range in the block, so that offsets stay in it. */
static void begin(range_t *range, unsigned i, bool offsets) {
    size_t first = any(3) ? any(block[i].size / 16) * 16 : 0;
    range->at = block[i].at + first;
    range->x = range->y = range->z = 0;
    if (!offsets || !range->pitch)
        return;
    range->x = any(range->pitch) & ~(size_t)15;
    range->y = any(3);
    size_t before = range->y * range->pitch + range->x;
    if (before > first)
        range->x = range->y = 0;
    else
        range->at -= before;
}

static size_t to_the_end(const range_t *range, unsigned i) {
    return block[i].at + block[i].size - (range->at + range->y * range->pitch + range->x);
}

static void shape(range_t *range, size_t size) {
    static const size_t wrong[] = {SIZE_MAX, SIZE_MAX / 2, (size_t)1 << 40};
    range->rows = 1 + any(5);
    range->planes = 1 + any(3);
    range->width = 16 * (1 + any(1 + size / 16 / range->rows / range->planes));
    range->pitch = any(8) ? range->width + 16 * any(8) : any(2) ? 0 : range->width / 2;
    range->height = any(8) ? range->rows + any(3) : 0;
    if (any(24) == 0)
        *(any(2) ? &range->rows : &range->pitch) = wrong[any(3)];
}

static void say(const char *what, CUresult result) {
    printf("%s => %s\n", what, code(result));
}

static CUresult line(unsigned from, unsigned to) {
    range_t a = {0}, b = {0};
    begin(&a, from, false);
    begin(&b, to, false);
    size_t least = to_the_end(&a, from) < to_the_end(&b, to) ? to_the_end(&a, from) : to_the_end(&b, to);
    static const size_t more[] = {0, 0, 0, 1, 16, 4096, 1 << 20};
    size_t bytes = any(2) ? any(least + 1) : least + more[any(7)];
    if (any(40) == 0)
        bytes = SIZE_MAX - any(3);
    bool far = bytes > HOST;
    CUdeviceptr unified = (CUdeviceptr)(uintptr_t)host;
    CUdeviceptr ats[] = {b.at, block[to].at}, froms[] = {a.at, block[from].at};
    size_t sizes[] = {bytes, 16}, failed = 77;
    CUresult result;
    switch (any(far ? 4 : 13)) {
    case 0:
        return cuMemcpyDtoDAsync_v2(b.at, a.at, bytes, stream);
    case 1:
        return cuMemcpyAsync(b.at, a.at, bytes, stream);
    case 2:
        return cuMemcpyPeerAsync(b.at, context, a.at, context, bytes, stream);
    case 3:
        return cuMemcpyDtoD_v2(b.at, a.at, bytes);
    case 4:
        return cuMemcpyHtoDAsync_v2(b.at, host, bytes, stream);
    case 5:
        return cuMemcpyDtoHAsync_v2(host, a.at, bytes, stream);
    case 6:
        return cuMemcpy(b.at, unified, bytes);
    case 7:
        return cuMemcpyAsync(unified, a.at, bytes, stream);
    case 8:
        return cuMemsetD8Async(b.at, 5, bytes, stream);
    case 9:
        return cuMemsetD16_v2(b.at, 5, bytes / 2);
    case 10:
        return cuMemsetD32Async(b.at, 5, bytes / 4, stream);
    case 11:
        return cuMemsetD32_v2(b.at, 5, any(9) ? bytes / 4 : SIZE_MAX / 4 + 2);
    default:
        result = cuMemcpyBatchAsync(ats, froms, sizes, 2, NULL, NULL, 0, &failed, stream);
        printf("entry %zu\n", failed);
        return result;
    }
}

static CUresult captured(unsigned i) {
    CUgraph captures = NULL;
    range_t range = {0};
    begin(&range, i, false);
    size_t bytes = to_the_end(&range, i) + (any(2) ? 0 : 1);
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CUresult result = any(2) ? cuMemsetD8Async(range.at, 7, bytes, stream)
                             : cuMemcpyDtoHAsync_v2(host, range.at, bytes, stream);
    say("end of the capture", cuStreamEndCapture(stream, &captures));
    if (captures)
        MUST(cuGraphDestroy(captures));
    return result;
}

static CUresult shaped(unsigned from, unsigned to) {
    range_t a, b;
    size_t size = block[from].size < block[to].size ? block[from].size : block[to].size;
    shape(&a, size);
    shape(&b, size);
    b.width = a.width, b.rows = a.rows, b.planes = a.planes;
    begin(&a, from, true);
    begin(&b, to, true);
    unsigned kind = (unsigned)any(7);
    if (kind == 0)
        return cuMemsetD2D8Async(b.at + b.y * b.pitch + b.x, b.pitch, 9, b.width, b.rows, stream);
    if (kind == 1)
        return cuMemsetD2D32_v2(b.at + b.y * b.pitch + b.x, b.pitch, 9, b.width / 4, b.rows);
    if (kind == 2) {
        CUDA_MEMSET_NODE_PARAMS fill = {b.at + b.y * b.pitch + b.x, b.pitch, 9, 1, b.width, b.rows};
        CUgraphNode node;
        return any(2) ? cuGraphMemsetNodeSetParams(fills, &fill)
                      : cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, context);
    }
    CUmemorytype type = any(2) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_UNIFIED;
    CUDA_MEMCPY3D copy = {.srcMemoryType = type,
                          .srcDevice = a.at,
                          .srcXInBytes = a.x,
                          .srcY = a.y,
                          .srcPitch = a.pitch,
                          .srcHeight = a.height,
                          .dstMemoryType = type,
                          .dstDevice = b.at,
                          .dstXInBytes = b.x,
                          .dstY = b.y,
                          .dstPitch = b.pitch,
                          .dstHeight = b.height,
                          .WidthInBytes = a.width,
                          .Height = a.rows,
                          .Depth = a.planes};
    CUDA_MEMCPY2D flat = {.srcMemoryType = type,
                          .srcDevice = a.at,
                          .srcXInBytes = a.x,
                          .srcY = a.y,
                          .srcPitch = a.pitch,
                          .dstMemoryType = type,
                          .dstDevice = b.at,
                          .dstXInBytes = b.x,
                          .dstY = b.y,
                          .dstPitch = b.pitch,
                          .WidthInBytes = a.width,
                          .Height = a.rows};
    CUDA_MEMCPY3D_PEER peer;
    CUgraphNode node;
    switch (kind) {
    case 3:
        return cuMemcpy3DAsync_v2(&copy, stream);
    case 4:
        return any(2) ? cuMemcpy2DAsync_v2(&flat, stream) : cuMemcpy2DUnaligned_v2(&flat);
    case 5:
        memcpy(&peer, &copy, sizeof peer);
        peer.srcContext = peer.dstContext = context;
        return cuMemcpy3DPeerAsync(&peer, stream);
    default:
        return any(2) ? cuGraphMemcpyNodeSetParams(copies, &copy)
                      : cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, context);
    }
}

/* Frees a block, uses its memory, and allocates another block. No request comes between the free and the last
 * use. */
static void replace(unsigned i) {
    CUdeviceptr freed = block[i].at;
    bool ordered = block[i].ordered || any(4) == 0;
    MUST(cuStreamSynchronize(stream));
    if (ordered) {
        MUST(cuMemFreeAsync(freed, stream));
        MUST(cuCtxSynchronize());
    } else {
        if (any(2))
            MUST(cuMemsetD8Async(block[(i + 1) % BLOCKS].at, 1, 512, stream)); /* it may have to wait */
        MUST(cuMemFree_v2(freed));
    }
    if (any(3) == 0)
        MUST(cuCtxSynchronize());
    size_t bytes = any(2) ? 16 : block[i].size;
    printf("%s, of %zu bytes: ", ordered ? block[i].ordered ? "async" : "plain async" : "plain", block[i].size);
    say("freed, filled", cuMemsetD8Async(freed, 1, bytes, stream));
    say("freed, filled", cuMemsetD32_v2(freed, 1, bytes / 4));
    say("freed, copied", cuMemcpyDtoHAsync_v2(host, freed, 16, stream));
    say("freed, nothing copied", cuMemcpyDtoH_v2(host, freed, 0));
    make(i);
}

static void run(const void *seed) {
    state = (uint64_t)atoll(seed);
    host = calloc(1, HOST);
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .WidthInBytes = 16,
                          .Height = 1,
                          .Depth = 1};
    CUDA_MEMSET_NODE_PARAMS fill = {.elementSize = 1, .width = 16, .height = 1};
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    for (unsigned i = 0; i < BLOCKS; i++)
        make(i);
    CUdeviceptr kept;
    MUST(cuMemAlloc_v2(&kept, 512));
    copy.srcDevice = copy.dstDevice = fill.dst = kept;
    MUST(cuGraphCreate(&graph, 0));
    MUST(cuGraphAddMemcpyNode(&copies, graph, NULL, 0, &copy, context));
    MUST(cuGraphAddMemsetNode(&fills, graph, NULL, 0, &fill, context));
    for (unsigned n = 0; n < OPERATIONS; n++) {
        unsigned from = (unsigned)any(BLOCKS), to = (unsigned)any(BLOCKS), kind = (unsigned)any(16);
        printf("%u: ", n);
        if (kind == 0)
            replace(from);
        else if (kind == 1)
            say("captured", captured(to));
        else if (kind < 9)
            say("line", line(from, to));
        else
            say("shape", shaped(from, to));
    }
    say("all of it", cuCtxSynchronize());
    for (unsigned i = 0; i < BLOCKS; i++) {
        uint64_t sum = 0;
        say("read back", cuMemcpyDtoH_v2(host, block[i].at, block[i].size));
        for (size_t at = 0; at < block[i].size; at++)
            sum = sum * 31 + host[at];
        printf("block %u => %llx\n", i, (unsigned long long)sum);
    }
}

int main(int argc, char **argv) {
    return argc == 2 ? in_child("ranges", run, argv[1]) != 0 : 2;
}

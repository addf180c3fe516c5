/* Contract 6, identity: a block looks like an allocation of its own. Every check holds without the
 * library and with it, on segments and on pages.
 *
 * usage: identity CASE (a name of the table at the end). Exit status 0: passed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static const size_t sizes[] = {100, 512, 4 * KIB, 5000, 70 * KIB, 3 * MIB, 21 * MIB};
enum { SIZES = sizeof sizes / sizeof *sizes };

static CUdeviceptr take(size_t bytes) {
    CUdeviceptr p = 0;
    MUST(cuMemAlloc_v2(&p, bytes));
    return p;
}

static unsigned long long number(CUpointer_attribute which, CUdeviceptr p) {
    unsigned long long value = 0;
    MUST(cuPointerGetAttribute(&value, which, p));
    return value;
}

/* --- ids --- */

enum { SEEN = 4096 };
static unsigned long long seen[SEEN];
static unsigned seen_count;

static void is_new(unsigned long long id) {
    for (unsigned i = 0; i < seen_count; i++)
        EXPECT(seen[i] != id);
    NEED(seen_count < SEEN);
    seen[seen_count++] = id;
}

/* The block's id, by all ways to ask. */
static unsigned long long id_of(CUdeviceptr p, size_t bytes) {
    unsigned long long id = number(CU_POINTER_ATTRIBUTE_BUFFER_ID, p), again = 0;
    CUpointer_attribute which = CU_POINTER_ATTRIBUTE_BUFFER_ID;
    void *out = &again;
    EXPECT(number(CU_POINTER_ATTRIBUTE_BUFFER_ID, p + bytes / 2) == id);
    EXPECT(number(CU_POINTER_ATTRIBUTE_BUFFER_ID, p + bytes - 1) == id);
    EXPECT(number(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, p) == id);
    MUST(cuPointerGetAttributes(1, &which, &out, p + bytes / 2));
    EXPECT(again == id);
    return id;
}

static void ids(void) {
    for (int round = 0; round < 20; round++)
        for (int i = 0; i < SIZES; i++) {
            CUdeviceptr p = take(sizes[i]), beside = take(sizes[i]);
            is_new(id_of(p, sizes[i]));
            MUST(cuMemFree_v2(p));
            is_new(id_of(beside, sizes[i]));
            MUST(cuMemFree_v2(beside));
        }
}

static void ids_on_streams(void) {
    CUstream stream = test_stream();
    for (int round = 0; round < 20; round++)
        for (int i = 0; i < SIZES; i++) {
            CUdeviceptr p = 0;
            MUST(cuMemAllocAsync(&p, sizes[i], stream));
            is_new(id_of(p, sizes[i]));
            MUST(cuMemFreeAsync(p, stream));
        }
    MUST(cuStreamSynchronize(stream));
}

/* --- SYNC_MEMOPS --- */

static void set_sync(CUdeviceptr p, unsigned on) {
    MUST(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
}

static bool is_sync(CUdeviceptr p) {
    return number(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
}

/* With the library, the driver has SYNC_MEMOPS set as long as a block asks for it, and no
 * longer. */
static void syncs(void) {
    for (int i = 0; i < SIZES; i++) {
        CUdeviceptr a = take(sizes[i]), b = take(sizes[i]), c = take(sizes[i]);
        set_sync(a + sizes[i] / 2, 1);
        EXPECT(is_sync(a) && is_sync(a + sizes[i] - 1) && !is_sync(b));
        EXPECT(simcuda_live("synced") > 0);
        set_sync(c, 1);
        set_sync(c, 0);
        EXPECT(!is_sync(c) && is_sync(a) && simcuda_live("synced") > 0);
        set_sync(c, 1);
        MUST(cuMemFree_v2(a));
        EXPECT(is_sync(c) && simcuda_live("synced") > 0);
        MUST(cuMemFree_v2(c));
        EXPECT(simcuda_live("synced") == 0);
        a = take(sizes[i]);
        EXPECT(!is_sync(a) && !is_sync(b));
        MUST(cuMemFree_v2(a));
        MUST(cuMemFree_v2(b));
    }
}

static void syncs_on_streams(void) {
    CUstream stream = test_stream();
    CUdeviceptr p = 0;
    MUST(cuMemAllocAsync(&p, MIB, stream));
    set_sync(p, 1);
    EXPECT(is_sync(p) && simcuda_live("synced") > 0);
    MUST(cuMemFreeAsync(p, stream));
    MUST(cuStreamSynchronize(stream));
    EXPECT(simcuda_live("synced") == 0);
}

/* --- what it costs --- */

static size_t used(void) {
    size_t available, total;
    MUST(cuMemGetInfo_v2(&available, &total));
    return total - available;
}

/* Registers a thousand small buffers, twice. This costs at most the buffers' bytes and one
 * segment, and memory of freed buffers serves again. */
static void costs_nothing(void) {
    enum { BLOCKS = 1000 };
    static CUdeviceptr block[BLOCKS];
    size_t before = used();
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < BLOCKS; i++) {
            int fd = -1;
            if (block[i])
                MUST(cuMemFree_v2(block[i]));
            block[i] = take(4 * KIB);
            number(CU_POINTER_ATTRIBUTE_BUFFER_ID, block[i]);
            set_sync(block[i], 1);
            MUST(cuMemGetHandleForAddressRange(&fd, block[i], 4 * KIB,
                                               CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
            close(fd);
        }
    size_t cost = used() - before;
    if (cost > BLOCKS * 4 * KIB * 11 / 10 + 8 * MIB)
        test_stop(TEST_WRONG, "%zu KiB for %d blocks of 4 KiB", cost / KIB, BLOCKS);
}

/* --- ranges --- */

static void ranges(void) {
    for (int i = 0; i < SIZES; i++) {
        CUdeviceptr p = take(sizes[i]), before = take(sizes[i]);
        size_t inner[] = {0, 1, sizes[i] / 2, sizes[i] - 1};
        for (int k = 0; k < 4; k++) {
            CUdeviceptr base = 0;
            size_t size = 0;
            MUST(cuMemGetAddressRange_v2(&base, &size, p + inner[k]));
            EXPECT(base == p && size == sizes[i]);
            EXPECT(number(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p + inner[k]) == p);
            EXPECT(number(CU_POINTER_ATTRIBUTE_RANGE_SIZE, p + inner[k]) == sizes[i]);
            EXPECT(number(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, p + inner[k]) == p);
            EXPECT(number(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, p + inner[k]) == sizes[i]);
            EXPECT(number(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p + inner[k]) == p + inner[k]);
        }
        MUST(cuMemFree_v2(before));
        MUST(cuMemFree_v2(p));
        unsigned long long id = 0;
        CUdeviceptr base = 0;
        GIVES(cuMemGetAddressRange_v2(&base, NULL, p), CUDA_ERROR_NOT_FOUND);
        GIVES(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, p),
              CUDA_ERROR_INVALID_VALUE);
        EXPECT(base == 0 && id == 0);
    }
}

/* --- handles of ranges --- */

static CUresult dma_buf(CUdeviceptr from, CUdeviceptr to) {
    int fd = -1;
    CUresult result = cuMemGetHandleForAddressRange(&fd, from, to - from,
                                                    CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    EXPECT((result == CUDA_SUCCESS) == (fd >= 0));
    if (fd >= 0)
        close(fd);
    return result;
}

/* Exports each buffer, rounded to host pages, as UCX, libfabric and NCCL do. */
static void rounded_ranges(void) {
    CUdeviceptr mask = (CUdeviceptr)sysconf(_SC_PAGESIZE) - 1;
    for (int i = 0; i < SIZES; i++) {
        CUdeviceptr block[12];
        for (int k = 0; k < 12; k++)
            block[k] = take(sizes[i]);
        for (int k = 0; k < 12; k++)
            GIVES(dma_buf(block[k] & ~mask, (block[k] + sizes[i] + mask) & ~mask), CUDA_SUCCESS);
        for (int k = 0; k < 12; k++)
            MUST(cuMemFree_v2(block[k]));
    }
}

/* The driver refuses a range beyond the pages of one buffer, and free memory. */
static void foreign_ranges(void) {
    CUdeviceptr mask = (CUdeviceptr)sysconf(_SC_PAGESIZE) - 1, p = take(3 * MIB),
                q = take(3 * MIB);
    NEED(!(p & mask) && !(q & mask));
    GIVES(dma_buf(p, p + 3 * MIB + mask + 1), CUDA_ERROR_INVALID_VALUE);
    GIVES(dma_buf(p, p + 600 * MIB), CUDA_ERROR_INVALID_VALUE);
    GIVES(dma_buf(p, p + 3 * MIB), CUDA_SUCCESS);
    GIVES(dma_buf(p + mask + 1, p + 2 * MIB), CUDA_SUCCESS);
    MUST(cuMemFree_v2(p));
    GIVES(dma_buf(p, p + 3 * MIB), CUDA_ERROR_INVALID_VALUE);
    MUST(cuMemFree_v2(q));
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"ids", ids},
             {"ids_on_streams", ids_on_streams},
             {"syncs", syncs},
             {"syncs_on_streams", syncs_on_streams},
             {"costs_nothing", costs_nothing},
             {"ranges", ranges},
             {"rounded_ranges", rounded_ranges},
             {"foreign_ranges", foreign_ranges}};

int main(int argc, char **argv) {
    for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
        if (strcmp(argv[1], cases[i].name) == 0) {
            test_device(0);
            test_title = cases[i].name;
            cases[i].run();
            return TEST_GOOD;
        }
    return TEST_USAGE;
}

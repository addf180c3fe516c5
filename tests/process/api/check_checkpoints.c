/* Former states of private pools, results of refused frees, and expandable segments per stream. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"

static accel_checkpoint_t *checkpoint_of(accel_pool_id_t pool) {
    accel_checkpoint_t *checkpoint = NULL;
    ck_assert_int_eq(accel_get_checkpoint_state(0, pool, &checkpoint), ACCEL_OK);
    return checkpoint;
}

/* Restores the checkpoint, and checks the lists of freed and allocated blocks. Each list ends with
 * NULL. */
static void restore(const accel_checkpoint_t *checkpoint, void *const *freed,
                    void *const *allocated) {
    accel_checkpoint_delta_t delta = {.size = sizeof delta};
    size_t count;
    ck_assert_int_eq(accel_set_checkpoint_pool_state(checkpoint, &delta), ACCEL_OK);
    for (int list = 0; list < 2; list++) {
        void *const *expected = list ? allocated : freed;
        void *const *got = list ? delta.allocated : delta.freed;
        size_t length = list ? delta.allocated_count : delta.freed_count;
        for (count = 0; expected[count]; count++) {
            size_t at = 0;
            while (at < length && got[at] != expected[count])
                at++;
            ck_assert_msg(at < length, "list %d lacks its entry %zu", list, count);
        }
        ck_assert_uint_eq(length, count);
    }
    free(delta.freed);
    free(delta.allocated);
}

static size_t bytes_of(const void *pointer) {
    accel_pointer_info_t info = info_of(pointer);
    ck_assert_ptr_eq(info.base, pointer);
    return info.bytes;
}

START_TEST(blocks_come_back) {
    CUstream stream = new_stream(0);
    accel_pool_id_t pool = open_pool(0);
    accel_checkpoint_t *empty = checkpoint_of(pool);
    void *a = alloc(1000, stream), *b = alloc(3000, stream), *c = alloc(3 * MIB, stream);
    int value = 4711, read = 0;
    ck_assert_int_eq(cuMemcpyHtoD_v2(address_of(b), &value, sizeof value), 0);
    accel_checkpoint_t *three = checkpoint_of(pool);
    /* A restore frees newer blocks, and brings freed blocks back at their addresses with their
     * content. */
    ck_assert_int_eq(accel_raw_delete(b), ACCEL_OK);
    void *small = alloc(512, stream), *d = alloc(5000, stream), *e = alloc(50 * MIB, stream);
    ck_assert_ptr_eq(small, b); /* in the memory of the block that the restore brings back */
    restore(three, (void *[]){a, c, small, d, e, NULL}, (void *[]){a, b, c, NULL});
    ck_assert(bytes_of(a) == 1000 && bytes_of(b) == 3000 && bytes_of(c) == 3 * MIB);
    ck_assert_int_eq(accel_pool_check_live(pool, 0, (void *[]){a, b, c}, 3), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(d), ACCEL_ERROR_INTERIOR);
    ck_assert_int_eq(accel_raw_delete(e), ACCEL_ERROR_DOUBLE_FREE);
    ck_assert_int_eq(cuMemcpyDtoH_v2(&read, address_of(b), sizeof read), 0);
    ck_assert_int_eq(read, 4711);
    size_t reserved, allocated;
    ck_assert_int_eq(accel_pool_bytes(pool, 0, &reserved, &allocated), ACCEL_OK);
    ck_assert_uint_eq(allocated, 1024 + 3072 + 3 * MIB);
    ck_assert_uint_eq(reserved, (2 + 20 + 50) * MIB);
    /* Requests after the restore get the addresses that they got the first time. */
    void *after = alloc(5000, stream);
    ck_assert_ptr_eq(alloc(18 * MIB, stream), e);
    restore(three, (void *[]){a, b, c, after, e, NULL}, (void *[]){a, b, c, NULL});
    ck_assert_ptr_eq(alloc(5000, stream), after);
    /* All blocks are free, and neighbours are coalesced. */
    restore(empty, (void *[]){a, b, c, after, NULL}, (void *[]){NULL});
    ck_assert_ptr_eq(alloc(20 * MIB, stream), c);
    restore(three, (void *[]){c, NULL}, (void *[]){a, b, c, NULL});
    restore(three, (void *[]){a, b, c, NULL}, (void *[]){a, b, c, NULL});
    ck_assert_int_eq(accel_set_checkpoint_pool_state(empty, NULL), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(a), ACCEL_ERROR_DOUBLE_FREE);
    ck_assert_int_eq(accel_pool_empty(pool), ACCEL_OK);
    ck_assert_int_eq(accel_pool_bytes(pool, 0, &reserved, &allocated), ACCEL_OK);
    ck_assert(!reserved && !allocated);
    accel_release_checkpoint_state(empty);
    accel_release_checkpoint_state(three);
    accel_release_checkpoint_state(NULL);
}
END_TEST

static unsigned told[ACCEL_TRACE_USER_DEFINED + 1];
static void on_trace(const accel_trace_entry_t *entry, void *arg) {
    ck_assert_ptr_eq(arg, told);
    told[entry->action]++;
}

START_TEST(what_cannot_come_back) {
    CUstream stream = new_stream(0), other = new_stream(0);
    accel_pool_id_t pool = open_pool(0), none = {0, 0};
    accel_checkpoint_t *held = NULL;
    accel_checkpoint_delta_t delta = {.size = 1};
    ck_assert_int_eq(accel_get_checkpoint_state(0, pool, NULL), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_get_checkpoint_state(0, none, &held), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_get_checkpoint_state(7, pool, &held), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_set_checkpoint_pool_state(NULL, NULL), ACCEL_ERROR_INVALID);
    void *a = alloc(MIB, stream), *b = alloc(30 * MIB, stream);
    held = checkpoint_of(pool);
    ck_assert_int_eq(accel_set_checkpoint_pool_state(held, &delta), ACCEL_ERROR_INVALID);
    /* A segment of the checkpoint no longer exists: the restore fails and changes nothing. */
    ck_assert_int_eq(accel_raw_delete(b), ACCEL_OK);
    ck_assert_int_eq(accel_pool_empty(pool), ACCEL_OK);
    void *c = alloc(MIB, stream);
    ck_assert_int_eq(accel_attach_trace_tracker(on_trace, told), ACCEL_OK);
    ck_assert_int_eq(accel_set_checkpoint_pool_state(held, NULL), ACCEL_ERROR_INVALID);
    ck_assert_uint_eq(told[ACCEL_TRACE_ALLOC], 0);
    ck_assert_int_eq(accel_pool_check_live(pool, 0, (void *[]){a, c}, 2), ACCEL_OK);
    /* Another stream's block has the address, so the restore fails. */
    ck_assert_ptr_eq(alloc(30 * MIB, other), b);
    ck_assert_int_eq(accel_set_checkpoint_pool_state(held, NULL), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_raw_delete(b), ACCEL_OK);
    for (int i = 0; i <= ACCEL_TRACE_USER_DEFINED; i++)
        told[i] = 0;
    accel_release_checkpoint_state(held);
    /* Observers see a restore as frees and requests. */
    held = checkpoint_of(pool);
    ck_assert_int_eq(accel_raw_delete(c), ACCEL_OK);
    ck_assert_int_eq(accel_set_checkpoint_pool_state(held, NULL), ACCEL_OK);
    ck_assert_uint_eq(told[ACCEL_TRACE_FREE_REQUESTED], 2);
    ck_assert_uint_eq(told[ACCEL_TRACE_FREE_COMPLETED], 2);
    ck_assert_uint_eq(told[ACCEL_TRACE_ALLOC], 2);
    end_and_release(pool);
    ck_assert_int_eq(accel_set_checkpoint_pool_state(held, NULL), ACCEL_ERROR_INVALID);
    accel_release_checkpoint_state(held);
}
END_TEST

START_TEST(devices_and_streams_apart) {
    CUstream there = new_stream(1), here = new_stream(0), second = new_stream(0);
    accel_pool_id_t pool = open_pool(0);
    begin(pool, 1);
    void *a = alloc(1000, here), *b = alloc(1000, second);
    ck_assert_int_eq(accel_set_device(1), ACCEL_OK);
    void *c = alloc(1000, there);
    accel_checkpoint_t *checkpoint = checkpoint_of(pool);
    ck_assert_int_eq(accel_raw_delete(a), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(b), ACCEL_OK);
    restore(checkpoint, (void *[]){NULL}, (void *[]){a, b, NULL});
    ck_assert_int_eq(accel_raw_delete(c), ACCEL_OK); /* the block was not on device 0 */
    /* The stream that freed the block gets it again. */
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(b), ACCEL_OK);
    ck_assert_ptr_eq(alloc(1000, second), b);
    accel_release_checkpoint_state(checkpoint);
}
END_TEST

/* The pool reuses a block with another stream's work only after this work has completed. */
START_TEST(work_elsewhere) {
    CUstream mine = new_stream(0), other = new_stream(0);
    accel_pool_id_t pool = open_pool(0);
    void *a = alloc(MIB, mine), *b = alloc(MIB, mine);
    accel_checkpoint_t *checkpoint = checkpoint_of(pool);
    hold(other);
    ck_assert_int_eq(accel_record_stream(a, other), ACCEL_OK);
    ck_assert_int_eq(accel_set_checkpoint_pool_state(checkpoint, NULL), ACCEL_ERROR_BUSY);
    ck_assert_int_eq(accel_raw_delete(a), ACCEL_OK); /* waits for the other stream */
    ck_assert_int_eq(accel_set_checkpoint_pool_state(checkpoint, NULL), ACCEL_ERROR_BUSY);
    ck_assert_int_eq(accel_pool_check_live(pool, 0, &b, 1), ACCEL_OK);
    let_go(mine);
    restore(checkpoint, (void *[]){b, NULL}, (void *[]){a, b, NULL});
    /* The work has completed, and no later free waits for it. */
    hold(other);
    ck_assert_int_eq(accel_raw_delete(a), ACCEL_OK);
    ck_assert_ptr_eq(alloc(MIB, mine), a);
    /* The restore does not wait while a stream captures. */
    ck_assert_int_eq(accel_record_stream(b, other), ACCEL_OK);
    let_go(mine);
    CUgraph graph;
    ck_assert_int_eq(cuStreamBeginCapture_v2(mine, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    ck_assert_int_eq(accel_set_checkpoint_pool_state(checkpoint, NULL), ACCEL_ERROR_BUSY);
    ck_assert_int_eq(cuStreamEndCapture(mine, &graph), CUDA_SUCCESS);
    restore(checkpoint, (void *[]){a, b, NULL}, (void *[]){a, b, NULL});
    /* The handle of a destroyed stream tells nothing about work on it. */
    ck_assert_int_eq(cuStreamDestroy_v2(mine), CUDA_SUCCESS);
    hold(other);
    ck_assert_int_eq(accel_set_checkpoint_pool_state(checkpoint, NULL), ACCEL_ERROR_BUSY);
    let_go(NULL);
    restore(checkpoint, (void *[]){a, b, NULL}, (void *[]){a, b, NULL});
    accel_release_checkpoint_state(checkpoint);
}
END_TEST

/* --- threads: allocate and free while checkpoints are restored --- */

enum { ROUNDS = 200 };

static void *work(void *arg) {
    size_t random = (size_t)(uintptr_t)arg;
    CUstream stream = new_stream(0);
    while (!atomic_load(&over)) {
        next_random(&random);
        void *block = NULL;
        accel_status_t status =
            accel_raw_alloc_with_stream(&block, (size_t)512 << (random >> 40) % 14, stream);
        if (status != ACCEL_OK) { /* blocks that are not freed below live until a restore */
            ck_assert_int_eq(status, ACCEL_ERROR_DEVICE_MEMORY);
            sched_yield();
            continue;
        }
        if (random >> 60 == 0)
            accel_record_stream(block, NULL);
        /* A restore may have freed the block, or another thread may own it. */
        if (random >> 50 & 7)
            accel_raw_delete(block);
    }
    return NULL;
}

START_TEST(threads) {
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    accel_pool_id_t pool = open_pool(0);
    accel_checkpoint_t *empty = checkpoint_of(pool);
    int done = 0;
    start(work);
    for (int i = 0; i < ROUNDS; i++) {
        accel_checkpoint_t *now = checkpoint_of(pool);
        accel_checkpoint_delta_t delta = {.size = sizeof delta};
        accel_status_t status = accel_set_checkpoint_pool_state(i % 3 ? now : empty, &delta);
        ck_assert(status == ACCEL_OK || status == ACCEL_ERROR_BUSY);
        done += status == ACCEL_OK;
        if (status == ACCEL_OK) {
            free(delta.freed);
            free(delta.allocated);
        }
        accel_release_checkpoint_state(now);
    }
    stop();
    ck_assert_int_gt(done, 0);
    ck_assert_int_eq(accel_set_checkpoint_pool_state(empty, NULL), ACCEL_OK);
    end_and_release(pool);
    accel_release_checkpoint_state(empty);
    nothing_left();
}
END_TEST

/* --- refused frees --- */

START_TEST(refused_frees) {
    CUstream stream = new_stream(0);
    char here[1024];
    void *a, *b;
    ck_assert_int_eq(accel_malloc(&a, MIB), ACCEL_OK);
    ck_assert_int_eq(accel_malloc_async(&b, MIB, stream), ACCEL_OK);
    ck_assert_int_eq(accel_free((char *)a + 512), ACCEL_ERROR_INTERIOR);
    ck_assert_int_eq(accel_free_async((char *)b + 512, stream), ACCEL_ERROR_INTERIOR);
    ck_assert_int_eq(accel_raw_delete((char *)a + 512), ACCEL_ERROR_INTERIOR);
    ck_assert_int_eq(accel_free(here), ACCEL_ERROR_NOT_OURS);
    ck_assert_int_eq(accel_free_async(here, stream), ACCEL_ERROR_NOT_OURS);
    ck_assert_int_eq(accel_raw_delete(here), ACCEL_ERROR_NOT_OURS);
    ck_assert_int_eq(accel_free(a), ACCEL_OK);
    ck_assert_int_eq(accel_free(a), ACCEL_ERROR_DOUBLE_FREE);
    ck_assert_int_eq(accel_free_async(b, stream), ACCEL_OK);
    ck_assert_int_eq(accel_free_async(b, stream), ACCEL_ERROR_DOUBLE_FREE);
    void *raw = alloc(MIB, stream);
    ck_assert_int_eq(accel_raw_delete(raw), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(raw), ACCEL_ERROR_DOUBLE_FREE);
    /* The first block of a pool's segment has the segment's address. The segment is not a block of the
     * program, so the free returns the block to the pool. */
    accel_pool_id_t pool = open_pool(0);
    void *first = alloc(1000, stream), *second = alloc(1000, stream);
    size_t reserved;
    ck_assert_int_eq(accel_raw_delete((char *)second + 512), ACCEL_ERROR_INTERIOR);
    ck_assert_int_eq(accel_raw_delete(first), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(first), ACCEL_ERROR_DOUBLE_FREE);
    ck_assert_int_eq(accel_raw_delete((char *)first + MIB), ACCEL_ERROR_DOUBLE_FREE);
    ck_assert_int_eq(accel_pool_bytes(pool, 0, &reserved, NULL), ACCEL_OK);
    ck_assert_uint_eq(reserved, 2 * MIB);
    ck_assert_int_eq(stats_of(0).allocation.all.current, 1); /* the segment */
    ck_assert_ptr_eq(alloc(1000, stream), first);
    for (int status = ACCEL_ERROR_DOUBLE_FREE; status <= ACCEL_ERROR_INTERIOR; status++)
        ck_assert_str_ne(accel_status_string((accel_status_t)status), "unknown status");
}
END_TEST

/* --- expandable segments per stream --- */

static size_t bytes_for(const accel_segment_size_t *sizes, size_t count, const void *stream) {
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += sizes[i].stream == stream ? sizes[i].bytes : 0;
    return bytes;
}

START_TEST(expandable_segments) {
    accel_segment_size_t *sizes;
    size_t count;
    ck_assert_int_eq(accel_set_allocator_settings("expandable_segments:true", NULL, 0), ACCEL_OK);
    CUstream first = new_stream(0), second = new_stream(0);
    ck_assert_int_eq(accel_get_expandable_segment_sizes(0, &sizes, &count), ACCEL_OK);
    ck_assert(!count && !sizes);
    void *a = alloc(4 * MIB, first), *plain;
    ck_assert_int_eq(accel_malloc(&plain, 6 * MIB), ACCEL_OK);
    accel_pool_id_t pool = open_pool(0);
    void *pooled = alloc(1000, second);
    ck_assert_int_eq(accel_get_expandable_segment_sizes(0, &sizes, &count), ACCEL_OK);
    ck_assert_uint_eq(bytes_for(sizes, count, first), 4 * MIB);
    ck_assert_uint_eq(bytes_for(sizes, count, second), 2 * MIB); /* the pool's segment */
    ck_assert_uint_ge(bytes_for(sizes, count, NULL), 6 * MIB);
    accel_device_stats_t stats = stats_of(0);
    size_t sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += sizes[i].bytes;
    ck_assert_uint_eq(sum, (size_t)stats.reserved_bytes.all.current);
    free(sizes);
    ck_assert_int_eq(accel_raw_delete(a), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(pooled), ACCEL_OK);
    ck_assert_int_eq(accel_get_expandable_segment_sizes(0, &sizes, &count), ACCEL_OK);
    ck_assert_uint_eq(bytes_for(sizes, count, first), 0);
    free(sizes);
    ck_assert_int_eq(accel_get_expandable_segment_sizes(0, NULL, &count), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_get_expandable_segment_sizes(9, &sizes, &count), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_pool_empty(pool), ACCEL_OK);
    ck_assert_int_eq(accel_free(plain), ACCEL_OK);
}
END_TEST

int main(void) {
    const TTest *const tests[] = {
        blocks_come_back, what_cannot_come_back, devices_and_streams_apart, work_elsewhere,
        threads,          refused_frees,         expandable_segments,       NULL};
    return run_tests("checkpoints", tests);
}

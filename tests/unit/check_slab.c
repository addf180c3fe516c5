/* Slabs: adjacent small blocks, and their records, which come and go. */
#include <sys/resource.h>

#include "allocator/space/records.h"
#include "allocator_frame.h"
#include "run_suite.h"
#include "short_memory.h"

enum { KIB = 1024 };

static uint32_t records(void) {
    return allocator->slots.count;
}

static const ac_block_t *around(uint64_t address) {
    return ac_page_map_find(address);
}

static bool in_slab(uint64_t address) {
    return around(address)->state == AC_BLOCK_SLAB;
}

static void settle(void) {
    ac_allocator_drop_records(allocator);
    end();
}

static uint64_t in_use(void) {
    return (uint64_t)stats.allocated_bytes[AC_POOL_ALL].current;
}

/* --- sizes and places --- */

START_TEST(sizes_up_to_four_kib) {
    for (uint64_t size = 512; size <= 8 * KIB; size += 512)
        ck_assert_int_eq(in_slab(alloc(size - 1)), size <= 4 * KIB);
    ck_assert_uint_eq(in_use(), (uint64_t)512 * 16 * 17 / 2); /* the size is not rounded up */
    ck_assert_uint_eq(reserved(), 2 * MIB);
}
END_TEST

START_TEST(side_by_side_by_size) {
    uint64_t a = alloc(512), b = alloc(1024), c = alloc(512), d = alloc(1000);
    ck_assert_uint_eq(c, a + 512);
    ck_assert_uint_eq(d, b + 1024);
    ck_assert_uint_eq(a % AC_SLAB_SIZE, 0);
    ck_assert_uint_eq(b % AC_SLAB_SIZE, 0);
    give(a);
    ck_assert_uint_eq(alloc(100), a);
}
END_TEST

START_TEST(a_full_slab_is_followed_by_the_next) {
    uint64_t first = alloc(4096), last = 0;
    for (int i = 1; i < 17; i++)
        last = alloc(4096);
    ck_assert_uint_eq(last, first + AC_SLAB_SIZE);
    give(first + 3 * 4096); /* the lower slot serves again */
    ck_assert_uint_eq(alloc(4096), first + 3 * 4096);
}
END_TEST

START_TEST(the_lowest_of_several_serves) {
    uint64_t slab[4];
    for (int s = 0; s < 4; s++)
        for (int i = 0; i < 16; i++) {
            uint64_t a = alloc(4096);
            slab[s] = i ? slab[s] : a;
        }
    for (int s = 3; s >= 0; s--)
        give(slab[s]);
    for (int s = 0; s < 4; s++)
        ck_assert_uint_eq(alloc(4096), slab[s]);
}
END_TEST

START_TEST(goes_back_with_its_last_block) {
    uint64_t a[40];
    for (int i = 0; i < 40; i++)
        a[i] = alloc(1536); /* 42 fit, and 1 KiB at the end is unused */
    settle();
    for (int i = 0; i < 40; i++)
        give(a[i]);
    ck_assert_uint_eq(records(), 0);
    ck_assert_int_eq(stats.inactive_split[AC_POOL_ALL].current, 0); /* all one block again */
    ac_allocator_trim(allocator, false);
    ck_assert_uint_eq(reserved(), 0);
}
END_TEST

/* Slabs are aligned to their size, whatever lies before them. */
START_TEST(between_other_blocks) {
    uint64_t odd = alloc(9 * KIB), a = alloc(512);
    ck_assert_uint_eq(odd % AC_SLAB_SIZE, 0);
    ck_assert_uint_eq(a, odd + AC_SLAB_SIZE);
    ck_assert_uint_eq(alloc(50 * KIB), odd + 9 * KIB); /* the gap before it serves others */
    give(odd);
    give(a);
}
END_TEST

START_TEST(none_for_requests_of_streams) {
    uint64_t a = 0;
    ck_assert_int_eq(ac_arena_alloc_on(arena, 1, 512, false, &a), AC_OK);
    ck_assert(!in_slab(a));
    give(a);
}
END_TEST

/* --- records --- */

START_TEST(held_blocks_need_no_record) {
    enum { MANY = 9000 };
    static uint64_t a[MANY];
    for (int i = 0; i < MANY; i++)
        a[i] = alloc(512);
    ck_assert_uint_lt(records(), 4200); /* the walk removed records */
    settle();
    ck_assert_uint_eq(records(), 0);
    ck_assert_uint_eq(in_use(), MANY * (uint64_t)512);
    for (int i = 0; i < MANY; i++)
        give(a[(i * 7) % MANY]);
    ck_assert_uint_eq(in_use(), 0);
}
END_TEST

START_TEST(a_block_without_a_record_is_known) {
    ac_block_info_t info;
    alloc(512);
    uint64_t a = alloc(700);
    settle();
    ck_assert_int_eq(ac_block_find(a + 1023, &info), AC_OK);
    ck_assert(info.allocated && !info.async);
    ck_assert_uint_eq(info.address, a);
    ck_assert_uint_eq(info.size, 1024);
    ck_assert_uint_eq(info.requested, 700);
    ck_assert_uint_eq(info.segment_size, 2 * MIB);
    ck_assert_uint_eq(records(), 0);
    ck_assert_int_eq(ac_block_find(a + 1024, &info), AC_OK); /* its neighbour was never used */
    ck_assert(!info.allocated);
    ck_assert_int_eq(ac_block_free(a + 1024), AC_BAD_ADDRESS);
    ck_assert_int_eq(ac_block_free(a + 512), AC_BAD_ADDRESS);
    give(a);
    ck_assert_int_eq(ac_block_free(a), AC_BAD_ADDRESS); /* and once only */
}
END_TEST

/* Blocks of 1536 bytes: the rest at the end of a slab belongs to no slot. */
START_TEST(the_end_of_a_slab) {
    ac_block_info_t info;
    uint64_t a = alloc(1536);
    settle();
    ck_assert_int_eq(ac_block_find(a + AC_SLAB_SIZE - 1, &info), AC_OK);
    ck_assert(!info.allocated);
    ck_assert_uint_eq(info.size, 1024);
    ck_assert_int_eq(ac_block_free(a + 42 * 1536), AC_BAD_ADDRESS);
}
END_TEST

/* The time of the handout stays known. A free waits for work submitted since then. */
START_TEST(work_is_remembered) {
    uint64_t before = alloc(512), a = alloc(512);
    submit(0);
    uint64_t after = alloc(512);
    settle();
    give(after);
    ck_assert_uint_eq(counters.ready_frees, 1);
    give(a);
    ck_assert_uint_eq(counters.fenced_frees, 1);
    uint64_t next = alloc(512);
    ck_assert_uint_ne(next, a);
    settle(); /* the pending one keeps its record */
    ck_assert_uint_eq(records(), 1);
    fake_complete(&context[0], 1);
    ac_fence_synced(ac_arena_timeline(arena), ac_fence_stamp());
    give(before);
    uint64_t again[2] = {alloc(512), alloc(512)};
    ck_assert(again[0] == a || again[1] == a);
}
END_TEST

/* A free slot has no epoch. The place at which its record was listed must not be read as one. */
START_TEST(a_free_slot_has_no_clock) {
    ac_block_t shown;
    alloc(512);
    uint64_t a = alloc(512);
    give(a);
    ck_assert_uint_eq(ac_slab_at(around(a), a, &shown)->ticket.epoch, 0);
}
END_TEST

START_TEST(marked_as_used_without_a_record) {
    uint64_t a = alloc(512);
    settle();
    ck_assert_int_eq(ac_block_mark_used(a), AC_OK);
    settle();
    give(a);
    ck_assert_uint_eq(counters.fenced_frees, 1);
}
END_TEST

/* --- with a cache --- */

static ac_cache_tally_t tally;

static ac_cache_t *open_cache(void) {
    settings.thread_cache = 2 * MIB;
    ac_allocator_configure(allocator, &settings);
    ac_cache_t *cache = ac_cache_open(arena, &tally);
    ck_assert_ptr_nonnull(cache);
    return cache;
}

static uint64_t take(ac_cache_t *cache, uint64_t bytes) {
    uint64_t address = 0;
    ck_assert_int_eq(ac_cache_alloc(cache, bytes, false, &address), AC_OK);
    return address;
}

/* Between the lookup of a block and its free, its record may serve another block. */
START_TEST(a_record_found_before_it_went) {
    ac_cache_t *cache = open_cache();
    uint64_t kept[6];
    for (int i = 0; i < 6; i++)
        kept[i] = take(cache, 512);
    for (int i = 3; i < 6; i++) /* no peak is near */
        ck_assert_int_eq(ac_cache_free(cache, kept[i]), AC_OK);
    ac_block_t *found = ac_cache_block(cache, kept[1]);
    ck_assert_ptr_nonnull(found);
    ac_allocator_trim(allocator, false); /* returns the slots that the cache fetched */
    settle();
    ck_assert_ptr_null(ac_cache_block(cache, kept[1]));
    uint64_t next = 0;
    for (int i = 0; i < 64 && found->state != AC_BLOCK_ALLOCATED; i++)
        next = take(cache, 512); /* the record serves another block now */
    ck_assert_uint_eq(found->address, next);
    ck_assert_int_eq(ac_cache_free(cache, take(cache, 512)), AC_OK); /* and room for one */
    ck_assert(!ac_cache_give(cache, found, kept[1]));
    atomic_fetch_or(&cache->gate, AC_GATE_STEPPED);
    ck_assert(!ac_cache_give(cache, found, kept[1]));
    atomic_fetch_and(&cache->gate, ~(uint32_t)AC_GATE_STEPPED);
    *ac_cache_handed(cache, kept[1]) = found;
    ck_assert(!ac_cache_give_handed(cache, kept[1]));
    ck_assert_int_eq(ac_cache_free(cache, kept[1]), AC_OK);
    ck_assert_uint_eq(take(cache, 512), kept[1]);
    ac_cache_close(cache);
}
END_TEST

START_TEST(records_stay_while_a_thread_is_in_its_cache) {
    ac_cache_t *cache = open_cache();
    uint64_t a = take(cache, 512);
    ac_block_t *block = ac_cache_block(cache, a);
    atomic_store(&cache->busy, 1); /* inside, on the short path or the long one */
    ac_allocator_drop_records(allocator);
    ck_assert(ac_cache_owns(cache, block, a));
    ac_cache_leave(cache);
    settle();
    ck_assert(!ac_cache_owns(cache, block, a));
    ac_cache_close(cache);
}
END_TEST

/* --- host memory runs short --- */

static ac_block_t *used_up; /* by list_next */

/* Uses all records up. From here on a record is available only after another one was
 * returned. */
static void use_records_up(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = 4096; /* no further page */
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
    ac_lock(&allocator->lock);
    for (ac_block_t *record; (record = ac_record_block(&allocator->store)); used_up = record)
        record->list_next = used_up;
    ac_unlock(&allocator->lock);
}

static void spare_records(unsigned n) {
    ac_lock(&allocator->lock);
    for (; n && used_up; n--) {
        ac_block_t *record = used_up;
        used_up = record->list_next;
        ac_record_block_return(&allocator->store, record);
    }
    ac_unlock(&allocator->lock);
}

static void host_memory_is_back(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = limit.rlim_max;
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
}

START_TEST(a_free_needs_no_record) {
    if (!memory_can_be_short())
        return;
    uint64_t a = alloc(512), b = alloc(512), c = alloc(512), d = alloc(512);
    alloc(512);
    settle();
    use_records_up();
    ac_status_t ready = ac_block_free(a);
    submit(0);
    ac_status_t waits = ac_block_free(b); /* as for the driver's own memory */
    ac_status_t in_order = ac_block_free_on(arena, 1, c);
    submit(0);
    ac_order_capture_begin(1);
    submit(0);
    ac_status_t captured = ac_block_free(d);
    ac_order_capture_end();
    ac_status_t again = ac_block_free(b);
    ac_status_t later = ac_block_free(d);
    host_memory_is_back();
    ck_assert_int_eq(ready, AC_OK);
    ck_assert_int_eq(waits, AC_OK);
    ck_assert_int_eq(in_order, AC_OK);
    ck_assert_int_eq(captured, AC_FAILED); /* a graph may name it, and no record could say so */
    ck_assert_int_eq(again, AC_BAD_ADDRESS);
    ck_assert_int_eq(later, AC_OK);
    ck_assert_int_eq(context[0].completed == context[0].submitted, true);
    ck_assert_uint_eq(in_use(), 512);
    ck_assert_int_eq(stats.active[AC_POOL_ALL].current, 1);
    end();
    ck_assert_uint_eq(alloc(512), a);
}
END_TEST

/* The free waits in the queue with the record of a block that can do without it. */
START_TEST(a_free_takes_the_record_of_another) {
    if (!memory_can_be_short())
        return;
    uint64_t a = alloc(512);
    settle();
    alloc(512);
    submit(0);
    use_records_up();
    ac_status_t status = ac_block_free(a);
    host_memory_is_back();
    ck_assert_int_eq(status, AC_OK);
    ck_assert_uint_eq(counters.fenced_frees, 1);
    ck_assert_uint_eq(records(), 1);
    ck_assert_uint_eq(context[0].completed, 0);
    end();
}
END_TEST

/* A taint restricts the later use of a block. */
START_TEST(a_taint_needs_no_record) {
    if (!memory_can_be_short())
        return;
    bool fresh = false;
    uint64_t a = alloc(512);
    settle();
    use_records_up();
    ac_status_t marked = ac_block_mark_used(a), tainted = ac_block_taint(a, &fresh);
    host_memory_is_back();
    ck_assert_int_eq(marked, AC_OK);
    ck_assert_int_eq(tainted, AC_OK);
    ck_assert(fresh);
    uint64_t elsewhere = alloc(512);
    ck_assert_uint_ge(elsewhere - a + 2 * MIB, 4 * MIB);
    ck_assert_int_eq(ac_block_taint(a + 512, &fresh), AC_BAD_ADDRESS);
    ck_assert_int_eq(ac_block_mark_used(a + 100), AC_BAD_ADDRESS);
}
END_TEST

/* --- ends --- */

START_TEST(a_tainted_segment_takes_its_slabs_along) {
    bool fresh;
    uint64_t a = alloc(512), b = alloc(512), c = alloc(2048);
    settle();
    ck_assert_int_eq(ac_block_taint(b, &fresh), AC_OK);
    ck_assert(fresh);
    end();
    give(a);
    uint64_t elsewhere = alloc(512);
    ck_assert_uint_ge(elsewhere - a + 2 * MIB, 4 * MIB); /* another segment */
    give(b);
    give(c);
    ck_assert_uint_eq(reserved(), 2 * MIB);
    settle();
}
END_TEST

START_TEST(a_lost_context_takes_its_slabs_along) {
    uint64_t kept[3];
    for (int i = 0; i < 40; i++)
        alloc(512);
    settle();
    for (int i = 0; i < 3; i++)
        kept[i] = alloc(512 * (uint64_t)(i + 1));
    submit(0);
    give(kept[1]);
    fake_context_kill(&context[0]);
    ac_arena_drop(arena);
    ck_assert_uint_eq(records(), 0);
    ck_assert_int_eq(stats.active[AC_POOL_ALL].current, 0);
    ck_assert_int_eq(stats.requested_bytes[AC_POOL_ALL].current, 0);
    uint64_t a;
    ck_assert_int_eq(try_alloc(other, 512, &a), AC_OK); /* in a slab that was used before */
    ck_assert_int_eq(ac_block_free(a), AC_OK);
}
END_TEST

/* --- before a request fails --- */

/* Allocates one block in each slab that fits. No more memory is available afterwards. */
static unsigned crowd(uint64_t a[], uint64_t size) {
    unsigned n = 0;
    settings.limit = 2 * MIB;
    ac_allocator_configure(allocator, &settings);
    while (try_alloc(arena, size, &a[n]) == AC_OK)
        n++;
    unsigned per = (unsigned)(AC_SLAB_SIZE / size);
    for (unsigned i = 0; i < n; i++)
        if (i % per != per / 2)
            give(a[i]);
    for (unsigned i = per / 2, to = 0; i < n; i += per)
        a[to++] = a[i];
    return n / per;
}

START_TEST(free_slots_serve_any_size) {
    static uint64_t a[5000];
    unsigned n = crowd(a, 512);
    ck_assert_uint_eq(n, 32);
    settle();
    uint64_t b = alloc(60 * KIB); /* the end of one slab and the start of the next */
    ck_assert(!in_slab(b));
    end();
    for (unsigned i = 0; i < n; i++)
        give(a[i]);
    give(b);
    ck_assert_int_eq(stats.inactive_split[AC_POOL_ALL].current, 0);
    ac_allocator_trim(allocator, false);
    ck_assert_uint_eq(reserved(), 0);
}
END_TEST

/* Slabs of all sizes, with a rest behind the slots, and with pending blocks. */
START_TEST(pending_blocks_are_in_the_way) {
    static uint64_t a[5000];
    unsigned n = crowd(a, 1536);
    submit(0);
    give(a[0]);
    alloc(40 * KIB);
    end();
    fake_complete(&context[0], 1);
    ac_fence_synced(ac_arena_timeline(arena), ac_fence_stamp());
    for (unsigned i = 1; i < n; i++)
        give(a[i]);
    alloc(60 * KIB);
}
END_TEST

/* Each slab is dissolved completely or not at all, even if records run out. */
START_TEST(as_far_as_records_go) {
    if (!memory_can_be_short())
        return;
    static uint64_t a[5000];
    unsigned n = crowd(a, 1536), spare = 0;
    uint64_t b = 0;
    settle();
    ac_status_t status;
    const char *why = NULL;
    do {
        use_records_up();
        spare_records(spare++);
        status = try_alloc(arena, 60 * KIB, &b);
        if (ac_allocator_check(allocator, &why))
            break;
    } while (status != AC_OK && spare < 10 * n);
    host_memory_is_back();
    ck_assert_msg(!why, "%s", why);
    ck_assert_int_eq(status, AC_OK);
    ck_assert_uint_gt(spare, 3);
    for (unsigned i = 0; i < n; i++)
        give(a[i]);
    give(b);
    end();
    ac_allocator_trim(allocator, false);
    ck_assert_uint_eq(reserved(), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("slab");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, begin_large, end);
    tcase_add_test(all, sizes_up_to_four_kib);
    tcase_add_test(all, side_by_side_by_size);
    tcase_add_test(all, a_full_slab_is_followed_by_the_next);
    tcase_add_test(all, the_lowest_of_several_serves);
    tcase_add_test(all, goes_back_with_its_last_block);
    tcase_add_test(all, between_other_blocks);
    tcase_add_test(all, none_for_requests_of_streams);
    tcase_add_test(all, held_blocks_need_no_record);
    tcase_add_test(all, a_block_without_a_record_is_known);
    tcase_add_test(all, the_end_of_a_slab);
    tcase_add_test(all, work_is_remembered);
    tcase_add_test(all, a_free_slot_has_no_clock);
    tcase_add_test(all, marked_as_used_without_a_record);
    tcase_add_test(all, a_record_found_before_it_went);
    tcase_add_test(all, records_stay_while_a_thread_is_in_its_cache);
    tcase_add_test(all, a_free_needs_no_record);
    tcase_add_test(all, a_free_takes_the_record_of_another);
    tcase_add_test(all, a_taint_needs_no_record);
    tcase_add_test(all, a_tainted_segment_takes_its_slabs_along);
    tcase_add_test(all, a_lost_context_takes_its_slabs_along);
    tcase_add_test(all, free_slots_serve_any_size);
    tcase_add_test(all, pending_blocks_are_in_the_way);
    tcase_add_test(all, as_far_as_records_go);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}

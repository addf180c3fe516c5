/* Block information for other libraries: serials of lifetimes, exports, and the reuse of
 * neighbouring blocks. */
#include <stdlib.h>
#include <string.h>

#include "allocator/space/lifetime.h"
#include "device/wait.h"
#include "allocator_frame.h"
#include "run_suite.h"

enum { KIB = 1024 };

static ac_cache_tally_t tally;
static ac_cache_t *cache;

static void begin_cached(void) {
    begin_large();
    settings.thread_cache = 8 * MIB;
    ac_allocator_configure(allocator, &settings);
    memset(&tally, 0, sizeof tally);
    cache = ac_cache_open(arena, &tally);
    ck_assert_ptr_nonnull(cache);
}

static void end_cached(void) {
    end();
    ac_cache_close(cache);
    end();
}

static uint64_t take(uint64_t bytes) {
    uint64_t address = 0;
    ck_assert_int_eq(ac_cache_alloc(cache, bytes, false, &address), AC_OK);
    return address;
}

static void put(uint64_t address) {
    ck_assert_int_eq(ac_cache_free(cache, address), AC_OK);
}

static uint64_t serial_of(uint64_t address) {
    uint64_t serial = 0;
    ck_assert_int_eq(ac_block_identify(address, &serial), AC_OK);
    ck_assert_uint_ne(serial, 0);
    return serial;
}

static ac_block_info_t info_of(uint64_t address) {
    ac_block_info_t info;
    ck_assert_int_eq(ac_block_find(address, &info), AC_OK);
    return info;
}

/* --- serials --- */

static const uint64_t sizes[] = {512, 4 * KIB, 5 * KIB, 64 * KIB, 300 * KIB, 3 * MIB, 40 * MIB};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* For each size, with and without the cache: an address is reused at once, its serial never. */
START_TEST(no_two_lifetimes_have_one_serial) {
    uint64_t last = 0;
    for (int i = 0; i < 20; i++) {
        uint64_t address = take(sizes[_i]);
        ck_assert_uint_eq(info_of(address).serial, 0);
        uint64_t serial = serial_of(address);
        ck_assert_uint_gt(serial, last);
        ck_assert_uint_eq(serial_of(address), serial);
        ck_assert_uint_eq(info_of(address + sizes[_i] / 2).serial, serial);
        last = serial;
        put(address);
        ck_assert_uint_eq(info_of(address).serial, 0);
    }
}
END_TEST

START_TEST(blocks_in_the_order_of_streams_have_serials) {
    uint64_t address, last = 0;
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(ac_arena_alloc_on(arena, 0x1000, MIB, false, &address), AC_OK);
        uint64_t serial = serial_of(address);
        ck_assert_uint_gt(serial, last);
        last = serial;
        ck_assert_int_eq(ac_block_free_on(arena, 0x1000, address), AC_OK);
    }
}
END_TEST

START_TEST(only_blocks_have_serials) {
    uint64_t address = take(3 * MIB), serial = 7;
    ck_assert_int_eq(ac_block_identify(address + 512, &serial), AC_BAD_ADDRESS);
    ck_assert_int_eq(ac_block_identify(FAKE_BASE - 1, &serial), AC_NOT_OURS);
    put(address);
    ck_assert_int_eq(ac_block_identify(address, &serial), AC_BAD_ADDRESS);
    ck_assert_uint_eq(serial, 7);
}
END_TEST

/* A slot without a record gets one, and keeps it. */
START_TEST(a_slot_keeps_its_serial) {
    uint64_t a = alloc(512), b = alloc(512);
    ac_allocator_drop_records(allocator);
    ck_assert_uint_eq(allocator->slots.count, 0);
    uint64_t serial = serial_of(a);
    ac_allocator_drop_records(allocator);
    ck_assert_uint_eq(allocator->slots.count, 1);
    ck_assert_uint_eq(serial_of(a), serial);
    ac_lock(&allocator->lock);
    ck_assert(ac_slabs_dissolve(&arena->space));
    ac_unlock(&allocator->lock);
    end();
    ck_assert_uint_eq(serial_of(a), serial);
    give(a);
    ck_assert_uint_eq(info_of(a).serial, 0);
    give(b);
}
END_TEST

/* --- neighbouring blocks --- */

/* A thousand blocks with serials take as much memory as blocks without. */
START_TEST(known_blocks_cost_no_segment) {
    enum { BLOCKS = 1000 };
    static uint64_t address[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        address[i] = take(4 * KIB);
    int64_t before = stats.reserved_bytes[AC_POOL_ALL].current;
    for (int i = 0; i < BLOCKS; i += 2)
        put(address[i]);
    for (int i = 1; i < BLOCKS; i += 2)
        serial_of(address[i]);
    for (int i = 0; i < BLOCKS; i += 2)
        serial_of(address[i] = take(4 * KIB));
    ck_assert_int_eq(stats.reserved_bytes[AC_POOL_ALL].current, before);
    for (int i = 0; i < BLOCKS; i++)
        put(address[i]);
}
END_TEST

/* The free of a known block takes the lock. Its thread still keeps the neighbouring block in its
 * cache. */
START_TEST(threads_keep_no_known_block) {
    uint64_t known = take(MIB), beside = take(MIB), address;
    serial_of(known);
    put(known);
    put(beside);
    ck_assert(ac_cache_take(cache, MIB, &address, ac_fence_handout) ||
              ac_cache_take_long(cache, MIB, &address));
    ck_assert_uint_eq(address, beside);
    put(beside);
}
END_TEST

/* --- threads --- */

enum { THREADS = 4, ROUNDS = 1500 };
static ac_cache_tally_t own_tally[THREADS];

/* The owner may be about to put the block into its cache. Another block would then have the same
 * serial. */
START_TEST(an_owner_that_stays_in_its_cache_is_not_passed) {
    uint64_t serial, address = take(4096);
    if (!ac_barrier_is_light()) /* in this case an owner takes the long path, with the lock */
        return;
    ck_assert(ac_cache_enter(cache));
    ck_assert_int_eq(ac_block_identify(address, &serial), AC_OOM);
    ac_cache_leave(cache);
    ck_assert_int_eq(ac_block_identify(address, &serial), AC_OK);
    give(address);
}
END_TEST

/* The lists of its cache may be half changed. */
START_TEST(beside_an_owner_in_its_cache_nothing_is_compared) {
    const char *why = NULL;
    if (!ac_barrier_is_light())
        return;
    put(take(4096));
    ck_assert(ac_cache_enter(cache));
    cache->tally->side[0].flow.taken_bytes += 512;
    ck_assert_int_eq(ac_allocator_check(allocator, &why), 0);
    ck_assert_ptr_nonnull(why);
    cache->tally->side[0].flow.taken_bytes -= 512;
    ac_cache_leave(cache);
    why = NULL;
    ck_assert_int_eq(ac_allocator_check(allocator, &why), 0);
    ck_assert_ptr_null(why);
}
END_TEST

static void *come_out_late(void *arg) {
    ac_nap(300000000);
    ac_cache_leave(arg);
    return NULL;
}

/* A cache gives up its blocks in a segment that others can reach, however long its thread does not
 * run. */
START_TEST(an_owner_that_is_late_keeps_nothing_that_others_reach) {
    uint64_t exported = take(MIB), kept = take(MIB), address;
    pthread_t owner;
    bool fresh;
    if (!ac_barrier_is_light())
        return;
    put(kept);
    ck_assert(ac_cache_enter(cache));
    ck_assert_int_eq(pthread_create(&owner, NULL, come_out_late, cache), 0);
    ck_assert_int_eq(ac_block_taint(exported, &fresh), AC_OK);
    pthread_join(owner, NULL);
    ck_assert(!ac_cache_take(cache, MIB, &address, ac_fence_handout));
    ac_block_untaint(exported);
    put(exported);
}
END_TEST

static uint64_t serials[THREADS][ROUNDS];

/* Allocates and frees blocks of one thread. Every third one is known to others. */
static void *churn(void *arg) {
    const size_t me = (size_t)(uintptr_t)arg;
    ac_cache_t *own = ac_cache_open(arena, &own_tally[me]);
    for (unsigned i = 0; own && i < ROUNDS; i++) {
        uint64_t block[2];
        for (int k = 0; k < 2; k++)
            if (ac_cache_alloc(own, sizes[(i + me) % 4], false, &block[k]) != AC_OK)
                return NULL;
        if (i % 3 == 0 && ac_block_identify(block[0], &serials[me][i]) != AC_OK)
            return NULL;
        for (int k = 0; k < 2; k++)
            if (ac_cache_free(own, block[k]) != AC_OK)
                return NULL;
    }
    if (own)
        ac_cache_close(own);
    return own;
}

static int compare(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

START_TEST(threads_beside_each_other) {
    pthread_t thread[THREADS];
    void *done;
    for (size_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, churn, (void *)(uintptr_t)i), 0);
    for (size_t i = 0; i < THREADS; i++) {
        ck_assert_int_eq(pthread_join(thread[i], &done), 0);
        ck_assert_ptr_nonnull(done);
    }
    uint64_t *all = serials[0];
    qsort(all, THREADS * ROUNDS, sizeof *all, compare);
    for (unsigned i = 1; i < THREADS * ROUNDS; i++)
        ck_assert(all[i] != all[i - 1] || !all[i]);
    ck_assert_uint_ne(all[THREADS * ROUNDS - THREADS * ROUNDS / 3], 0);
}
END_TEST

/* --- exports --- */

static struct { uint64_t exported, serial; } told[4];
static unsigned tellings;

static void tell(uint64_t exported, uint64_t serial) {
    told[tellings % 4].exported = exported;
    told[tellings++ % 4].serial = serial;
}

static void begin_told(void) {
    begin_cached();
    ac_lifetime_notify = tell;
    tellings = 0;
}

START_TEST(an_export_ends_with_its_lifetime) {
    uint64_t address = take(sizes[_i]), serial = serial_of(address);
    ck_assert_int_eq(ac_block_export(address, serial, 42), AC_OK);
    ck_assert_uint_eq(info_of(address).exported, 42);
    ck_assert_uint_eq(tellings, 1);
    ck_assert_uint_eq(told[0].exported, 42);
    ck_assert_uint_eq(told[0].serial, serial);
    ck_assert_int_eq(ac_block_export(address, serial, 43), AC_BUSY);
    put(address);
    ck_assert_uint_eq(tellings, 2);
    ck_assert_uint_eq(told[1].exported, 42);
    ck_assert_uint_eq(told[1].serial, 0);
    uint64_t again = take(sizes[_i]);
    ck_assert_int_eq(ac_block_export(again, serial, 44), AC_BAD_ADDRESS);
    uint64_t next = serial_of(again);
    ck_assert_int_eq(ac_block_export(again, serial, 44), AC_BAD_ADDRESS);
    ck_assert_int_eq(ac_block_export(again, next, 44), AC_OK);
    put(again);
    ck_assert_uint_eq(tellings, 4);
}
END_TEST

START_TEST(an_export_ends_with_its_context) {
    uint64_t block = take(MIB), slot = take(512);
    ck_assert_int_eq(ac_block_export(block, serial_of(block), 1), AC_OK);
    ck_assert_int_eq(ac_block_export(slot, serial_of(slot), 2), AC_OK);
    ac_arena_drop(arena);
    ck_assert_uint_eq(tellings, 4);
    ck_assert_uint_eq(told[2].serial | told[3].serial, 0);
    ck_assert_uint_eq(told[2].exported + told[3].exported, 3);
}
END_TEST

/* --- SYNC_MEMOPS --- */

enum { UNITS = 4096 };
static bool attribute[UNITS]; /* attributes of segments and pages, by first address */
static unsigned changes, fails_at;
static void (*beside)(void);

static bool *attribute_at(uint64_t address) {
    const ac_segment_t *segment = ac_page_map_find(address)->segment;
    uint64_t unit = segment->range ? ac_range_page_begin(segment->range,
                                                         ac_range_unit(segment->range, address))
                                   : (segment->address - FAKE_BASE) / (2 * MIB);
    ck_assert_uint_lt(unit, UNITS);
    return &attribute[unit];
}

static void driver_sets(uint64_t address, bool on) {
    void (*act)(void) = beside;
    beside = NULL;
    if (act)
        act();
    *attribute_at(address) = on;
    changes++;
}

static void set_back(uint64_t address) {
    driver_sets(address, false);
}

static bool set(void *unused, uint64_t address, bool on) {
    (void)unused;
    if (fails_at && --fails_at == 0)
        return false;
    driver_sets(address, on);
    return true;
}

static void begin_synced(void) {
    begin_cached();
    memset(attribute, 0, sizeof attribute);
    device.sync_off = set_back;
    changes = fails_at = 0;
    beside = NULL;
}

static void sync(uint64_t address, bool on) {
    ck_assert_int_eq(ac_block_sync(address, on, set, NULL), AC_OK);
    ck_assert(info_of(address).sync == on);
}

START_TEST(the_last_free_sets_it_back) {
    uint64_t block[3];
    for (int i = 0; i < 3; i++)
        block[i] = take(sizes[_i]);
    uint64_t lies_at = info_of(block[2]).segment_address;
    sync(block[0], true);
    sync(block[2], true);
    ck_assert(*attribute_at(block[0]) && *attribute_at(block[2]));
    ck_assert(!info_of(block[1]).sync);
    put(block[0]);
    ck_assert(*attribute_at(block[2]));
    put(block[2]);
    ck_assert(!attribute[(lies_at - FAKE_BASE) / (2 * MIB)]);
    uint64_t again = take(sizes[_i]);
    ck_assert(!info_of(again).sync);
    put(again);
    put(block[1]);
}
END_TEST

START_TEST(freed_on_a_stream_it_is_set_back) {
    uint64_t address;
    ck_assert_int_eq(ac_arena_alloc_on(arena, 0x1000, MIB, false, &address), AC_OK);
    sync(address, true);
    ck_assert_int_eq(ac_block_free_on(arena, 0x1000, address), AC_OK);
    ck_assert(!*attribute_at(address));
}
END_TEST

START_TEST(the_program_takes_it_back) {
    uint64_t a = take(MIB), b = take(MIB);
    sync(a, true);
    sync(a, true);
    sync(b, true);
    sync(a, false);
    ck_assert(*attribute_at(b));
    sync(a, false);
    ck_assert(*attribute_at(b));
    sync(b, false);
    ck_assert(!*attribute_at(b));
    sync(a, true);
    ck_assert(*attribute_at(b));
    put(a);
    put(b);
}
END_TEST

START_TEST(a_refusal_changes_nothing) {
    uint64_t a = take(MIB), b = take(MIB);
    fails_at = 1;
    ck_assert_int_eq(ac_block_sync(a, true, set, NULL), AC_FAILED);
    ck_assert(!info_of(a).sync && !*attribute_at(a));
    sync(b, true);
    fails_at = 1;
    ck_assert_int_eq(ac_block_sync(b, false, set, NULL), AC_FAILED);
    ck_assert(info_of(b).sync && *attribute_at(b));
    put(a);
    put(b);
    ck_assert(!*attribute_at(b));
}
END_TEST

/* While the driver is told that the last block is gone, another thread requests the attribute. Its
 * request must not be undone. */
static uint64_t late_block;

static void *ask_late(void *unused) {
    sync(late_block, true);
    return unused;
}

static pthread_t asking;

static void ask_beside(void) {
    ck_assert_int_eq(pthread_create(&asking, NULL, ask_late, NULL), 0);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

START_TEST(who_asks_meanwhile_gets_it) {
    uint64_t first = take(MIB);
    late_block = take(MIB);
    sync(first, true);
    beside = ask_beside;
    put(first);
    pthread_join(asking, NULL);
    ck_assert(*attribute_at(late_block));
    put(late_block);
    ck_assert(!*attribute_at(late_block));
}
END_TEST

/* --- pages --- */

static void begin_pages(void) {
    open_world(1, 1024 * MIB, fake_settings("thread_cache_mb:0,expandable_segments:true"));
}

START_TEST(known_blocks_on_pages_do_not_move) {
    alloc(MIB);
    uint64_t hole = alloc(32 * MIB);
    alloc(MIB);
    serial_of(hole);
    give(hole);
    settings.limit = 72 * MIB;
    ac_allocator_configure(allocator, &settings);
    alloc(48 * MIB);
    ck_assert_uint_eq(counters.pages_moved, 0);
}
END_TEST

/* Each page has an attribute of its own. A block over several pages sets all of them. */
START_TEST(it_is_set_on_all_pages) {
    uint64_t front = alloc(MIB), block = alloc(20 * MIB), behind = alloc(MIB);
    memset(attribute, 0, sizeof attribute);
    device.sync_off = set_back;
    sync(block, true);
    for (uint64_t at = block; at < block + 20 * MIB; at += 2 * MIB)
        ck_assert(*attribute_at(at));
    sync(front, true);
    sync(behind, true);
    unsigned before = changes;
    give(block);
    ck_assert_uint_gt(changes, before);
    ck_assert(*attribute_at(front) && *attribute_at(behind));
    end();
    give(front);
    give(behind);
    for (int i = 0; i < UNITS; i++)
        ck_assert(!attribute[i]);
}
END_TEST

/* Pages that were already set are reset. */
START_TEST(a_refusal_of_one_page_changes_nothing) {
    uint64_t block = alloc(40 * MIB);
    memset(attribute, 0, sizeof attribute);
    fails_at = 3;
    ck_assert_int_eq(ac_block_sync(block, true, set, NULL), AC_FAILED);
    ck_assert(!info_of(block).sync);
    for (int i = 0; i < UNITS; i++)
        ck_assert(!attribute[i]);
    give(block);
}
END_TEST

/* --- pages shown to another process --- */

static ac_shown_pages_t shown;

static void begin_shown(void) {
    begin_pages();
    ac_lifetime_notify = tell;
    tellings = 0;
}

static uint64_t exported_at(uint64_t address) {
    uint64_t serial = serial_of(address);
    ck_assert_int_eq(ac_block_export(address, serial, 1), AC_OK);
    return serial;
}

/* All pages of the block and no others are shown, a few at a time. */
START_TEST(all_its_pages_are_shown) {
    uint64_t front = alloc(MIB), block = alloc(130 * MIB), from = 0, last = 0;
    ac_block_info_t info = info_of(block);
    ck_assert(info.pages_begin <= block && info.pages_end >= block + 130 * MIB);
    ck_assert_int_eq(ac_pages_show(block, serial_of(block), 0, &shown), AC_BAD_ADDRESS);
    uint64_t serial = exported_at(block);
    while (from < info.pages_end - info.pages_begin) {
        ck_assert_int_eq(ac_pages_show(block, serial, from, &shown), AC_OK);
        ck_assert(shown.count && shown.from == info.pages_begin + from);
        for (unsigned i = 0; i < shown.count; i++) {
            ck_assert(shown.at[i].page && shown.at[i].page != last);
            last = shown.at[i].page;
            from += shown.at[i].bytes;
        }
        ac_pages_return(&shown);
    }
    ck_assert_uint_eq(from, info.pages_end - info.pages_begin);
    ck_assert_int_eq(ac_pages_show(block, serial, from, &shown), AC_BAD_ADDRESS);
    ck_assert_int_eq(ac_pages_show(block, serial, 1, &shown), AC_BAD_ADDRESS);
    ck_assert_int_eq(ac_pages_show(block, serial + 1, 0, &shown), AC_BAD_ADDRESS);
    ck_assert_int_eq(ac_pages_show(block + 512, serial, 0, &shown), AC_BAD_ADDRESS);
    give(block);
    ck_assert_int_eq(ac_pages_show(block, serial, 0, &shown), AC_BAD_ADDRESS);
    uint64_t next = alloc(130 * MIB);
    exported_at(next);
    ck_assert_int_eq(ac_pages_show(next, serial, 0, &shown), AC_BAD_ADDRESS);
    give(next);
    give(front);
}
END_TEST

/* The block is freed meanwhile. Its pages stay until they are returned. */
START_TEST(shown_pages_stay) {
    uint64_t block = alloc(32 * MIB), serial = exported_at(block);
    ck_assert_int_eq(ac_pages_show(block, serial, 0, &shown), AC_OK);
    give(block);
    ac_allocator_trim(allocator, true);
    ck_assert_uint_eq(reserved(), 32 * MIB);
    ac_pages_return(&shown);
    ac_allocator_trim(allocator, true);
    ck_assert_uint_eq(reserved(), 0);
}
END_TEST

/* The pages outlive their context. The return of the pages releases them. */
START_TEST(shown_pages_outlive_their_context) {
    uint64_t block = alloc(32 * MIB), serial = exported_at(block);
    ck_assert_int_eq(ac_pages_show(block, serial, 0, &shown), AC_OK);
    fake_context_kill(&context[0]);
    ac_arena_drop(arena);
    ac_expand_bury(arena);
    ck_assert_uint_gt(fake_reserved_bytes(&device), 0);
    ac_pages_return(&shown);
    ck_assert_uint_eq(fake_reserved_bytes(&device), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("identity");
    TCase *known = tcase_create("known"), *plain = tcase_create("plain");
    TCase *shared = tcase_create("exports"), *lost = tcase_create("lost");
    TCase *synced = tcase_create("synced"), *pages = tcase_create("pages");
    TCase *shown_ones = tcase_create("shown"), *buried = tcase_create("buried");
    tcase_add_checked_fixture(synced, begin_synced, end_cached);
    tcase_add_checked_fixture(known, begin_cached, end_cached);
    tcase_add_checked_fixture(plain, begin_large, end);
    tcase_add_checked_fixture(shared, begin_told, end_cached);
    tcase_add_checked_fixture(lost, begin_told, end);
    tcase_add_checked_fixture(pages, begin_pages, end);
    tcase_add_loop_test(known, no_two_lifetimes_have_one_serial, 0, SIZES);
    tcase_add_test(known, blocks_in_the_order_of_streams_have_serials);
    tcase_add_test(known, only_blocks_have_serials);
    tcase_add_test(plain, a_slot_keeps_its_serial);
    tcase_add_test(known, known_blocks_cost_no_segment);
    tcase_add_test(known, threads_keep_no_known_block);
    tcase_add_test(known, an_owner_that_stays_in_its_cache_is_not_passed);
    tcase_add_test(known, beside_an_owner_in_its_cache_nothing_is_compared);
    tcase_add_test(known, an_owner_that_is_late_keeps_nothing_that_others_reach);
    tcase_add_test(known, threads_beside_each_other);
    tcase_add_loop_test(shared, an_export_ends_with_its_lifetime, 0, SIZES);
    tcase_add_test(lost, an_export_ends_with_its_context);
    tcase_add_loop_test(synced, the_last_free_sets_it_back, 0, SIZES);
    tcase_add_test(synced, freed_on_a_stream_it_is_set_back);
    tcase_add_test(synced, the_program_takes_it_back);
    tcase_add_test(synced, a_refusal_changes_nothing);
    tcase_add_test(synced, who_asks_meanwhile_gets_it);
    tcase_add_test(pages, known_blocks_on_pages_do_not_move);
    tcase_add_test(pages, it_is_set_on_all_pages);
    tcase_add_test(pages, a_refusal_of_one_page_changes_nothing);
    tcase_add_checked_fixture(shown_ones, begin_shown, end);
    tcase_add_test(shown_ones, all_its_pages_are_shown);
    tcase_add_test(shown_ones, shown_pages_stay);
    tcase_add_checked_fixture(buried, begin_shown, NULL);
    tcase_add_test(buried, shown_pages_outlive_their_context);
    suite_add_tcase(suite, shown_ones);
    suite_add_tcase(suite, buried);
    suite_add_tcase(suite, known);
    suite_add_tcase(suite, plain);
    suite_add_tcase(suite, shared);
    suite_add_tcase(suite, lost);
    suite_add_tcase(suite, synced);
    suite_add_tcase(suite, pages);
    return run_suite(suite);
}

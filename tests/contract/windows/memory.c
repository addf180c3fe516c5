/* Windows of the thread caches, of blocks looked up by address, and around device calls, on the fake
 * device. */
#include <string.h>
#include <time.h>

#include "allocator/guarded.h"
#include "allocator/space/page_map.h"
#include "allocator/supply/supply.h"
#include "allocator_frame.h"
#include "device_window.h"
#include "observe/history.h"
#include "observe/live.h"
#include "windows.h"

/* --- thread caches --- */

static ac_cache_tally_t tally;
static ac_cache_t *cache;

enum { BYTES = 4096 };

static uint64_t take(void) {
    uint64_t address = 0;
    ck_assert_int_eq(ac_cache_alloc(cache, BYTES, false, &address), AC_OK);
    return address;
}

/* Opens a cache with a block of BYTES in it. */
static void begin_cached(void) {
    begin_large();
    settings.thread_cache = 8 * MIB;
    ac_allocator_configure(allocator, &settings);
    cache = ac_cache_open(arena, &tally);
    ck_assert_ptr_nonnull(cache);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(ac_cache_free(cache, take()), AC_OK);
}

static void end_cached(void) {
    ac_cache_close(cache);
    end();
}

static void recall(void) {
    ac_caches_settle(allocator);
}

static _Atomic bool stays, may_go;

/* Keeps its thread here until another thread lets it go. */
static void stay(void) {
    atomic_store(&stays, true);
    while (!atomic_load(&may_go))
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static bool is_staying(void) {
    return atomic_load(&stays);
}

static void let_go(void) {
    atomic_store(&may_go, true);
}

static void recall_elsewhere(void) {
    other_thread(recall, is_staying);
}

static const char beside[] = "a recall is in a cache beside its owner";

void window_gate_before_busy(void) {
    begin_cached();
    at_window("cache_visited", stay);
    at_window("cache_enters", recall_elsewhere);
    ck_assert_msg(!ac_cache_enter(cache), beside);
    let_go();
    other_thread_ends();
    end_cached();
}

static uint64_t named, named_serial;

static void name_block(void) {
    ac_block_identify(named, &named_serial); /* the block may be free at that time */
}

static bool is_shut(const ac_cache_t *it) {
    return atomic_load(&it->gate) & AC_GATE_RECALLED;
}

static bool is_recalled(void) {
    return is_shut(cache);
}

static void name_elsewhere(void) {
    other_thread(name_block, is_recalled);
}

/* The next block at this address must not get the serial number of the block that is freed meanwhile. */
void window_identified_in_reach(void) {
    uint64_t serial = 0;
    begin_cached();
    named = take();
    at_window("free_owned", name_elsewhere);
    ck_assert_int_eq(ac_cache_free(cache, named), AC_OK);
    other_thread_ends();
    ck_assert_uint_eq(take(), named);
    ck_assert_int_eq(ac_block_identify(named, &serial), AC_OK);
    ck_assert_msg(serial != named_serial, "two lifetimes have one serial");
    ck_assert_int_eq(ac_block_free(named), AC_OK);
    end_cached();
}

static uint64_t hit;

static void take_hit(void) {
    hit = take();
}

/* When a segment leaves service, a hit gets at most one more of its blocks. */
void window_tainted_beside_hit(void) {
    bool fresh;
    begin_cached();
    uint64_t shown = take(), free_again = take();
    ck_assert_int_eq(ac_cache_free(cache, free_again), AC_OK);
    at_window("tainted", take_hit);
    ck_assert_int_eq(ac_block_taint(shown, &fresh), AC_OK);
    ck_assert(fresh);
    ck_assert_uint_eq(hit, free_again);
    ck_assert_int_eq(ac_cache_free(cache, hit), AC_OK);
    ck_assert_uint_ne(take(), hit);
    ck_assert_int_eq(ac_block_free(shown), AC_OK);
    end_cached();
}

/* Makes the owner's store visible, which its processor had delayed. The owner had found the gate open. */
static void owner_shows(void) {
    atomic_store(&cache->busy, 1);
}

void window_recall_without_barrier(void) {
    begin_cached();
    never_at_window("cache_visited", beside);
    at_window("barrier_heavy", owner_shows);
    recall();
    ac_cache_leave(cache);
    end_cached();
}

void window_recall_beside_owner(void) {
    begin_cached();
    never_at_window("cache_visited", beside);
    ck_assert(ac_cache_enter(cache));
    recall();
    ac_cache_leave(cache);
    end_cached();
}

/* The cache owns the block, as the hit saw, until the block is given. */
void window_rest_given_outside(void) {
    ac_block_t *rest = NULL;
    begin_cached();
    uint64_t address = take();
    submit(0);
    never_at_window("cache_visited", beside);
    at_window("free_owned", recall);
    ck_assert_int_eq(ac_cache_give_handed_or_rest(cache, address, &rest), AC_GIVE_TOUCHED);
    ck_assert(ac_cache_give_rest(cache, rest));
    complete(0);
    end_cached();
}

void window_quarantine_beside_owner(void) {
    begin_cached();
    never_at_window("cache_visited", beside);
    ck_assert(ac_cache_enter(cache));
    ac_arena_quarantine(ac_arena_timeline(arena), ac_fence_stamp());
    ac_cache_leave(cache);
    end_cached();
}

/* The owner of a cache took 8 MiB and gave them back, so it has room for 8 MiB. Then another thread raises the
 * peaks. The next 8 MiB are above the new peaks. */
void window_room_kept(void) {
    static ac_cache_tally_t other_tally;
    ac_device_stats_t now;
    uint64_t large = 0, mine;
    begin_cached();
    ac_cache_t *second = ac_cache_open(arena, &other_tally);
    ck_assert_int_eq(ac_arena_alloc(arena, 108 * MIB, false, &large), AC_OK);
    give(large); /* the next large request is served from it: growing would take the cache's block back */
    ac_allocator_reset_peak(allocator);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(ac_cache_alloc(cache, 8 * MIB, false, &mine), AC_OK);
        ck_assert_int_eq(ac_cache_free(cache, mine), AC_OK);
    }
    ck_assert_int_eq(ac_arena_alloc(arena, 100 * MIB, false, &large), AC_OK);
    ck_assert_int_eq(ac_cache_alloc(cache, 8 * MIB, false, &mine), AC_OK);
    ck_assert_int_eq(ac_cache_free(cache, mine), AC_OK);
    give(large);
    ac_allocator_stats(allocator, &now);
    ck_assert_int_ge(now.allocated_bytes[AC_POOL_ALL].peak, 108 * (int64_t)MIB - AC_CACHE_MISSED);
    ac_cache_close(second);
    end_cached();
}

enum { POSTED = 16, POSTED_BYTES = 65536 }; /* one full chain */

static ac_cache_t *taker, *giver;
static uint64_t posted[POSTED];

/* Prepares a chain that lacks one block: `taker` handed the blocks out, and the thread of `giver` freed
 * them. */
static void begin_posting(void) {
    static ac_cache_tally_t tallies[2];
    begin_large();
    settings.thread_cache = 8 * MIB;
    ac_allocator_configure(allocator, &settings);
    taker = ac_cache_open(arena, &tallies[0]);
    giver = ac_cache_open(arena, &tallies[1]);
    for (int round = 0; round < 3; round++) { /* so that the last round does not raise a peak */
        for (int i = 0; i < POSTED; i++)
            ck_assert_int_eq(ac_cache_alloc(taker, POSTED_BYTES, false, &posted[i]), AC_OK);
        for (int i = 0; i < POSTED && round < 2; i++)
            ck_assert_int_eq(ac_cache_free(taker, posted[i]), AC_OK);
    }
    for (int i = 0; i < POSTED - 1; i++)
        ck_assert_int_eq(ac_cache_free(giver, posted[i]), AC_OK);
}

static void post_chain(void) {
    ck_assert_int_eq(ac_cache_free(giver, posted[POSTED - 1]), AC_OK);
}

static void end_posting(void) {
    ac_cache_close(giver);
    ac_allocator_trim(allocator, false);
    ck_assert_msg(!device.used, "memory is lost that was posted to a cache whose thread ended");
    end();
}

static bool only_giver_is_shut(void) {
    ac_lock(&allocator->lock);
    bool only = is_shut(giver) && !is_shut(taker);
    ac_unlock(&allocator->lock);
    return only;
}

static void recall_beside_giver(void) {
    other_thread(recall, only_giver_is_shut);
}

/* Recalls the taker's cache while the last free of a chain to it is under way. Returns true if the recall left
 * the chain in the inbox. */
static bool recall_leaves_it(void) {
    begin_posting();
    ck_assert(!ac_inbox_first(&taker->inbox));
    at_window("free_owned", recall_beside_giver);
    post_chain();
    other_thread_ends();
    bool left = ac_inbox_first(&taker->inbox);
    ac_cache_close(taker);
    end_posting();
    return left;
}

/* A recall does not wait long for an owner that does not run, and then leaves its inbox. So the test tries
 * several times. */
void window_inbox_seen_early(void) {
    enum { TRIES = 5 };
    bool left = true;
    for (int i = 0; i < TRIES && left; i++)
        left = recall_leaves_it();
    ck_assert_msg(!left, "a recall left what was freed before it");
}

/* A thread ends. It has given back all its memory when another thread posts more to it. */
void window_closed_inbox_left(void) {
    begin_posting();
    at_window("cache_left", post_chain);
    ac_cache_close(taker);
    end_posting();
}

/* A thread posts to the cache of a thread that has ended. */
void window_posted_to_gone(void) {
    begin_posting();
    ac_cache_close(taker);
    post_chain();
    end_posting();
}

/* Another thread raises the peaks while a chain is in the inbox. The limits are set as if the chain brought no
 * room. */
void window_posted_room_kept(void) {
    begin_posting();
    post_chain();
    ck_assert_ptr_nonnull(ac_inbox_first(&taker->inbox));
    ac_lock(&allocator->lock);
    ac_caches_raise(allocator, NULL);
    ac_unlock(&allocator->lock);
    end(); /* checks that no cache may take more than is left below a peak */
    ac_cache_close(taker);
    end_posting();
}

/* Reads the figures of modules like another process. */
static ac_modules_t before_change;

static void read_modules(void) {
    ac_cache_tally_modules(&tally, &before_change);
}

void window_asked_before_named(void) {
    enum { FIRST = 1, SECOND = 2, BLOCKS = 3 };
    uint64_t taken[BLOCKS];
    begin_cached();
    ac_cache_ask_for(cache, FIRST);
    read_modules();
    for (int i = 0; i < BLOCKS; i++)
        taken[i] = take();
    const ac_cache_flow_t *flow = &tally.side[0].flow;
    uint64_t hits = flow->taken - before_change.allocs[AC_MODULE_UNKNOWN];
    ck_assert_uint_gt(hits, 0);
    before_change = (ac_modules_t){.allocs = {0}};
    at_window("module_changes", read_modules);
    ac_cache_ask_for(cache, SECOND);
    ck_assert_uint_eq(before_change.allocs[FIRST], hits);
    ck_assert_uint_eq(before_change.alloc_bytes[FIRST], hits * BYTES);
    ck_assert_uint_eq(before_change.allocs[SECOND], 0);
    for (int i = 0; i < BLOCKS; i++)
        ck_assert_int_eq(ac_cache_free(cache, taken[i]), AC_OK);
    end_cached();
}

/* --- rows of counters --- */

static ac_live_row_t *ending, *beginning;

static void begin_thread(void) {
    bool shared;
    beginning = ac_live_row_take(&shared);
}

/* A row outside the full page behaves as one inside it. */
void window_row_returned_early(void) {
    bool shared;
    for (int i = 0; i < AC_LIVE_ROWS; i++)
        ending = ac_live_row_take(&shared);
    ck_assert(!shared && !(ending >= ac_live->row && ending < ac_live->row + AC_LIVE_ROWS));
    ending->counter[0] = 1;
    at_window("row_returns", begin_thread);
    ac_live_row_return(ending);
    ck_assert_ptr_ne(beginning, ending);
    ck_assert_uint_eq(ac_live_sum(ac_live, 0), 1);
    begin_thread();
    ck_assert_ptr_eq(beginning, ending);
    ck_assert_uint_eq(beginning->counter[0], 0);
}

/* --- the history --- */

static void add_event(uint64_t n) {
    ac_history_add(ac_history_of(0), &(ac_event_t){.time_ns = (int64_t)n, .address = n, .bytes = n});
}

static void another_thread_writes(void) {
    add_event(2);
}

static void begin_history(void) {
    ac_history_size(1);
    atomic_store(&ac_history_on, true);
}

static bool read_event(uint64_t number, ac_event_t *event) {
    return ac_history_get(ac_history_of(0), number, event);
}

void window_event_read_once(void) {
    ac_event_t event;
    begin_history();
    add_event(1);
    at_window("event_read", another_thread_writes);
    ck_assert(!read_event(0, &event));
    ck_assert(read_event(1, &event) && event.address == 2 && event.bytes == 2);
}

/* The later event is dropped, and the earlier one is complete. */
void window_event_written_by_two(void) {
    uint64_t dropped;
    ac_event_t event;
    begin_history();
    at_window("event_half_written", another_thread_writes);
    add_event(1);
    ck_assert(read_event(0, &event));
    ck_assert_uint_eq(event.address, event.bytes);
    ck_assert(!read_event(1, &event));
    ck_assert_uint_eq(ac_history_count(ac_history_of(0), &dropped), 2);
    ck_assert_uint_eq(dropped, 1);
}

static uint64_t block;

static void another_thread_frees(void) {
    ck_assert_int_eq(ac_block_free(block), AC_OK);
}

/* The program frees twice. */
void window_found_looked_at_once(void) {
    begin_cached();
    block = take();
    at_window("free_found", another_thread_frees);
    atomic_fetch_or(&cache->gate, AC_GATE_RECALLED); /* so that it takes the lock */
    ck_assert_int_ne(ac_cache_free(cache, block), AC_OK);
    atomic_fetch_and(&cache->gate, ~(uint32_t)AC_GATE_RECALLED);
    end_cached();
}

/* Frees the block as its owner, which got it with this record. */
static void record_says_nothing_yet(void) {
    const ac_block_t *record = *ac_cache_handed(cache, block);
    ck_assert_msg(!ac_cache_owns(cache, record, block), "a record counts that is not complete");
}

void window_record_address_first(void) {
    const ac_block_t *record;
    ac_block_t *found;
    ac_allocator_t *locked;
    begin_cached();
    block = take();
    record = *ac_cache_handed(cache, block);
    ac_allocator_drop_records(allocator);
    ck_assert_uint_ne(ac_block_address(record), block); /* the block has no record now */
    at_window("record_described", record_says_nothing_yet);
    ck_assert_int_eq(ac_allocator_lock_block(block, &found, &locked), AC_OK);
    ac_unlock(&locked->lock);
    ck_assert_ptr_eq(found, record);
    ck_assert(ac_cache_owns(cache, record, block));
    end_cached();
}

/* --- what lies at an address --- */

static ac_arena_t *strange; /* of another allocator */

static void memory_changes_hands(void) {
    uint64_t address = 0;
    ac_allocator_trim(allocator, false);
    ck_assert_int_eq(ac_arena_alloc(strange, 30 * MIB, false, &address), AC_OK);
    ck_assert_uint_eq(address, block);
}

void window_owner_looked_at_once(void) {
    static ac_device_stats_t strange_stats;
    static ac_device_counters_t strange_counters;
    ac_block_info_t info;
    begin_large();
    strange = ac_arena_create(ac_allocator_create(&settings, &strange_stats, &strange_counters),
                              &fake_ops, &context[1]);
    ck_assert_ptr_nonnull(strange);
    give(block = alloc(30 * MIB));
    at_window("owner_found", memory_changes_hands);
    ac_status_t status = ac_block_find(block, &info);
    ck_assert_msg(status != AC_OK || info.arena == strange, "memory counts as its old owner's");
    end();
}

enum { STARTS = 64 };
static ac_block_t starts[STARTS];
static unsigned start_count;

static uint64_t start_at(unsigned i) {
    return FAKE_BASE + i * (uint64_t)AC_GRANULE;
}

static void all_starts_are_found(void) {
    for (unsigned i = 0; i < start_count; i++)
        ck_assert_ptr_eq(ac_page_map_get(start_at(i)), &starts[i]);
}

void window_lines_before_starts(void) {
    ck_assert(ac_page_map_cover(FAKE_BASE, AC_SEGMENT_ALIGN, (struct ac_arena *)starts));
    while (start_count < 12) {
        ck_assert(ac_page_map_set(start_at(start_count), &starts[start_count]));
        start_count++;
    }
    at_window("lines_grow", all_starts_are_found);
    while (start_count < STARTS) {
        ck_assert(ac_page_map_set(start_at(start_count), &starts[start_count]));
        start_count++;
    }
    all_starts_are_found();
}

/* --- around device calls --- */

static void context_ends(void) {
    fake_context_kill(&context[0]);
    ac_arena_drop(arena);
}

static void device_keeps_it_and_context_ends(void) {
    device.fail_with[FAKE_SEGMENT_FREE] = AC_BUSY;
    device.fail_at = device.total_calls + 1;
    context_ends();
}

void window_put_back_into_dead(void) {
    begin_large();
    give(alloc(30 * MIB));
    at_call(&device, FAKE_SEGMENT_FREE, device_keeps_it_and_context_ends);
    ac_supply_native.shrink(arena, &(ac_shrink_t){.bytes = AC_UNLIMITED});
    ck_assert_int_eq(stats.reserved_bytes[AC_POOL_ALL].current, 0);
    end();
}

void window_grown_into_dead(void) {
    uint64_t address;
    begin_large();
    at_window("grown", context_ends);
    ck_assert_int_ne(try_alloc(arena, 30 * MIB, &address), AC_OK);
    ck_assert_int_eq(stats.reserved_bytes[AC_POOL_ALL].current, 0);
    end();
}

static void trim_all(void) {
    ac_supply_native.shrink(arena, &(ac_shrink_t){.bytes = AC_UNLIMITED});
}

void window_leaving_not_awaited(void) {
    uint64_t address;
    begin_tight();
    give(alloc(40 * MIB));
    at_call(&device, FAKE_SEGMENT_FREE, stay); /* in no list any more, and not yet with the device */
    other_thread(trim_all, is_staying);
    at_window("leaving_awaited", let_go);
    ck_assert_int_eq(try_alloc(arena, 40 * MIB, &address), AC_OK);
    other_thread_ends();
    end();
}

/* The library's thread returns the memory that the program wants to return. */
void window_trim_not_awaited(void) {
    begin_tight();
    give(alloc(40 * MIB));
    at_call(&device, FAKE_SEGMENT_FREE, stay);
    other_thread(trim_all, is_staying);
    at_window("leaving_awaited", let_go);
    ac_allocator_trim(allocator, true);
    ck_assert_uint_eq(device.used, 0);
    other_thread_ends();
    end();
}

static void settle_debt(void) {
    ac_allocator_settle_debt(allocator);
}

static uint64_t guarded(void) {
    uint64_t address = 0;
    ck_assert_int_eq(ac_arena_alloc_guarded(arena, 3, 0, NULL, MIB, &address), AC_GUARD_SERVED);
    return address;
}

/* The library's thread removes memory that was freed before. */
void window_guard_not_awaited(void) {
    const ac_stream_t stream = 0x1000;
    begin_large();
    uint64_t before = guarded(), block = guarded();
    submit(0);
    ck_assert_int_eq(ac_block_free_on(arena, stream, before), AC_OK);
    complete(0);
    ck_assert(fake_usable(&device, before, MIB));
    at_call(&device, FAKE_PAGES_UNMAP, stay);
    other_thread(settle_debt, is_staying);
    at_window("guard_awaited", let_go);
    give(block);
    ck_assert_msg(!fake_usable(&device, before, 1), "memory that was freed has its pages");
    ck_assert_uint_eq(device.used, 0);
    other_thread_ends();
    end();
}

/* Submits work to the only stream. Its order allows early hand-over of memory. */
static void sole_works(void) {
    ac_timeline_t *timeline = ac_arena_timeline(arena);
    ac_fence_enter(timeline);
    ac_sole_enter(timeline, 0x1000, NULL);
    fake_submit(&context[0]);
    ac_fence_leave(timeline);
}

void window_idle_without_stamp(void) {
    begin_large();
    uint64_t address = alloc(30 * MIB);
    sole_works();
    give(address);
    ck_assert_uint_eq(counters.ordered_frees, 1);
    ac_supply_native.shrink(arena, &(ac_shrink_t){.bytes = AC_UNLIMITED});
    ck_assert_msg(device.calls[FAKE_SEGMENT_FREE] == 0, "memory is given back that is in use");
    end();
}

/* --- the ladder --- */

static void nothing(void) {
}

/* A block waits for work, another one is free, and a request is larger. The library queries the device about
 * the work, recalls the caches, and requests a segment. */
void window_searched_again(void) {
    begin_large();
    uint64_t waiting = alloc(10 * MIB);
    give(alloc(5 * MIB));
    submit(0);
    give(waiting);
    ck_assert_uint_eq(counters.fenced_frees, 1);
    at_window("searched", nothing);
    never_at_window("searched", "nothing was added since the last search");
    alloc(100 * MIB);
    end_idle();
}

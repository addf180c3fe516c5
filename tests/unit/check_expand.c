/* Arenas that grow by pages, on the fake device: the memory of a request, the source of pages,
 * and the state after a failed call. */
#include "allocator/supply/expand.h"
#include "allocator_frame.h"
#include "run_suite.h"

static void begin_paged(uint64_t capacity) {
    begin(capacity);
    settings.expandable_segments = true;
    settings.page = 8 * MIB;
    settings.small_page = AC_SEGMENT_ALIGN;
    ac_allocator_configure(allocator, &settings);
}

static void begin_wide(void) {
    begin_paged((uint64_t)1 << 30);
}

/* Ends the contexts and checks that nothing of theirs is left. */
static void end_paged(void) {
    end();
    for (int i = 0; i < 2; i++) {
        ac_arena_t *gone = i ? other : arena;
        fake_context_kill(&context[i]);
        ac_arena_drop(gone);
        ac_expand_bury(gone);
    }
    const char *why = NULL;
    ck_assert_msg(ac_allocator_check(allocator, &why) == 0, "%s", why);
    ck_assert_msg(!device.wrong, "%s", device.wrong);
    ck_assert_uint_eq(device.live_pages, 0);
    ck_assert_uint_eq(device.live_mappings, 0);
    ck_assert_uint_eq(fake_reserved_bytes(&device), 0);
    ck_assert_uint_eq(device.used, 0);
    fake_device_close(&device);
}

static void limit_to(uint64_t bytes) {
    settings.limit = bytes;
    ac_allocator_configure(allocator, &settings);
}

static fake_kind_t to_fail[2];

static void fail_it(void *arg, fake_kind_t kind) {
    unsigned *left = arg;
    if (*left && kind == to_fail[*left - 1]) {
        --*left;
        device.fail_at = device.total_calls + 1;
    }
}

/* Fails the next call of `kind`. If `then` is another kind, fails the next call of that kind
 * afterwards. */
static void fail_next(fake_kind_t kind, fake_kind_t then) {
    static unsigned left;
    left = kind == then ? 1 : 2;
    to_fail[left - 1] = kind;
    to_fail[0] = then;
    device.fail_with[kind] = device.fail_with[then] = AC_FAILED;
    device.arg = &left;
    device.before = fail_it;
}

/* Makes a hole of 32 MiB with 3 whole pages between two blocks of 1 MiB; reserved: 40 MiB. */
static void make_hole(void) {
    uint64_t hole;
    alloc(MIB);
    hole = alloc(32 * MIB);
    alloc(MIB);
    give(hole);
}

START_TEST(grows_by_pages) {
    uint64_t first = alloc(3 * MIB);
    ck_assert_uint_eq(reserved(), 8 * MIB);
    ck_assert(fake_usable(&device, first, 3 * MIB));
    ck_assert_uint_eq(alloc(4 * MIB), first + 3 * MIB);
    unsigned calls = device.total_calls;
    uint64_t third = alloc(MIB);
    ck_assert_uint_eq(device.total_calls, calls); /* from free memory: no device call */
    ck_assert_uint_eq(third, first + 7 * MIB);
    alloc(4096); /* the other pool has pages of its own */
    ck_assert_uint_eq(reserved(), 10 * MIB);
    ck_assert_int_eq(stats.reserved_bytes[AC_POOL_SMALL].current, 2 * MIB);
    ck_assert_int_eq(stats.segment[AC_POOL_ALL].current, 0);
    ck_assert_uint_eq(device.calls[FAKE_SEGMENT_ALLOC], 0);
}
END_TEST

START_TEST(moves_before_growing) {
    make_hole();
    limit_to(64 * MIB);
    uint64_t large = alloc(48 * MIB);
    ck_assert(fake_usable(&device, large, 48 * MIB));
    ck_assert_uint_eq(counters.pages_moved, 3);
    ck_assert_uint_eq(reserved(), 64 * MIB);
    ck_assert_uint_eq(device.calls[FAKE_PAGES_UNMAP], 1); /* one run */
}
END_TEST

/* A place has more gaps than one step records: every second page is already there. */
START_TEST(fills_many_gaps) {
    enum { BLOCKS = 128 };
    uint64_t block[BLOCKS];
    settings.page = 2 * MIB;
    limit_to(BLOCKS * 2 * MIB);
    for (int i = 0; i < BLOCKS; i++)
        block[i] = alloc(2 * MIB);
    for (int i = 0; i < BLOCKS; i += 2)
        give(block[i]);
    /* These take the pages below the freed blocks. Neither place serves a later request. */
    uint64_t large = alloc(BLOCKS / 2 * MIB), keep = alloc(3 * MIB);
    uint64_t other_large = alloc(BLOCKS / 2 * MIB - 4 * MIB);
    ck_assert_uint_eq(counters.pages_moved, BLOCKS / 2);
    for (int i = 1; i < BLOCKS - 1; i += 2)
        give(block[i]);
    give(large);
    give(other_large);
    uint64_t all = alloc(BLOCKS * 2 * MIB - 6 * MIB);
    ck_assert_uint_lt(all, block[BLOCKS - 1]); /* not in a large block's place */
    ck_assert(fake_usable(&device, all, BLOCKS * 2 * MIB - 6 * MIB));
    ck_assert_uint_eq(reserved(), settings.limit);
    give(keep);
}
END_TEST

/* The device fails, and the pages come from many holes that keep a part on both sides. All parts
 * of the place are put back. */
START_TEST(puts_many_gaps_back) {
    enum { GAPS = 20 };
    uint64_t block[2 * GAPS], hole[GAPS];
    settings.page = 2 * MIB;
    limit_to(AC_UNLIMITED);
    for (int i = 0; i < 2 * GAPS; i++)
        block[i] = alloc(2 * MIB);
    alloc(MIB);
    for (int i = 0; i < GAPS; i++) {
        hole[i] = alloc(4 * MIB);
        alloc(2 * MIB);
    }
    limit_to(reserved());
    for (int i = 0; i < 2 * GAPS; i += 2)
        give(block[i]);
    alloc(2 * GAPS * MIB);
    ck_assert_uint_eq(counters.pages_moved, GAPS);
    for (int i = 0; i < GAPS; i++)
        give(hole[i]);
    for (int i = 1; i < 2 * GAPS - 1; i += 2)
        give(block[i]);
    uint64_t address, size = (2 * GAPS - 1) * 2 * MIB;
    fail_next(FAKE_PAGE_MAP, FAKE_PAGE_MAP);
    ck_assert_int_eq(try_alloc(arena, size, &address), AC_FAILED);
    ck_assert_uint_eq(device.failed, 1);
    ck_assert_uint_gt(device.calls[FAKE_PAGES_UNMAP], GAPS);
    uint64_t all = alloc(size - 4 * MIB);
    ck_assert(fake_usable(&device, all, size - 4 * MIB));
}
END_TEST

START_TEST(grows_within_the_budget) {
    make_hole();
    raise_high_water(512 * MIB);
    uint64_t hole = alloc(32 * MIB);
    alloc(MIB);
    give(hole);
    unsigned unmaps = device.calls[FAKE_PAGES_UNMAP];
    alloc(48 * MIB);
    ck_assert_uint_eq(device.calls[FAKE_PAGES_UNMAP], unmaps);
}
END_TEST

START_TEST(fixed_budget) {
    settings.page_budget = 0.02;
    ac_allocator_configure(allocator, &settings);
    alloc(200 * MIB);
    uint64_t hole = alloc(100 * MIB);
    alloc(MIB);
    give(hole);
    alloc(120 * MIB); /* 321 live: up to 327.4 of pages */
    ck_assert_uint_gt(counters.pages_moved, 0);
    ck_assert_uint_le(reserved(), 328 * MIB);
}
END_TEST

/* --- work under way --- */

static void rely_on_stream(uint64_t address) {
    ac_timeline_t *timeline = ac_arena_timeline(arena);
    ac_joins_t joins = {0};
    ac_fence_enter(timeline);
    ac_sole_enter(timeline, 0x1000, &joins);
    fake_submit(&context[0]);
    ac_fence_leave(timeline);
    give(address);
}

static void no_work_below(void *arg, uint64_t address, uint64_t size) {
    (void)arg, (void)address, (void)size;
    ck_assert_uint_eq(atomic_load(&context[0].completed), atomic_load(&context[0].submitted));
}

/* Free memory that only a stream's order protects is not moved until the work is over. */
START_TEST(waits_before_moving) {
    atomic_store(&ac_sole_wanted, true);
    alloc(MIB);
    uint64_t hole = alloc(32 * MIB);
    alloc(MIB);
    rely_on_stream(hole);
    ck_assert_uint_eq(counters.ordered_frees, 1);
    device.freeing = no_work_below;
    limit_to(64 * MIB);
    alloc(48 * MIB);
    ck_assert_uint_eq(counters.pages_moved, 3);
    ck_assert_uint_gt(device.calls[FAKE_WAIT], 0);
}
END_TEST

START_TEST(grows_rather_than_waits) {
    atomic_store(&ac_sole_wanted, true);
    uint64_t hole = alloc(100 * MIB);
    alloc(MIB);
    alloc(500 * MIB);
    rely_on_stream(hole);
    device.freeing = no_work_below;
    alloc(104 * MIB); /* below 1.2 times the memory in use: wait_budget */
    ck_assert_uint_eq(counters.pages_moved, 0);
    ck_assert_uint_eq(device.calls[FAKE_WAIT], 0);
    fake_complete(&context[0], atomic_load(&context[0].submitted));
    alloc(104 * MIB); /* the work is over, so pages move */
    ck_assert_uint_gt(counters.pages_moved, 0);
    ck_assert_uint_eq(device.calls[FAKE_WAIT], 0);
}
END_TEST

/* The allocator waits once for work that does not end, not once for each request. */
START_TEST(waits_once_without_success) {
    atomic_store(&ac_sole_wanted, true);
    settings.wait_budget = 0;
    ac_allocator_configure(allocator, &settings);
    uint64_t hole = alloc(100 * MIB);
    alloc(MIB);
    device.endless = true;
    rely_on_stream(hole);
    for (int i = 0; i < 4; i++) {
        uint64_t more = alloc(104 * MIB);
        alloc(MIB);
        rely_on_stream(more);
        alloc(108 * MIB);
    }
    ck_assert_uint_eq(device.calls[FAKE_WAIT], 1);
    ck_assert_uint_eq(counters.pages_moved, 0);
    device.endless = false;
    fake_complete(&context[0], atomic_load(&context[0].submitted));
    alloc(120 * MIB);
    ck_assert_uint_gt(counters.pages_moved, 0);
}
END_TEST

/* No request waits if nothing can be recorded. */
START_TEST(no_request_waits_without_end) {
    uint64_t address;
    atomic_store(&ac_sole_wanted, true);
    settings.wait_budget = 0;
    ac_allocator_configure(allocator, &settings);
    uint64_t hole = alloc(100 * MIB);
    alloc(MIB);
    device.no_fences = true;
    rely_on_stream(hole);
    ck_assert_int_eq(ac_arena_alloc_on(arena, (ac_stream_t)0x1000, 104 * MIB, false, &address),
                     AC_OK);
    ck_assert_uint_eq(device.calls[FAKE_SYNCHRONIZE], 0);
    ck_assert_uint_eq(counters.pages_moved, 0);
    alloc(108 * MIB);
    ck_assert_uint_eq(device.calls[FAKE_SYNCHRONIZE], 0);
}
END_TEST

enum { EPOCHS = 4 };

static uint64_t pass(unsigned epochs) {
    uint64_t freed = 0;
    while (epochs--)
        freed += ac_allocator_decay(allocator, EPOCHS);
    return freed;
}

START_TEST(idle_pages_go) {
    uint64_t a = alloc(32 * MIB), b = alloc(2 * MIB), c = alloc(100);
    alloc(MIB);
    pass(20);
    ck_assert_uint_eq(reserved(), 42 * MIB); /* in use */
    give(a);
    give(c);
    ck_assert_uint_eq(pass(EPOCHS), 0);
    give(b); /* little memory besides the hole: the hole's age is unchanged */
    ck_assert_uint_eq(pass(1), 34 * MIB);
    ck_assert_uint_eq(reserved(), 8 * MIB);
    ck_assert_uint_eq(pass(20), 0);
    ck_assert_uint_eq(counters.trimmed_bytes, 34 * MIB);
}
END_TEST

/* A request used a part of a hole and freed it. This part is in use, the rest is not. */
START_TEST(used_pages_stay) {
    uint64_t a = alloc(64 * MIB);
    alloc(MIB);
    give(a);
    for (int i = 0; i < 3 * EPOCHS; i++) {
        uint64_t part = alloc(16 * MIB);
        pass(1);
        give(part);
    }
    ck_assert_uint_eq(reserved(), 72 * MIB);
    uint64_t part = alloc(16 * MIB);
    pass(EPOCHS);
    ck_assert_uint_eq(pass(1), 48 * MIB);
    give(part);
}
END_TEST

/* Free memory that only a stream's order protects does not go back before its work is over. No
 * thread waits for that. */
START_TEST(idle_pages_behind_work) {
    atomic_store(&ac_sole_wanted, true);
    alloc(MIB);
    uint64_t hole = alloc(32 * MIB);
    alloc(MIB);
    rely_on_stream(hole);
    device.freeing = no_work_below;
    ck_assert_uint_eq(pass(20), 0);
    ck_assert_uint_eq(device.calls[FAKE_WAIT] + device.calls[FAKE_SYNCHRONIZE], 0);
    atomic_store(&context[0].capturing, true);
    fake_complete(&context[0], atomic_load(&context[0].submitted));
    ck_assert_uint_eq(pass(1), 0);
    atomic_store(&context[0].capturing, false);
    ck_assert_uint_eq(pass(1), 24 * MIB);
}
END_TEST

START_TEST(captures) {
    uint64_t address;
    make_hole();
    limit_to(64 * MIB);
    atomic_store(&context[0].capturing, true);
    ck_assert_int_eq(try_alloc(arena, 48 * MIB, &address), AC_BUSY);
    ck_assert_int_eq(ac_arena_alloc_on(arena, (ac_stream_t)0x1000, 20 * MIB, false, &address),
                     AC_OK); /* this request does not disturb captures */
    ck_assert_uint_eq(device.calls[FAKE_PAGES_UNMAP], 0);
    ck_assert_int_eq(ac_arena_alloc_on(arena, (ac_stream_t)0x1000, 32 * MIB, false, &address),
                     AC_OK); /* an idle page has gone back */
    ck_assert_uint_eq(device.calls[FAKE_PAGES_UNMAP], 1);
    ck_assert_int_ne(ac_arena_alloc_on(arena, (ac_stream_t)0x1000, 48 * MIB, false, &address),
                     AC_OK);
    atomic_store(&context[0].capturing, false);
}
END_TEST

/* --- memory that others may know of --- */

START_TEST(pinned_pages_stay) {
    bool fresh;
    alloc(MIB);
    uint64_t hole = alloc(32 * MIB);
    alloc(MIB);
    ck_assert_int_eq(ac_block_taint(hole, &fresh), AC_OK);
    ck_assert(!fresh);
    give(hole);
    limit_to(72 * MIB);
    uint64_t other_hole = alloc(32 * MIB);
    ck_assert_uint_eq(other_hole, hole); /* the hole serves again, at its address */
    give(other_hole);
    uint64_t large = alloc(48 * MIB); /* the pages are idle: they may go back, but not move */
    ck_assert_uint_eq(counters.pages_moved, 0);
    ck_assert_uint_eq(reserved(), 64 * MIB);
    give(large);
}
END_TEST

/* --- giving back --- */

START_TEST(trims_parts_of_holes) {
    make_hole();
    ck_assert_uint_eq(ac_allocator_idle_bytes(allocator), 24 * MIB);
    ck_assert_uint_eq(ac_allocator_trim(allocator, false), 24 * MIB);
    ck_assert_uint_eq(reserved(), 16 * MIB);
    ck_assert_uint_eq(ac_allocator_idle_bytes(allocator), 0);
    alloc(32 * MIB);
    ck_assert_uint_eq(reserved(), 40 * MIB); /* into the gap */
}
END_TEST

START_TEST(garbage_threshold) {
    settings.limit = 128 * MIB;
    settings.gc_threshold = 0.5;
    ac_allocator_configure(allocator, &settings);
    uint64_t a = alloc(40 * MIB);
    give(a);
    alloc(44 * MIB); /* no room: 40 + 44 > 64 */
    ck_assert_uint_le(reserved(), 64 * MIB);
}
END_TEST

START_TEST(smallest_pages_at_the_end) {
    begin_paged(30 * MIB);
    alloc(7 * MIB);
    uint64_t rest = alloc(22 * MIB); /* 8 + 22; with pages of 8 MiB it would be 32 */
    ck_assert(fake_usable(&device, rest, 22 * MIB));
    ck_assert_uint_eq(reserved(), 30 * MIB);
    give(rest);
    alloc(20 * MIB); /* pages of two sizes next to each other */
}
END_TEST

START_TEST(out_of_memory) {
    uint64_t address;
    begin_paged(64 * MIB);
    alloc(40 * MIB);
    ck_assert_int_eq(try_alloc(arena, 25 * MIB, &address), AC_OOM);
    ck_assert_int_eq(stats.num_ooms, 1);
    alloc(24 * MIB);
}
END_TEST

/* --- peers --- */

/* Makes another device a peer before the call of this number. */
static unsigned peer_at;

static void peer_comes(void *unused, fake_kind_t kind) {
    (void)unused, (void)kind;
    if (device.total_calls + 1 != peer_at)
        return;
    device.before = NULL;
    device.peers++;
    bool fails = device.fail_at == peer_at;
    ac_expand_allow(allocator);
    if (fails)
        device.fail_at = device.total_calls + 1;
}

/* Creates pages, moves them into several gaps, has their release refused, and gives them back. */
static void move_pages(void) {
    enum { BLOCKS = 8 };
    const ac_shrink_t some = {.bytes = 4 * MIB};
    uint64_t block[BLOCKS];
    settings.page = 2 * MIB;
    limit_to((BLOCKS + 1) * 2 * MIB);
    for (int i = 0; i < BLOCKS; i++)
        block[i] = alloc(2 * MIB);
    for (int i = 0; i < BLOCKS; i += 2)
        give(block[i]);
    uint64_t large = alloc(BLOCKS / 2 * 2 * MIB);
    for (int i = 1; i < BLOCKS; i += 2)
        give(block[i]);
    give(large);
    uint64_t all = alloc(BLOCKS * 2 * MIB);
    alloc(100);
    give(all);
    device.fail_with[FAKE_PAGES_UNMAP] = AC_BUSY;
    device.fail_at = device.total_calls + 1;
    ck_assert_uint_eq(ac_supply_pages.shrink(arena, &some), 0); /* pages that do not go back */
    ck_assert(fake_reachable(&device));
    ck_assert_uint_gt(ac_supply_pages.shrink(arena, &some), 0);
}

/* The peer gets access to every page, whatever another thread does to pages at that time. No call
 * waits for it. */
START_TEST(peers_reach_all_pages) {
    unsigned calls = 0;
    for (peer_at = 1; peer_at <= calls + 1; peer_at++) {
        device.before = peer_comes;
        move_pages();
        ck_assert_msg(fake_reachable(&device), "call %u", peer_at);
        calls = device.before ? 0 : device.total_calls;
        device.before = NULL;
        end_paged();
        begin_wide();
    }
    ck_assert_uint_gt(peer_at, 40);
}
END_TEST

/* --- addresses --- */

START_TEST(few_addresses) {
    device.most_addresses = 3 * ((uint64_t)1 << 30);
    alloc(MIB);
    ck_assert_uint_le(fake_reserved_bytes(&device), device.most_addresses / 2);
    uint64_t address;
    ck_assert_int_eq(try_alloc(other, MIB, &address), AC_OK);
    alloc(4096);
    device.most_addresses = 1; /* no addresses: the driver's own allocation serves */
    alloc(900 * MIB);
    end_paged();
    begin_wide();
    device.most_addresses = 1;
    alloc(MIB);
    ck_assert_uint_eq(device.calls[FAKE_SEGMENT_ALLOC], 1);
    ck_assert_int_eq(ac_expand_refused(allocator), AC_REFUSED_ADDRESSES);
    unsigned asked = device.calls[FAKE_RANGE_RESERVE];
    alloc(30 * MIB);
    ck_assert_uint_eq(device.calls[FAKE_RANGE_RESERVE], asked + 1); /* no retry of all sizes */
}
END_TEST

/* Ranges without blocks give their addresses back, also ranges of another context. */
START_TEST(addresses_come_back) {
    uint64_t address;
    device.most_addresses = 700 * MIB;
    raise_high_water(300 * MIB);
    raise_high_water(500 * MIB);
    ck_assert_int_eq(try_alloc(other, 600 * MIB, &address), AC_OK);
    ck_assert_uint_eq(device.calls[FAKE_SEGMENT_ALLOC], 0);
    ck_assert_int_eq(ac_expand_refused(allocator), AC_REFUSED_NOTHING);
    give(address);
}
END_TEST

static void refuse_pages(void *unused, fake_kind_t kind) {
    (void)unused;
    if (kind == FAKE_PAGE_CREATE)
        device.fail_at = device.total_calls + 1;
}

/* The device gives no pages, but has memory. Native segments serve, as long as the device cannot
 * be full. */
START_TEST(pages_refused) {
    uint64_t address;
    settings.memory = 64 * MIB;
    ac_allocator_configure(allocator, &settings);
    device.fail_with[FAKE_PAGE_CREATE] = AC_OOM;
    device.before = refuse_pages;
    alloc(20 * MIB);
    ck_assert_int_eq(ac_expand_refused(allocator), AC_REFUSED_PAGES);
    ck_assert_uint_eq(device.calls[FAKE_SEGMENT_ALLOC], 1);
    ck_assert_int_eq(try_alloc(arena, 20 * MIB, &address), AC_OOM);
    device.before = NULL;
    alloc(20 * MIB); /* by pages */
    ck_assert_uint_eq(device.calls[FAKE_SEGMENT_ALLOC], 1);
}
END_TEST

/* Refuses two pages: a growth makes two attempts by itself. */
static void refuse_two_pages(void *unused, fake_kind_t kind) {
    refuse_pages(unused, kind);
    if (device.calls[FAKE_PAGE_CREATE] == 1)
        device.before = NULL;
}

/* Other processes had the memory, and gave it back before the allocator checked. */
START_TEST(pages_refused_for_a_moment) {
    settings.memory = 64 * MIB;
    ac_allocator_configure(allocator, &settings);
    device.fail_with[FAKE_PAGE_CREATE] = AC_OOM;
    device.before = refuse_two_pages;
    alloc(20 * MIB);
    ck_assert(!device.before);
    ck_assert_int_eq(ac_expand_refused(allocator), AC_REFUSED_NOTHING);
    ck_assert_uint_eq(device.calls[FAKE_SEGMENT_ALLOC], 0);
}
END_TEST

/* The limit has no room for whole pages of this size. */
START_TEST(pages_over_the_limit) {
    settings.memory = 640 * MIB;
    settings.page = 20 * MIB;
    settings.limit = 36 * MIB;
    ac_allocator_configure(allocator, &settings);
    alloc(20 * MIB);
    alloc(14 * MIB);
    ck_assert_int_eq(ac_expand_refused(allocator), AC_REFUSED_NOTHING);
    ck_assert_uint_eq(device.calls[FAKE_SEGMENT_ALLOC], 0);
}
END_TEST

/* If a range has no room for a further page, the arena reserves another range. */
START_TEST(another_range) {
    device.most_addresses = 64 * MIB;
    alloc(20 * MIB);
    uint64_t addresses = fake_reserved_bytes(&device);
    ck_assert_uint_le(addresses, 32 * MIB);
    device.most_addresses = 0;
    alloc(40 * MIB);
    ck_assert_uint_gt(fake_reserved_bytes(&device), addresses);
    ck_assert_uint_eq(device.calls[FAKE_SEGMENT_ALLOC], 0);
}
END_TEST

START_TEST(no_pages) {
    ac_device_ops_t without = fake_ops;
    without.range_support = NULL;
    allocator = ac_allocator_create(&settings, &stats, &counters);
    ac_arena_t *native = ac_arena_create(allocator, &without, &context[0]);
    uint64_t address;
    ck_assert(!ac_expand_able(native));
    ck_assert_int_eq(ac_arena_alloc(native, MIB, false, &address), AC_OK);
    ck_assert_uint_eq(device.calls[FAKE_SEGMENT_ALLOC], 1);
    ck_assert_int_eq(ac_block_free(address), AC_OK);
    ac_allocator_trim(allocator, true);
    ac_arena_drop(native);
}
END_TEST

/* Requests that would get smaller pages share native segments like all others. */
START_TEST(medium_blocks_without_pages) {
    enum { BLOCKS = 500 };
    ac_device_ops_t without = fake_ops;
    without.range_support = NULL;
    settings.page = 8 * MIB;
    settings.small_page = AC_SEGMENT_ALIGN;
    allocator = ac_allocator_create(&settings, &stats, &counters);
    ac_arena_t *native = ac_arena_create(allocator, &without, &context[0]);
    uint64_t address[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        ck_assert_int_eq(ac_arena_alloc(native, 200000, false, &address[i]), AC_OK);
    ck_assert_uint_le(reserved(), 160 * MIB);
    for (int i = 0; i < BLOCKS; i++)
        ck_assert_int_eq(ac_block_free(address[i]), AC_OK);
    ac_allocator_trim(allocator, true);
    ac_arena_drop(native);
}
END_TEST

/* --- failures --- */

static void drop_it(void *arg, fake_kind_t kind) {
    (void)arg;
    if (kind != (fake_kind_t)device.fail_at)
        return;
    device.before = NULL;
    fake_context_kill(&context[0]);
    ac_arena_drop(arena);
    ac_expand_bury(arena); /* the moving thread owns the pages under way */
}

/* The context ends while a request is in progress. */
START_TEST(context_gone_meanwhile) {
    static const fake_kind_t kinds[] = {FAKE_RANGE_RESERVE, FAKE_PAGE_CREATE, FAKE_PAGE_MAP,
                                        FAKE_PAGES_ALLOW, FAKE_PAGES_UNMAP};
    uint64_t address;
    if (kinds[_i] != FAKE_RANGE_RESERVE)
        make_hole();
    limit_to(64 * MIB);
    device.fail_at = kinds[_i];
    device.before = drop_it;
    ck_assert_int_eq(try_alloc(arena, 48 * MIB, &address), AC_FAILED);
    ck_assert(!device.before);
    device.fail_at = 0;
}
END_TEST

/* The device denies access rights to pages, and does not unmap them either. No request gets these
 * pages, and the memory around them stays usable. */
START_TEST(pages_that_stay_barred) {
    uint64_t address, first = alloc(3 * MIB), free_from = first + 3 * MIB;
    fail_next(FAKE_PAGES_ALLOW, FAKE_PAGES_UNMAP);
    ck_assert_int_eq(try_alloc(arena, 12 * MIB, &address), AC_FAILED);
    ck_assert_uint_eq(device.failed, 2);
    ck_assert_uint_eq(reserved(), 16 * MIB);
    uint64_t second = alloc(5 * MIB), third = alloc(20 * MIB);
    ck_assert_uint_eq(second, free_from);
    ck_assert(fake_usable(&device, third, 20 * MIB));
    give(second);
    give(third);
    ac_allocator_trim(allocator, true);
    ck_assert_uint_eq(reserved(), 16 * MIB);
    ck_assert(fake_usable(&device, alloc(100 * MIB), 100 * MIB));
}
END_TEST

static void some_program(void) {
    uint64_t kept[6] = {0}, address;
    for (unsigned i = 0; i < 6; i++)
        if (try_alloc(arena, (3 + 7 * i) * MIB, &address) == AC_OK)
            kept[i] = address;
    for (unsigned i = 1; i < 6; i += 2)
        if (kept[i])
            give(kept[i]);
    if (try_alloc(arena, 60 * MIB, &address) == AC_OK) {
        ck_assert(fake_usable(&device, address, 60 * MIB));
        give(address);
    }
    if (try_alloc(other, 4096, &address) == AC_OK)
        give(address);
    ac_allocator_trim(allocator, true);
    for (unsigned i = 0; i < 6; i += 2)
        if (kept[i]) {
            ck_assert(fake_usable(&device, kept[i], (3 + 7 * i) * MIB));
            give(kept[i]);
        }
}

START_TEST(every_call_fails_once) {
    static const ac_status_t ways[] = {AC_OOM, AC_BUSY, AC_FAILED};
    for (unsigned n = 1;; n++) {
        begin_wide();
        limit_to(136 * MIB);
        device.fail_at = n;
        for (int k = 0; k < FAKE_KINDS; k++)
            device.fail_with[k] = fake_may_answer((fake_kind_t)k, ways[_i]) ? ways[_i] : AC_OK;
        some_program();
        bool over = device.total_calls < n;
        device.fail_at = 0;
        ac_allocator_trim(allocator, true);
        ck_assert_uint_eq(reserved(), 0);
        alloc(30 * MIB); /* the arena goes on */
        end_paged();
        if (over) {
            ck_assert_uint_gt(n, 30);
            break;
        }
    }
    begin_wide();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("expand");
    TCase *tests = tcase_create("expand");
    tcase_add_checked_fixture(tests, begin_wide, end_paged);
    tcase_add_test(tests, grows_by_pages);
    tcase_add_test(tests, moves_before_growing);
    tcase_add_test(tests, fills_many_gaps);
    tcase_add_test(tests, puts_many_gaps_back);
    tcase_add_test(tests, grows_within_the_budget);
    tcase_add_test(tests, fixed_budget);
    tcase_add_test(tests, waits_before_moving);
    tcase_add_test(tests, grows_rather_than_waits);
    tcase_add_test(tests, waits_once_without_success);
    tcase_add_test(tests, no_request_waits_without_end);
    tcase_add_test(tests, idle_pages_go);
    tcase_add_test(tests, used_pages_stay);
    tcase_add_test(tests, idle_pages_behind_work);
    tcase_add_test(tests, captures);
    tcase_add_test(tests, pinned_pages_stay);
    tcase_add_test(tests, trims_parts_of_holes);
    tcase_add_test(tests, garbage_threshold);
    tcase_add_test(tests, smallest_pages_at_the_end);
    tcase_add_test(tests, out_of_memory);
    tcase_add_test(tests, peers_reach_all_pages);
    tcase_add_test(tests, few_addresses);
    tcase_add_test(tests, addresses_come_back);
    tcase_add_test(tests, pages_refused);
    tcase_add_test(tests, pages_refused_for_a_moment);
    tcase_add_test(tests, pages_over_the_limit);
    tcase_add_test(tests, another_range);
    tcase_add_test(tests, no_pages);
    tcase_add_test(tests, medium_blocks_without_pages);
    tcase_add_loop_test(tests, context_gone_meanwhile, 0, 5);
    tcase_add_test(tests, pages_that_stay_barred);
    tcase_add_loop_test(tests, every_call_fails_once, 0, 3);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}

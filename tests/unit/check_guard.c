/* Guarded blocks on the fake device: their places, the release of their pages, and reports of writes
 * next to them. */
#include "allocator/guarded.h"
#include "allocator/space/guard_place.h"
#include "allocator/supply/expand.h"
#include "allocator/supply/guard.h"
#include "allocator_frame.h"
#include "run_suite.h"

#define GIB ((uint64_t)1 << 30)

static ac_guard_damage_t found;
static unsigned times_found;

static void note(const ac_guard_damage_t *damage) {
    found = *damage;
    times_found++;
}

static void begin_with(uint64_t capacity) {
    begin(capacity);
    ac_guard_damaged = note;
    times_found = 0;
}

static void begin_guarded(void) {
    begin_with(GIB);
}

static void begin_huge(void) {
    begin_with(1024 * GIB);
}

/* Ends the contexts and checks that nothing of theirs is left. */
static void end_guarded(void) {
    end();
    for (int i = 0; i < 2; i++) {
        fake_context_kill(&context[i]);
        ac_arena_drop(arena_of(i));
        ac_expand_bury(arena_of(i));
    }
    check_world();
    ck_assert_uint_eq(device.live_pages, 0);
    ck_assert_uint_eq(fake_reserved_bytes(&device), 0);
    fake_device_close(&device);
}

static uint64_t guarded(uint64_t bytes) {
    uint64_t address = 0;
    ck_assert_int_eq(ac_arena_alloc_guarded(arena, 3, 0, NULL, bytes, &address),
                     AC_GUARD_SERVED);
    check_world();
    return address;
}

static uint64_t up(uint64_t bytes, uint64_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

START_TEST(lies_before_addresses_without_memory) {
    static const uint64_t sizes[] = {1,     511,     512,         513,    1000,
                                     65536, 2 * MIB, 2 * MIB + 1, 9 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t size = up(sizes[i], AC_GRANULE), pages = up(size, AC_SEGMENT_ALIGN);
        uint64_t before = device.used, address = guarded(sizes[i]);
        ck_assert_uint_eq(address % AC_GRANULE, 0);
        ck_assert_uint_eq((address + size) % AC_SEGMENT_ALIGN, 0);
        ck_assert(fake_usable(&device, address, size));
        ck_assert(!fake_usable(&device, address + size, 1));
        ck_assert(!fake_usable(&device, address + size - pages - 1, 1));
        ck_assert_uint_eq(device.used - before, pages);
    }
    ck_assert_uint_eq(counters.guarded_allocs, sizeof sizes / sizeof *sizes);
    ck_assert_uint_eq(reserved(), device.used);
}
END_TEST

START_TEST(looks_like_any_block_and_serves_no_other) {
    uint64_t address = guarded(1000);
    ac_block_info_t info;
    ck_assert_int_eq(ac_block_find(address + 999, &info), AC_OK);
    ck_assert(info.allocated && info.paged && info.module == 3);
    ck_assert_uint_eq(info.address, address);
    ck_assert_uint_eq(info.requested, 1000);
    ck_assert_uint_eq(info.pages_end - info.pages_begin, AC_SEGMENT_ALIGN);
    /* The rest of its pages exists, and serves no request. */
    ck_assert_int_eq(ac_block_find(address - 1, &info), AC_OK);
    ck_assert(!info.allocated);
    ck_assert_uint_eq(alloc(1000) / (64 * GIB) == address / (64 * GIB), 0);
}
END_TEST

START_TEST(pages_go_when_nothing_used_them) {
    uint64_t address = guarded(5 * MIB);
    ck_assert_uint_eq(device.used, 6 * MIB);
    give(address);
    ck_assert_uint_eq(device.used, 0);
    ck_assert_uint_eq(reserved(), 0);
    ck_assert_int_eq(ac_block_free(address), AC_NOT_OURS);
    check_world();
}
END_TEST

/* The free waits for work that may use the memory, for at most a second. */
START_TEST(a_free_waits_for_the_device) {
    uint64_t address = guarded(MIB);
    submit(0);
    give(address); /* the fake device's waits complete work */
    ck_assert_uint_eq(device.used, 0);
    address = guarded(MIB);
    submit(0);
    device.endless = true;
    give(address);
    ck_assert_uint_eq(device.used, 2 * MIB);
    ck_assert(fake_usable(&device, address, MIB));
    check_world();
    device.endless = false;
    complete(0);
    ck_assert(ac_allocator_settle_debt(allocator));
    ck_assert_uint_eq(device.used, 0);
}
END_TEST

START_TEST(a_free_on_a_stream_does_not_wait) {
    uint64_t address = 0;
    const ac_stream_t stream = 0x1000;
    ck_assert_int_eq(ac_arena_alloc_guarded(arena, 3, AC_MEMPOOL_FIRST, &stream, MIB, &address),
                     AC_GUARD_SERVED);
    submit(0);
    unsigned waits = device.calls[FAKE_WAIT];
    ck_assert_int_eq(ac_block_free_on(arena, stream, address), AC_OK);
    ck_assert_uint_eq(device.calls[FAKE_WAIT], waits);
    ck_assert_uint_eq(device.used, 2 * MIB);
    /* The block does not go back to the stream either. */
    uint64_t next = 0;
    ck_assert_int_eq(ac_arena_alloc_on(arena, stream, MIB, false, &next), AC_OK);
    ck_assert_uint_ne(next, address);
    complete(0);
    ck_assert(ac_allocator_settle_debt(allocator));
    ck_assert(!fake_usable(&device, address, 1));
    check_world();
}
END_TEST

/* Addresses are reused last: freed blocks keep their addresses without memory. */
START_TEST(addresses_are_left_alone) {
    enum { TIMES = 300 };
    uint64_t address[TIMES];
    for (int i = 0; i < TIMES; i++) {
        address[i] = guarded(1000 + (uint64_t)i);
        give(address[i]);
        for (int k = 0; k < i; k++)
            ck_assert_uint_ne(address[k] / AC_SEGMENT_ALIGN, address[i] / AC_SEGMENT_ALIGN);
        ck_assert(!fake_usable(&device, address[i], 1));
    }
    /* The loop uses all addresses up: the range is four times as large as the device's memory. */
    for (int i = 0; i < 2000; i++)
        give(guarded(1000));
    check_world();
}
END_TEST

START_TEST(a_change_beside_the_block_is_found) {
    uint64_t address = guarded(1000);
    ck_assert_uint_eq(device.fills, 2);
    ck_assert_uint_eq(device.fill[0].address + device.fill[0].bytes, address);
    ck_assert_uint_eq(device.fill[1].address, address + 1000);
    ck_assert_uint_eq(device.fill[1].bytes, 24);
    give(address);
    ck_assert_uint_eq(times_found, 0);
    address = guarded(1000);
    device.fill[1].byte = 0;
    ac_guard_freeing(address, 5);
    give(address);
    ck_assert_uint_eq(times_found, 1);
    ck_assert_uint_eq(found.address, address);
    ck_assert_int_eq(found.at, 1000);
    ck_assert_uint_eq(found.asked_by, 3);
    ck_assert_uint_eq(found.freed_by, 5);
    address = guarded(1024);
    ck_assert_uint_eq(device.fills, 1); /* nothing behind it */
    device.fill[0].byte = 0;
    give(address);
    ck_assert_uint_eq(times_found, 2);
    ck_assert_int_eq(found.at, -(int64_t)AC_GRANULE);
    ck_assert_uint_eq(counters.guard_damages, 2);
}
END_TEST

/* If there are no pages, the request leaves nothing behind, and other requests are served. */
START_TEST(failures_leave_nothing) {
    static const fake_kind_t kinds[] = {FAKE_RANGE_RESERVE, FAKE_PAGE_CREATE, FAKE_PAGE_MAP,
                                        FAKE_PAGES_ALLOW};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        uint64_t address = 0;
        memset(device.fail_with, 0, sizeof device.fail_with);
        device.fail_with[kinds[i]] = AC_FAILED;
        for (unsigned call = 1; call <= 4; call++) {
            device.fail_at = device.total_calls + call;
            if (ac_arena_alloc_guarded(arena, 3, 0, NULL, 3 * MIB, &address) ==
                AC_GUARD_SERVED)
                give(address);
            device.fail_at = 0;
            check_world();
        }
        give(guarded(3 * MIB));
        ck_assert_uint_eq(device.used, 0);
    }
    ck_assert_uint_gt(counters.guard_refusals, 0);
}
END_TEST

START_TEST(takes_no_more_than_a_quarter) {
    uint64_t address = 0;
    unsigned count = 0;
    while (ac_arena_alloc_guarded(arena, 3, 0, NULL, 1000, &address) == AC_GUARD_SERVED)
        count++;
    ck_assert_uint_eq(count, GIB / 4 / AC_SEGMENT_ALIGN);
    ck_assert_int_eq(ac_arena_alloc_guarded(arena, 3, 0, NULL, 1000, &address), AC_GUARD_SHARE);
    /* A block that fills its pages has no guard bytes. */
    guarded(64 * MIB);
    alloc(1000);
    check_world();
}
END_TEST

/* A page counts its units in 16 bits. A block of 128 GiB would count as 0 units, and a walk would never
 * end. */
START_TEST(no_more_than_a_page_can_count) {
    const uint64_t most = (uint64_t)AC_UNIT_MOST * AC_SEGMENT_ALIGN;
    uint64_t address = 0;
    for (unsigned i = 0; i < 3; i++) {
        unsigned calls = device.total_calls;
        ck_assert_int_eq(
            ac_arena_alloc_guarded(arena, 3, 0, NULL, most + 1 + i * most, &address),
            AC_GUARD_TOO_LARGE);
        ck_assert_uint_le(device.total_calls, calls + 1); /* pages, once */
    }
    ck_assert_uint_eq(counters.guard_refusals, 3);
    address = guarded(most);
    ck_assert(fake_usable(&device, address, most));
    give(address);
    ck_assert_uint_eq(device.used, 0);
}
END_TEST

/* A full device gives another answer than the bound or a device without pages. */
START_TEST(answers_tell_why) {
    uint64_t address = 0;
    guarded(2 * MIB);
    alloc(GIB - 64 * MIB);
    ck_assert_int_eq(ac_arena_alloc_guarded(arena, 3, 0, NULL, 64 * MIB, &address),
                     AC_GUARD_FULL);
    /* The range is four times as large as the device's memory. */
    ck_assert_int_eq(ac_arena_alloc_guarded(arena, 3, 0, NULL, 5 * GIB, &address),
                     AC_GUARD_ADDRESSES);
    ck_assert_int_eq(ac_arena_alloc_guarded(arena, 3, 0, NULL, 64 * MIB + 1, &address),
                     AC_GUARD_FULL);
    ck_assert_uint_eq(counters.guard_refusals, 3);
    guarded(2 * MIB);
}
END_TEST

START_TEST(not_during_a_capture) {
    uint64_t address = guarded(1000);
    atomic_store(&context[0].capturing, true);
    uint64_t other_address = 0;
    ck_assert_int_eq(ac_arena_alloc_guarded(arena, 3, 0, NULL, 1000, &other_address),
                     AC_GUARD_NOT_NOW);
    submit(0);
    give(address);
    ck_assert_uint_eq(device.used, 2 * MIB);
    atomic_store(&context[0].capturing, false);
    complete(0);
    ck_assert(ac_allocator_settle_debt(allocator));
    ck_assert_uint_eq(device.used, 0);
}
END_TEST

START_TEST(layouts_tell_of_freed_ones) {
    uint64_t kept = guarded(1000), gone = guarded(3000);
    ac_guard_freeing(gone, 7);
    give(gone);
    alloc(5000);
    ac_laid_segment_t segment[8];
    ac_laid_block_t block[16];
    ac_layout_t layout = {
        .guarded = true, .segment = segment, .block = block, .segment_room = 8, .block_room = 16};
    ck_assert(ac_allocator_lay_out(allocator, &(struct timespec){.tv_sec = INT32_MAX}, &layout));
    ck_assert_uint_eq(layout.segments, 1);
    ck_assert(segment[0].guarded && !segment[0].exported);
    ck_assert_uint_eq(layout.blocks, 3);
    ck_assert_uint_eq(block[1].address, kept);
    ck_assert_int_eq(block[1].state, AC_LAID_ALLOCATED);
    ck_assert_uint_eq(block[1].freed_ns, 0);
    ck_assert_uint_eq(block[2].address, gone);
    ck_assert_int_eq(block[2].state, AC_LAID_UNMAPPED);
    ck_assert_uint_eq(block[2].requested, 3000);
    ck_assert_uint_eq(block[2].module, 3);
    ck_assert_uint_eq(block[2].freed_by, 7);
    ck_assert_uint_gt(block[2].freed_ns, 0);
    ck_assert_uint_ge(block[2].asked_ns, block[2].freed_ns);
    ac_near_t near;
    ac_layout_near(&layout, gone + 3000 + 12, &near);
    ck_assert_uint_eq(near.layout.blocks, 2);
}
END_TEST

/* Guarded blocks together with other blocks and moving pages. */
START_TEST(with_expandable_segments) {
    settings.expandable_segments = true;
    settings.page = 8 * MIB;
    settings.small_page = AC_SEGMENT_ALIGN;
    ac_allocator_configure(allocator, &settings);
    uint64_t address[40], plain[40];
    for (int i = 0; i < 40; i++) {
        address[i] = guarded((uint64_t)i * 300000 + 1);
        plain[i] = alloc((uint64_t)i * 300000 + 1);
    }
    for (int i = 0; i < 40; i += 2) {
        submit(0);
        give(address[i]);
        give(plain[i]);
        complete(0);
        check_world();
    }
    alloc(300 * MIB);
    ac_allocator_trim(allocator, true);
    for (int i = 0; i < 40; i++) {
        ck_assert_int_eq(fake_usable(&device, address[i], 1), i % 2);
        ck_assert_int_eq(i % 2, fake_usable(&device, address[i], (uint64_t)i * 300000 + 1));
    }
}
END_TEST

/* Unmapping and the check before it may wait for any device work. Neither a request nor a free calls
 * them while the device works. */
START_TEST(nothing_goes_while_the_device_works) {
    const ac_stream_t stream = 0x1000;
    uint64_t first = 0, second = 0;
    ck_assert_int_eq(ac_arena_alloc_guarded(arena, 3, AC_MEMPOOL_FIRST, &stream, 1000, &first),
                     AC_GUARD_SERVED);
    ck_assert_int_eq(ac_arena_alloc_guarded(arena, 3, AC_MEMPOOL_FIRST, &stream, 1000, &second),
                     AC_GUARD_SERVED);
    submit(0);
    ck_assert_int_eq(ac_block_free_on(arena, stream, first), AC_OK);
    complete(0);
    ck_assert(ac_fence_calm(0));
    submit(_i); /* behind it, in this context or another one */
    device.endless = true;
    uint64_t third = guarded(1000);
    ck_assert_int_eq(ac_block_free_on(arena, stream, second), AC_OK);
    give(third);
    ck_assert_uint_eq(device.calls[FAKE_PAGES_UNMAP], 0);
    ck_assert_uint_eq(device.calls[FAKE_DIFFERS], 0);
    check_world();
    device.endless = false;
    complete(_i);
    ck_assert(ac_allocator_settle_debt(allocator));
    ck_assert_uint_eq(device.used, 0);
    ck_assert_uint_gt(device.calls[FAKE_DIFFERS], 0);
}
END_TEST

/* A late pattern may be written long after the wait for it was given up. Pages stay until then. */
START_TEST(pages_outlast_a_late_pattern) {
    device.fill_late = true;
    uint64_t address = guarded(1000);
    give(address);
    ck_assert(fake_usable(&device, address, 1));
    ck_assert_uint_eq(counters.guarded_allocs, 1);
    ac_allocator_settle_debt(allocator);
    ck_assert(fake_usable(&device, address, 1));
    device.fill_late = false; /* the release is still due */
    ac_allocator_settle_debt(allocator);
    ck_assert(!fake_usable(&device, address, 1));
    ck_assert_uint_eq(device.calls[FAKE_DIFFERS], 0); /* it was not marked */
}
END_TEST

/* The pages of a guarded block are released only after the check of its guard bytes. Even a growth that
 * moves pages and looks for the best hole does not take them. */
START_TEST(pages_serve_no_other_block) {
    settings.expandable_segments = true;
    settings.page = settings.small_page = AC_SEGMENT_ALIGN;
    ac_allocator_configure(allocator, &settings);
    uint64_t address = 0;
    const ac_stream_t stream = 0x1000;
    ck_assert_int_eq(ac_arena_alloc_guarded(arena, 3, AC_MEMPOOL_FIRST, &stream, 1000, &address),
                     AC_GUARD_SERVED);
    device.fill[1].byte = 0;
    submit(0);
    ck_assert_int_eq(ac_block_free_on(arena, stream, address), AC_OK);
    complete(0);
    ck_assert(ac_fence_calm(0));
    allocator->supply->expand.toll.costly = 1;
    alloc(GIB - 64 * MIB); /* exceeds every budget */
    ck_assert_uint_eq(counters.pages_moved, 0);
    ck_assert(ac_allocator_settle_debt(allocator));
    ck_assert_uint_eq(times_found, 1);
    ck_assert(!fake_usable(&device, address, 1));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("guard");
    TCase *cases = tcase_create("guard");
    tcase_add_checked_fixture(cases, begin_guarded, end_guarded);
    tcase_add_test(cases, lies_before_addresses_without_memory);
    tcase_add_test(cases, looks_like_any_block_and_serves_no_other);
    tcase_add_test(cases, pages_go_when_nothing_used_them);
    tcase_add_test(cases, a_free_waits_for_the_device);
    tcase_add_test(cases, a_free_on_a_stream_does_not_wait);
    tcase_add_test(cases, addresses_are_left_alone);
    tcase_add_test(cases, a_change_beside_the_block_is_found);
    tcase_add_test(cases, failures_leave_nothing);
    tcase_add_test(cases, takes_no_more_than_a_quarter);
    tcase_add_test(cases, answers_tell_why);
    tcase_add_test(cases, not_during_a_capture);
    tcase_add_test(cases, layouts_tell_of_freed_ones);
    tcase_add_test(cases, with_expandable_segments);
    tcase_add_loop_test(cases, nothing_goes_while_the_device_works, 0, 2);
    tcase_add_test(cases, pages_outlast_a_late_pattern);
    tcase_add_test(cases, pages_serve_no_other_block);
    suite_add_tcase(suite, cases);
    TCase *huge = tcase_create("huge");
    tcase_add_checked_fixture(huge, begin_huge, end_guarded);
    tcase_add_test(huge, no_more_than_a_page_can_count);
    suite_add_tcase(suite, huge);
    return run_suite(suite);
}

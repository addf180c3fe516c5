/* Blocks of pinned memory: which block serves a request, which work a free waits for, which
 * blocks leave, and the index. */
#include <check.h>
#include <stdlib.h>

#include "allocator/host/host.h"
#include "allocator/order/capture.h"
#include "allocator/order/fence.h"
#include "fake_device.h"
#include "run_suite.h"

enum { KIB = 1024, MIB = 1024 * KIB };
#define ALL UINT64_MAX

static fake_device_t device;
static fake_context_t context[2];
static ac_timeline_t timeline[2];
static ac_host_t host;
static ac_host_stats_t stats;
static const ac_host_key_t key = {&context[0], 1, 0};
static uint64_t now = 1000;

static void begin(void) {
    fake_device_init(&device, (uint64_t)1 << 30);
    for (int i = 0; i < 2; i++) {
        fake_context_init(&context[i], &device);
        ck_assert(ac_timeline_open(&timeline[i], &fake_ops, &context[i]));
    }
    ac_host_init(&host, &stats);
}

static void end(void) {
    const char *why = NULL;
    ck_assert_msg(ac_host_check(&host, &why) == 0, "%s", why);
    ck_assert_msg(!device.wrong, "%s", device.wrong);
}

/* Submits work to context i, which completes when the test calls complete(). */
static void submit(int i) {
    fake_submit(&context[i]);
    ac_fence_submitted(&timeline[i]);
}

/* Completes the work of context i. Its fences notice. */
static void complete(int i) {
    fake_complete(&context[i], atomic_load(&context[i].submitted));
    ac_fence_close(NULL, true);
    ac_fence_poll(NULL, true);
}

static void add(uint64_t address, uint64_t bytes) {
    ck_assert(ac_host_add(&host, &key, address, ac_host_size(bytes), bytes));
}

static ac_host_free_t give(uint64_t address) {
    ac_host_block_t *block;
    return ac_host_give(&host, address, true, ALL, now, &block);
}

/* Returns 0 if there was no block. */
static uint64_t take_as(const ac_host_key_t *wanted, uint64_t bytes) {
    uint64_t address = 0;
    return ac_host_take(&host, wanted, ac_host_size(bytes), bytes, now, &address) ? address : 0;
}

static uint64_t take(uint64_t bytes) {
    return take_as(&key, bytes);
}

START_TEST(sizes_waste_an_eighth_at_most) {
    for (uint64_t bytes = 1; bytes < (uint64_t)1 << 40; bytes += bytes / 7 + 1) {
        uint64_t size = ac_host_size(bytes);
        ck_assert_uint_ge(size, bytes);
        ck_assert(size - bytes < 512 || size - bytes <= bytes / 8);
        ck_assert_uint_eq(ac_host_size(size), size);
    }
    ck_assert_uint_eq(ac_host_size(UINT64_MAX), 0);
}
END_TEST

START_TEST(a_block_serves_its_size_and_key) {
    add(MIB, MIB);
    ck_assert_int_eq(give(MIB), AC_HOST_READY);           /* no work was submitted */
    for (uint32_t i = 1; i <= 8 * AC_HOST_BUCKETS; i++) { /* some sizes share a bucket */
        ck_assert_uint_eq(take_as(&(ac_host_key_t){(char *)&context[0] + i, 1, 0}, MIB), 0);
        ck_assert_uint_eq(take_as(&(ac_host_key_t){&context[0], 1 + i, 0}, MIB), 0);
        ck_assert_uint_eq(take_as(&(ac_host_key_t){&context[0], 1, i}, MIB), 0);
        ck_assert_uint_eq(take(MIB + i * (uint64_t)MIB), 0);
    }
    ck_assert_uint_eq(take(MIB / 2), 0);
    ck_assert_uint_eq(take(MIB), MIB);
    ck_assert_uint_eq(take(MIB), 0);
}
END_TEST

START_TEST(the_newest_serves_first) {
    for (uint64_t i = 1; i <= 3; i++)
        add(i * MIB, MIB);
    for (uint64_t i = 1; i <= 3; i++)
        give(i * MIB);
    for (uint64_t i = 3; i >= 1; i--)
        ck_assert_uint_eq(take(MIB), i * MIB);
}
END_TEST

/* Work of any context counts, even if contexts share no memory. */
START_TEST(a_free_waits_for_all_contexts) {
    add(MIB, MIB);
    submit(0);
    submit(1);
    ck_assert_int_eq(give(MIB), AC_HOST_WAITS);
    ck_assert(ac_host_waits(&host, &key, MIB));
    ck_assert_uint_eq(take(MIB), 0);
    complete(0);
    ck_assert_uint_eq(take(MIB), 0);
    ck_assert_uint_ne(ac_host_target(&host, NULL), 0);
    submit(0); /* later work does not count */
    complete(1);
    ck_assert_uint_eq(take(MIB), MIB);
    ck_assert(!ac_host_waits(&host, &key, MIB));
    ck_assert_uint_eq(ac_host_target(&host, NULL), 0);
}
END_TEST

START_TEST(untouched_memory_does_not_wait) {
    submit(1);
    add(MIB, MIB);
    ck_assert_int_eq(give(MIB), AC_HOST_READY);
    ck_assert_uint_eq(take(MIB), MIB);
    submit(0);
    ck_assert_int_eq(give(MIB), AC_HOST_WAITS);
}
END_TEST

START_TEST(captures_keep_it) {
    add(MIB, MIB);
    add(2 * MIB, MIB);
    ac_order_capture_begin(7);
    ck_assert_int_eq(give(2 * MIB), AC_HOST_READY); /* no work was captured */
    submit(1);
    ck_assert_int_eq(give(MIB), AC_HOST_DEFERRED);
    ac_order_capture_end();
    ck_assert(ac_host_holds(&host, 7) && !ac_host_holds(&host, 8));
    complete(1);
    ck_assert_uint_eq(take(MIB), 2 * MIB);
    ck_assert_uint_eq(take(MIB), 0);
    ck_assert_uint_ne(ac_host_target(&host, &context[0]), 0);
    submit(0); /* a launch of the graph */
    ac_host_release(&host, 7, now);
    ck_assert(!ac_host_holds(&host, 7));
    ck_assert_uint_eq(take(MIB), 0);
    complete(0);
    ck_assert_uint_eq(take(MIB), MIB);
}
END_TEST

START_TEST(limits) {
    ac_host_block_t *block;
    uint64_t address, size;
    for (uint64_t i = 1; i <= 3; i++)
        add(i * MIB, MIB);
    ck_assert_int_eq(ac_host_give(&host, MIB, true, MIB / 2, now, &block), AC_HOST_LEAVES);
    ac_host_left(&host, block, true, now);
    ck_assert_int_eq(ac_host_give(&host, 2 * MIB, false, ALL, now, &block), AC_HOST_LEAVES);
    ac_host_left(&host, block, false, now); /* the driver refused the free */
    ck_assert_int_eq(give(2 * MIB), AC_HOST_READY);
    now += 10;
    ck_assert_int_eq(ac_host_give(&host, 3 * MIB, true, MIB, now, &block), AC_HOST_READY);
    ck_assert_ptr_null(ac_host_leave(&host, now - 10, 0, now)); /* no block is that old */
    ck_assert(!ac_host_due(&host, now - 10, ALL) && ac_host_due(&host, now, ALL));
    ck_assert(!ac_host_due(&host, 0, 2 * MIB) && ac_host_due(&host, 0, 2 * MIB - 1));
    block = ac_host_leave(&host, ALL, MIB, now);
    ck_assert_ptr_nonnull(block);
    ck_assert_ptr_eq(ac_host_leaving(block, &address, &size), &context[0]);
    ck_assert(address == 2 * MIB && size == MIB);
    ck_assert_uint_eq(take(MIB), 3 * MIB); /* not the block that leaves */
    ac_host_left(&host, block, true, now);
    ck_assert_ptr_null(ac_host_leave(&host, ALL, 0, now));
    ck_assert_int_eq(stats.num_host_alloc, 3);
    ck_assert_int_eq(stats.num_host_free, 2);
}
END_TEST

/* Waiting blocks count against the limit and cannot make room. */
START_TEST(limit_with_waiting_blocks) {
    ac_host_block_t *block;
    add(MIB, MIB);
    add(2 * MIB, MIB);
    submit(0);
    ck_assert_int_eq(ac_host_give(&host, MIB, true, MIB, now, &block), AC_HOST_WAITS);
    ck_assert_int_eq(ac_host_give(&host, 2 * MIB, true, MIB, now, &block), AC_HOST_LEAVES);
    ac_host_left(&host, block, true, now);
    ck_assert_ptr_null(ac_host_leave(&host, ALL, 0, now));
    ck_assert(ac_host_due(&host, 0, ALL));
}
END_TEST

START_TEST(frees_that_are_wrong) {
    ac_host_block_t *block;
    add(MIB, MIB - 100);
    ck_assert_int_eq(give(MIB + 512), AC_HOST_BAD);
    ck_assert_int_eq(give(4 * MIB), AC_HOST_NOT_OURS);
    ck_assert_int_eq(give(MIB - 1), AC_HOST_NOT_OURS);
    ck_assert_int_eq(give(MIB), AC_HOST_READY);
    ck_assert_int_eq(give(MIB), AC_HOST_BAD);
    ck_assert_uint_eq(take(MIB), MIB);
    ac_host_taint(&host, MIB + 5);
    ck_assert_int_eq(ac_host_give(&host, MIB, true, ALL, now, &block), AC_HOST_LEAVES);
    ck_assert_int_eq(give(MIB), AC_HOST_BAD);
    ac_host_left(&host, block, true, now);
    ck_assert_int_eq(give(MIB), AC_HOST_NOT_OURS);
}
END_TEST

START_TEST(what_is_told) {
    ac_host_info_t info, again;
    add(MIB, MIB - 100);
    ck_assert(!ac_host_find(&host, MIB - 1, &info) && !ac_host_find(&host, 2 * MIB, &info));
    ck_assert(ac_host_find(&host, 2 * MIB - 101, &info) && info.allocated);
    ck_assert(info.address == MIB && info.size == MIB && info.requested == MIB - 100);
    ck_assert(ac_host_find(&host, 2 * MIB - 100, &again) && !again.allocated);
    give(MIB);
    ck_assert(ac_host_find(&host, MIB, &again) && !again.allocated);
    ck_assert_uint_eq(take(MIB - 3), MIB);
    ck_assert(ac_host_find(&host, MIB, &again) && again.allocated);
    ck_assert(again.requested == MIB - 3 && again.id != info.id);
}
END_TEST

START_TEST(contexts_and_addresses_that_come_back) {
    ac_host_block_t *leaving;
    const ac_host_key_t other = {&context[1], 1, 0};
    for (uint64_t i = 1; i <= 4; i++)
        add(i * MIB, MIB);
    ck_assert(ac_host_add(&host, &other, 8 * MIB, MIB, MIB));
    submit(0);
    give(MIB); /* waits */
    ac_order_capture_begin(9);
    submit(0);
    give(2 * MIB);
    ac_order_capture_end();
    ck_assert_int_eq(ac_host_give(&host, 3 * MIB, false, ALL, now, &leaving), AC_HOST_LEAVES);
    ac_host_owner_gone(&host, &context[0]);
    ck_assert_int_eq(stats.allocations.current, 1);
    ck_assert_int_eq(stats.active_requests.current, 1);
    ck_assert(!ac_host_holds(&host, 9));
    /* The driver reuses the address before the thread that called its free has returned. */
    ck_assert(ac_host_add(&host, &other, 3 * MIB, 2 * MIB, 2 * MIB));
    ac_host_left(&host, leaving, true, now);
    ck_assert_int_eq(stats.allocations.current, 2);
    /* The rest of an older block does not prevent adding this one either. */
    ck_assert(ac_host_add(&host, &other, 4 * MIB + 512, 5 * MIB, 5 * MIB));
    ck_assert_int_eq(stats.allocations.current, 1);
    ac_host_forget(&host, 4 * MIB + 512);
    ck_assert_uint_eq(atomic_load(&host.blocks), 0);
}
END_TEST

/* Compares with a table: all operations in all states. */
START_TEST(random_sequences) {
    enum { BLOCKS = 64, STEPS = 20000 };
    bool held[BLOCKS] = {false}, there[BLOCKS] = {false};
    uint64_t session = 0;
    ac_host_block_t *block;
    const char *why = NULL;
    srand((unsigned)_i);
    for (int step = 0; step < STEPS; step++) {
        int i = rand() % BLOCKS;
        uint64_t address = (uint64_t)(i + 1) * 16 * MIB, size = (uint64_t)(i % 3 + 1) * MIB;
        switch (rand() % 12) {
        case 0:
            if (!there[i]) {
                add(address, size);
                there[i] = held[i] = true;
            }
            break;
        case 1:
            submit(rand() % 2);
            break;
        case 2:
            complete(rand() % 2);
            break;
        case 3:
            if (!session)
                ac_order_capture_begin(session = (uint64_t)step + 1);
            break;
        case 4:
            if (session) {
                ac_order_capture_end();
                ac_host_release(&host, session, now);
                ck_assert(!ac_host_holds(&host, session));
            }
            session = 0;
            break;
        case 5:
            block = ac_host_leave(&host, ALL, (uint64_t)(rand() % 64) * MIB, now);
            if (block) {
                uint64_t bytes, from;
                ac_host_leaving(block, &from, &bytes);
                int at = (int)(from / MIB / 16) - 1;
                ck_assert(there[at] && !held[at]);
                there[at] = rand() % 4 == 0;
                ac_host_left(&host, block, !there[at], now);
            }
            break;
        case 6:
        case 7:
        case 8:
            address = take(size);
            if (address) {
                int at = (int)(address / MIB / 16) - 1;
                ck_assert(there[at] && !held[at] && at % 3 == i % 3);
                held[at] = true;
            }
            break;
        default: {
            ac_host_free_t answer = give(address);
            ck_assert_int_eq(answer == AC_HOST_NOT_OURS, !there[i]);
            ck_assert_int_eq(answer == AC_HOST_BAD, there[i] && !held[i]);
            held[i] = false;
            break;
        }
        }
        now++;
        if (step % 64 == 0)
            ck_assert_msg(ac_host_check(&host, &why) == 0, "%s", why);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("host");
    TCase *tests = tcase_create("host");
    tcase_add_checked_fixture(tests, begin, end);
    tcase_add_test(tests, sizes_waste_an_eighth_at_most);
    tcase_add_test(tests, a_block_serves_its_size_and_key);
    tcase_add_test(tests, the_newest_serves_first);
    tcase_add_test(tests, a_free_waits_for_all_contexts);
    tcase_add_test(tests, untouched_memory_does_not_wait);
    tcase_add_test(tests, captures_keep_it);
    tcase_add_test(tests, limits);
    tcase_add_test(tests, limit_with_waiting_blocks);
    tcase_add_test(tests, frees_that_are_wrong);
    tcase_add_test(tests, what_is_told);
    tcase_add_test(tests, contexts_and_addresses_that_come_back);
    tcase_add_loop_test(tests, random_sequences, 0, 8);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}

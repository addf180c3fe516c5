/* Thread caches among threads: owners use theirs while other threads take blocks back, with and without the
 * kernel's barrier. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "allocator/cache/cache_int.h"
#include "allocator_frame.h"
#include "no_membarrier.h"
#include "run_suite.h"

enum { OWNERS = 2, AT_ONCE = 3, RECALLS = 300, CHECK_EVERY = 10, GRANULES = 1 << 17 };

static _Atomic bool over;
static _Atomic unsigned twice, refused, ready;
static _Atomic unsigned char owned[GRANULES]; /* indexed by the first granule of a block */
static ac_cache_tally_t tally[OWNERS];

static void begin_cached(void) {
    begin(256 * MIB);
    settings.thread_cache = 8 * MIB;
    ac_allocator_configure(allocator, &settings);
    memset(tally, 0, sizeof tally);
    atomic_store(&over, false);
    atomic_store(&ready, 0);
}

static _Atomic unsigned char *mark_of(uint64_t address) {
    return &owned[(address - FAKE_BASE) / AC_GRANULE % GRANULES];
}

/* Uses few sizes. Nearly all requests are hits, so the owner is nearly always inside its cache. */
static void *take_and_give(void *arg) {
    static const uint64_t sizes[] = {512, 4096, MIB};
    ac_cache_t *cache = ac_cache_open(arena, arg);
    uint64_t block[AT_ONCE];
    atomic_fetch_add(&ready, 1);
    for (unsigned round = 0; !atomic_load(&over); round++) {
        uint64_t size = sizes[round % 3];
        for (int i = 0; i < AT_ONCE; i++) {
            if (ac_cache_alloc(cache, size, false, &block[i]) != AC_OK)
                atomic_fetch_add(&refused, 1);
            else if (atomic_exchange(mark_of(block[i]), 1))
                atomic_fetch_add(&twice, 1);
        }
        for (int i = 0; i < AT_ONCE && !atomic_load(&refused); i++) {
            atomic_store(mark_of(block[i]), 0);
            bool short_way = round % 2 && ac_cache_give_handed(cache, block[i]);
            if (!short_way && ac_cache_free(cache, block[i]) != AC_OK)
                atomic_fetch_add(&refused, 1);
        }
        if (atomic_load(&refused))
            break;
    }
    ac_cache_close(cache);
    return NULL;
}

START_TEST(owners_and_recalls) {
    pthread_t thread[OWNERS];
    atomic_store(&twice, 0);
    atomic_store(&refused, 0);
    for (int i = 0; i < OWNERS; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, take_and_give, &tally[i]), 0);
    while (atomic_load(&ready) < OWNERS)
        sched_yield();
    for (int i = 0; i < RECALLS && !atomic_load(&twice) && !atomic_load(&refused);) {
        if (!ac_caches_recall(allocator, NULL))
            sched_yield(); /* no block was there yet */
        else if (++i % CHECK_EVERY == 0)
            end();
    }
    atomic_store(&over, true);
    for (int i = 0; i < OWNERS; i++)
        pthread_join(thread[i], NULL);
    ck_assert_uint_eq(atomic_load(&twice), 0);
    ck_assert_uint_eq(atomic_load(&refused), 0);
    end();
    ac_allocator_trim(allocator, false);
    ck_assert_int_eq(stats.reserved_bytes[AC_POOL_ALL].current, 0);
}
END_TEST

/* --- peaks --- */

enum { TAKERS = 8, MOST_HELD = 100, LARGEST = 131072, RESETS = 100 };
static ac_cache_tally_t taker_tally[TAKERS];

/* Bounds of the bytes that the program holds. Lower: counted from the return of a request to the start of its
 * free. Upper: counted from before the request to the return of the free. */
typedef struct {
    _Atomic int64_t now, peak[RESETS + 1]; /* by turn */
    _Atomic unsigned turn;                 /* number of resets of the peaks */
} bound_t;
static bound_t least, most;

static void raise_to(_Atomic int64_t *peak, int64_t now) {
    int64_t before = atomic_load(peak);
    while (now > before && !atomic_compare_exchange_weak(peak, &before, now))
        ;
}

/* A change that began before a reset says nothing about the current turn. */
static void change_least(int64_t n) {
    unsigned turn = atomic_load(&least.turn);
    raise_to(&least.peak[turn], atomic_fetch_add(&least.now, n) + n);
}

static void change_most(int64_t n) {
    int64_t now = atomic_fetch_add(&most.now, n) + n;
    raise_to(&most.peak[atomic_load(&most.turn)], now);
}

static void *take_at_random(void *arg) {
    static const int64_t sizes[] = {512, 4096, 65536, 98304, LARGEST};
    ac_cache_t *cache = ac_cache_open(arena, arg);
    uint64_t held[MOST_HELD] = {0}, state = 88172645463325252u + (uintptr_t)arg;
    int64_t size[MOST_HELD];
    atomic_fetch_add(&ready, 1);
    for (bool last = false; !last;) {
        last = atomic_load(&over);
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        unsigned i = (unsigned)(state >> 20) % MOST_HELD;
        for (unsigned k = last ? 0 : i; k < (last ? MOST_HELD : i + 1); k++)
            if (held[k]) {
                change_least(-size[k]);
                if (ac_cache_free(cache, held[k]) != AC_OK)
                    atomic_fetch_add(&refused, 1);
                change_most(-size[k]);
                held[k] = 0;
            } else if (!last) {
                size[k] = sizes[(state >> 40) % (sizeof sizes / sizeof *sizes)];
                change_most(size[k]);
                if (ac_cache_alloc(cache, (uint64_t)size[k], false, &held[k]) != AC_OK)
                    atomic_fetch_add(&refused, 1);
                change_least(size[k]);
            }
    }
    ac_cache_close(cache);
    return NULL;
}

/* Threads change figures without the lock while peaks are reset. No peak exceeds the true one, and each falls
 * short by at most one hit per thread. */
START_TEST(peaks_of_many_threads) {
    pthread_t thread[TAKERS];
    ac_device_stats_t now;
    const ac_stat_t *shown = &now.allocated_bytes[AC_POOL_ALL];
    atomic_store(&refused, 0);
    for (int i = 0; i < TAKERS; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, take_at_random, &taker_tally[i]), 0);
    while (atomic_load(&least.now) < 16 * (int64_t)MIB)
        sched_yield();
    for (int i = 0; i < RESETS; i++) {
        atomic_store(&most.turn, (unsigned)i + 1);
        change_most(0);
        ac_allocator_reset_peak(allocator);
        atomic_store(&least.turn, (unsigned)i + 1);
        nanosleep(&(struct timespec){.tv_nsec = (long)(i % 10 + 1) * 1000000}, NULL);
        int64_t true_at_least = atomic_load(&least.peak[i + 1]);
        ac_allocator_stats(allocator, &now);
        int64_t missed = shown->peak / AC_CACHE_MISSED_SHARE;
        missed = (missed > AC_CACHE_MISSED ? missed : AC_CACHE_MISSED) + TAKERS * LARGEST;
        ck_assert_int_gt(shown->peak, 8 * missed); /* otherwise the check would be too weak */
        ck_assert_int_ge(shown->peak + missed, true_at_least);
        ck_assert_int_le(shown->peak, atomic_load(&most.peak[i + 1]));
        ck_assert_int_ge(shown->peak, shown->current);
    }
    atomic_store(&over, true);
    for (int i = 0; i < TAKERS; i++)
        pthread_join(thread[i], NULL);
    ck_assert_uint_eq(atomic_load(&refused), 0);
    ac_allocator_stats(allocator, &now);
    ck_assert_int_eq(shown->current, 0);
}
END_TEST

/* Allocates and frees until the cache keeps the size and has room for it. */
static void settle_in(ac_cache_t *cache) {
    uint64_t block;
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(ac_cache_alloc(cache, 65536, false, &block), AC_OK);
        ck_assert_int_eq(ac_cache_free(cache, block), AC_OK);
    }
}

/* Threads that come and go take no room from a thread that stays, and leave all of theirs. Otherwise peaks would
 * be raised, which the other thread's remainder would show. */
START_TEST(a_cache_that_ends_leaves_others_their_room) {
    enum { ENDS = 100 };
    ac_cache_t *first = ac_cache_open(arena, &tally[0]);
    uint64_t held[8];
    for (int i = 0; i < 8; i++) /* no peak is near afterwards */
        ck_assert_int_eq(ac_cache_alloc(first, 65536, false, &held[i]), AC_OK);
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(ac_cache_free(first, held[i]), AC_OK);
    for (int i = 0; i < ENDS; i++) {
        ac_cache_t *second = ac_cache_open(arena, &tally[1]);
        settle_in(second);
        settle_in(first);
        ac_cache_close(second);
        ck_assert(!(atomic_load(&first->gate) & AC_GATE_RESTS));
    }
    end(); /* checks bars and rooms */
    ac_cache_close(first);
}
END_TEST

/* Holds `blocks` blocks at a time, whether the cache keeps them or not. */
static void hold_at_once(ac_cache_t *cache, int blocks) {
    uint64_t held[16];
    for (int i = 0; i < blocks; i++)
        ck_assert_int_eq(ac_cache_alloc(cache, 65536, false, &held[i]), AC_OK);
    for (int i = 0; i < blocks; i++)
        ck_assert_int_eq(ac_cache_free(cache, held[i]), AC_OK);
}

/* A thread that remains alone has exact peaks from the next reading on. Until then its room may exceed them.
 * Removing the room earlier would cost the lock at each end of another thread. */
START_TEST(one_that_is_left_misses_no_peak_once_read) {
    ac_device_stats_t now;
    ac_cache_t *first = ac_cache_open(arena, &tally[0]);
    hold_at_once(first, 8);
    ac_cache_t *second = ac_cache_open(arena, &tally[1]);
    ac_allocator_stats(allocator, &now); /* the bars are for two threads */
    hold_at_once(first, 8);
    ac_cache_close(second);
    ac_allocator_stats(allocator, &now);
    ck_assert_int_eq(now.allocation[AC_POOL_ALL].peak, 8);
    hold_at_once(first, 9);
    ac_allocator_stats(allocator, &now);
    ck_assert_int_eq(now.allocation[AC_POOL_ALL].peak, 9);
    end();
    ac_cache_close(first);
}
END_TEST

static _Atomic bool apart;
static uint64_t mine;

static void *give_mine(void *arg) {
    ac_cache_t *cache = arg;
    while (!atomic_load_explicit(&apart, memory_order_relaxed))
        sched_yield();
    if (ac_cache_free(cache, mine) != AC_OK)
        atomic_fetch_add(&refused, 1);
    return NULL;
}

/* A block gets the same record again, from another thread that its owner never met. The record's content is
 * visible once its address is. */
START_TEST(a_record_that_comes_back) {
    pthread_t thread;
    ac_cache_t *cache = ac_cache_open(arena, &tally[0]);
    atomic_store(&refused, 0);
    atomic_store(&apart, false);
    uint64_t block[4];
    for (int i = 0; i < 4; i++) /* no peak is near afterwards: the free takes no lock */
        ck_assert_int_eq(ac_cache_alloc(cache, 512, false, &block[i]), AC_OK);
    for (int i = 3; i >= 0; i--)
        ck_assert_int_eq(ac_cache_free(cache, block[i]), AC_OK);
    ck_assert_int_eq(ac_cache_alloc(cache, 512, false, &mine), AC_OK);
    ac_caches_recall(allocator, NULL);
    const ac_block_t *known = *ac_cache_handed(cache, mine);
    ck_assert_int_eq(pthread_create(&thread, NULL, give_mine, cache), 0);
    ac_allocator_drop_records(allocator);
    ck_assert_uint_ne(known->address, mine);
    ac_lock(&allocator->lock);
    ck_assert(ac_slabs_dissolve(&arena->space));
    ck_assert_uint_eq(known->address, mine);
    ac_unlock(&allocator->lock);
    atomic_store_explicit(&apart, true, memory_order_relaxed);
    pthread_join(thread, NULL);
    ck_assert_uint_eq(atomic_load(&refused), 0);
    ac_cache_close(cache);
}
END_TEST

static _Atomic bool inside; /* a new cache was opened meanwhile */
static _Atomic bool out, passed;

static void *freeze(void *unused) {
    atomic_store(&out, ac_caches_freeze(allocator));
    atomic_store(&passed, atomic_load(&inside));
    ac_caches_thaw(allocator);
    return unused;
}

/* A thread that waits until all owners left their caches waits for owners of new caches, too. */
START_TEST(no_cache_opens_beside_those_that_are_shut) {
    enum { MOST = 50 };
    ac_cache_t *first = ac_cache_open(arena, &tally[0]);
    int round = 0;
    for (bool seen = false; !seen && round < MOST; round++) {
        pthread_t thread;
        bool entered = ac_cache_enter(first) || ac_cache_enter_long(first);
        atomic_store(&inside, false);
        ck_assert(entered);
        ck_assert_int_eq(pthread_create(&thread, NULL, freeze, NULL), 0);
        while (!(atomic_load(&first->gate) & AC_GATE_RECALLED))
            ;
        ac_cache_t *second = ac_cache_open(arena, &tally[1]);
        atomic_store(&inside, ac_cache_enter(second) || ac_cache_enter_long(second));
        ac_cache_leave(first);
        pthread_join(thread, NULL);
        ck_assert(!atomic_load(&out) || !atomic_load(&passed));
        seen = atomic_load(&out);
        if (atomic_load(&inside))
            ac_cache_leave(second);
        ac_cache_close(second);
    }
    ck_assert_int_lt(round, MOST);
    ac_cache_close(first);
}
END_TEST

/* Without the barrier an owner may be inside unseen. Its blocks stay with it, and it goes on keeping blocks. */
START_TEST(nothing_is_taken_back_without_a_barrier) {
    uint64_t address;
    ac_cache_t *cache = ac_cache_open(arena, &tally[0]);
    if (!ac_barrier_is_light() || !refuse_membarrier(EPERM))
        return; /* each hit has its own barrier, or filters are forbidden here */
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(ac_cache_alloc(cache, MIB, false, &address), AC_OK);
        ck_assert_int_eq(ac_cache_free(cache, address), AC_OK);
    }
    ck_assert(!ac_caches_recall(allocator, NULL));
    ck_assert(ac_cache_take(cache, MIB, &address, ac_fence_handout));
    ck_assert_int_eq(ac_cache_free(cache, address), AC_OK);
    ck_assert(ac_caches_recall(allocator, cache)); /* the owner needs no barrier */
    ck_assert(!ac_cache_take(cache, MIB, &address, ac_fence_handout));
    ac_cache_close(cache);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cache_threads");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, begin_cached, end);
    tcase_set_timeout(all, 60);
    tcase_add_test(all, owners_and_recalls);
    tcase_add_test(all, peaks_of_many_threads);
    tcase_add_test(all, a_cache_that_ends_leaves_others_their_room);
    tcase_add_test(all, one_that_is_left_misses_no_peak_once_read);
    tcase_add_test(all, a_record_that_comes_back);
    tcase_add_test(all, no_cache_opens_beside_those_that_are_shut);
    tcase_add_test(all, nothing_is_taken_back_without_a_barrier);
    suite_add_tcase(suite, all);
    return run_suite_as(suite, CK_FORK); /* the filter stays with its process */
}

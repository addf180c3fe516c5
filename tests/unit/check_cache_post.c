/* Blocks that one thread allocates and another one frees. They go back to the cache that handed them out, and
 * are found wherever memory is short (cache/inbox.h). */
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "allocator/cache/cache_int.h"
#include "allocator/order/barrier.h"
#include "allocator_frame.h"
#include "run_suite.h"

enum { BLOCKS = 64, HAUL = 12, SMALL = 4096, MEDIUM = 65536 };

static ac_cache_tally_t tally[3];
static ac_cache_t *taker, *giver;
static uint64_t block[BLOCKS];

static void begin_both(void) {
    begin(256 * MIB);
    settings.thread_cache = 64 * MIB;
    ac_allocator_configure(allocator, &settings);
    memset(tally, 0, sizeof tally);
    taker = ac_cache_open(arena, &tally[0]);
    giver = ac_cache_open(arena, &tally[1]);
}

/* Ends the suite after both caches were closed. */
static void end_both(void) {
    end();
    ac_allocator_trim(allocator, false);
    ck_assert_int_eq(reserved(), 0);
}

static void take_all(uint64_t bytes) {
    for (int i = 0; i < BLOCKS; i++)
        ck_assert_int_eq(ac_cache_alloc(taker, bytes, false, &block[i]), AC_OK);
}

static void give_all(ac_cache_t *by) {
    for (int i = 0; i < BLOCKS; i++)
        ck_assert_int_eq(ac_cache_free(by, block[i]), AC_OK);
}

static void close_both(void) {
    ac_cache_close(taker);
    ac_cache_close(giver);
}

/* Warms the cache up, so that it hands blocks out itself instead of raising a peak. */
static void warm_up(uint64_t bytes) {
    take_all(bytes);
    give_all(taker);
    take_all(bytes);
    give_all(taker);
}

static bool was_given(uint64_t address, const uint64_t *given) {
    for (int i = 0; i < BLOCKS; i++)
        if (given[i] == address)
            return true;
    return false;
}

/* The taker gets the blocks again without a search, for each size that it keeps. */
START_TEST(what_is_freed_elsewhere_comes_home) {
    uint64_t given[BLOCKS], added;
    warm_up(MEDIUM);
    for (int round = 0; round < 4; round++) {
        take_all(MEDIUM);
        memcpy(given, block, sizeof given);
        give_all(giver);
        end();
        ck_assert_uint_eq(ac_cache_tally_held(&tally[1], 0), 0); /* whole chains were posted */
        added = arena->added;
        take_all(MEDIUM);
        for (int i = 0; i < BLOCKS; i++)
            ck_assert(was_given(block[i], given));
        ck_assert_uint_eq(arena->added, added); /* no block went to free memory */
        end();
        give_all(taker);
        end();
    }
    close_both();
    end_both();
}
END_TEST

/* Each posted block is in the trail of the thread that posted it, the newest one last. Once it is handed out
 * again, it names a block that the next freeing thread reaches soon. */
START_TEST(records_name_what_comes_soon) {
    int named = 0;
    warm_up(MEDIUM);
    take_all(MEDIUM);
    give_all(giver);
    const ac_trail_t *trail = atomic_load(&taker->inbox.trail);
    uint32_t at = atomic_load(&trail->posted);
    ck_assert_ptr_eq(trail, &giver->trail);
    for (const ac_block_t *b = ac_inbox_first(&taker->inbox); b; b = b->link)
        ck_assert_ptr_eq(atomic_load(&trail->block[--at % AC_TRAIL]), b);
    take_all(MEDIUM);
    for (int i = 0; i < BLOCKS - AC_AHEAD; i++)
        named += ac_slab_look(block[i])->ahead == ac_slab_look(block[i + AC_AHEAD]);
    ck_assert_int_ge(named, BLOCKS / 2); /* the others came in another haul */
    give_all(taker);
    close_both();
    end_both();
}
END_TEST

#ifdef AC_CHECKED
static void any_step(ac_block_state_t from, ac_block_state_t to) {
    (void)from;
    (void)to;
}
#endif

/* A thread is suspended inside a free, and resumes after the context ended and its record became spare. */
START_TEST(a_late_owner_spoils_no_spare_record) {
    enum { MORE = 400 };
    uint64_t more[MORE];
    warm_up(MEDIUM);
    take_all(MEDIUM);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(ac_cache_free(giver, block[i]), AC_OK);
    ac_block_t *record = ac_slab_look(block[2]);
    ck_assert(ac_cache_enter_long(giver));
    ck_assert(ac_cache_owns(giver, record, block[2]));
#ifdef AC_CHECKED
    ac_block_bad_step = any_step;
#endif
    ac_arena_drop(arena);
    ac_cache_give_rest(giver, record);
    for (int i = 0; i < MORE; i++) {
        ck_assert_int_eq(ac_arena_alloc(other, MEDIUM + 512, false, &more[i]), AC_OK);
        for (int j = 0; j < i; j++)
            ck_assert_uint_ne(more[i], more[j]);
    }
}
END_TEST

/* The room of a freed block belongs to the other thread once that has the block. Taking it raises no
 * peaks. */
START_TEST(room_comes_with_what_was_posted) {
    warm_up(MEDIUM);
    take_all(MEDIUM);
    give_all(giver);
    uint64_t raised = allocator->caches->raised;
    take_all(MEDIUM);
    ck_assert_uint_eq(allocator->caches->raised, raised);
    give_all(giver);
    raised = allocator->caches->raised;
    ck_assert(ac_caches_recall(allocator, NULL)); /* blocks on their way are no cache's room at that time */
    end();
    close_both();
    end_both();
}
END_TEST

/* Peaks are raised while the taker's thread is inside its cache. Before the taker looks at its inbox, another
 * thread frees with room that it got meanwhile. */
static void take_beside_raise(void) {
    ac_device_stats_t now;
    warm_up(MEDIUM);
    take_all(MEDIUM);
    ac_allocator_stats(allocator, &now);
    give_all(giver);
    ck_assert_uint_lt(taker->raised, allocator->caches->raised);
    atomic_fetch_and(&taker->gate, ~(uint32_t)AC_GATE_RESTS);
    ck_assert_int_eq(ac_cache_alloc(taker, MEDIUM, false, &block[0]), AC_OK);
    atomic_fetch_or(&taker->gate, AC_GATE_RESTS);
    ck_assert(!ac_inbox_first(&taker->inbox));
}

START_TEST(room_that_comes_too_early_is_not_lost) {
    take_beside_raise();
    end();
    close_both();
    give(block[0]);
    end_both();
}
END_TEST

/* The early room counts with the taker's next request. */
START_TEST(room_that_came_too_early_counts) {
    take_beside_raise();
    uint64_t raised = allocator->caches->raised;
    for (int i = 1; i < BLOCKS / 2; i++)
        ck_assert_int_eq(ac_cache_alloc(taker, MEDIUM, false, &block[i]), AC_OK);
    ck_assert_uint_eq(allocator->caches->raised, raised);
    end();
    for (int i = 0; i < BLOCKS / 2; i++)
        ck_assert_int_eq(ac_cache_free(taker, block[i]), AC_OK);
    close_both();
    end_both();
}
END_TEST

/* More was posted than the budget has room for. The taker leases enough for all at once, not two blocks at a
 * time. */
START_TEST(a_haul_is_leased_room_for) {
    warm_up(MIB);
    ac_caches_recall(allocator, NULL); /* ends all leases too */
    for (int i = 0; i < HAUL; i++)
        ck_assert_int_eq(ac_cache_alloc(taker, MIB, false, &block[i]), AC_OK);
    for (int i = 0; i < HAUL; i++)
        ck_assert_int_eq(ac_cache_free(giver, block[i]), AC_OK);
    ck_assert_uint_eq(taker->leased, 0);
    ck_assert_int_eq(ac_cache_alloc(taker, MIB, false, &block[0]), AC_OK);
    ck_assert_uint_ge(taker->leased, (HAUL - 4) * MIB);
    ck_assert_int_eq(ac_cache_free(giver, block[0]), AC_OK);
    end();
    close_both();
    end_both();
}
END_TEST

/* A block larger than a chain uses the room of the inbox, even if a chain was begun for it. */
START_TEST(a_large_one_behind_a_small_one) {
    uint64_t large = 0;
    warm_up(MEDIUM);
    take_all(MEDIUM);
    for (int i = 0; i < 3; i++) {
        if (i)
            ck_assert_int_eq(ac_cache_free(taker, large), AC_OK);
        ck_assert_int_eq(ac_cache_alloc(taker, 100 * MIB, false, &large), AC_OK);
    }
    ck_assert_ptr_eq(ac_slab_look(large)->home, taker);
    ck_assert_int_eq(ac_cache_free(giver, block[0]), AC_OK);
    ck_assert_ptr_nonnull(giver->out.first);
    ck_assert_int_eq(ac_cache_free(giver, large), AC_OK);
    ck_assert_uint_le(atomic_load(&taker->inbox.weight), giver->may_wait[1]);
    for (int i = 1; i < BLOCKS; i++)
        ck_assert_int_eq(ac_cache_free(taker, block[i]), AC_OK);
    close_both();
    end_both();
}
END_TEST

/* The taker's thread has ended. The room of blocks that could not be posted goes to the giver, once. */
START_TEST(room_of_what_is_not_posted_counts_once) {
    warm_up(MEDIUM);
    take_all(MEDIUM);
    ac_cache_close(taker);
    give_all(giver);
    ck_assert_ptr_nonnull(giver->unplaced);
    ac_caches_recall(allocator, giver);
    end();
    ac_cache_close(giver);
    end_both();
}
END_TEST

/* Large and small blocks and slots of slabs, in chains that are not full. */
START_TEST(mixed_sizes) {
    static const uint64_t sizes[] = {512, SMALL, MEDIUM, 3 * MIB};
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < BLOCKS / 3; i++)
            ck_assert_int_eq(ac_cache_alloc(taker, sizes[i % 4], false, &block[i]), AC_OK);
        for (int i = 0; i < BLOCKS / 3; i++)
            ck_assert_int_eq(ac_cache_free(i % 5 ? giver : taker, block[i]), AC_OK);
        end();
    }
    close_both();
    end_both();
}
END_TEST

/* If memory is short, both become free: blocks that the giver has not posted and blocks that the taker has
 * not taken. */
START_TEST(a_recall_finds_what_is_under_way) {
    for (int whole = 0; whole < 2; whole++) {
        warm_up(MEDIUM);
        take_all(MEDIUM);
        for (int i = 0; i < (whole ? BLOCKS : BLOCKS - 5); i++)
            ck_assert_int_eq(ac_cache_free(giver, block[i]), AC_OK);
        end();
        ck_assert(ac_caches_recall(allocator, NULL));
        end();
        for (int i = whole ? BLOCKS : BLOCKS - 5; i < BLOCKS; i++)
            give(block[i]);
        ac_caches_recall(allocator, NULL);
        ac_allocator_trim(allocator, false);
        ck_assert_int_eq(reserved(), 0);
    }
    close_both();
    end_both();
}
END_TEST

/* The taker is idle. Its inbox is bounded by the number of threads, and the remaining blocks become free
 * memory. */
START_TEST(an_inbox_is_bounded) {
    enum { EACH = 1 << 20, MANY = 14 };
    ac_cache_tally_t tallies[MANY];
    ac_cache_t *others[MANY];
    memset(tallies, 0, sizeof tallies);
    settings.thread_cache = 32 * MIB;
    ac_allocator_configure(allocator, &settings);
    for (int i = 0; i < MANY; i++)
        if (_i) {
            others[i] = ac_cache_open(arena, &tallies[i]);
            ck_assert_ptr_nonnull(others[i]);
        }
    warm_up(EACH);
    take_all(EACH);
    give_all(giver);
    ck_assert_uint_gt(atomic_load(&taker->inbox.weight), (_i ? 8 : 16) * MIB);
    ck_assert_uint_lt(atomic_load(&taker->inbox.weight), (_i ? 20 : 36) * MIB); /* and one chain */
    end();
    uint64_t before = reserved();
    for (int i = 0; i < 6; i++)
        ck_assert_int_eq(ac_arena_alloc(arena, 2 * MIB, true, &block[i]), AC_OK);
    ck_assert_uint_eq(reserved(), before);
    for (int i = 0; i < 6; i++)
        give(block[i]);
    for (int i = 0; _i && i < MANY; i++)
        ac_cache_close(others[i]);
    close_both();
    end_both();
}
END_TEST

/* The inbox holds at most a number of small blocks that keeps recalls short, even if their bytes would allow
 * more. */
START_TEST(small_blocks_in_an_inbox_are_bounded) {
    enum { MANY = 2 * AC_CACHE_BLOCKS, EACH = 2 * SMALL };
    static uint64_t many[MANY];
    unsigned posted = 0;
    settings.thread_cache = 128 * MIB;
    ac_allocator_configure(allocator, &settings);
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < MANY; i++)
            ck_assert_int_eq(ac_cache_alloc(taker, EACH, false, &many[i]), AC_OK);
        for (int i = 0; i < MANY; i++)
            ck_assert_int_eq(ac_cache_free(k < 2 ? taker : giver, many[i]), AC_OK);
    }
    for (const ac_block_t *b = ac_inbox_first(&taker->inbox); b; b = b->link)
        posted++;
    ck_assert_uint_gt(posted, AC_CACHE_BLOCKS / 2);
    ck_assert_uint_le(posted, AC_CACHE_BLOCKS);
    close_both();
    end_both();
}
END_TEST

/* The blocks exceed the taker's budget. It still gets them again, because it asks for them. */
START_TEST(it_takes_more_than_its_budget) {
    enum { EACH = 1 << 20 };
    uint64_t given[BLOCKS], added;
    warm_up(EACH);
    for (int round = 0; round < 3; round++) {
        take_all(EACH);
        memcpy(given, block, sizeof given);
        give_all(giver);
        end();
        added = arena->added;
        take_all(EACH);
        for (int i = 0; i < BLOCKS; i++)
            ck_assert(was_given(block[i], given));
        ck_assert_uint_eq(arena->added, added); /* no block went to free memory */
        end();
        give_all(giver);
    }
    close_both();
    end_both();
}
END_TEST

/* The taker's thread has ended, or its record serves another thread of this or another context. */
START_TEST(a_taker_that_is_gone) {
    for (int way = 0; way < 3; way++) {
        warm_up(MEDIUM);
        take_all(MEDIUM);
        ac_cache_t *record = taker;
        ac_cache_close(taker);
        if (way) {
            taker = ac_cache_open(way == 1 ? arena : other, &tally[2]);
            ck_assert_ptr_eq(taker, record);
        }
        give_all(giver);
        end();
        ck_assert_uint_eq(atomic_load(&record->inbox.weight) > 0, way == 1);
        if (!way)
            taker = ac_cache_open(arena, &tally[2]);
        uint64_t address;
        ck_assert_int_eq(ac_cache_alloc(taker, MEDIUM, false, &address), AC_OK);
        ck_assert_ptr_eq(ac_page_map_owner(address), way == 2 ? other : arena);
        ck_assert_int_eq(ac_cache_free(taker, address), AC_OK);
        end();
        ac_cache_close(taker);
        memset(tally, 0, sizeof *tally);
        taker = ac_cache_open(arena, &tally[0]);
    }
    close_both();
    end_both();
}
END_TEST

/* The taker's thread has ended, and its cache is ready for the next thread. Until then it receives
 * nothing. */
START_TEST(a_taker_that_is_handed_on) {
    warm_up(MEDIUM);
    take_all(MEDIUM);
    uint64_t address, kept = block[0];
    ck_assert_int_eq(ac_cache_free(taker, kept), AC_OK);
    ck_assert(ac_cache_hand_on(taker));
    ck_assert_uint_eq(atomic_load(&taker->inbox.word), 0);
    for (int i = 1; i < BLOCKS; i++)
        ck_assert_int_eq(ac_cache_free(giver, block[i]), AC_OK);
    ac_cache_close(giver);
    ac_caches_settle(allocator); /* settling opens no inbox */
    ck_assert_uint_eq(atomic_load(&taker->inbox.word), 0);
    ac_allocator_trim(allocator, false);
    ck_assert_int_eq(reserved(), 0);
    ac_cache_take_over(taker);
    giver = ac_cache_open(arena, &tally[1]);
    take_all(MEDIUM);
    give_all(taker);
    ck_assert(ac_cache_take(taker, MEDIUM, &address, ac_fence_handout));
    ck_assert_int_eq(ac_cache_free(taker, address), AC_OK);
    take_all(MEDIUM);
    give_all(giver);
    ck_assert_uint_ne(atomic_load(&taker->inbox.weight), 0);
    end();
    close_both();
    end_both();
}
END_TEST

START_TEST(a_handed_on_cache_of_a_context_that_is_gone) {
    warm_up(MEDIUM);
    ck_assert(ac_cache_hand_on(taker));
    ac_arena_drop(arena);
    ac_cache_take_over(taker);
    ck_assert_uint_eq(atomic_load(&taker->inbox.word), 0);
    ck_assert(!ac_cache_hand_on(taker));
    end();
    close_both();
}
END_TEST

/* The taker's context has ended. The free touches none of its memory. */
START_TEST(a_context_that_is_gone) {
    warm_up(MEDIUM);
    take_all(MEDIUM);
    give_all(giver);
    take_all(MEDIUM);
    for (int i = 0; i < BLOCKS / 2 - 3; i++)
        ck_assert_int_eq(ac_cache_free(giver, block[i]), AC_OK);
    ac_arena_drop(arena);
    ck_assert_uint_eq(atomic_load(&taker->inbox.weight), 0);
    end();
    close_both();
}
END_TEST

/* --- threads --- */

enum { SLOTS = 256, ROUNDS = 60000, GRANULES = 1 << 19 };
static _Atomic uint64_t slot[SLOTS];
static _Atomic unsigned twice, refused, done;
static _Atomic unsigned char owned[GRANULES]; /* indexed by the first granule of a block */

static _Atomic unsigned char *mark_of(uint64_t address) {
    return &owned[(address - FAKE_BASE) / AC_GRANULE % GRANULES];
}

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state >> 20;
}

/* Puts blocks into shared slots, and frees blocks that it finds there. */
static void *hand_over(void *arg) {
    static const uint64_t sizes[] = {512, SMALL, MEDIUM, 98304, 2 * MIB};
    ac_cache_t *cache = ac_cache_open(arena, arg);
    uint64_t state = 88172645463325252u + (uintptr_t)arg;
    for (int i = 0; i < ROUNDS && !atomic_load(&refused); i++) {
        uint64_t random = next_random(&state), address = 0;
        if (random & 1) {
            if (ac_cache_alloc(cache, sizes[(random >> 1) % 5], false, &address) != AC_OK)
                atomic_fetch_add(&refused, 1);
            else if (atomic_exchange(mark_of(address), 1))
                atomic_fetch_add(&twice, 1);
        }
        address = atomic_exchange(&slot[(random >> 8) % SLOTS], address);
        if (!address)
            continue;
        atomic_store(mark_of(address), 0);
        if (ac_cache_free(cache, address) != AC_OK)
            atomic_fetch_add(&refused, 1);
    }
    ac_cache_close(cache);
    atomic_fetch_add(&done, 1);
    return NULL;
}

/* Orders two threads' steps without synchronising them (relaxed). Only the library orders their memory, so
 * the thread sanitizer sees missing ordering. */
static _Atomic int step;

static void reach(int next) {
    atomic_store_explicit(&step, next, memory_order_relaxed);
}

static void await(int next) {
    while (atomic_load_explicit(&step, memory_order_relaxed) != next)
        sched_yield();
}

static void *take_dissolved(void *arg) {
    (void)arg;
    reach(1);
    await(2);
    for (int i = 0; i < BLOCKS; i++)
        ck_assert_int_eq(ac_cache_alloc(taker, SMALL, false, &block[i]), AC_OK);
    return NULL;
}

/* Counts the slots of slabs in the first full chain. */
static unsigned count_slots(void) {
    unsigned slots = 0;
    for (int i = 1; i <= 16; i++)
        slots += ac_inbox_is_slot(ac_slab_look(block[i]));
    return slots;
}

/* Blocks posted as slots of slabs may be ordinary blocks when the owner takes them. */
START_TEST(a_slab_is_dissolved_under_way) {
    pthread_t thread;
    warm_up(SMALL);
    take_all(SMALL);
    give(block[0]); /* into its slab, which is then not full */
    for (int i = 1; i < BLOCKS; i++)
        ck_assert_int_eq(ac_cache_free(giver, block[i]), AC_OK);
    ck_assert_uint_eq(count_slots(), 16);
    ck_assert_int_eq(pthread_create(&thread, NULL, take_dissolved, NULL), 0);
    await(1);
    ac_lock(&allocator->lock);
    bool dissolved = ac_slabs_dissolve(&arena->space);
    ac_unlock(&allocator->lock);
    ck_assert(dissolved && count_slots() < 16);
    reach(2);
    pthread_join(thread, NULL);
    give_all(giver);
    end();
    close_both();
    end_both();
}
END_TEST

/* Allocates until a request has placed a further haul of posted blocks. */
static void *take_haul(void *arg) {
    const ac_block_t *unplaced = taker->unplaced;
    int *taken = arg;
    do
        ck_assert_int_eq(ac_cache_alloc(taker, MIB, false, &block[(*taken)++]), AC_OK);
    while (taker->unplaced == unplaced);
    ck_assert_ptr_nonnull(taker->unplaced);
    reach(1);
    await(2);
    return NULL;
}

/* Nothing can be leased, and a recall begins right after a request that noticed it. */
START_TEST(a_recall_behind_a_narrow_haul) {
    pthread_t thread;
    int taken = 1;
    settings.thread_cache = AC_CACHE_OWN;
    ac_allocator_configure(allocator, &settings);
    warm_up(MIB);
    ac_caches_recall(allocator, NULL);
    for (int i = 0; i < HAUL; i++)
        ck_assert_int_eq(ac_cache_alloc(taker, MIB, false, &block[i]), AC_OK);
    for (int i = 0; i < HAUL; i++)
        ck_assert_int_eq(ac_cache_free(giver, block[i]), AC_OK);
    ck_assert_int_eq(ac_cache_alloc(taker, MIB, false, &block[0]), AC_OK);
    ck_assert(taker->narrow);
    ck_assert_int_eq(pthread_create(&thread, NULL, take_haul, &taken), 0);
    await(1);
    ck_assert(ac_caches_recall(allocator, NULL));
    reach(2);
    pthread_join(thread, NULL);
    for (int i = 0; i < taken; i++)
        ck_assert_int_eq(ac_cache_free(giver, block[i]), AC_OK);
    end();
    close_both();
    end_both();
}
END_TEST

START_TEST(threads_that_hand_over) {
    pthread_t thread[3];
    close_both();
    memset(tally, 0, sizeof tally);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, hand_over, &tally[i]), 0);
    for (unsigned i = 0; atomic_load(&done) < 3; i++) {
        if (i % 3 == 0)
            ac_caches_recall(allocator, NULL);
        else if (i % 3 == 1)
            end();
        sched_yield();
    }
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    ck_assert_uint_eq(atomic_load(&twice), 0);
    ck_assert_uint_eq(atomic_load(&refused), 0);
    for (int i = 0; i < SLOTS; i++)
        if (atomic_load(&slot[i]))
            give(atomic_load(&slot[i]));
    end_both();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cache_post");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, begin_both, NULL);
    tcase_set_timeout(all, 120);
    tcase_add_test(all, what_is_freed_elsewhere_comes_home);
    tcase_add_test(all, records_name_what_comes_soon);
    tcase_add_test(all, a_late_owner_spoils_no_spare_record);
    tcase_add_test(all, room_comes_with_what_was_posted);
    tcase_add_test(all, room_that_comes_too_early_is_not_lost);
    tcase_add_test(all, room_that_came_too_early_counts);
    tcase_add_test(all, a_haul_is_leased_room_for);
    tcase_add_test(all, a_large_one_behind_a_small_one);
    tcase_add_test(all, room_of_what_is_not_posted_counts_once);
    tcase_add_test(all, mixed_sizes);
    tcase_add_test(all, a_recall_finds_what_is_under_way);
    tcase_add_loop_test(all, an_inbox_is_bounded, 0, 2);
    tcase_add_test(all, small_blocks_in_an_inbox_are_bounded);
    tcase_add_test(all, it_takes_more_than_its_budget);
    tcase_add_test(all, a_taker_that_is_gone);
    if (!AC_BARRIER_TSAN) /* under ThreadSanitizer no hit takes the short path */
        tcase_add_test(all, a_taker_that_is_handed_on);
    tcase_add_test(all, a_handed_on_cache_of_a_context_that_is_gone);
    tcase_add_test(all, a_context_that_is_gone);
    tcase_add_test(all, a_slab_is_dissolved_under_way);
    tcase_add_test(all, a_recall_behind_a_narrow_haul);
    tcase_add_test(all, threads_that_hand_over);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}

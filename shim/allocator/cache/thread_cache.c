/* Thread caches (thread_cache.h). */
#include "allocator/cache/thread_cache.h"

#include <sched.h>
#include <string.h>

#include "allocator/cache/cache_int.h"
#include "allocator/carve.h"
#include "allocator/space/range.h"
#include "allocator/space/segment.h"
#include "failpoint.h"

/* A magazine of small blocks holds this many, or this many bytes; one of large blocks few. */
enum { SMALL_MOST = 32, SMALL_LEAST = 4, SMALL_SHARE = 16, LARGE_MOST = 4, LARGE_SHARE = 4 };
#define SMALL_BYTES ((uint64_t)128 << 10)
#define SMALL_LIMIT ((uint64_t)1 << 20) /* of all small magazines together, or their share */
#define SMALL_WAIT  ((uint64_t)8 << 20) /* of all small blocks that wait */

/* A magazine of large blocks that so many misses found empty is given up. */
enum { LARGE_IDLE = 2 };

enum { RECALL_TRIES = 10000 };

/* In place of a block. */
static ac_block_t no_block = {.address = 1};

static uint32_t clamp(uint64_t n, uint32_t low, uint32_t high) {
    return n < low ? low : n > high ? high : (uint32_t)n;
}

static uint32_t most_of(const ac_cache_t *cache, uint64_t size) {
    return size > AC_SMALL_LIMIT ? clamp(cache->limit[1] / LARGE_SHARE / size, 1, LARGE_MOST)
                                 : clamp(SMALL_BYTES / size, SMALL_LEAST, SMALL_MOST);
}

/* --- blocks --- */

/* Blocks that come and go without being allocated or freed. */
static void moved(ac_cache_t *cache, int64_t blocks, uint64_t size) {
    int flow = ac_cache_flow(size);
    ac_tally_add(&cache->tally->moved_blocks[flow], (uint64_t)blocks);
    ac_tally_add(&cache->tally->moved_bytes[flow], (uint64_t)blocks * size);
}

static void push(ac_cache_t *cache, ac_magazine_t *magazine, ac_block_t *block) {
    ac_block_set_state(block, AC_BLOCK_CACHED);
    block->list_next = magazine->top;
    magazine->top = block;
    magazine->left--;
    block->segment->allocated++;
    moved(cache, 1, block->size);
}

/* Give back all but the `kept` newest. */
static bool shrink(ac_cache_t *cache, ac_magazine_t *magazine, uint32_t kept) {
    ac_block_t **end = &magazine->top;
    for (uint32_t i = 0; i < kept && *end; i++)
        end = &(*end)->list_next;
    ac_block_t *block = *end, *next;
    bool any = block != NULL;
    uint64_t quiet = any ? ac_fence_quiet(cache->timeline) : 0;
    *end = NULL;
    for (; block; block = next) {
        next = block->list_next;
        magazine->left++;
        block->segment->allocated--;
        moved(cache, -1, block->size);
        ac_block_set_state(block, AC_BLOCK_TRANSIT);
        ac_segment_coalesce(block, quiet);
    }
    return any;
}

/* Whatever is ready goes. */
static bool empty(ac_cache_t *cache, ac_magazine_t *magazine) {
    bool any = magazine->top && shrink(cache, magazine, 0);
    bool wait = ac_cache_queue(cache, magazine)->first;
    return (wait && ac_cache_unpark(cache, magazine, false)) || any;
}

/* And what is not as well. */
static bool leave(ac_cache_t *cache, ac_magazine_t *magazine) {
    bool any = shrink(cache, magazine, 0);
    return ac_cache_unpark(cache, magazine, true) || any;
}

static uint64_t *used_word(ac_cache_t *cache, const ac_magazine_t *magazine) {
    size_t i = (size_t)(magazine - cache->magazine);
    return &cache->used[ac_cache_flow(magazine->size)][i / 64];
}

static uint64_t used_bit(const ac_cache_t *cache, const ac_magazine_t *magazine) {
    return (uint64_t)1 << (size_t)(magazine - cache->magazine) % 64;
}

/* No magazine for this size any more. */
static bool dismiss(ac_cache_t *cache, ac_magazine_t *magazine) {
    if (!magazine->size)
        return false;
    bool any = leave(cache, magazine);
    cache->promised[ac_cache_flow(magazine->size)] -= magazine->most * magazine->size;
    *used_word(cache, magazine) &= ~used_bit(cache, magazine);
    *magazine = (ac_magazine_t){0};
    return any;
}

/* Do the same to all that are used for small or for large blocks; true if it said so of any. */
static bool for_used(ac_cache_t *cache, int flow, bool act(ac_cache_t *, ac_magazine_t *)) {
    bool any = false;
    for (int word = 0; word < AC_CACHE_WORDS; word++)
        for (uint64_t left = cache->used[flow][word]; left; left &= left - 1)
            any |= act(cache, &cache->magazine[word * 64 + __builtin_ctzll(left)]);
    return any;
}

/* For the one whose turn it is; there are some. */
static void dismiss_next(ac_cache_t *cache, int flow) {
    unsigned at = cache->hand[flow];
    uint64_t bits;
    do {
        at = (at + 1) % AC_CACHE_MAGAZINES;
        bits = cache->used[flow][at / 64] >> (at % 64);
        at = bits ? at + (unsigned)__builtin_ctzll(bits) : at | 63;
    } while (!bits);
    dismiss(cache, &cache->magazine[at]);
    cache->hand[flow] = at;
}

static bool tidy(ac_cache_t *cache) {
    unsigned n = cache->loose_count;
    uint64_t quiet = n ? ac_fence_quiet(cache->timeline) : 0;
    cache->loose_count = 0;
    cache->loose_bytes = 0;
    for (unsigned i = 0; i < n; i++) /* not before: who is beside it changes under the lock */
        ac_block_touch_neighbours(cache->loose[i]);
    for (unsigned i = 0; i < n; i++) {
        ac_block_t *block = cache->loose[i];
        block->segment->allocated--;
        moved(cache, -1, block->size);
        ac_block_set_state(block, AC_BLOCK_TRANSIT);
        ac_segment_coalesce(block, quiet);
    }
    return n;
}

void ac_cache_tidy(ac_cache_t *cache) {
    if (cache && cache->loose_count && ac_cache_usable(cache))
        tidy(cache);
}

/* The same before a large request is looked for: of sizes that do not return there are many. */
static bool empty_large(ac_cache_t *cache, ac_magazine_t *magazine) {
    if (magazine->top || ac_cache_queue(cache, magazine)->first) {
        magazine->fetched = 0;
        return empty(cache, magazine);
    }
    return ++magazine->fetched == LARGE_IDLE && dismiss(cache, magazine);
}

void ac_cache_flush_large(ac_cache_t *cache) {
    for_used(cache, 1, empty_large);
}

bool ac_cache_flush(ac_cache_t *cache) {
    bool any = tidy(cache);
    any |= for_used(cache, 1, empty);
    if (ac_cache_tally_held(cache->tally, 0))
        any |= for_used(cache, 0, empty);
    return any;
}

bool ac_cache_leave_all(ac_cache_t *cache) {
    bool any = tidy(cache);
    for (int i = 0; i < AC_FLOWS; i++)
        if (ac_cache_tally_held(cache->tally, i))
            any |= for_used(cache, i, leave);
    return any;
}

/* The magazine for blocks of the size; it takes the place of others, where it must. */
static void assign(ac_cache_t *cache, uint64_t size) {
    ac_magazine_t *magazine = ac_cache_magazine(cache, size);
    int flow = ac_cache_flow(size);
    dismiss(cache, magazine);
    uint32_t most = most_of(cache, size);
    while (cache->promised[flow] && cache->promised[flow] + most * size > cache->limit[flow])
        dismiss_next(cache, flow);
    cache->promised[flow] += most * size;
    *magazine = (ac_magazine_t){.size = size,
                                .side = &cache->tally->side[flow],
                                .left = (uint16_t)most,
                                .most = (uint16_t)most};
    *used_word(cache, magazine) |= used_bit(cache, magazine);
}

/* It asks for it now: whether it did so before. */
static bool returns(ac_cache_t *cache, uint64_t size) {
    bool again = ac_cache_was_asked(cache, size);
    *ac_cache_seen(cache, size) = (uint32_t)(size >> AC_GRANULE_BITS);
    return again;
}

/* A magazine with room for a block of the size, which was freed.  False: it is not kept.  Only of
 * sizes that were asked for lately: others are more use in one piece. */
static bool makes_room(ac_cache_t *cache, uint64_t size) {
    ac_magazine_t *magazine = ac_cache_magazine(cache, size);
    if (size > AC_CACHE_LARGEST || !cache->limit[ac_cache_flow(size)] ||
        !ac_cache_was_asked(cache, size))
        return false;
    if (magazine->size != size)
        assign(cache, size);
    if (magazine->left == 0)
        shrink(cache, magazine, magazine->most / 2);
    return true;
}

bool ac_cache_keep(ac_cache_t *cache, ac_block_t *block) {
    if (!ac_cache_usable(cache) || !block->owner_arena ||
        block->owner_arena != cache->arena->number || !makes_room(cache, block->size))
        return false;
    push(cache, ac_cache_magazine(cache, block->size), block);
    return true;
}

void ac_cache_expect(ac_cache_t *cache, int pool, uint64_t size) {
    ac_arena_t *arena = cache->arena;
    if (!ac_cache_usable(cache) || size > cache->largest || !cache->limit[ac_cache_flow(size)] ||
        !returns(cache, size))
        return; /* only those who come again get more than they ask for */
    ac_magazine_t *magazine = ac_cache_magazine(cache, size);
    if (magazine->size != size)
        assign(cache, size);
    if (pool != AC_POOL_SMALL || size > AC_SMALL_LIMIT)
        return;
    /* As many as were used up since the last time, and once more as many. */
    uint32_t wanted = magazine->top ? 0 : clamp(2 * magazine->fetched, 1, magazine->most / 2);
    magazine->fetched = (uint16_t)wanted;
    while (magazine->most < wanted + magazine->left) {
        ac_block_t *block = ac_segment_cut(&arena->space, pool, size);
        if (!block)
            return;
        if (block->size != size) { /* no record for what is left */
            ac_segment_put_back(block);
            return;
        }
        AC_BLOCK_SET(block, owner_arena, arena->number);
        push(cache, magazine, block);
    }
}

/* --- the owner's requests and frees that take the lock --- */

bool ac_cache_serve(ac_cache_t *cache, ac_block_t *block, uint64_t size, uint64_t bytes) {
    ac_cache_side_t *side = &cache->tally->side[block->segment->pool - AC_POOL_SMALL];
    if (block->size != size || !cache->owner_arena || !ac_block_is_plain(block))
        return false;
    AC_BLOCK_SET(block, owner_arena, cache->owner_arena);
    block->segment->allocated++;
    moved(cache, 1, size);
    ac_cache_hand_out(cache, side, block, bytes, ac_fence_handout);
    ac_cache_spend(&side->room, size, bytes); /* there is so much (ac_cache_affords) */
    return true;
}

bool ac_cache_lock_found(const ac_cache_t *cache, const ac_block_t *block, uint64_t address) {
    ac_allocator_t *allocator = cache->arena->allocator;
    AC_WINDOW(free_found);
    ac_lock(&allocator->lock);
    if (AC_FAILPOINT(found_looked_at_once) || ac_cache_owns(cache, block, address))
        return true;
    ac_unlock(&allocator->lock);
    return false;
}

bool ac_cache_take_back(ac_cache_t *cache, ac_block_t *block, bool leans) {
    uint64_t size = block->size;
    int flow = ac_cache_flow(size);
    if (!ac_cache_usable(cache) || !cache->owner_arena ||
        block->owner_arena != cache->owner_arena || ac_order_capturing())
        return false;
    ac_cache_wake(cache);
    if (makes_room(cache, size)) {
        ac_cache_push(cache, block, leans);
        return true;
    }
    ac_cache_take_in(cache, &cache->tally->side[flow], block, leans);
    moved(cache, -1, size);
    block->segment->allocated--;
    ac_block_set_state(block, AC_BLOCK_TRANSIT);
    ac_segment_coalesce(block, ac_fence_quiet(cache->timeline));
    return true;
}

/* While its owner keeps out, and with nothing in it. */
static void configure(ac_cache_t *cache) {
    const ac_settings_t *settings = &cache->arena->allocator->settings;
    uint32_t gate = ac_barrier_is_light() ? 0 : AC_GATE_FENCED;
    for (int i = 0; i < AC_DIVISION_SLOTS; i++) {
        cache->divisions[i] = settings->divisions[i];
        if (settings->divisions[i] > 1)
            gate |= AC_GATE_STEPPED;
    }
    gate |= atomic_load(&cache->gate) & (AC_GATE_RECALLED | AC_GATE_RESTS);
    atomic_store(&cache->gate, gate);
    uint64_t small = settings->thread_cache / SMALL_SHARE;
    if (small < SMALL_LIMIT)
        small = settings->thread_cache < SMALL_LIMIT ? settings->thread_cache : SMALL_LIMIT;
    const uint64_t limit[AC_FLOWS] = {small, settings->thread_cache};
    for (int i = 0; i < AC_FLOWS; i++) {
        if (cache->limit[i] != limit[i])
            for_used(cache, i, dismiss);
        cache->limit[i] = limit[i];
    }
    cache->may_wait[0] =
        settings->thread_cache < SMALL_WAIT ? settings->thread_cache : SMALL_WAIT;
    cache->may_wait[1] = settings->thread_cache;
    cache->largest = settings->expandable_segments ? AC_RANGE_KEEP : AC_CACHE_LARGEST;
}

/* Under the lock. */
static void unlist(ac_cache_t *cache) {
    ac_allocator_t *allocator = cache->arena->allocator;
    for (ac_cache_t **at = &allocator->caches->first; *at; at = &(*at)->next)
        if (*at == cache) {
            *at = cache->next;
            atomic_fetch_sub(&allocator->caches->count, 1);
            break;
        }
    for (ac_cache_t **at = &allocator->caches->awake; *at; at = &(*at)->awake_next)
        if (*at == cache) {
            *at = cache->awake_next;
            break;
        }
}

void ac_cache_close(ac_cache_t *cache) {
    ac_allocator_t *allocator = cache->arena->allocator;
    ac_lock(&allocator->lock);
    if (!(atomic_load(&cache->gate) & AC_GATE_GONE)) {
        ac_cache_wake(cache); /* now it shows what it did */
        ac_cache_leave_all(cache);
        ac_caches_raise(allocator, cache);
        unlist(cache);
    }
    *cache->tally = (ac_cache_tally_t){.device = 0};
    cache->next = allocator->caches->spare;
    allocator->caches->spare = cache;
    ac_unlock(&allocator->lock);
}

/* --- recall --- */

/* Whether another cache than `own` holds anything.  Under the lock. */
static bool others_hold(const ac_allocator_t *allocator, const ac_cache_t *own) {
    for (ac_cache_t *cache = allocator->caches->first; cache; cache = cache->next)
        if (cache != own &&
            (ac_cache_tally_held(cache->tally, 0) || ac_cache_tally_held(cache->tally, 1)))
            return true;
    return false;
}

static bool is_shut(const ac_cache_t *cache) {
    return atomic_load(&cache->gate) & AC_GATE_RECALLED;
}

static bool is_busy(const ac_cache_t *cache) {
    return atomic_load_explicit(&cache->busy, memory_order_acquire);
}

/* Whether an owner has not come out of a cache that is shut. */
static bool any_busy(ac_allocator_t *allocator) {
    bool busy = false;
    ac_lock(&allocator->lock);
    for (const ac_cache_t *cache = allocator->caches->first; cache && !busy; cache = cache->next)
        busy = is_shut(cache) && is_busy(cache);
    ac_unlock(&allocator->lock);
    return busy;
}

/* Keep the owners of all caches but `own` (of one arena; NULL: of all) out of them.  False: that
 * cannot be done, and they may be in them.  With the recall lock alone. */
static bool shut(ac_allocator_t *allocator, const ac_cache_t *own, const ac_arena_t *arena) {
    bool any = false;
    ac_lock(&allocator->lock);
    for (ac_cache_t *cache = allocator->caches->first; cache; cache = cache->next) {
        if (cache == own || (arena && cache->arena != arena))
            continue;
        atomic_fetch_or(&cache->gate, AC_GATE_RECALLED);
        any = true;
    }
    ac_unlock(&allocator->lock);
    if (any && !AC_FAILPOINT(recall_without_barrier) && !ac_barrier_heavy())
        return false;
    /* A hit is over in no time, unless its thread is kept from running. */
    for (int i = 0; any && i < RECALL_TRIES && any_busy(allocator); i++)
        sched_yield();
    return true;
}

/* Let the owners in again, or with AC_GATE_GONE as `then` never; before that `visit` (NULL:
 * none) sees each cache whose owner is out of it.  True if it said so of any.  With both locks.
 */
static bool reopen(ac_allocator_t *allocator, bool (*visit)(ac_cache_t *), uint32_t then) {
    bool any = false;
    for (ac_cache_t *cache = allocator->caches->first, *next; cache; cache = next) {
        next = cache->next;
        if (!is_shut(cache))
            continue;
        if (visit && (!is_busy(cache) || AC_FAILPOINT(recall_beside_owner))) {
            AC_WINDOW(cache_visited);
            any |= visit(cache);
        }
        if (then) { /* one that was not seen as well: it is never used again */
            atomic_fetch_or(&cache->gate, then);
            unlist(cache);
        }
        atomic_fetch_and(&cache->gate, ~(uint32_t)AC_GATE_RECALLED);
    }
    return any;
}

bool ac_caches_freeze(ac_allocator_t *allocator) {
    ac_lock(&allocator->caches->recall_lock);
    bool out = shut(allocator, NULL, NULL) && !any_busy(allocator);
    ac_lock(&allocator->lock);
    return out;
}

void ac_caches_thaw(ac_allocator_t *allocator) {
    reopen(allocator, NULL, 0);
    ac_unlock(&allocator->lock);
    ac_unlock(&allocator->caches->recall_lock);
}

void ac_caches_empty(ac_arena_t *arena) {
    for (ac_cache_t *cache = arena->allocator->caches->first; cache; cache = cache->next)
        if (cache->arena == arena) {
            AC_WINDOW(cache_visited);
            ac_cache_leave_all(cache);
        }
}

static bool give_back(ac_cache_t *cache) {
    bool any = ac_cache_leave_all(cache);
    configure(cache);
    return any;
}

/* `always`: also where there is nothing to be had. */
static bool recall(ac_allocator_t *allocator, ac_cache_t *own, bool always) {
    bool any = false;
    if (!atomic_load(&allocator->caches->count))
        return false;
    ac_lock(&allocator->caches->recall_lock);
    ac_lock(&allocator->lock);
    if (ac_cache_usable(own))
        any = give_back(own);
    bool others = always || others_hold(allocator, own);
    ac_unlock(&allocator->lock);
    if (others) {
        bool out = shut(allocator, own, NULL);
        ac_lock(&allocator->lock);
        any |= reopen(allocator, out ? give_back : NULL, 0);
        ac_unlock(&allocator->lock);
    }
    ac_unlock(&allocator->caches->recall_lock);
    return any;
}

void ac_caches_recall_lock(ac_allocator_t *allocator, ac_cache_t *own) {
    ac_lock(&allocator->caches->recall_lock);
    ac_lock(&allocator->lock);
    if (ac_cache_usable(own))
        give_back(own);
    if (others_hold(allocator, own)) {
        ac_unlock(&allocator->lock);
        bool out = shut(allocator, own, NULL);
        ac_lock(&allocator->lock);
        reopen(allocator, out ? give_back : NULL, 0);
    }
    ac_unlock(&allocator->caches->recall_lock);
}

bool ac_caches_recall(ac_allocator_t *allocator, ac_cache_t *own) {
    return recall(allocator, own, false);
}

void ac_caches_settle(ac_allocator_t *allocator) {
    recall(allocator, NULL, true);
}

/* The records go with the segments. */
static bool lose(ac_cache_t *cache) {
    for (int i = 0; i < AC_CACHE_MAGAZINES; i++) {
        cache->magazine[i] = (ac_magazine_t){0};
        cache->queue[i] = (ac_cache_queue_t){NULL, NULL};
    }
    memset(cache->used, 0, sizeof cache->used);
    cache->loose_count = 0;
    cache->loose_bytes = 0;
    cache->promised[0] = cache->promised[1] = 0;
    for (int i = 0; i < AC_FLOWS; i++) {
        const ac_cache_flow_t *flow = &cache->tally->side[i].flow;
        ac_tally_add(&cache->tally->moved_blocks[i], -ac_cache_tally_held(cache->tally, i));
        cache->tally->moved_bytes[i] = flow->taken_bytes - flow->given_bytes;
        /* They leave the statistics with their segments. */
        cache->tally->side[i].waiting = (ac_cache_wait_t){0, 0, 0};
        cache->tally->waiting_absorbed[i] = (ac_cache_wait_t){0, 0, 0};
    }
    return true;
}

void ac_caches_drop(ac_arena_t *arena) {
    ac_allocator_t *allocator = arena->allocator;
    ac_cache_sum_t sum;
    if (!atomic_load(&allocator->caches->count))
        return;
    ac_lock(&allocator->caches->recall_lock);
    shut(allocator, NULL, arena);
    ac_lock(&allocator->lock);
    ac_caches_absorb(allocator, &sum);
    reopen(allocator, lose, AC_GATE_GONE);
    ac_unlock(&allocator->lock);
    ac_unlock(&allocator->caches->recall_lock);
}

/* --- life --- */

ac_cache_t *ac_cache_open(ac_arena_t *arena, ac_cache_tally_t *tally) {
    ac_allocator_t *allocator = arena->allocator;
    ac_cache_t *cache = NULL;
    ac_barrier_setup();
    ac_lock(&allocator->lock);
    bool may = !arena->dead && arena->number && allocator->settings.thread_cache;
    if (may && (cache = allocator->caches->spare))
        allocator->caches->spare = cache->next;
    ac_unlock(&allocator->lock);
    if (may && !cache)
        cache = ac_carve(sizeof *cache);
    if (cache) {
        *cache = (ac_cache_t){.owner_arena = arena->number,
                              .arena = arena,
                              .timeline = &arena->timeline,
                              .tally = tally,
                              .gate = AC_GATE_RESTS};
        for (int i = 0; i < AC_CACHE_HANDED; i++)
            cache->handed[i] = &no_block;
        ac_lock(&allocator->lock);
        configure(cache);
        cache->next = allocator->caches->first;
        allocator->caches->first = cache;
        unsigned count = atomic_fetch_add(&allocator->caches->count, 1) + 1;
        if (count > allocator->counters->thread_caches)
            allocator->counters->thread_caches = count;
        ac_cache_wake(cache);
        ac_unlock(&allocator->lock);
    }
    return cache;
}

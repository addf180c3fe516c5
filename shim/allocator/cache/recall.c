/* Life of thread caches (thread_cache.h), the operations of owners that take the lock, and recalls. */
#include "allocator/cache/thread_cache.h"

#include <sched.h>
#include <string.h>

#include "allocator/cache/cache_int.h"
#include "allocator/carve.h"
#include "allocator/space/range.h"
#include "allocator/space/segment.h"
#include "device/wait.h"
#include "failpoint.h"

#define SMALL_WAIT ((uint64_t)8 << 20) /* of all small blocks that wait */

/* A recall waits for an owner for this number of yields, and at most this time on a busy machine. */
enum { RECALL_TRIES = 10000, RECALL_NS = 100000000 };
enum { FREEZE_PATIENCE_NS = 500000000, FREEZE_NAP_NS = 10000000 };

/* Sentinel: an empty place of `handed` points here. */
static ac_block_t no_block = {.address = 1};

/* --- what comes back --- */

/* Moves all blocks of the entry out of the cache. */
static bool leave(ac_cache_t *cache, ac_entry_t *entry) {
    bool any = ac_cache_shrink(cache, entry, INT64_MAX);
    return ac_cache_unpark(cache, entry, true) || any;
}

/* Frees a block that left the cache's lists. */
static void leave_block(ac_block_t *block, uint64_t quiet) {
    ac_block_uncache(block);
    ac_segment_coalesce(block, quiet);
}

/* Places posted blocks for which there was no room without the lock. */
__attribute__((noinline)) static void place(ac_cache_t *cache) {
    ac_block_t *block = cache->unplaced;
    uint64_t quiet = ac_fence_quiet(cache->timeline);
    ac_allocator_t *allocator = cache->arena->allocator;
    ac_cache_set_unplaced(cache, NULL);
    for (ac_block_t *next; block; block = next) {
        next = block->link;
        allocator->peak_bound += ac_cache_brings(block, allocator->caches->raised);
        ac_entry_t *entry = ac_cache_make_room(cache, block->size);
        if (entry) {
            ac_cache_put(cache, entry, block);
        } else {
            ac_cache_count_moved(cache, -1, block->size);
            leave_block(block, quiet);
        }
    }
}

__attribute__((always_inline)) static inline bool tidy(ac_cache_t *cache) {
    unsigned n = cache->loose_count;
    if (cache->unplaced)
        place(cache);
    if (!n)
        return false;
    uint64_t quiet = ac_fence_quiet(cache->timeline);
    cache->loose_count = 0;
    cache->loose_bytes = 0;
    for (unsigned i = 0; i < n; i++) { /* under the lock, because the neighbours of a block change there */
        const ac_block_t *block = cache->loose[i];
        ac_block_touch_neighbours(block);
        ac_page_map_touch(block->address + block->size);
    }
    uint64_t reached = AC_FAILPOINT(loose_not_awaited) ? UINT64_MAX
                                                       : ac_fence_reached_own(cache->timeline);
    for (unsigned i = 0; i < n; i++) {
        if (ac_block_waits_cached(cache->loose[i])) {
            ac_cache_leave_waiting(cache, cache->loose[i], reached);
            continue;
        }
        ac_cache_count_moved(cache, -1, cache->loose[i]->size);
        leave_block(cache->loose[i], quiet);
    }
    return n;
}

__attribute__((noinline)) static void leave_all_of(ac_cache_t *cache, ac_block_t *block,
                                                   bool held) {
    uint64_t quiet = ac_fence_quiet(cache->timeline);
    ac_allocator_t *allocator = cache->arena->allocator;
    for (ac_block_t *next; block; block = next) {
        next = block->link;
        allocator->peak_bound += ac_cache_brings(block, allocator->caches->raised);
        if (held)
            ac_cache_count_moved(cache, -1, block->size);
        leave_block(block, quiet);
    }
}

/* Frees the blocks of a chain, which is mostly empty.  `held`: the cache's tally counts them (inbox.h). */
static inline bool leave_chain(ac_cache_t *cache, ac_block_t *block, bool held) {
    if (block)
        leave_all_of(cache, block, held);
    return block;
}

static bool call_off(ac_cache_t *cache) {
    ac_block_t *out = cache->out.first;
    if (out)
        cache->out = (ac_chain_t){.first = NULL};
    return leave_chain(cache, out, true);
}

void ac_cache_tidy(ac_cache_t *cache, bool request) {
    if (!ac_cache_usable(cache))
        return;
    tidy(cache);
    if (request)
        call_off(cache);
}

/* Moves all blocks that are not in the table out of the cache. */
static bool leave_chains(ac_cache_t *cache) {
    ac_block_t *unplaced = cache->unplaced;
    ac_cache_set_unplaced(cache, NULL);
    bool any = leave_chain(cache, unplaced, true);
    any |= call_off(cache);
    any |= leave_chain(cache, ac_inbox_take(&cache->inbox, cache->owner_arena), false);
    return (cache->loose_count && tidy(cache)) || any;
}

static bool fit(ac_cache_t *cache, ac_entry_t *entry) {
    return ac_cache_shrink(cache, entry, 0);
}

/* Gives ready blocks back until the rest is within the budget, large sizes first. */
static bool fit_budget(ac_cache_t *cache) {
    bool any = false;
    while (cache->room < 0 && ac_cache_give_way(cache, AC_CACHE_LARGEST, (uint64_t)-cache->room))
        any = true;
    return (cache->room < 0 && ac_cache_each(cache, 0, fit)) || any;
}

/* Gives ready blocks beyond the budget back, large ones first: one large block makes room for many requests.
 * With `all`, also gives back as many bytes as the request needs. */
static bool flush_some(ac_cache_t *cache, uint64_t size, uint64_t largest, bool all) {
    uint64_t reached = ac_fence_reached_own(cache->timeline);
    if (reached != cache->flushed[1] && ac_cache_waits(cache)) {
        cache->flushed[1] = reached;
        ac_cache_ripen(cache);
        if (cache->room < 0 && !ac_cache_lease(cache, true) && fit_budget(cache))
            return true;
    }
    return all && ac_cache_give_way(cache, largest, size);
}

static bool flush_all(ac_cache_t *cache, int flow) {
    uint64_t held = ac_cache_tally_held(cache->tally, flow);
    uint64_t reached = ac_fence_reached_own(cache->timeline);
    /* Waiting blocks are checked once for each fence. */
    if (held == cache->tally->side[flow].waiting.blocks && reached == cache->flushed[flow])
        return false;
    cache->flushed[flow] = reached;
    return held && ac_cache_empty(cache, flow);
}

bool ac_cache_flush(ac_cache_t *cache, uint64_t size, uint64_t largest, bool all) {
    int flow = ac_cache_flow(size);
    bool any = leave_chains(cache);
    if (!flow || !ac_cache_weighs(cache))
        return flush_all(cache, flow) || any;
    return any || flush_some(cache, size, largest, all);
}

bool ac_cache_leave_all(ac_cache_t *cache) {
    bool any = leave_chains(cache);
    for (int flow = 0; flow < AC_FLOWS; flow++)
        if (ac_cache_tally_held(cache->tally, flow))
            any |= ac_cache_each(cache, flow, leave);
    return ac_cache_each(cache, AC_FLOWS, leave) || any;
}

/* --- the owner's requests and frees that take the lock --- */

/* Returns true if the owner may have the block. */
static bool may_keep(const ac_cache_t *cache, const ac_block_t *block) {
    return ac_cache_usable(cache) && cache->owner_arena &&
           block->owner_arena == cache->owner_arena;
}

bool ac_cache_keep(ac_cache_t *cache, ac_block_t *block) {
    ac_entry_t *entry = may_keep(cache, block) ? ac_cache_make_room(cache, block->size) : NULL;
    if (!entry)
        return false;
    block->segment->allocated++;
    ac_cache_count_moved(cache, 1, block->size);
    ac_block_set_state(block, AC_BLOCK_CACHED);
    ac_cache_put(cache, entry, block);
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

bool ac_cache_take_back(ac_cache_t *cache, ac_block_t *block, bool by_order) {
    uint64_t size = block->size;
    int flow = ac_cache_flow(size);
    if (!may_keep(cache, block))
        return false;
    ac_cache_wake(cache);
    ac_entry_t *entry = ac_cache_make_room(cache, size);
    ac_cache_free_for(cache, block->module);
    ac_cache_take_in(cache, &cache->tally->side[flow], block, by_order);
    if (entry) {
        ac_cache_put(cache, entry, block);
        return true;
    }
    ac_cache_count_moved(cache, -1, size);
    ac_block_uncache(block);
    ac_segment_coalesce(block, ac_fence_quiet(cache->timeline));
    return true;
}

/* Applies the settings to an empty cache, while its owner keeps out. */
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
    ac_cache_set_budget(cache);
    cache->may_wait[0] =
        settings->thread_cache < SMALL_WAIT ? settings->thread_cache : SMALL_WAIT;
    cache->may_wait[1] = settings->thread_cache;
}

/* Takes the cache out of the allocator's lists. */
static void unlist(ac_cache_t *cache) {
    ac_allocator_t *allocator = cache->arena->allocator;
    allocator->caches->leased -= cache->leased;
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

bool ac_cache_hand_on(ac_cache_t *cache) {
    ac_allocator_t *allocator = cache->arena->allocator;
    ac_lock(&allocator->lock);
    bool stays = !cache->lanes && !ac_cache_is_gone(cache);
    if (stays) {
        ac_cache_leave_all(cache);
        configure(cache); /* returns its leases for other caches */
        cache->owner_arena = 0;
        leave_chain(cache, ac_inbox_take(&cache->inbox, 0), false);
        ac_caches_check_peaks(allocator, cache);
    }
    ac_unlock(&allocator->lock);
    return stays;
}

void ac_cache_take_over(ac_cache_t *cache) {
    ac_allocator_t *allocator = cache->arena->allocator;
    ac_lock(&allocator->lock);
    if (!ac_cache_is_gone(cache)) {
        cache->owner_arena = cache->arena->number;
        ac_inbox_open(&cache->inbox, cache->owner_arena);
    }
    ac_unlock(&allocator->lock);
}

static void forget_gone(const ac_cache_t *cache) {
    ac_cache_t **at = &cache->arena->allocator->caches->gone;
    while (*at != cache)
        at = &(*at)->next;
    *at = cache->next;
}

void ac_cache_close(ac_cache_t *cache) {
    ac_allocator_t *allocator = cache->arena->allocator;
    ac_lock(&allocator->lock);
    if (!(atomic_load(&cache->gate) & AC_GATE_GONE)) {
        ac_cache_leave_all(cache);
        AC_WINDOW(cache_left);
        ac_block_t *posted = ac_inbox_take(&cache->inbox, 0);
        if (!AC_FAILPOINT(closed_inbox_left))
            leave_chain(cache, posted, false);
        ac_cache_tally_end(cache);
        ac_lanes_close(cache);
        unlist(cache);
    } else {
        forget_gone(cache);
    }
    ac_cache_tally_modules(cache->tally, &allocator->stats->modules);
    *cache->tally = (ac_cache_tally_t){.device = 0};
    cache->next = allocator->caches->spare;
    allocator->caches->spare = cache;
    ac_unlock(&allocator->lock);
}

/* --- recall --- */

bool ac_caches_hold(const ac_allocator_t *allocator, const ac_cache_t *own) {
    for (ac_cache_t *cache = allocator->caches->first; cache; cache = cache->next)
        if (cache != own &&
            (ac_cache_tally_held(cache->tally, 0) || ac_cache_tally_held(cache->tally, 1) ||
             ac_inbox_first(&cache->inbox)))
            return true;
    return false;
}

static bool is_shut(const ac_cache_t *cache) {
    return atomic_load(&cache->gate) & AC_GATE_RECALLED;
}

static bool is_busy(const ac_cache_t *cache) {
    return atomic_load_explicit(&cache->busy, memory_order_acquire);
}

/* Returns true if an owner is still inside a cache that is shut.  Called with the lock. */
static bool any_inside(const ac_allocator_t *allocator) {
    bool busy = false;
    for (const ac_cache_t *cache = allocator->caches->first; cache && !busy; cache = cache->next)
        busy = is_shut(cache) && is_busy(cache);
    return busy;
}

static bool any_busy(ac_allocator_t *allocator) {
    ac_lock(&allocator->lock);
    bool busy = any_inside(allocator);
    ac_unlock(&allocator->lock);
    return busy;
}

/* Shuts all caches but `own`, of one arena or with NULL of all: no owner enters any more, and `busy` shows an
 * owner that is inside.  *ops is that of a shut cache; NULL: none was shut.  Returns false if there is no heavy
 * barrier.  Called with the recall lock alone. */
static bool close_gates(ac_allocator_t *allocator, const ac_cache_t *own, const ac_arena_t *arena,
                        const ac_device_ops_t **ops) {
    *ops = NULL;
    ac_lock(&allocator->lock);
    for (ac_cache_t *cache = allocator->caches->first; cache; cache = cache->next) {
        if (cache == own || (arena && cache->arena != arena))
            continue;
        atomic_fetch_or(&cache->gate, AC_GATE_RECALLED);
        *ops = cache->arena->ops;
    }
    ac_unlock(&allocator->lock);
    return !*ops || AC_FAILPOINT(recall_without_barrier) || ac_barrier_heavy();
}

/* Shuts caches as close_gates does, and waits until the owners are out, or RECALL_NS.  Returns false if an owner
 * may be inside unseen. */
static bool shut(ac_allocator_t *allocator, const ac_cache_t *own, const ac_arena_t *arena) {
    const ac_device_ops_t *ops;
    if (!close_gates(allocator, own, arena, &ops))
        return false;
    if (!ops || !any_busy(allocator))
        return true;
    /* A hit is over in no time, unless its thread is kept from running. */
    uint64_t end = ops->now_ns() + RECALL_NS;
    for (int i = 0; i < RECALL_TRIES && any_busy(allocator) && ops->now_ns() < end; i++)
        sched_yield();
    return true;
}

/* Opens shut caches again, or ends them if `then` is AC_GATE_GONE.  Calls `visit` (NULL: none) first for each
 * cache with its owner outside.  Returns true if a call did.  If `left` is not NULL, caches with an owner inside
 * stay shut, and *left says if there are any.  Called with both locks. */
static bool reopen(ac_allocator_t *allocator, bool (*visit)(ac_cache_t *), uint32_t then,
                   bool *left) {
    bool any = false;
    if (left)
        *left = false;
    for (ac_cache_t *cache = allocator->caches->first, *next; cache; cache = next) {
        next = cache->next;
        if (!is_shut(cache))
            continue;
        if (left && is_busy(cache)) {
            *left = true;
            continue;
        }
        if (visit && (!is_busy(cache) || AC_FAILPOINT(recall_beside_owner))) {
            AC_WINDOW(cache_visited);
            any |= visit(cache);
        }
        if (then) { /* also for a busy cache without a visit: no thread uses it again */
            atomic_fetch_or(&cache->gate, then);
            unlist(cache);
            cache->next = allocator->caches->gone;
            allocator->caches->gone = cache;
        }
        atomic_fetch_and(&cache->gate, ~(uint32_t)AC_GATE_RECALLED);
    }
    return any;
}

/* Shuts all caches, and takes both locks.  Returns the result of close_gates. */
static bool freeze(ac_allocator_t *allocator) {
    ac_lock(&allocator->caches->recall_lock);
    ac_lock(&allocator->lock);
    allocator->caches->frozen = true; /* otherwise a thread might be inside a cache that opens meanwhile */
    ac_unlock(&allocator->lock);
    bool closed = shut(allocator, NULL, NULL);
    ac_lock(&allocator->lock);
    return closed;
}

bool ac_caches_freeze(ac_allocator_t *allocator) {
    return freeze(allocator) && !any_inside(allocator);
}

bool ac_caches_freeze_patiently(ac_allocator_t *allocator) {
    for (uint64_t end = 0;;) {
        bool closed = freeze(allocator);
        if (closed && !any_inside(allocator))
            return true;
        if (!allocator->caches->first) /* the last owner came out, and its thread has ended */
            return true;
        uint64_t now = allocator->caches->first->arena->ops->now_ns();
        if (!closed || (end && now >= end))
            return false;
        end = end ? end : now + FREEZE_PATIENCE_NS;
        ac_caches_thaw(allocator);
        ac_nap(FREEZE_NAP_NS);
    }
}

void ac_caches_thaw(ac_allocator_t *allocator) {
    allocator->caches->frozen = false;
    reopen(allocator, NULL, 0, NULL);
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

/* Empties inboxes: an owner that was inside its cache may have posted to caches that were visited before. */
static bool leave_inboxes(ac_allocator_t *allocator) {
    bool any = false;
    for (ac_cache_t *cache = allocator->caches->first; cache; cache = cache->next)
        any |= leave_chain(cache, ac_inbox_take(&cache->inbox, cache->owner_arena), false);
    return any;
}

/* Recalls all caches but `own`.  An owner inside, with its thread kept from running, does not keep the other
 * owners out of their caches meanwhile. */
static bool recall_others(ac_allocator_t *allocator, ac_cache_t *own) {
    const ac_device_ops_t *ops;
    bool out = close_gates(allocator, own, NULL, &ops), any = false, left = false;
    uint64_t end = ops ? ops->now_ns() + RECALL_NS : 0;
    for (int i = 0;; i++) {
        bool last = !out || i == RECALL_TRIES || (i && ops->now_ns() >= end);
        ac_lock(&allocator->lock);
        any |= reopen(allocator, out ? give_back : NULL, 0, last ? NULL : &left);
        last |= !left;
        if (last && i && !AC_FAILPOINT(inbox_seen_early))
            any |= leave_inboxes(allocator);
        ac_caches_check_peaks(allocator, own);
        ac_unlock(&allocator->lock);
        if (last)
            return any;
        sched_yield();
    }
}

/* Recalls caches.  `always`: shuts the others even if they are empty. */
static bool recall(ac_allocator_t *allocator, ac_cache_t *own, bool always) {
    bool any = false;
    if (!atomic_load(&allocator->caches->count))
        return false;
    ac_lock(&allocator->caches->recall_lock);
    ac_lock(&allocator->lock);
    if (ac_cache_usable(own))
        any = give_back(own);
    ac_caches_check_peaks(allocator, own);
    bool others = always || ac_caches_hold(allocator, own);
    ac_unlock(&allocator->lock);
    if (others)
        any |= recall_others(allocator, own);
    ac_unlock(&allocator->caches->recall_lock);
    return any;
}

void ac_caches_recall_lock(ac_allocator_t *allocator, ac_cache_t *own) {
    ac_lock(&allocator->caches->recall_lock);
    ac_lock(&allocator->lock);
    if (ac_cache_usable(own))
        give_back(own);
    if (ac_caches_hold(allocator, own)) {
        ac_unlock(&allocator->lock);
        bool out = shut(allocator, own, NULL);
        ac_lock(&allocator->lock);
        reopen(allocator, out ? give_back : NULL, 0, NULL);
    }
    ac_caches_check_peaks(allocator, own);
    ac_unlock(&allocator->caches->recall_lock);
}

bool ac_caches_recall(ac_allocator_t *allocator, ac_cache_t *own) {
    return recall(allocator, own, false);
}

void ac_caches_settle(ac_allocator_t *allocator) {
    recall(allocator, NULL, true);
}

/* Forgets the blocks of the entry: their records go with the segments. */
static bool forget(ac_cache_t *cache, ac_entry_t *entry) {
    entry->top = *ac_cache_wait(cache, entry) = NULL;
    return false;
}

static bool lose(ac_cache_t *cache) {
    for (int flow = 0; flow <= AC_FLOWS; flow++)
        ac_cache_each(cache, flow, forget);
    ac_lanes_close(cache);
    cache->loose_count = 0;
    cache->loose_bytes = 0;
    ac_cache_set_unplaced(cache, NULL);
    cache->out = (ac_chain_t){.first = NULL};
    ac_inbox_take(&cache->inbox, 0);
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
    reopen(allocator, lose, AC_GATE_GONE, NULL);
    ac_unlock(&allocator->lock);
    ac_unlock(&allocator->caches->recall_lock);
}

/* --- life --- */

/* Clears a spare cache.  `seen` and `handed` stay: they are hints, whichever owner left them. */
static void begin_again(ac_cache_t *cache) {
    ac_lanes_t *lanes = cache->lanes;
    for (uint64_t left = cache->made; left; left &= left - 1) {
        size_t first = (size_t)__builtin_ctzll(left) * AC_CACHE_PART;
        memset(&cache->entry[first], 0, AC_CACHE_PART * sizeof *cache->entry);
        memset(&cache->wait[first], 0, AC_CACHE_PART * sizeof *cache->wait);
    }
    memset(cache, 0, offsetof(ac_cache_t, entry));
    ac_lanes_begin(cache, lanes);
}

ac_cache_t *ac_cache_open(ac_arena_t *arena, ac_cache_tally_t *tally) {
    ac_allocator_t *allocator = arena->allocator;
    ac_cache_t *cache = NULL;
    ac_barrier_setup();
    ac_lock(&allocator->lock);
    bool may = !arena->dead && arena->number && allocator->settings.thread_cache;
    if (may && (cache = allocator->caches->spare)) {
        allocator->caches->spare = cache->next;
        begin_again(cache);
    }
    ac_unlock(&allocator->lock);
    if (may && !cache && (cache = ac_carve_table(sizeof *cache)))
        for (size_t i = 0; i < sizeof cache->handed / sizeof *cache->handed; i++)
            cache->handed[i] = &no_block;
    if (cache) {
        cache->owner_arena = arena->number;
        cache->arena = arena;
        cache->timeline = &arena->timeline;
        cache->tally = tally;
        cache->asks = cache->frees =
            ac_block_label(AC_MODULE_UNKNOWN, AC_BLOCK_ALLOCATED, arena->number);
        cache->least = ac_block_label(0, AC_BLOCK_ALLOCATED, arena->number);
        atomic_store(&cache->gate, AC_GATE_RESTS);
        cache->last = &no_block;
        cache->last_own = cache->entry;
        ac_inbox_open(&cache->inbox, arena->number);
        ac_lock(&allocator->lock);
        if (allocator->caches->frozen)
            atomic_fetch_or(&cache->gate, AC_GATE_RECALLED);
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

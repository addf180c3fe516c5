/* Blocks that wait in a thread's cache (thread_cache.h): frees during work of the device, without the lock. */
#include "allocator/cache/cache_int.h"
#include "allocator/retired/retired.h"
#include "allocator/space/segment.h"
#include "allocator/space/size.h"
#include "observe/history.h"

/* --- the owner gives and takes --- */

/* After each LOOK_EACH-th due fence all handouts get an exact epoch, however many frees waited. */
enum { LOOK_EACH = 16 };

void ac_cache_note_due(ac_cache_t *cache) {
    const ac_cache_tally_t *tally = cache->tally;
    uint64_t given = tally->side[0].flow.given + tally->side[1].flow.given, fenced = tally->fenced;
    uint64_t frees = given - cache->given, waited = fenced - cache->fenced;
    cache->given = given;
    cache->fenced = fenced;
    /* A block with a rough (too old) epoch waits even if no work can use it.  So the number of waiting frees
     * alone does not show whether exact epochs would help. */
    bool look = ++cache->dues % LOOK_EACH == 0;
    bool most = waited && frees - waited <= frees / 8 && !ac_order_capturing();
    /* Fewer rough handouts than frees that waited.  So these handouts alone never make the next fence due,
     * whatever their weights. */
    uint64_t rough = waited <= AC_FENCE_ROUGH ? waited - 1 : AC_FENCE_ROUGH;
    ac_fence_allow_rough(cache->timeline, most && !look ? (int32_t)rough : 0);
}

/* Keeps a ready block: in its entry if it has one, otherwise loose.  The caller has checked for room. */
static void put_in(ac_cache_t *cache, const ac_entry_t *own, ac_block_t *block, bool ordered) {
    uint64_t size = block->size;
    if (own && ac_cache_push(cache, block, ordered))
        return;
    ac_cache_take_in(cache, &cache->tally->side[ac_cache_flow(size)], block, ordered);
    ac_cache_loosen(cache, block);
}

/* --- blocks that another cache handed out (inbox.h) --- */

/* Limits of a chain (POST_MOST blocks, POST_BYTES) and of inboxes.  Inboxes are limited because their owners may be
 * idle.  Each inbox may have the weight INBOX_MOST.  It may have up to `may_wait` if all inboxes of the device, at
 * this weight, stay within INBOXES_MOST. */
enum { POST_MOST = 16 };
#define POST_BYTES   ((uint64_t)4 << 20)
#define INBOX_MOST   ((uint64_t)16 << 20)
#define INBOXES_MOST ((uint64_t)256 << 20)

static bool has_room(const ac_cache_t *cache, const ac_inbox_t *inbox, uint64_t size) {
    uint64_t weight =
        atomic_load_explicit(&inbox->weight, memory_order_relaxed) + ac_inbox_weight(1, size);
    unsigned count =
        atomic_load_explicit(&cache->arena->allocator->caches->count, memory_order_relaxed);
    return weight <= INBOX_MOST ||
           (weight <= cache->may_wait[1] && weight * count <= INBOXES_MOST);
}

/* Returns true if the block can go to the cache that handed it out.  A chain that was begun may grow to POST_BYTES
 * without another look at the inbox. */
static inline bool may_post(const ac_cache_t *cache, const ac_block_t *block) {
    const ac_cache_t *home = block->home;
    return home && home != cache &&
           ((cache->out.first && home == cache->out_home &&
             ac_chain_bytes(&cache->out) + block->size <= POST_BYTES) ||
            has_room(cache, &home->inbox, block->size));
}

/* Posts the chain to its home.  If that cache was closed, the blocks stay here as unplaced ones. */
static void post(ac_cache_t *cache) {
    ac_chain_t out = cache->out;
    cache->out = (ac_chain_t){.first = NULL};
    if (!out.first)
        return;
    for (int flow = 0; flow < AC_FLOWS; flow++) /* before the post: the other thread may take them at once */
        ac_cache_count_chain(cache, flow, -(int64_t)out.blocks[flow], out.bytes[flow]);
    if (ac_inbox_post(&cache->out_home->inbox, cache->owner_arena, &out, &cache->trail))
        return;
    for (int flow = 0; flow < AC_FLOWS; flow++)
        ac_cache_count_chain(cache, flow, (int64_t)out.blocks[flow], out.bytes[flow]);
    for (ac_block_t *block = out.first; block; block = block->link) {
        cache->headroom += ac_cache_brings(block, cache->raised);
        if (!ac_inbox_is_slot(block))
            block->raised = 0; /* its headroom counts only once */
    }
    out.last->link = cache->unplaced;
    ac_cache_set_unplaced(cache, out.first);
}

/* Adds a ready block to the chain for the cache that handed it out.  `ordered`: it is ready only by stream order. */
static void give_home(ac_cache_t *cache, ac_block_t *block, bool ordered) {
    int flow = ac_cache_flow(block->size);
    ac_ahead_touch(block);
    if (cache->out_home != block->home)
        post(cache);
    cache->out_home = block->home;
    if (ac_inbox_is_slot(block)) {
        ac_cache_take_in(cache, &cache->tally->side[flow], block, ordered);
    } else {
        ac_cache_take_in_without(cache, &cache->tally->side[flow], block, ordered);
        block->raised = cache->raised;
    }
    ac_chain_add(&cache->out, &cache->trail, block, flow);
    if (ac_chain_blocks(&cache->out) == POST_MOST || ac_chain_bytes(&cache->out) >= POST_BYTES)
        post(cache);
}

/* Takes the posted blocks into the table, as far as there is room without the lock.  The rest is unplaced until the
 * owner has the lock. */
static void collect(ac_cache_t *cache) {
    ac_ahead_t ahead = {.turn = 0};
    int64_t blocks[AC_FLOWS] = {0, 0};
    uint64_t bytes[AC_FLOWS] = {0, 0};
    ac_block_t *block = ac_inbox_take(&cache->inbox, cache->owner_arena);
    for (ac_block_t *next; block; block = next) {
        next = block->link;
        bool later = ac_cache_brings_later(block, cache->raised);
        cache->headroom += ac_cache_brings(block, cache->raised);
        if (!later)
            ac_ahead_name(&ahead, block);
        ac_entry_t *entry = cache->room >= 0 && !later ? ac_cache_find(cache, block->size) : NULL;
        blocks[ac_cache_flow(block->size)]++;
        bytes[ac_cache_flow(block->size)] += block->size;
        if (entry && entry->size == block->size) {
            ac_cache_put(cache, entry, block);
        } else {
            block->link = cache->unplaced;
            ac_cache_set_unplaced(cache, block);
        }
    }
    for (int flow = 0; flow < AC_FLOWS; flow++)
        ac_cache_count_chain(cache, flow, blocks[flow], bytes[flow]);
}

/* Leases room for the unplaced blocks, if more were posted than fit.  Otherwise the owner would have to search them
 * again every few requests.  Called by the owner, not inside. */
__attribute__((noinline)) static void widen(ac_cache_t *cache) {
    ac_lock(&cache->arena->allocator->lock);
    if (ac_cache_usable(cache)) {
        uint64_t bytes = 0;
        for (const ac_block_t *block = cache->unplaced; block; block = block->link)
            bytes += ac_cache_charge(block->size);
        cache->narrow = !ac_cache_lease_for(cache, bytes);
    }
    ac_unlock(&cache->arena->allocator->lock);
}

/* Moves unplaced blocks to the empty entry of their size, as far as there is room. */
static void refill(ac_cache_t *cache, ac_entry_t *entry) {
    ac_ahead_t ahead = {.turn = 0};
    for (ac_block_t *block;
         cache->room >= 0 && (block = cache->unplaced) && block->size == entry->size &&
         !ac_cache_brings_later(block, cache->raised);) {
        ac_cache_set_unplaced(cache, block->link);
        cache->headroom += ac_cache_brings(block, cache->raised);
        ac_ahead_name(&ahead, block);
        ac_cache_put(cache, entry, block);
    }
}

/* Returns true if a stream's order may protect a block that is freed now.  The caller avoids ac_order_retire if it
 * cannot use the answer, because a free that relies on the order costs a join event. */
static bool may_rely(const ac_cache_t *cache) {
    return ac_sole_mode(atomic_load(&cache->timeline->single.word)) < AC_SOLE_MANY;
}

/* Lets the block wait for `target`, a fence of its own context: in its entry `own`, or loose if that is NULL.  Returns
 * false if it cannot wait here.  A block that can go to another cache does not wait here, because posted blocks
 * must be ready.  Called inside. */
AC_CACHE_HOT bool keep_waiting(ac_cache_t *cache, ac_block_t *block, const ac_entry_t *own,
                               uint64_t target) {
    uint64_t size = block->size;
    ac_cache_side_t *side = &cache->tally->side[ac_cache_flow(size)];
    if (!own && AC_FAILPOINT(posted_not_awaited) && may_post(cache, block)) {
        give_home(cache, block, false);
        return true;
    }
    if (!ac_cache_may_wait(cache, side, size) ||
        (!own && (may_post(cache, block) || !ac_cache_may_loosen(cache, size))))
        return false;
    block->home = cache;
    if (own) {
        ac_cache_park(cache, own, block, target);
    } else {
        ac_cache_await(cache, side, block, target, cache->live_share);
        ac_cache_loosen(cache, block);
    }
    return true;
}

/* Returns ac_cache_keeps of the size.  The cheap ac_cache_peek comes first, because most sizes here have no entry. */
static inline const ac_entry_t *keeps(ac_cache_t *cache, uint64_t size) {
    return ac_cache_peek(cache, size) ? ac_cache_keeps(cache, size) : NULL;
}

/* Keeps a block that has to wait for `target`, of any module and size.  Called inside. */
__attribute__((noinline)) static bool keep_awaited(ac_cache_t *cache, ac_block_t *block,
                                                   uint64_t target) {
    ac_cache_free_for(cache, block->module);
    return keep_waiting(cache, block, keeps(cache, block->size), target);
}

/* Keeps a block that is ready, or one with a state that needs ac_order_retire.  Called inside. */
__attribute__((noinline)) static bool keep(ac_cache_t *cache, ac_block_t *block) {
    uint64_t size = block->size;
    ac_ticket_t ticket;
    ac_cache_free_for(cache, block->module);
    const ac_entry_t *own = ac_cache_entry(cache, size);
    if (own->size != size)
        own = keeps(cache, size);
    bool elsewhere = !own && may_post(cache, block);
    bool room = own ? cache->room >= 0 : elsewhere || ac_cache_may_loosen(cache, size);
    if (!room && (!own || may_rely(cache)))
        return false;
    ac_free_t how =
        ac_order_retire(cache->timeline, &block->ticket, size, elsewhere ? NULL : &ticket);
    if (how == AC_FREE_WAITS && !elsewhere)
        return ticket.key == AC_KEY_OWN && keep_waiting(cache, block, own, ticket.epoch);
    if (how == AC_FREE_WAITS && !AC_FAILPOINT(posted_not_awaited))
        return false;
    if (elsewhere) {
        give_home(cache, block, how == AC_FREE_BY_ORDER);
    } else {
        block->home = cache;
        if (room)
            put_in(cache, own, block, how == AC_FREE_BY_ORDER);
    }
    return room;
}

bool ac_cache_enter_long(ac_cache_t *cache) {
    const uint32_t shut = AC_GATE_RECALLED | AC_GATE_GONE;
    for (;;) {
        atomic_store_explicit(&cache->busy, 1, memory_order_relaxed);
        ac_barrier_light();
        uint32_t gate = atomic_load(&cache->gate);
        if (!(gate & (shut | AC_GATE_RESTS)))
            return true;
        ac_cache_leave(cache);
        if (gate & shut)
            return false;
        ac_lock(&cache->arena->allocator->lock);
        ac_cache_wake(cache);
        ac_unlock(&cache->arena->allocator->lock);
    }
}

/* Keeps an owned block.  The fast path is for a waiting block of a kept size and of the current module.  Called
 * inside. */
AC_CACHE_HOT bool give_owned(ac_cache_t *cache, ac_block_t *block) {
    uint64_t target;
    if (!ac_order_awaits(cache->timeline, &block->ticket, block->size, &target))
        return keep(cache, block);
    const ac_entry_t *own = ac_cache_entry(cache, block->size);
    if (atomic_load_explicit(&block->label, memory_order_relaxed) != cache->frees ||
        own->size != block->size)
        return keep_awaited(cache, block, target);
    return keep_waiting(cache, block, own, target);
}

bool ac_cache_give(ac_cache_t *cache, ac_block_t *block, uint64_t address) {
    if (!ac_cache_enter(cache) && !ac_cache_enter_long(cache))
        return false;
    bool kept = false;
    if (ac_cache_owns(cache, block, address)) {
        AC_WINDOW(free_owned);
        kept = give_owned(cache, block);
    }
    ac_cache_leave(cache);
    return kept;
}

bool ac_cache_give_rest(ac_cache_t *cache, ac_block_t *block) {
    AC_WINDOW(free_owned);
    bool kept = give_owned(cache, block);
    ac_cache_leave(cache);
    return kept;
}

bool ac_cache_give_untouched(ac_cache_t *cache, ac_block_t *block) {
    AC_WINDOW(free_owned);
    uint64_t size = block->size;
    const ac_entry_t *own = keeps(cache, size);
    bool elsewhere = !own && may_post(cache, block);
    bool room = own ? cache->room >= 0 : elsewhere || ac_cache_may_loosen(cache, size);
    if (elsewhere) {
        give_home(cache, block, false);
    } else if (room) {
        block->home = cache;
        put_in(cache, own, block, false);
    }
    ac_cache_leave(cache);
    return room;
}

/* Serves the request from waiting, posted or unplaced blocks.  Called inside; the owner is outside on return. */
__attribute__((noinline)) static bool take_inside(ac_cache_t *cache, uint64_t size, bool known,
                                                  uint64_t bytes, uint64_t *address) {
    if (ac_inbox_has_any(&cache->inbox))
        collect(cache);
    ac_entry_t *own = ac_cache_entry(cache, size);
    ac_entry_t *entry = !known ? NULL : own->size == size ? own : ac_cache_find(cache, size);
    ac_take_t taken = AC_TAKE_NONE;
    if (entry && !entry->top && cache->unplaced)
        refill(cache, entry);
    if (entry && (entry->top || ac_cache_gather(cache, entry)))
        taken = ac_cache_pop(cache, size, bytes, address, ac_fence_handout);
    bool lacks = entry && cache->unplaced && cache->unplaced->size == entry->size && !cache->narrow;
    ac_cache_leave(cache); /* from now on a recall may write to all of these */
    if (lacks)
        widen(cache);
    return taken == AC_TAKE_DUE ? ac_cache_raise(cache) : taken;
}

__attribute__((noinline)) static bool take_long(ac_cache_t *cache, uint64_t bytes, uint64_t *address) {
    if (!ac_cache_enter_long(cache))
        return false;
    uint64_t size = ac_size_round(cache->divisions, bytes);
    return take_inside(cache, size, ac_cache_peek(cache, size), bytes, address);
}

/* The slow path is a separate function, so that the common case (no block of the size waits) saves no registers. */
bool ac_cache_take_waiting(ac_cache_t *cache, uint64_t size, bool known, uint64_t bytes,
                           uint64_t *address) {
    if (!ac_cache_enter(cache))
        return take_long(cache, bytes, address);
    const ac_entry_t *own = ac_cache_entry(cache, size);
    if (own->size != size || own->top || *ac_cache_wait(cache, own) || cache->unplaced ||
        ac_inbox_has_any(&cache->inbox))
        return take_inside(cache, size, known, bytes, address);
    ac_cache_leave(cache);
    return false;
}

/* --- what waited --- */

/* Records the READY event of each block from `first` to `last`. */
__attribute__((cold, noinline)) static void note_ready(const ac_cache_t *cache,
                                                       const ac_block_t *first,
                                                       const ac_block_t *last) {
    for (const ac_block_t *block = first;; block = block->link) {
        ac_history_add(cache->arena->allocator->history,
                       &(ac_event_t){.kind = AC_EVENT_READY,
                                     .address = ac_block_address(block),
                                     .bytes = block->size});
        if (block == last)
            return;
    }
}

/* Moves waiting blocks that became ready to the ready blocks of the entry.  It moves at least one if there is one, and
 * more while there is room or with `all`.  Adds them to *ready. */
AC_CACHE_HOT bool gather(ac_cache_t *cache, ac_entry_t *entry, ac_block_t **wait, uint64_t reached,
                         bool all, ac_cache_wait_t *ready) {
    ac_block_t *last = *wait, *end;
    uint64_t size = entry->size, requested = 0;
    int64_t blocks = 0, room = cache->room;
    if (!last || size & AC_ENTRY_FLAGS) /* no ready block of a refused size is kept */
        return false;
    ac_block_t *first = last->link, *block = first;
    if (first->ticket.epoch > reached)
        return false;
    do {
        end = block;
        room -= entry->charge;
        blocks++;
        block->ticket.key = AC_KEY_NONE;
        requested += block->requested;
        block = block->link;
    } while (end != last && block->ticket.epoch <= reached && (all || room >= 0));
    cache->room = room;
    ready->blocks += (uint64_t)blocks;
    ready->bytes += (uint64_t)blocks * size;
    ready->requested += requested;
    if (__builtin_expect(ac_history_is_on(), 0))
        note_ready(cache, first, end);
    if (end == last)
        *wait = NULL;
    else
        last->link = block;
    end->link = entry->top;
    entry->top = first;
    return true;
}

/* Returns the clock up to which waiting blocks are ready. */
static uint64_t reached_by(const ac_cache_t *cache) {
    return AC_FAILPOINT(waiting_served) ? UINT64_MAX : ac_fence_reached_own(cache->timeline);
}

bool ac_cache_gather(ac_cache_t *cache, ac_entry_t *entry) {
    ac_cache_wait_t ready = {0, 0, 0};
    ac_block_t **wait = ac_cache_wait(cache, entry);
    if (!*wait || !gather(cache, entry, wait, reached_by(cache), false, &ready))
        return false;
    ac_cache_count_ready(cache, ac_cache_flow(ac_entry_size(entry)), &ready);
    return true;
}

/* Does the work of gather() for an entry with one waiting block, which is ready. */
AC_CACHE_HOT void gather_one(ac_cache_t *cache, ac_entry_t *entry, ac_block_t **wait,
                             ac_cache_wait_t *ready) {
    ac_block_t *block = *wait;
    *wait = NULL;
    block->ticket.key = AC_KEY_NONE;
    ready->blocks++;
    ready->bytes += entry->size;
    ready->requested += block->requested;
    cache->room -= entry->charge;
    block->link = entry->top;
    entry->top = block;
}

void ac_cache_ripen(ac_cache_t *cache) {
    uint64_t reached = reached_by(cache);
    bool told = ac_history_is_on();
    ac_cache_wait_t ready[AC_FLOWS] = {{0, 0, 0}, {0, 0, 0}};
    for (int word = 0; word < AC_CACHE_WORDS; word++) {
        ac_entry_t *entries = &cache->entry[word * 64];
        ac_block_t **waits = &cache->wait[word * 64];
        uint64_t stays = 0;
        for (uint64_t left = cache->parked[word]; left; left &= left - 1) {
            unsigned i = (unsigned)__builtin_ctzll(left);
            ac_entry_t *entry = &entries[i];
            const ac_block_t *last = waits[i];
            if (!last)
                continue;
            ac_cache_wait_t *of_flow = &ready[ac_cache_flow(entry->size)];
            if (last->link == last && !(entry->size & AC_ENTRY_FLAGS) && !told) {
                if (last->ticket.epoch <= reached) {
                    gather_one(cache, entry, &waits[i], of_flow);
                    continue;
                }
            } else {
                gather(cache, entry, &waits[i], reached, true, of_flow);
            }
            if (waits[i])
                stays |= left & -left;
        }
        cache->parked[word] = stays;
    }
    for (int flow = 0; flow < AC_FLOWS; flow++)
        ac_cache_count_ready(cache, flow, &ready[flow]);
}

/* Counts a waiting block that leaves the cache.  The sums of the account do not change, only the holder does. */
static void count_unparked(ac_cache_t *cache, const ac_block_t *block) {
    int flow = ac_cache_flow(block->size);
    ac_cache_wait_t *const both[] = {&cache->tally->side[flow].waiting,
                                     &cache->tally->waiting_absorbed[flow]};
    for (int i = 0; i < 2; i++) {
        ac_tally_add(&both[i]->blocks, (uint64_t)-1);
        ac_tally_add(&both[i]->bytes, -block->size);
        ac_tally_add(&both[i]->requested, -block->requested);
    }
    ac_cache_count_moved(cache, -1, block->size);
}

void ac_cache_leave_waiting(ac_cache_t *cache, ac_block_t *block, uint64_t reached) {
    count_unparked(cache, block);
    ac_block_uncache(block);
    if (block->ticket.epoch <= reached) {
        ac_segment_finish(block);
        return;
    }
    block->ticket.ordered = false; /* clears a value from an earlier use of the block */
    ac_retired_put(block);
}

bool ac_cache_unpark(ac_cache_t *cache, ac_entry_t *entry, bool all) {
    ac_block_t **wait = ac_cache_wait(cache, entry), *last = *wait, *block;
    bool any = false;
    uint64_t reached = AC_FAILPOINT(waiting_flushed) ? UINT64_MAX
                       : last                        ? ac_fence_reached_own(cache->timeline)
                                                     : 0;
    while (last && (all || last->link->ticket.epoch <= reached)) {
        block = last->link;
        last->link = block->link;
        if (block == last)
            *wait = last = NULL;
        any = true;
        ac_cache_leave_waiting(cache, block, reached);
    }
    return any;
}

/* Frees beside work that wait in the entry of their size (thread_cache.h), as far as one look tells so:
 * inline, for the hook of such a free.  By the owner from inside. */
#ifndef AC_PARK_H
#define AC_PARK_H

#include "allocator/cache/thread_cache.h"

/* A room is that of two figures, allocated and active: of the one that has less of it.  `lead`:
 * how much more active has, as far as that is known.  A block that waits is freed, and active as
 * before. */
AC_CACHE_HOT void ac_room_freed(int64_t *room, int64_t *lead, int64_t n) {
    int64_t ahead = *lead;
    *lead = ahead - n;
    if (ahead > 0)
        *room += ahead < n ? ahead : n;
}

/* The figures of what waits follow; `side`: of its size. */
AC_CACHE_HOT void ac_cache_count_waiting(ac_cache_t *cache, ac_cache_side_t *side,
                                         const ac_block_t *block) {
    uint64_t size = block->size;
    ac_cache_room_t *lead = &cache->lead[ac_cache_flow(size)];
    uint64_t requested = atomic_load_explicit(&block->requested, memory_order_relaxed);
    ac_tally_add(&side->flow.given, 1);
    ac_tally_add(&side->flow.given_bytes, size);
    ac_tally_add(&side->flow.given_requested, requested);
    ac_tally_add(&side->waiting.blocks, 1);
    ac_tally_add(&side->waiting.bytes, size);
    ac_tally_add(&side->waiting.requested, requested);
    ac_tally_add(&cache->tally->fenced, 1);
    ac_room_freed(&side->room.blocks, &lead->blocks, 1);
    ac_room_freed(&side->room.bytes, &lead->bytes, (int64_t)size);
}

/* A fence is due: whether nearly all frees since the last time waited.  Then most of so many handouts
 * need not be told from earlier work. */
void ac_cache_note_due(ac_cache_t *cache);

/* The block, which was freed, waits in the cache from now on: in an entry, or loose. */
AC_CACHE_HOT void ac_cache_await(ac_cache_t *cache, ac_cache_side_t *side, ac_block_t *block,
                                 uint64_t target, uint64_t share) {
    ac_cache_count_waiting(cache, side, block);
    AC_BLOCK_SET(block, ticket.epoch, target);
    block->ticket.key = AC_KEY_OWN;
    block->ticket.all = false;
    ac_block_set_state(block, AC_BLOCK_CACHED);
    if (__builtin_expect(ac_fence_want_own(cache->timeline, ac_fence_weight(share, block->size)), 0))
        ac_cache_note_due(cache);
}

static inline ac_block_t **ac_cache_wait(ac_cache_t *cache, const ac_entry_t *entry) {
    return &cache->wait[entry - cache->entry];
}

/* Blocks wait in the entry. */
static inline void ac_cache_note_parked(ac_cache_t *cache, const ac_entry_t *entry) {
    size_t i = (size_t)(entry - cache->entry);
    cache->parked[i / 64] |= (uint64_t)1 << i % 64;
}

AC_CACHE_HOT void ac_cache_park(ac_cache_t *cache, const ac_entry_t *entry, ac_block_t *block,
                                uint64_t target) {
    ac_block_t **wait = ac_cache_wait(cache, entry), *last = *wait;
    block->list_next = block;
    if (__builtin_expect(last != NULL, 0)) {
        block->list_next = last->list_next;
        last->list_next = block;
    }
    *wait = block;
    ac_cache_note_parked(cache, entry);
    ac_cache_await(cache, entry->side, block, target, cache->share);
}

/* Whether a block that is freed now and not ready may wait here; `side`: of its size. */
AC_CACHE_HOT bool ac_cache_may_wait(const ac_cache_t *cache, const ac_cache_side_t *side,
                                    uint64_t size) {
    return side->waiting.bytes + size <= cache->may_wait[ac_cache_flow(size)];
}

/* The block, which ac_cache_give_handed_or_rest found touched, waits in its entry, and the owner is inside no
 * more.  False: ac_cache_give_rest knows. */
AC_CACHE_HOT bool ac_cache_park_rest(ac_cache_t *cache, ac_block_t *block) {
    uint64_t target, size = block->size;
    const ac_entry_t *own = ac_cache_entry(cache, size);
    if (own->size != size || !ac_order_awaits_alone(cache->timeline, &block->ticket, &target) ||
        !ac_cache_may_wait(cache, own->side, size))
        return false;
    AC_WINDOW(free_owned);
    block->home = cache;
    ac_cache_park(cache, own, block, target);
    ac_cache_leave(cache);
    return true;
}

#endif

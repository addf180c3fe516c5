/* Recently freed blocks kept for exact reuse (allocator_int.h); all under the allocator's lock.
 */
#include "allocator/allocator_int.h"

bool ac_recent_keep(ac_block_t *block) {
    ac_segment_t *segment = block->segment;
    ac_arena_t *arena = segment->arena;
    int pool = segment->pool;
    unsigned most = arena->allocator->settings.recent;
    if (most == 0 || segment->tainted || (segment->range && block->size > AC_RANGE_KEEP))
        return false;
    unsigned turn = arena->recent_turn[pool] < most ? arena->recent_turn[pool] : 0;
    ac_block_t *oldest = arena->recent[pool][turn];
    arena->recent[pool][turn] = block;
    arena->recent_turn[pool] = turn + 1;
    ac_segment_count_finished(block);
    block->state = AC_BLOCK_RECENT;
    if (oldest)
        ac_segment_coalesce(oldest);
    return true;
}

ac_block_t *ac_recent_take(ac_arena_t *arena, int pool, uint64_t size) {
    for (unsigned i = 0; i < AC_RECENT; i++) {
        ac_block_t *block = arena->recent[pool][i];
        if (!block || block->size != size)
            continue;
        arena->recent[pool][i] = NULL;
        arena->recent_turn[pool] = i; /* the empty entry comes first */
        return block;
    }
    return NULL;
}

bool ac_recent_flush(ac_arena_t *arena) {
    bool any = false;
    for (int pool = AC_POOL_SMALL; pool < AC_POOL_KINDS; pool++)
        for (unsigned i = 0; i < AC_RECENT; i++) {
            ac_block_t *block = arena->recent[pool][i];
            arena->recent[pool][i] = NULL;
            if (block)
                ac_segment_coalesce(block);
            any |= block != NULL;
        }
    return any;
}

void ac_recent_forget(ac_arena_t *arena, const ac_segment_t *segment) {
    for (int pool = AC_POOL_SMALL; pool < AC_POOL_KINDS; pool++)
        for (unsigned i = 0; i < AC_RECENT; i++) {
            ac_block_t *block = arena->recent[pool][i];
            if (block && (!segment || block->segment == segment))
                arena->recent[pool][i] = NULL;
        }
}

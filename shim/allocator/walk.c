/* All segments and blocks of an allocator, for those who write them down. */
#include "allocator/allocator_int.h"
#include "allocator/retired/retired.h"

typedef struct {
    void (*visit)(const ac_item_t *item, void *arg);
    void *arg;
    ac_item_t item; /* what the segment's items have in common */
} walk_t;

static bool is_memory(ac_block_state_t state) {
    return state == AC_BLOCK_FREE || state == AC_BLOCK_ALLOCATED || state == AC_BLOCK_RETIRED ||
           state == AC_BLOCK_CACHED;
}

static void tell(ac_block_t *block, void *arg) {
    const walk_t *walk = arg;
    ac_item_t item = walk->item;
    item.address = ac_block_address(block);
    item.size = block->size;
    item.state = atomic_load_explicit(&block->state, memory_order_relaxed);
    item.captured = ac_block_is_held(block);
    if (item.state == AC_BLOCK_ALLOCATED || item.state == AC_BLOCK_RETIRED)
        item.requested = atomic_load_explicit(&block->requested, memory_order_relaxed);
    if (is_memory(item.state))
        walk->visit(&item, walk->arg);
}

static void walk_segment(walk_t *walk, const ac_segment_t *segment) {
    walk->item = (ac_item_t){.address = segment->address,
                             .size = segment->size,
                             .segment = true,
                             .paged = segment->range != NULL,
                             .small = segment->pool == AC_POOL_SMALL};
    walk->visit(&walk->item, walk->arg);
    walk->item.segment = false;
    ac_segment_each(segment, tell, walk);
}

void ac_allocator_walk(ac_allocator_t *allocator, void (*visit)(const ac_item_t *item, void *arg),
                       void *arg) {
    walk_t walk = {.visit = visit, .arg = arg};
    ac_lock(&allocator->lock);
    ac_retired_drain_all(allocator); /* as the statistics do: both tell the same */
    for (const ac_arena_t *arena = allocator->arenas; arena; arena = arena->next)
        for (const ac_segment_t *segment = arena->segments; segment; segment = segment->next)
            walk_segment(&walk, segment);
    ac_unlock(&allocator->lock);
}

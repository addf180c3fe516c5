/* Segments that leave service, or that lose their context: each room that keeps something of them is
 * called in turn, space/ last. */
#include "allocator/allocator_int.h"

static void let_go(ac_block_t *block, void *unused) {
    (void)unused;
    if (block->state == AC_BLOCK_RETIRED)
        ac_retired_remove(block);
}

void ac_arena_lose(ac_segment_t *segment) {
    for (ac_block_t *block = segment->first; block; block = block->next)
        if (ac_slab_is_aside(block))
            ac_ledger_remove(&segment->arena->retired->ledger, &block->due);
    ac_segment_each(segment, let_go, NULL);
    ac_segment_remove(segment, true);
}

void ac_arena_forget_stale(ac_allocator_t *allocator, uint64_t address, uint64_t size) {
    const uint64_t end = address + size;
    for (uint64_t page = address; page < end; page += AC_SEGMENT_ALIGN) {
        ac_arena_t *owner = ac_page_map_owner(page);
        if (owner)
            ac_caches_drop(owner);
    }
    ac_lock(&allocator->lock);
    for (uint64_t page = address; page < end; page += AC_SEGMENT_ALIGN) {
        const ac_arena_t *owner = ac_page_map_owner(page);
        if (owner && owner->allocator == allocator)
            ac_arena_lose(ac_page_map_find(page)->segment);
    }
    ac_unlock(&allocator->lock);
}

void ac_arena_taint(ac_segment_t *segment) {
    ac_retired_unorder(segment);
    ac_segment_taint(segment);
}

void ac_allocator_drop_records(ac_allocator_t *allocator) {
    /* Threads free what they hold without the lock: not now. */
    if (ac_caches_freeze(allocator))
        ac_slabs_drop_records(&allocator->slots);
    allocator->slots.left = allocator->slots.count;
    ac_caches_thaw(allocator);
}

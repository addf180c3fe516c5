/* Segments that leave service, or whose context has gone: the rooms that keep something of them are
 * told in turn, space/ last. */
#include "allocator/allocator_int.h"

void ac_arena_forget_stale(uint64_t address, uint64_t size) {
    for (uint64_t page = address; page < address + size; page += AC_SEGMENT_ALIGN) {
        ac_arena_t *owner = ac_page_map_owner(page);
        if (owner)
            ac_caches_drop(owner);
    }
}

ac_segment_t *ac_arena_add(ac_arena_t *arena, int pool, uint64_t address, uint64_t size) {
    for (uint64_t page = address; page < address + size; page += AC_SEGMENT_ALIGN) {
        ac_arena_t *owner = ac_page_map_owner(page);
        if (owner && owner->allocator != arena->allocator)
            return NULL;
        if (owner)
            ac_arena_lose(ac_page_map_find(page)->segment);
    }
    return ac_segment_add(&arena->space, pool, address, size);
}

static void let_go(ac_block_t *block, void *unused) {
    (void)unused;
    if (block->state == AC_BLOCK_HELD)
        ac_held_forget(block);
}

void ac_arena_lose(ac_segment_t *segment) {
    ac_pending_forget(segment);
    ac_ordered_forget(segment);
    ac_segment_each(segment, let_go, NULL);
    ac_segment_remove(segment, true);
}

void ac_arena_taint(ac_segment_t *segment) {
    ac_ordered_unbind(segment);
    ac_segment_taint(segment);
}

void ac_allocator_drop_records(ac_allocator_t *allocator) {
    /* Threads free what they hold without the lock: not now. */
    if (ac_caches_freeze(allocator))
        ac_slabs_drop_records(&allocator->slots);
    allocator->slots.left = allocator->slots.count;
    ac_caches_thaw(allocator);
}

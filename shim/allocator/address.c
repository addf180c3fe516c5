/* What lies at an address: blocks that are named from outside, and their segments. */
#include "allocator/allocator_int.h"

/* Lock the allocator that owns `address`; NULL: nobody does. */
static ac_arena_t *lock_owner(uint64_t address) {
    ac_arena_t *arena = ac_page_map_owner(address);
    if (!arena)
        return NULL;
    pthread_mutex_lock(&arena->allocator->lock);
    if (ac_page_map_owner(address) == arena)
        return arena;
    pthread_mutex_unlock(&arena->allocator->lock);
    return NULL;
}

ac_status_t ac_allocator_lock_block(uint64_t address, ac_block_t **found,
                                    ac_allocator_t **locked) {
    ac_arena_t *arena = ac_page_map_owner(address);
    if (!arena)
        return AC_NOT_OURS;
    pthread_mutex_lock(&arena->allocator->lock);
    ac_block_t *block = ac_page_map_look(address, arena);
    if ((!block || block->state == AC_BLOCK_SLAB) && ac_page_map_owner(address) == arena)
        block = ac_slab_get(address);
    if (block && block->state == AC_BLOCK_ALLOCATED) {
        *found = block;
        *locked = arena->allocator;
        return AC_OK;
    }
    bool gone = ac_page_map_owner(address) != arena;
    pthread_mutex_unlock(&arena->allocator->lock);
    return gone ? AC_NOT_OURS : AC_BAD_ADDRESS;
}

ac_status_t ac_block_mark_used(uint64_t address) {
    ac_block_t *block;
    ac_allocator_t *allocator;
    ac_status_t status = ac_allocator_lock_block(address, &block, &allocator);
    if (status != AC_OK)
        return status;
    ac_fence_line_t *line = &block->segment->arena->line;
    pthread_mutex_unlock(&allocator->lock);
    ac_fence_submitted(line);
    return AC_OK;
}

ac_status_t ac_block_taint(uint64_t address, bool *fresh) {
    ac_block_t *block;
    ac_allocator_t *allocator;
    ac_status_t status = ac_allocator_lock_block(address, &block, &allocator);
    if (status != AC_OK)
        return status;
    *fresh = false;
    if (block->segment->range) {
        ac_range_pin(block);
    } else if (!block->segment->tainted) {
        *fresh = true;
        ac_segment_taint(block->segment);
    }
    pthread_mutex_unlock(&allocator->lock);
    if (*fresh)
        ac_caches_recall(allocator, NULL);
    return AC_OK;
}

ac_status_t ac_block_pin(uint64_t address) {
    ac_block_t *block;
    ac_allocator_t *allocator;
    ac_status_t status = ac_allocator_lock_block(address, &block, &allocator);
    if (status != AC_OK)
        return status;
    if (block->segment->range)
        ac_range_pin(block);
    pthread_mutex_unlock(&allocator->lock);
    return AC_OK;
}

ac_arena_t *ac_block_arena(uint64_t address) {
    return ac_page_map_owner(address);
}

ac_status_t ac_block_find(uint64_t address, ac_block_info_t *info) {
    ac_arena_t *arena = lock_owner(address);
    if (!arena)
        return AC_NOT_OURS;
    /* A segment's blocks leave no gap, but for pages of a range that are under way. */
    const ac_block_t *block = ac_page_map_find(address);
    ac_block_t shown;
    if (!block) {
        pthread_mutex_unlock(&arena->allocator->lock);
        return AC_NOT_OURS;
    }
    if (block->state == AC_BLOCK_SLAB)
        block = ac_slab_at(block, address, &shown);
    *info = (ac_block_info_t){.arena = arena,
                              .address = block->address,
                              .size = block->size,
                              .requested = block->requested,
                              .segment_address = block->segment->address,
                              .segment_size = block->segment->size,
                              .allocated = block->state == AC_BLOCK_ALLOCATED,
                              .async = block->state == AC_BLOCK_ALLOCATED && block->async,
                              .paged = block->segment->range != NULL};
    pthread_mutex_unlock(&arena->allocator->lock);
    return AC_OK;
}

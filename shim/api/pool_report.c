/* What is in private pools. */
#include "api/pools_int.h"

#include <stdlib.h>

static const accel_pool_id_t none = {0, 0};

accel_status_t accel_pool_bytes(accel_pool_id_t id, int device, size_t *reserved,
                                size_t *allocated) {
    size_t of_segments = 0, of_blocks = 0;
    ac_lock(&ac_pools_lock);
    const ac_pool_t *pool = ac_pool_named(id);
    for (ac_pool_line_t *line = pool ? pool->lines : NULL; line; line = line->next) {
        of_segments += line->device == device ? line->reserved : 0;
        of_blocks += line->device == device ? line->allocated : 0;
    }
    ac_unlock(&ac_pools_lock);
    if (!pool || ac_api_need(device) != ACCEL_OK)
        return ACCEL_ERROR_INVALID;
    if (reserved)
        *reserved = of_segments;
    if (allocated)
        *allocated = of_blocks;
    return ACCEL_OK;
}

accel_status_t accel_pool_check_live(accel_pool_id_t id, int device, void *const *blocks,
                                     size_t count) {
    static uint64_t round; /* under the lock */
    size_t live = 0, known = 0;
    if ((count && !blocks) || ac_api_need(device) != ACCEL_OK)
        return ACCEL_ERROR_INVALID;
    ac_lock(&ac_pools_lock);
    round++;
    const ac_pool_t *pool = ac_pool_named(id);
    for (ac_pool_line_t *line = pool ? pool->lines : NULL; line; line = line->next)
        for (ac_pool_segment_t *segment = line->segments; segment; segment = segment->next)
            for (ac_pool_block_t *block = segment->first; block; block = block->next)
                live += line->device == device && block->state == AC_POOL_USED;
    for (size_t i = 0; i < count; i++) {
        ac_pool_block_t *block = ac_pool_block_at((uint64_t)(uintptr_t)blocks[i]);
        if (!block || block->named == round || block->segment->line->pool != pool ||
            block->segment->line->device != device)
            continue;
        block->named = round; /* the same one twice is one */
        known++;
    }
    ac_unlock(&ac_pools_lock);
    return pool && live == count && known == count ? ACCEL_OK : ACCEL_ERROR_INVALID;
}

static int by_address(const void *a, const void *b) {
    const ac_pool_copy_t *first = a, *second = b;
    return first->address < second->address ? -1 : first->address > second->address;
}

ac_pool_copy_t *ac_pool_copies(accel_pool_id_t id, size_t *count) {
    ac_pool_copy_t *copies = NULL;
    size_t room = 0;
    *count = 0;
    ac_lock(&ac_pools_lock);
    for (int pass = 0; pass < 2; pass++) {
        room = *count;
        *count = 0;
        if (pass && room && !(copies = malloc(room * sizeof *copies))) {
            *count = room;
            break;
        }
        for (ac_pool_t *pool = ac_pools; pool; pool = pool->next)
            for (ac_pool_line_t *line = pool->lines; line; line = line->next)
                for (ac_pool_segment_t *segment = line->segments; segment;
                     segment = segment->next)
                    for (ac_pool_block_t *block = segment->first; block; block = block->next) {
                        if (!ac_pool_is(id, none) && !ac_pool_is(id, pool->id))
                            continue;
                        if (pass)
                            copies[*count] =
                                (ac_pool_copy_t){block->address, block->size,  segment->address,
                                                 segment->size,  block->bytes, line->stream,
                                                 pool->id,       line->device, block->state,
                                                 segment->small, false, block->stack};
                        ++*count;
                    }
    }
    ac_unlock(&ac_pools_lock);
    if (copies)
        qsort(copies, *count, sizeof *copies, by_address);
    return copies;
}

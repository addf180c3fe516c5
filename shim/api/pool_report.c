/* Figures and copies of private pools. */
#include "api/pools_int.h"

#include "allocator/space/lay_out.h"

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
    static uint32_t round; /* under the lock */
    size_t live = 0, known = 0;
    if ((count && !blocks) || ac_api_need(device) != ACCEL_OK)
        return ACCEL_ERROR_INVALID;
    ac_lock(&ac_pools_lock);
    round++;
    const ac_pool_t *pool = ac_pool_named(id);
    for (ac_pool_line_t *line = pool ? pool->lines : NULL; line; line = line->next)
        for (const ac_segment_t *segment = line->space.segments; segment; segment = segment->next)
            live += line->device == device ? segment->allocated : 0;
    for (size_t i = 0; i < count; i++) {
        ac_block_t *block = ac_pool_block_at((uint64_t)(uintptr_t)blocks[i]);
        const ac_pool_line_t *line = block ? ac_pool_line_of(block->segment) : NULL;
        if (!block || block->named == round || line->pool != pool || line->device != device)
            continue;
        block->named = round; /* the same one twice is one */
        known++;
    }
    ac_unlock(&ac_pools_lock);
    return pool && live == count && known == count ? ACCEL_OK : ACCEL_ERROR_INVALID;
}

/* --- copies --- */

static void lay_out(ac_layout_t *layout, const ac_pool_t *pool, int device) {
    const ac_segment_t *segment;
    layout->segments = layout->blocks = 0;
    for (size_t i = 0; (segment = ac_pool_segment_number(i)); i++) {
        const ac_pool_line_t *line = ac_pool_line_of(segment);
        if ((pool && line->pool != pool) || (device >= 0 && line->device != device))
            continue;
        ac_segment_lay_out(segment, NULL, layout);
        if (layout->segments > layout->segment_room)
            continue;
        ac_laid_segment_t *laid = &layout->segment[layout->segments - 1];
        laid->pool[0] = line->pool->id.first;
        laid->pool[1] = line->pool->id.second;
        laid->stream = (uint64_t)(uintptr_t)line->stream;
        laid->life = line->life;
        laid->device = line->device;
    }
}

bool ac_pool_lay_out(ac_layout_t *layout, const ac_pool_t *pool, int device) {
    *layout = (ac_layout_t){.segment = NULL};
    lay_out(layout, pool, device);
    if (!ac_layout_make_room(layout)) {
        ac_layout_drop(layout);
        return false;
    }
    lay_out(layout, pool, device);
    return true;
}

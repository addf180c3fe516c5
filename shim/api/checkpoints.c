/* Restores a former state of a private pool: the blocks that the program holds of it, and their places.  The
 * contents of the blocks stay as they are. */
#include "api/pools_int.h"

#include <stdlib.h>

struct accel_checkpoint {
    accel_pool_id_t pool;
    int device;
    ac_layout_t held; /* blocks that the program held, and their segments */
};

/* For every segment of the pool on the device, with its line. */
#define EACH_SEGMENT(pool, of_device, line, segment)                                             \
    for (ac_pool_line_t *line = (pool)->lines; line; line = line->next)                          \
        for (ac_segment_t *segment = line->device == (of_device) ? line->space.segments : NULL;  \
             segment; segment = segment->next)

/* Leaves only blocks that the program holds, and their segments. */
static void keep_held(ac_layout_t *layout) {
    size_t segments = 0, blocks = 0;
    for (size_t i = 0; i < layout->segments; i++) {
        ac_laid_segment_t segment = layout->segment[i];
        size_t first = blocks;
        for (size_t j = segment.first; j < segment.first + segment.count; j++)
            if (layout->block[j].state == AC_LAID_ALLOCATED)
                layout->block[blocks++] = layout->block[j];
        segment.first = first;
        segment.count = blocks - first;
        if (segment.count)
            layout->segment[segments++] = segment;
    }
    layout->segments = segments;
    layout->blocks = blocks;
}

/* Under the lock. */
static bool copy_held(ac_layout_t *layout, const ac_pool_t *pool, int device) {
    bool made = ac_pool_lay_out(layout, pool, device);
    if (made)
        keep_held(layout);
    return made;
}

accel_status_t accel_get_checkpoint_state(int device, accel_pool_id_t id,
                                          accel_checkpoint_t **checkpoint) {
    accel_status_t status = ac_api_need(device);
    if (status != ACCEL_OK || !checkpoint)
        return status == ACCEL_OK ? ACCEL_ERROR_INVALID : status;
    accel_checkpoint_t *made = calloc(1, sizeof *made);
    if (!made)
        return ACCEL_ERROR_OUT_OF_MEMORY;
    *made = (accel_checkpoint_t){.pool = id, .device = device};
    ac_lock(&ac_pools_lock);
    const ac_pool_t *pool = ac_pool_named(id);
    status = !pool                                   ? ACCEL_ERROR_INVALID
             : copy_held(&made->held, pool, device) ? ACCEL_OK
                                                    : ACCEL_ERROR_OUT_OF_MEMORY;
    ac_unlock(&ac_pools_lock);
    if (status != ACCEL_OK) {
        free(made);
        return status;
    }
    *checkpoint = made;
    return ACCEL_OK;
}

void accel_release_checkpoint_state(accel_checkpoint_t *checkpoint) {
    if (checkpoint)
        ac_layout_drop(&checkpoint->held);
    free(checkpoint);
}

/* --- work of other streams on what is there --- */

/* Returns true if work that the order of the line's stream does not cover may use the block, and came later
 * than the count `since` of ac_pools_used_elsewhere. */
static bool is_elsewhere(const ac_pool_line_t *line, const ac_block_t *block, uint64_t since) {
    if (block->state == AC_BLOCK_FREE)
        return false;
    return block->ticket.place > since || (!since && ac_pool_line_is_gone(line));
}

/* The caller holds the lock. */
static bool any_elsewhere(const ac_pool_t *pool, int device, uint64_t since) {
    EACH_SEGMENT(pool, device, line, segment)
    for (const ac_block_t *block = segment->first; block; block = block->next)
        if (is_elsewhere(line, block, since))
            return true;
    return false;
}

/* Waits for work of other streams on the pool's blocks.  Work up to the count *since is over then; 0: there
 * was none. */
static accel_status_t settle(const accel_checkpoint_t *checkpoint, uint64_t *since) {
    bool elsewhere = false;
    ac_lock(&ac_pools_lock);
    const ac_pool_t *pool = ac_pool_named(checkpoint->pool);
    if (pool)
        elsewhere = any_elsewhere(pool, checkpoint->device, 0);
    uint64_t now = ac_pools_used_elsewhere + 1; /* a stream that has gone counts nothing */
    if (elsewhere)
        ac_pools_used_elsewhere = now;
    ac_unlock(&ac_pools_lock);
    *since = 0;
    if (!pool || !elsewhere)
        return pool ? ACCEL_OK : ACCEL_ERROR_INVALID;
    ac_timeline_t *timeline = ac_pool_timeline(checkpoint->device);
    if (!timeline || ac_cuda_is_capturing(NULL))
        return ACCEL_ERROR_BUSY;
    ac_fence_submitted(timeline); /* by ways that no hook sees, maybe */
    *since = now;
    bool over = ac_fence_await(timeline, ac_fence_moment(timeline), AC_LATE_WAIT_NS);
    return over ? ACCEL_OK : ACCEL_ERROR_BUSY;
}

/* --- the state that comes back --- */

static const ac_laid_segment_t *laid_of(const ac_layout_t *held, const ac_segment_t *segment) {
    const ac_pool_line_t *line = ac_pool_line_of(segment);
    for (const ac_laid_segment_t *s = held->segment; s < held->segment + held->segments; s++)
        if (s->address == segment->address && s->size == segment->size &&
            s->stream == (uint64_t)(uintptr_t)line->stream && s->life == line->life)
            return s;
    return NULL;
}

/* Returns true if the pool still has all segments of the copy, for the streams that they were for. */
static bool has_all(const ac_pool_t *pool, int device, const ac_layout_t *held) {
    size_t found = 0;
    EACH_SEGMENT(pool, device, line, segment)
    found += laid_of(held, segment) != NULL;
    return found == held->segments;
}

static void restore(const ac_pool_t *pool, int device, const ac_layout_t *held) {
    EACH_SEGMENT(pool, device, line, segment) {
        const ac_laid_segment_t *laid = laid_of(held, segment);
        ac_pool_restore(segment, laid ? &held->block[laid->first] : NULL, laid ? laid->count : 0);
    }
}

/* Room for one at least: an empty list is no lack of memory. */
static void **addresses(const ac_layout_t *held) {
    void **list = calloc(held->blocks + 1, sizeof *list);
    for (size_t i = 0; list && i < held->blocks; i++)
        list[i] = (void *)(uintptr_t)held->block[i].address;
    return list;
}

/* Restores the state under the lock.  *before: blocks that the program held; *freed: their addresses.  On an
 * error nothing has changed. */
static accel_status_t carry_out(const accel_checkpoint_t *checkpoint, uint64_t since,
                                ac_layout_t *before, void ***freed) {
    const ac_layout_t *held = &checkpoint->held;
    int device = checkpoint->device;
    const ac_pool_t *pool = ac_pool_named(checkpoint->pool);
    if (!pool)
        return ACCEL_ERROR_INVALID;
    if (any_elsewhere(pool, device, since))
        return ACCEL_ERROR_BUSY;
    if (!has_all(pool, device, held))
        return ACCEL_ERROR_INVALID;
    if (!copy_held(before, pool, device) || !(*freed = addresses(before)) ||
        !ac_pool_reserve(held->blocks))
        return ACCEL_ERROR_OUT_OF_MEMORY;
    restore(pool, device, held);
    return ACCEL_OK;
}

static void tell(const ac_layout_t *held, accel_trace_action_t action, uint32_t stack) {
    for (const ac_laid_segment_t *s = held->segment; s < held->segment + held->segments; s++)
        for (size_t i = s->first; i < s->first + s->count; i++)
            ac_history(action, s->device, held->block[i].address, held->block[i].requested,
                       (void *)(uintptr_t)s->stream, (accel_pool_id_t){s->pool[0], s->pool[1]},
                       stack);
}

static void tell_restored(const ac_layout_t *before, const ac_layout_t *held) {
    uint32_t stack = ac_history_stack(ACCEL_CONTEXT_ALL, NULL);
    tell(before, ACCEL_TRACE_FREE_REQUESTED, stack);
    tell(before, ACCEL_TRACE_FREE_COMPLETED, stack);
    tell(held, ACCEL_TRACE_ALLOC, stack);
}

accel_status_t accel_set_checkpoint_pool_state(const accel_checkpoint_t *checkpoint,
                                               accel_checkpoint_delta_t *delta) {
    uint64_t since;
    ac_layout_t before = {.segment = NULL};
    void **freed = NULL;
    if (!checkpoint || (delta && delta->size < sizeof *delta))
        return ACCEL_ERROR_INVALID;
    void **allocated = addresses(&checkpoint->held);
    if (!allocated)
        return ACCEL_ERROR_OUT_OF_MEMORY;
    accel_status_t status = settle(checkpoint, &since);
    if (status == ACCEL_OK) {
        ac_lock(&ac_pools_lock);
        status = carry_out(checkpoint, since, &before, &freed);
        ac_unlock(&ac_pools_lock);
    }
    if (status == ACCEL_OK)
        tell_restored(&before, &checkpoint->held);
    if (status == ACCEL_OK && delta) {
        *delta = (accel_checkpoint_delta_t){delta->size, freed, before.blocks, allocated,
                                            checkpoint->held.blocks};
        freed = allocated = NULL;
    }
    ac_layout_drop(&before);
    free(freed);
    free(allocated);
    return status;
}

/* Restores a former state of a private pool: the blocks that the program holds of it, and their places.  The
 * contents of the blocks stay as they are. */
#include "api/pools_int.h"

#include <stdlib.h>

struct accel_checkpoint {
    accel_pool_id_t pool;
    int device;
    ac_pool_copy_t held;
};

/* For every segment of the pool on the device, with its line. */
#define EACH_SEGMENT(pool, of_device, line, segment)                                             \
    for (ac_pool_line_t *line = (pool)->lines; line; line = line->next)                          \
        for (ac_segment_t *segment = line->device == (of_device) ? line->space.segments : NULL;  \
             segment; segment = segment->next)

accel_status_t accel_get_checkpoint_state(int device, accel_pool_id_t id,
                                          accel_checkpoint_t **checkpoint) {
    accel_status_t status = ac_api_need(device);
    if (status != ACCEL_OK || !checkpoint || !accel_pool_use_count(id))
        return status == ACCEL_OK ? ACCEL_ERROR_INVALID : status;
    accel_checkpoint_t *made = calloc(1, sizeof *made);
    if (made)
        *made = (accel_checkpoint_t){.pool = id, .device = device};
    if (!made || !ac_pool_copy(&made->held, id, device, true)) {
        free(made);
        return ACCEL_ERROR_OUT_OF_MEMORY;
    }
    *checkpoint = made;
    return ACCEL_OK;
}

void accel_release_checkpoint_state(accel_checkpoint_t *checkpoint) {
    if (checkpoint)
        ac_pool_copy_drop(&checkpoint->held);
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
    return ac_fence_settle(timeline, AC_LATE_WAIT_NS) ? ACCEL_OK : ACCEL_ERROR_BUSY;
}

/* --- the state that comes back --- */

static const ac_pool_part_t *part_of(const ac_pool_copy_t *copy, const ac_segment_t *segment) {
    const ac_pool_line_t *line = ac_pool_line_of(segment);
    for (const ac_pool_part_t *part = copy->part; part < copy->part + copy->parts; part++)
        if (part->address == segment->address && part->size == segment->size &&
            part->stream == line->stream && part->life == line->life)
            return part;
    return NULL;
}

/* Returns true if the pool still has all segments of the copy, for the streams that they were for. */
static bool has_all(const ac_pool_t *pool, int device, const ac_pool_copy_t *copy) {
    size_t found = 0;
    EACH_SEGMENT(pool, device, line, segment)
    found += part_of(copy, segment) != NULL;
    return found == copy->parts;
}

static void restore(const ac_pool_t *pool, int device, const ac_pool_copy_t *copy) {
    EACH_SEGMENT(pool, device, line, segment) {
        const ac_pool_part_t *part = part_of(copy, segment);
        ac_pool_restore(segment, part ? &copy->place[part->first] : NULL, part ? part->count : 0);
    }
}

/* Room for one at least: an empty list is no lack of memory. */
static void **addresses(const ac_pool_copy_t *copy) {
    void **list = calloc(copy->places + 1, sizeof *list);
    for (size_t i = 0; list && i < copy->places; i++)
        list[i] = (void *)(uintptr_t)copy->place[i].address;
    return list;
}

/* Restores the state under the lock.  *before: blocks that the program held; *freed: their addresses.  On an
 * error nothing has changed. */
static accel_status_t carry_out(const accel_checkpoint_t *checkpoint, uint64_t since,
                                ac_pool_copy_t *before, void ***freed) {
    const ac_pool_copy_t *held = &checkpoint->held;
    int device = checkpoint->device;
    const ac_pool_t *pool = ac_pool_named(checkpoint->pool);
    if (!pool)
        return ACCEL_ERROR_INVALID;
    if (any_elsewhere(pool, device, since))
        return ACCEL_ERROR_BUSY;
    if (!has_all(pool, device, held))
        return ACCEL_ERROR_INVALID;
    if (!ac_pool_copy_here(before, checkpoint->pool, device, true) ||
        !(*freed = addresses(before)) || !ac_pool_reserve(held->places))
        return ACCEL_ERROR_OUT_OF_MEMORY;
    restore(pool, device, held);
    return ACCEL_OK;
}

static void tell(const ac_pool_copy_t *copy, accel_trace_action_t action, uint32_t stack) {
    for (const ac_pool_part_t *part = copy->part; part < copy->part + copy->parts; part++)
        for (size_t i = part->first; i < part->first + part->count; i++)
            ac_history(action, part->device, copy->place[i].address, copy->place[i].bytes,
                       part->stream, part->pool, stack);
}

static void tell_restored(const ac_pool_copy_t *before, const ac_pool_copy_t *held) {
    uint32_t stack = ac_history_stack(ACCEL_CONTEXT_ALL, NULL);
    tell(before, ACCEL_TRACE_FREE_REQUESTED, stack);
    tell(before, ACCEL_TRACE_FREE_COMPLETED, stack);
    tell(held, ACCEL_TRACE_ALLOC, stack);
}

accel_status_t accel_set_checkpoint_pool_state(const accel_checkpoint_t *checkpoint,
                                               accel_checkpoint_delta_t *delta) {
    uint64_t since;
    ac_pool_copy_t before = {.part = NULL};
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
        *delta = (accel_checkpoint_delta_t){delta->size, freed, before.places, allocated,
                                            checkpoint->held.places};
        freed = allocated = NULL;
    }
    ac_pool_copy_drop(&before);
    free(freed);
    free(allocated);
    return status;
}

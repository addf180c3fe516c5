/* A former state of a private pool comes back: which blocks the program holds of it, and where.  What is
 * in them is not touched. */
#include "api/pools_int.h"

#include <stdlib.h>
#include <string.h>

/* Of a segment: blocks [first, first + count) of the checkpoint.  Segments without one are free memory,
 * then as now, and are not noted. */
typedef struct {
    uint64_t address, size;
    void *stream;
    uint64_t life;
    size_t first, count;
} part_t;

struct accel_checkpoint {
    accel_pool_id_t pool;
    int device;
    size_t parts, places;
    part_t *part;
    ac_pool_place_t *place;
};

/* Call `visit` for every segment of the pool on the device, with its line. */
#define EACH_SEGMENT(pool, of_device, line, segment)                                             \
    for (ac_pool_line_t *line = (pool)->lines; line; line = line->next)                          \
        for (ac_pool_segment_t *segment = line->device == (of_device) ? line->segments : NULL;   \
             segment; segment = segment->next)

/* --- the state as it is --- */

static size_t count_used(const ac_pool_segment_t *segment) {
    size_t count = 0;
    for (const ac_pool_block_t *block = segment->first; block; block = block->next)
        count += block->state == AC_POOL_USED;
    return count;
}

static void note_segment(accel_checkpoint_t *to, const ac_pool_segment_t *segment, size_t count) {
    to->part[to->parts++] = (part_t){.address = segment->address,
                                     .size = segment->size,
                                     .stream = segment->line->stream,
                                     .life = segment->line->life,
                                     .first = to->places,
                                     .count = count};
    for (const ac_pool_block_t *block = segment->first; block; block = block->next)
        if (block->state == AC_POOL_USED)
            to->place[to->places++] =
                (ac_pool_place_t){block->address, block->size, block->bytes};
}

/* Under the lock.  NULL: host memory is short. */
static accel_checkpoint_t *note_pool(const ac_pool_t *pool, int device) {
    size_t parts = 0, places = 0;
    EACH_SEGMENT(pool, device, line, segment) {
        size_t count = count_used(segment);
        parts += count > 0;
        places += count;
    }
    accel_checkpoint_t *made = calloc(1, sizeof *made);
    if (!made)
        return NULL;
    *made = (accel_checkpoint_t){.pool = pool->id,
                                 .device = device,
                                 .part = calloc(parts + 1, sizeof *made->part),
                                 .place = calloc(places + 1, sizeof *made->place)};
    if (!made->part || !made->place) {
        accel_release_checkpoint_state(made);
        return NULL;
    }
    EACH_SEGMENT(pool, device, line, segment) {
        size_t count = count_used(segment);
        if (count)
            note_segment(made, segment, count);
    }
    return made;
}

accel_status_t accel_get_checkpoint_state(int device, accel_pool_id_t id,
                                          accel_checkpoint_t **checkpoint) {
    accel_status_t status = ac_api_need(device);
    if (status != ACCEL_OK || !checkpoint)
        return status == ACCEL_OK ? ACCEL_ERROR_INVALID : status;
    ac_lock(&ac_pools_lock);
    const ac_pool_t *pool = ac_pool_named(id);
    accel_checkpoint_t *made = pool ? note_pool(pool, device) : NULL;
    ac_unlock(&ac_pools_lock);
    if (made)
        *checkpoint = made;
    return made ? ACCEL_OK : pool ? ACCEL_ERROR_OUT_OF_MEMORY : ACCEL_ERROR_INVALID;
}

void accel_release_checkpoint_state(accel_checkpoint_t *checkpoint) {
    if (!checkpoint)
        return;
    free(checkpoint->part);
    free(checkpoint->place);
    free(checkpoint);
}

/* --- work of other streams on what is there --- */

/* Whether the order of its stream says nothing of work on a block of the line, and from which count of
 * ac_pools_used_elsewhere on. */
static bool is_elsewhere(const ac_pool_line_t *line, const ac_pool_block_t *block,
                         uint64_t since) {
    if (block->state == AC_POOL_FREE)
        return false;
    return block->recorded > since || (!since && ac_pool_line_is_gone(line));
}

/* Under the lock. */
static bool any_elsewhere(const ac_pool_t *pool, int device, uint64_t since) {
    EACH_SEGMENT(pool, device, line, segment)
    for (const ac_pool_block_t *block = segment->first; block; block = block->next)
        if (is_elsewhere(line, block, since))
            return true;
    return false;
}

/* All work of other streams on the pool's blocks up to *since is over; 0: there was none. */
static accel_status_t settle(const accel_checkpoint_t *checkpoint, uint64_t *since) {
    bool all, elsewhere = false;
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
    if (!timeline || ac_cuda_is_capturing())
        return ACCEL_ERROR_BUSY;
    ac_fence_submitted(timeline); /* by ways that no hook sees, maybe */
    uint64_t target = ac_fence_target(timeline, &all);
    ac_fence_wait(timeline, all, target, AC_LATE_WAIT_NS);
    *since = now;
    return ac_fence_reached(timeline, all) >= target ? ACCEL_OK : ACCEL_ERROR_BUSY;
}

/* --- the state that comes back --- */

/* A segment of the pool, and the blocks that it gets. */
typedef struct {
    ac_pool_segment_t *segment;
    ac_pool_block_t *first;
} change_t;

/* What the history is told of a block that was held. */
typedef struct {
    size_t bytes;
    void *stream;
} was_t;

typedef struct {
    change_t *change;
    size_t changes;
    void **freed; /* blocks that were held, [frees] ... */
    was_t *was;   /* ... and what they were */
    size_t frees;
} plan_t;

static void drop_plan(plan_t *plan) {
    for (size_t i = 0; i < plan->changes; i++)
        ac_pool_drop_layout(plan->change[i].first);
    free(plan->change);
    free(plan->freed);
    free(plan->was);
}

static const part_t *part_of(const accel_checkpoint_t *checkpoint,
                             const ac_pool_segment_t *segment) {
    for (size_t i = 0; i < checkpoint->parts; i++) {
        const part_t *part = &checkpoint->part[i];
        if (part->address == segment->address && part->size == segment->size &&
            part->stream == segment->line->stream && part->life == segment->line->life)
            return part;
    }
    return NULL;
}

/* Under the lock; changes nothing. */
static accel_status_t make_plan(const accel_checkpoint_t *checkpoint, const ac_pool_t *pool,
                                plan_t *plan) {
    size_t segments = 0, used = 0, found = 0;
    EACH_SEGMENT(pool, checkpoint->device, line, segment) {
        segments++;
        used += count_used(segment);
    }
    plan->change = calloc(segments + 1, sizeof *plan->change);
    plan->freed = calloc(used + 1, sizeof *plan->freed);
    plan->was = calloc(used + 1, sizeof *plan->was);
    if (!plan->change || !plan->freed || !plan->was)
        return ACCEL_ERROR_OUT_OF_MEMORY;
    EACH_SEGMENT(pool, checkpoint->device, line, segment) {
        const part_t *part = part_of(checkpoint, segment);
        const ac_pool_place_t *place = part ? &checkpoint->place[part->first] : NULL;
        change_t change = {segment, ac_pool_lay_out(segment, place, part ? part->count : 0)};
        if (!change.first)
            return ACCEL_ERROR_OUT_OF_MEMORY;
        plan->change[plan->changes++] = change;
        found += part != NULL;
        for (const ac_pool_block_t *block = segment->first; block; block = block->next)
            if (block->state == AC_POOL_USED) {
                plan->was[plan->frees] = (was_t){block->bytes, line->stream};
                plan->freed[plan->frees++] = (void *)(uintptr_t)block->address;
            }
    }
    return found == checkpoint->parts ? ACCEL_OK : ACCEL_ERROR_INVALID;
}

/* The plan is carried out by the time that this returns ACCEL_OK, and else nothing has changed. */
static accel_status_t carry_out(const accel_checkpoint_t *checkpoint, uint64_t since,
                                plan_t *plan) {
    ac_lock(&ac_pools_lock);
    const ac_pool_t *pool = ac_pool_named(checkpoint->pool);
    accel_status_t status = pool ? ACCEL_OK : ACCEL_ERROR_INVALID;
    if (status == ACCEL_OK && any_elsewhere(pool, checkpoint->device, since))
        status = ACCEL_ERROR_BUSY;
    if (status == ACCEL_OK)
        status = make_plan(checkpoint, pool, plan);
    if (status == ACCEL_OK) {
        for (size_t i = 0; i < plan->changes; i++)
            ac_pool_replace(plan->change[i].segment, plan->change[i].first);
        plan->changes = 0;
    }
    ac_unlock(&ac_pools_lock);
    return status;
}

/* Room for one at least: what is empty is no lack of memory. */
static void **addresses(const ac_pool_place_t *place, size_t count) {
    void **list = calloc(count + 1, sizeof *list);
    for (size_t i = 0; list && i < count; i++)
        list[i] = (void *)(uintptr_t)place[i].address;
    return list;
}

static void tell(const accel_checkpoint_t *of, const plan_t *plan) {
    uint32_t stack = ac_history_stack(ACCEL_CONTEXT_ALL, NULL);
    for (size_t i = 0; i < plan->frees; i++)
        for (int action = ACCEL_TRACE_FREE_REQUESTED; action <= ACCEL_TRACE_FREE_COMPLETED;
             action++)
            ac_history((accel_trace_action_t)action, of->device,
                       (uint64_t)(uintptr_t)plan->freed[i], plan->was[i].bytes,
                       plan->was[i].stream, of->pool, stack);
    for (const part_t *part = of->part; part < of->part + of->parts; part++)
        for (size_t i = part->first; i < part->first + part->count; i++)
            ac_history(ACCEL_TRACE_ALLOC, of->device, of->place[i].address, of->place[i].bytes,
                       part->stream, of->pool, stack);
}

accel_status_t accel_set_checkpoint_pool_state(const accel_checkpoint_t *checkpoint,
                                               accel_checkpoint_delta_t *delta) {
    uint64_t since;
    plan_t plan = {.changes = 0};
    if (!checkpoint || (delta && delta->size < sizeof *delta))
        return ACCEL_ERROR_INVALID;
    void **allocated = addresses(checkpoint->place, checkpoint->places);
    if (!allocated)
        return ACCEL_ERROR_OUT_OF_MEMORY;
    accel_status_t status = settle(checkpoint, &since);
    if (status == ACCEL_OK)
        status = carry_out(checkpoint, since, &plan);
    if (status == ACCEL_OK)
        tell(checkpoint, &plan);
    if (status == ACCEL_OK && delta) {
        *delta = (accel_checkpoint_delta_t){delta->size, plan.freed, plan.frees, allocated,
                                            checkpoint->places};
        plan.freed = allocated = NULL;
    }
    drop_plan(&plan);
    free(allocated);
    return status;
}

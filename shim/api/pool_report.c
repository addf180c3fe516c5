/* Figures and copies of private pools. */
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

typedef struct {
    accel_pool_id_t pool;
    int device;
    bool held;
} wanted_t;

static bool is_wanted(const wanted_t *wanted, const ac_segment_t *segment) {
    const ac_pool_line_t *line = ac_pool_line_of(segment);
    return (ac_pool_is(wanted->pool, none) || ac_pool_is(wanted->pool, line->pool->id)) &&
           (wanted->device < 0 || wanted->device == line->device) &&
           (!wanted->held || (segment->allocated && line->pool->users));
}

/* Counts free blocks, too: two of them are never neighbours. */
static size_t most_places(const wanted_t *wanted, const ac_segment_t *segment) {
    return wanted->held ? segment->allocated : 2 * (size_t)segment->busy + 1;
}

static void note(ac_pool_copy_t *copy, const wanted_t *wanted, const ac_segment_t *segment) {
    const ac_pool_line_t *line = ac_pool_line_of(segment);
    ac_pool_part_t *part = &copy->part[copy->parts++];
    *part = (ac_pool_part_t){.address = segment->address,
                             .size = segment->size,
                             .pool = line->pool->id,
                             .device = line->device,
                             .stream = line->stream,
                             .life = line->life,
                             .small = segment->pool == AC_POOL_SMALL,
                             .first = copy->places};
    for (const ac_block_t *block = segment->first; block; block = block->next)
        if (!wanted->held || block->state == AC_BLOCK_ALLOCATED)
            copy->place[copy->places++] = (ac_pool_place_t){.address = ac_block_address(block),
                                                            .size = block->size,
                                                            .bytes = block->requested,
                                                            .state = block->state,
                                                            .stack = block->stack};
    part->count = copy->places - part->first;
}

bool ac_pool_copy_here(ac_pool_copy_t *copy, accel_pool_id_t pool, int device, bool held) {
    const wanted_t wanted = {pool, device, held};
    const ac_segment_t *segment;
    size_t parts = 0, places = 0;
    *copy = (ac_pool_copy_t){.part = NULL};
    for (size_t i = 0; (segment = ac_pool_segment_number(i)); i++)
        if (is_wanted(&wanted, segment)) {
            parts++;
            places += most_places(&wanted, segment);
        }
    copy->part = calloc(parts + 1, sizeof *copy->part);
    copy->place = calloc(places + 1, sizeof *copy->place);
    bool room = copy->part && copy->place;
    for (size_t i = 0; room && (segment = ac_pool_segment_number(i)); i++)
        if (is_wanted(&wanted, segment))
            note(copy, &wanted, segment);
    if (!room)
        ac_pool_copy_drop(copy);
    return room;
}

bool ac_pool_copy(ac_pool_copy_t *copy, accel_pool_id_t pool, int device, bool held) {
    ac_lock(&ac_pools_lock);
    bool made = ac_pool_copy_here(copy, pool, device, held);
    ac_unlock(&ac_pools_lock);
    return made;
}

void ac_pool_copy_drop(ac_pool_copy_t *copy) {
    free(copy->part);
    free(copy->place);
    *copy = (ac_pool_copy_t){.part = NULL};
}

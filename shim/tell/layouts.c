/* See layouts.h. */
#include "tell/layouts.h"

#include <stdlib.h>
#include <time.h>

#include "allocator/allocator.h"
#include "track/context.h"
#include "observe/holding.h"
#include "observe/raw.h"

enum { TRIES = 5 };

static void release(ac_layout_t *layout) {
    free(layout->segment);
    free(layout->block);
}

/* Room for what there was at the last try, and for what came since. */
static bool make_room(ac_layout_t *layout) {
    size_t segments = layout->segments + layout->segments / 8 + 16;
    size_t blocks = layout->blocks + layout->blocks / 8 + 256;
    release(layout);
    layout->segment = malloc(segments * sizeof *layout->segment);
    layout->block = malloc(blocks * sizeof *layout->block);
    layout->segment_room = layout->segment ? segments : 0;
    layout->block_room = layout->block ? blocks : 0;
    return layout->segment && layout->block;
}

/* Which stack asked for the blocks that the program holds, where that is recorded: without a lock of
 * the device. */
static void name_blocks(ac_layout_t *layout, const struct timespec *deadline) {
    for (size_t i = 0; i < layout->blocks; i++) {
        ac_laid_block_t *block = &layout->block[i];
        ac_holding_t holding;
        if (block->state != AC_LAID_ALLOCATED ||
            !ac_holding_get(block->address, deadline, &holding))
            continue;
        block->stack = holding.stack;
        block->since_ns = holding.time_ns;
    }
}

typedef struct {
    ac_layouts_t *all;
    struct timespec deadline;
    bool guarded;
} taking_t;

static void take(CUdevice device, ac_allocator_t *allocator, void *arg) {
    taking_t *taking = arg;
    ac_layout_t layout = {.ordinal = (int)device, .guarded = taking->guarded};
    bool done = false;
    for (int i = 0; i < TRIES && !done; i++) {
        done = ac_allocator_lay_out(allocator, &taking->deadline, &layout);
        if (!done && ((!layout.segments && !layout.blocks) || !make_room(&layout)))
            break;
    }
    if (done && atomic_load_explicit(&ac_recording, memory_order_relaxed))
        name_blocks(&layout, &taking->deadline);
    if (done)
        taking->all->layout[taking->all->count++] = layout;
    else
        release(&layout);
}

static ac_layouts_t *take_all(bool guarded) {
    taking_t taking = {calloc(1, sizeof *taking.all), ac_raw_time(CLOCK_REALTIME), guarded};
    taking.deadline.tv_sec++;
    if (taking.all)
        ac_device_each(take, &taking);
    return taking.all;
}

ac_layouts_t *ac_layouts_take(void) {
    return take_all(false);
}

ac_layouts_t *ac_layouts_take_guarded(void) {
    return take_all(true);
}

void ac_layouts_free(ac_layouts_t *layouts) {
    for (unsigned i = 0; layouts && i < layouts->count; i++)
        release(&layouts->layout[i]);
    free(layouts);
}

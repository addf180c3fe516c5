/* See layouts.h. */
#include "tell/layouts.h"

#include <stdlib.h>
#include <time.h>

#include "track/context.h"
#include "observe/holding.h"
#include "observe/raw.h"

enum { TRIES = 5 };

/* Adds stack and time of the request to each block that the program holds, if they are
 * recorded. The caller holds no lock of the device. */
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

bool ac_layout_take(ac_layout_t *layout, ac_allocator_t *allocator,
                    const struct timespec *deadline) {
    bool done = false;
    for (int i = 0; i < TRIES && !done; i++) {
        done = ac_allocator_lay_out(allocator, deadline, layout);
        if (!done && ((!layout->segments && !layout->blocks) || !ac_layout_make_room(layout)))
            break;
    }
    if (done && atomic_load_explicit(&ac_recording, memory_order_relaxed))
        name_blocks(layout, deadline);
    if (!done)
        ac_layout_drop(layout);
    return done;
}

static void take(CUdevice device, ac_allocator_t *allocator, void *arg) {
    taking_t *taking = arg;
    ac_layout_t layout = {.ordinal = (int)device, .guarded = taking->guarded};
    if (ac_layout_take(&layout, allocator, &taking->deadline))
        taking->all->layout[taking->all->count++] = layout;
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
        ac_layout_drop(&layouts->layout[i]);
    free(layouts);
}

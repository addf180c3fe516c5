/* See layouts.h. */
#include "intercept/layouts.h"

#include <stdlib.h>
#include <time.h>

#include "allocator/allocator.h"
#include "intercept/context.h"
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

/* Programs that a planted fault makes go wrong, one for each row of shim/plants.def.
 *
 * Each hands memory from an old owner, whose kernel is long, to a new one, whose kernel is short,
 * with nothing of its own between the two uses: the allocator must keep them apart.
 * All use the simulated device with virtual time, and are the same in every run. */
#ifndef PLANTS_H
#define PLANTS_H

#include <stdbool.h>
#include <stddef.h>

#include "harness.h"

typedef struct {
    CUcontext ctx[2];                         /* primary ones; [1] after plants_second_device */
    CUfunction old_owner, new_owner, endless; /* of the context that was set up last */
    CUstream stream[3];                       /* non-blocking, of that context */
    CUdeviceptr memory, beside;               /* `beside` is never freed */
    size_t bytes;                             /* of `memory` */
} plants_t;

/* Context, functions and streams of the second device, made current. */
void plants_second_device(plants_t *t);

/* `memory` (and `beside`) of the current context. */
void plants_take(plants_t *t, size_t bytes);

void plants_old(plants_t *t, CUstream stream); /* 1 ms, writes to `memory` */
void plants_new(plants_t *t, CUstream stream); /* 1 us, writes to `memory` */
/* The same as a launch with an attribute: `event` is recorded when it begins. */
void plants_old_event(plants_t *t, CUstream stream, CUevent event);
void plants_long(plants_t *t, CUstream stream); /* 1 s */
void plants_new_programmatic(plants_t *t, CUstream stream);
CUresult plants_elsewhere(plants_t *t, CUstream stream); /* 1 us, writes to `beside` */

/* Frees `memory`. */
void plants_give(plants_t *t);

/* For the library. */
extern void ac_test_window(const char *name);

/* Asks for as much until the same comes back: the new `memory`.  After `most` others, or where
 * there is no more, it is the last one of these; the others are freed. */
enum { PLANTS_SOME = 64, PLANTS_MANY = 256 };
void plants_seek(plants_t *t, int most);

static inline void plants_hand_over(plants_t *t) {
    plants_give(t);
    plants_seek(t, PLANTS_SOME);
}

/* In a window of the library with plants (shim/plant.h), once: without it, never. */
void plants_at_window(const char *name, void (*part)(plants_t *t), plants_t *t);

/* Waits for all work; the new owner's value must be in `memory`. */
void plants_settle(plants_t *t);

/* The programs, by the names of the rows. */
#define PLANT(number, name, text) void plants_##name(plants_t *t);
#define WINDOW(number, name, text)
#include "plants.def"
#undef WINDOW
#undef PLANT

/* Parts of these, for memory in the order of streams.  Each waits for all work at its end. */
void plants_ordered_event(plants_t *t);
void plants_ordered_handle(plants_t *t);
void plants_ordered_wait(plants_t *t);

/* Programs that do wrong by themselves, and the same in good order. */
void plants_page_moved(plants_t *t);
void plants_page_moved_waited(plants_t *t);
void plants_page_taken(plants_t *t);
void plants_page_taken_waited(plants_t *t);

/* Programs that are right, where the library has to see what it cannot see. */
void plants_stream_of_strange_context(plants_t *t);
void plants_freed_on_untold_stream(plants_t *t);
void plants_no_stream(plants_t *t);
void plants_found_and_not_called(plants_t *t);
void plants_many_attributes(plants_t *t);
void plants_found_before_contexts(plants_t *t);
void plants_too_many_contexts(plants_t *t);

#endif

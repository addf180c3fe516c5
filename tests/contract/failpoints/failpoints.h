/* Programs that a failpoint makes go wrong, one for each row of shim/failpoints.def.
 *
 * Each hands memory from an old owner, whose kernel is long, to a new one, whose kernel is short,
 * with nothing of its own between the two uses: the allocator must keep them apart.
 * All use the simulated device with virtual time, and are the same in every run. */
#ifndef FAILPOINT_H
#define FAILPOINT_H

#include <stdbool.h>
#include <stddef.h>

#include "harness.h"

typedef struct {
    CUcontext ctx[2]; /* primary ones; [1] after failpoint_second_device */
    CUfunction old_owner, new_owner, endless; /* of the context that was set up last */
    CUstream stream[3];                       /* non-blocking, of that context */
    CUdeviceptr memory, beside;               /* `beside` is never freed */
    size_t bytes;                             /* of `memory` */
} failpoint_run_t;

/* Context, functions and streams of the second device, made current. */
void failpoint_second_device(failpoint_run_t *t);

/* `memory` (and `beside`) of the current context. */
void failpoint_take(failpoint_run_t *t, size_t bytes);

void failpoint_old(failpoint_run_t *t, CUstream stream); /* 1 ms, writes to `memory` */
void failpoint_new(failpoint_run_t *t, CUstream stream); /* 1 us, writes to `memory` */
/* The same as a launch with an attribute: `event` is recorded when it begins. */
void failpoint_old_event(failpoint_run_t *t, CUstream stream, CUevent event);
void failpoint_long(failpoint_run_t *t, CUstream stream); /* 1 s */
void failpoint_new_programmatic(failpoint_run_t *t, CUstream stream);
CUresult failpoint_elsewhere(failpoint_run_t *t, CUstream stream); /* 1 us, writes to `beside` */

/* Frees `memory`. */
void failpoint_give(failpoint_run_t *t);

/* For the library. */
extern void ac_test_window(const char *name);

/* Asks for as much until the same comes back: the new `memory`.  After `most` others, or where
 * there is no more, it is the last one of these; the others are freed. */
enum { FAILPOINT_SOME = 64, FAILPOINT_MANY = 256 };
void failpoint_seek(failpoint_run_t *t, int most);

static inline void failpoint_hand_over(failpoint_run_t *t) {
    failpoint_give(t);
    failpoint_seek(t, FAILPOINT_SOME);
}

/* In a window of the library with failpoints (shim/failpoint.h), once: without it, never. */
void failpoint_at_window(const char *name, void (*part)(failpoint_run_t *t), failpoint_run_t *t);

/* Waits for all work; the new owner's value must be in `memory`. */
void failpoint_settle(failpoint_run_t *t);

/* The programs, by the names of the rows. */
#define FAILPOINT(number, name, text) void failpoint_##name(failpoint_run_t *t);
#define WINDOW(number, name, text)
#include "failpoints.def"
#undef WINDOW
#undef FAILPOINT

/* Parts of these, for memory in the order of streams.  Each waits for all work at its end. */
void failpoint_ordered_event(failpoint_run_t *t);
void failpoint_ordered_handle(failpoint_run_t *t);
void failpoint_ordered_wait(failpoint_run_t *t);

/* Programs that do wrong by themselves, and the same in good order. */
void failpoint_page_moved(failpoint_run_t *t);
void failpoint_page_moved_waited(failpoint_run_t *t);
void failpoint_page_taken(failpoint_run_t *t);
void failpoint_page_taken_waited(failpoint_run_t *t);

/* Programs that are right, where the library has to see what it cannot see. */
void failpoint_stream_of_strange_context(failpoint_run_t *t);
void failpoint_freed_on_untold_stream(failpoint_run_t *t);
void failpoint_no_stream(failpoint_run_t *t);
void failpoint_found_and_not_called(failpoint_run_t *t);
void failpoint_many_attributes(failpoint_run_t *t);
void failpoint_found_before_contexts(failpoint_run_t *t);
void failpoint_too_many_contexts(failpoint_run_t *t);

#endif

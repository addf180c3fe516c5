/* Programs that go wrong under a failpoint, one for each row of shim/failpoints.def.
 *
 * Each program hands memory from an old owner with a long kernel to a new owner with a short one.
 * The program does not order the two uses, so the allocator must keep them apart in time. All
 * programs use the simulated device with virtual time, so every run is the same. */
#ifndef FAILPOINT_H
#define FAILPOINT_H

#include <stdbool.h>
#include <stddef.h>

#include "harness.h"

typedef struct {
    CUcontext ctx[2]; /* primary ones; [1] after failpoint_second_device */
    CUfunction old_owner, new_owner, endless; /* of the context that was set up last */
    CUstream stream[3];                       /* non-blocking, of that context */
    CUdeviceptr memory, beside;               /* `beside` is other memory, never freed */
    size_t bytes;                             /* of `memory` */
} failpoint_run_t;

/* Makes a context, functions and streams of the second device current. */
void failpoint_second_device(failpoint_run_t *t);

/* Allocates `memory`, and `beside`, in the current context. */
void failpoint_take(failpoint_run_t *t, size_t bytes);

void failpoint_old(failpoint_run_t *t, CUstream stream); /* 1 ms, writes to `memory` */
void failpoint_new(failpoint_run_t *t, CUstream stream); /* 1 us, writes to `memory` */
/* Launches the old owner's kernel with an attribute that records `event` when the kernel
 * begins. */
void failpoint_old_event(failpoint_run_t *t, CUstream stream, CUevent event);
void failpoint_long(failpoint_run_t *t, CUstream stream); /* 1 s */
void failpoint_new_programmatic(failpoint_run_t *t, CUstream stream);
CUresult failpoint_elsewhere(failpoint_run_t *t, CUstream stream); /* 1 us, writes to `beside`;
                                                                      returns the launch's result
                                                                      */

/* Frees `memory`. */
void failpoint_give(failpoint_run_t *t);

/* Called by the library in its windows. */
extern void ac_test_window(const char *name);

/* Requests memory until the address of the freed `memory` comes back. After `most` other blocks,
 * or if the device has no more, the last block is the new `memory`. Frees the others. */
enum { FAILPOINT_SOME = 64, FAILPOINT_MANY = 256 };
void failpoint_seek(failpoint_run_t *t, int most);

static inline void failpoint_hand_over(failpoint_run_t *t) {
    failpoint_give(t);
    failpoint_seek(t, FAILPOINT_SOME);
}

/* Calls `part` once in a window of the library with failpoints (shim/failpoint.h). Without that
 * library it never does. */
void failpoint_at_window(const char *name, void (*part)(failpoint_run_t *t), failpoint_run_t *t);

/* Waits for all work; the new owner's value must be in `memory`. */
void failpoint_settle(failpoint_run_t *t);

/* The programs. Their names are those of the rows. */
#define FAILPOINT(number, name, text) void failpoint_##name(failpoint_run_t *t);
#define WINDOW(number, name, text)
#include "failpoints.def"
#undef WINDOW
#undef FAILPOINT

/* Parts of these programs, for memory in the order of streams. Each waits for all work at its
 * end. */
void failpoint_ordered_event(failpoint_run_t *t);
void failpoint_ordered_handle(failpoint_run_t *t);
void failpoint_ordered_wait(failpoint_run_t *t);

/* Programs that are wrong without the library, and the same programs in good order. */
void failpoint_page_moved(failpoint_run_t *t);
void failpoint_page_moved_waited(failpoint_run_t *t);
void failpoint_page_taken(failpoint_run_t *t);
void failpoint_page_taken_waited(failpoint_run_t *t);

/* Correct programs with work or contexts that are hard to see for the library. */
void failpoint_stream_of_strange_context(failpoint_run_t *t);
void failpoint_freed_on_untold_stream(failpoint_run_t *t);
void failpoint_no_stream(failpoint_run_t *t);
void failpoint_found_and_not_called(failpoint_run_t *t);
void failpoint_many_attributes(failpoint_run_t *t);
void failpoint_found_before_contexts(failpoint_run_t *t);
void failpoint_too_many_contexts(failpoint_run_t *t);

#endif

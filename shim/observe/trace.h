/* The recorder behind `trace:FILE`: what the program allocates and frees, into a file that a
 * killed process leaves readable (trace_format.h has its form).
 *
 * Threads write their events themselves, each into a chunk of the file that is mapped for its
 * lane alone; the only word they share is the next sequence number.  There is no lock but when
 * a chunk is full, no thread of our own, and memory for one chunk a lane.  Space is reserved on
 * the disk before it is mapped, and what is full is copied by write(2): a full disk ends the
 * recording, with one line, and nothing else.  (To truncate the file while the program runs
 * takes the memory from under its threads.  Another process that is told to write to the
 * same name gets a file of its own.)
 *
 * Before anything is recorded, and with nothing to record, lanes are NULL: a caller pays for one
 * comparison with what its thread's record holds.  Nothing here calls CUDA. */
#ifndef AC_TRACE_H
#define AC_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observe/trace_format.h"

typedef struct ac_trace_lane ac_trace_lane_t;

/* Where an event belongs: see AC_TRACE_NOWHERE. */
typedef struct {
    uint16_t device, context;
    uint64_t stream;
} ac_trace_place_t;

/* Create the file that `pattern` (as a dump's) names; "none": nothing is recorded.  Returns 0; or
 * an errno value, and `path` (of `size` bytes) has the name that failed.  A name that a living
 * process records to is left to it: `path` then has the one taken instead, and *other that
 * process's id; else *other is 0.  After ac_live_open, once, before any lane is taken. */
int ac_trace_open(const char *pattern, char *path, size_t size, int *other);

/* A lane for a thread of the number `thread`; NULL when nothing is recorded or host memory is
 * short.  Give it back at the thread's end; NULL is none. */
ac_trace_lane_t *ac_trace_lane_take(uint64_t thread);
void ac_trace_lane_return(ac_trace_lane_t *lane);

/* Bring the file to its end: no event is recorded from now on.  At exit, other threads may still
 * run. */
void ac_trace_close(void);

/* In a fork child: the file is its parent's.  Async-signal-safe. */
void ac_trace_fork_child(void);

/* --- events, of the thread that owns the lane --- */

/* `kind`: AC_TRACE_ALLOC or _MANAGED with an address, or _FAILED with the error in its place. */
void ac_trace_write_alloc(ac_trace_lane_t *lane, unsigned kind, uint64_t address, uint64_t bytes,
                          ac_trace_place_t place);
/* Before an allocation: which stack asked (sites.h). */
void ac_trace_write_site(ac_trace_lane_t *lane, uint32_t stack);
void ac_trace_write_free(ac_trace_lane_t *lane, uint64_t address);
void ac_trace_write_free_on(ac_trace_lane_t *lane, uint64_t address, ac_trace_place_t place);
/* The free just written failed. */
void ac_trace_write_unfree(ac_trace_lane_t *lane);
/* `kind`: AC_TRACE_SYNC, _SYNC_STREAM or _GONE. */
void ac_trace_write_at(ac_trace_lane_t *lane, unsigned kind, ac_trace_place_t place);
void ac_trace_write_event_sync(ac_trace_lane_t *lane, uint64_t event);

#endif

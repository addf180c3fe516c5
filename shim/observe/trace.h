/* The recorder of `trace:FILE`.  It writes the program's allocations and frees to a file that stays readable
 * after a kill (trace_format.h defines the format).
 *
 * Each thread writes its events into a chunk of the file that is mapped for its lane alone.  The threads share
 * only the next sequence number.  A thread takes a lock only when its chunk is full.  The recorder has no thread
 * of its own, and maps one chunk for each lane.  Disk space is reserved before it is mapped, and a full chunk is
 * copied by write(2).  So a full disk only ends the recording, with one message.  If a process truncates the file
 * while the program runs, the threads lose their mapped memory.  Another process with the same file name gets
 * a file with another name.
 *
 * Lanes are NULL while nothing is recorded.  A caller then only compares the pointer in its thread's record.  The
 * recorder does not call CUDA. */
#ifndef AC_TRACE_H
#define AC_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observe/trace_format.h"

typedef struct ac_trace_lane ac_trace_lane_t;

/* The device, context and stream of an event; see AC_TRACE_NOWHERE for unknown ones. */
typedef struct {
    uint16_t device, context;
    uint64_t stream;
} ac_trace_place_t;

/* Creates the file of `pattern`, which has the form of a dump's pattern.  "none" records nothing.  Returns 0, or an
 * errno value with the failed name in `path` (of `size` bytes).  If a living process records to that name, the
 * function takes another name.  `path` then has the new name and *other the id of that process; otherwise *other
 * is 0.  Called once, after ac_live_open and before any lane is taken. */
int ac_trace_open(const char *pattern, char *path, size_t size, int *other);

/* Takes a lane for the thread with number `thread`; NULL if nothing is recorded or host memory is short.  _return
 * gives it back at the thread's end; NULL is allowed. */
ac_trace_lane_t *ac_trace_lane_take(uint64_t thread);
void ac_trace_lane_return(ac_trace_lane_t *lane);

/* Ends the recording and marks the file as complete.  Called at exit; other threads may still run. */
void ac_trace_close(void);

/* Stops recording in a fork child, because the file belongs to the parent.  Async-signal-safe. */
void ac_trace_fork_child(void);

/* --- events; called by the thread that owns the lane --- */

/* Writes an allocation.  `kind`: AC_TRACE_ALLOC or _MANAGED; or _FAILED, with the error as `address`. */
void ac_trace_write_alloc(ac_trace_lane_t *lane, unsigned kind, uint64_t address, uint64_t bytes,
                          ac_trace_place_t place);
/* Writes the stack of the lane's next allocation (sites.h). */
void ac_trace_write_site(ac_trace_lane_t *lane, uint32_t stack);
void ac_trace_write_free(ac_trace_lane_t *lane, uint64_t address);
void ac_trace_write_free_on(ac_trace_lane_t *lane, uint64_t address, ac_trace_place_t place);
/* Reports that the free before this event failed. */
void ac_trace_write_unfree(ac_trace_lane_t *lane);
/* Writes an event of kind AC_TRACE_SYNC, _SYNC_STREAM or _GONE. */
void ac_trace_write_at(ac_trace_lane_t *lane, unsigned kind, ac_trace_place_t place);
void ac_trace_write_event_sync(ac_trace_lane_t *lane, uint64_t event);

#endif

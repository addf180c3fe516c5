/* Recorded traces (observe/trace_format.h) as one row of events: lanes merged in the order of
 * their sequence numbers, frees matched with what they free.  Needs memory for the blocks that
 * are live at once, not for the events.  A file that is still being written reads as far as it
 * was when it was opened. */
#ifndef CMD_TRACE_READ_H
#define CMD_TRACE_READ_H

#include <stdbool.h>
#include <stdint.h>

#include "observe/trace_format.h"
#include "read/recorded.h"

typedef struct cmd_trace_file cmd_trace_t;

typedef enum {
    CMD_TRACE_ALLOC,
    CMD_TRACE_FREE,
    CMD_TRACE_FAILED,      /* an allocation failed: `bytes`, `error` */
    CMD_TRACE_SYNC,        /* the program waited for all work of `context` */
    CMD_TRACE_SYNC_STREAM, /* for that of `stream` */
    CMD_TRACE_SYNC_EVENT   /* for an event: its handle is `address` */
} cmd_trace_kind_t;

typedef struct {
    cmd_trace_kind_t kind;
    bool managed;     /* ALLOC, FREE: cuMemAllocManaged's */
    bool implied;     /* FREE: by the end of its context, or its own free was not seen */
    int device;       /* ordinal, -1: not known */
    int error;        /* FAILED: a CUresult */
    uint32_t context; /* contexts in the order of their appearance, from 1; 0: not known */
    uint32_t stream;  /* (context, stream) in the same way; 0: the call named none */
    uint64_t thread;  /* from 1, in the order in which threads first used CUDA */
    uint64_t id;      /* ALLOC: 0, 1, 2, ..; FREE: that of the block */
    uint64_t address;
    uint64_t bytes;    /* FREE: of the block */
    uint64_t sequence; /* rises; the file's */
    uint32_t stack;    /* ALLOC: that asked (cmd_trace_stack); 0: not known */
    int64_t time_ns;   /* since the start; may fall back a little between threads */
} cmd_trace_event_t;

typedef struct {
    uint64_t events;        /* delivered so far */
    uint64_t unknown_frees; /* left out: nothing recorded lies there */
    uint64_t implied_frees;
    uint64_t refused_frees; /* left out: the driver or the cache refused them */
    uint64_t damaged_lanes; /* rows of events that end early in something unknown */
} cmd_trace_counts_t;

/* Returns true if the file begins like a recorded trace. */
bool cmd_trace_is(const char *path);

/* NULL and *error, one line, malloc'd: no file, no trace, another version or byte order. */
cmd_trace_t *cmd_trace_open(const char *path, char **error);
const ac_trace_header_t *cmd_trace_header(const cmd_trace_t *trace);
/* Returns the command line, with spaces between its arguments; malloc'd. */
char *cmd_trace_command(const ac_trace_header_t *header);
/* The next event; false: there are no more. */
bool cmd_trace_next(cmd_trace_t *trace, cmd_trace_event_t *event);
/* The frames of a stack that an event named, innermost first; the caller frees them, their names live with
 * the trace.  False: it is not known. */
bool cmd_trace_stack(const cmd_trace_t *trace, uint32_t stack, cmd_frame_t **frames,
                     size_t *count);
cmd_trace_counts_t cmd_trace_counts(const cmd_trace_t *trace);
void cmd_trace_close(cmd_trace_t *trace);

#endif

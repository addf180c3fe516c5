/* One lane of a recorded trace (observe/trace_format.h): its events in their order, decoded.
 * Any program may have written the file: nothing in it is taken for granted. */
#ifndef CMD_TRACE_LANE_H
#define CMD_TRACE_LANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observe/trace_format.h"
#include "read/trace_sites.h"

typedef struct {
    uint64_t stream;
    unsigned device, context; /* AC_TRACE_NOWHERE: not known */
    bool defined;
    /* For the reader of events: what the place means there, and until when. */
    uint32_t epoch, context_number, stream_number;
} cmd_trace_place_t;

typedef struct {
    unsigned kind; /* AC_TRACE_..: one with a stamp; never UNFREE, nor what that takes back */
    uint64_t about, sequence, ticks, bytes, thread;
    uint32_t stack;           /* ALLOC: that asked; 0: not known */
    cmd_trace_place_t *place; /* NULL: the kind has none; good until the next event */
} cmd_trace_raw_t;

/* A chunk: its offset in the file, or a copy of a front from when the file was opened. */
typedef struct {
    uint64_t ordinal, offset;
    uint64_t *front; /* malloc'd, AC_TRACE_UNIT bytes; NULL: read it from the file */
} cmd_trace_span_t;

typedef struct {
    int fd;
    uint32_t time_shift;
    cmd_trace_span_t *chunk;
    size_t chunks, taken; /* taken: chunks begun */
    uint64_t *word;       /* of the current one */
    size_t words, at;     /* in `word`: how many, the next */
    uint64_t sequence, ticks, thread;
    bool pending, damaged; /* pending: `ahead` was decoded */
    cmd_trace_raw_t ahead;
    unsigned ahead_number;
    uint64_t refused;
    uint32_t site;            /* of the next allocation */
    cmd_trace_sites_t *sites; /* of the file */
    cmd_trace_place_t *places;
} cmd_trace_lane_t;

/* Take a chunk of the lane; in any order, `chunk->front` is the lane's to free.  Then, once: */
void cmd_trace_lane_add(cmd_trace_lane_t *lane, const cmd_trace_span_t *chunk);
void cmd_trace_lane_begin(cmd_trace_lane_t *lane);
/* False: the lane is at its end, or damaged. */
bool cmd_trace_lane_next(cmd_trace_lane_t *lane, cmd_trace_raw_t *raw);
void cmd_trace_lane_clear(cmd_trace_lane_t *lane);

#endif

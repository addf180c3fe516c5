/* Internal interface of the recorder's files: definitions of stacks and names in one lane. */
#ifndef AC_TRACE_INT_H
#define AC_TRACE_INT_H

#include "observe/sites.h"
#include "observe/trace.h"

/* The stacks, files and texts that the lane has defined. */
typedef struct {
    uint64_t stack[1024], file[AC_SITE_FILES / 64], text[256]; /* a bit for each number */
} ac_trace_known_t;

/* Returns true if the recording continues and the lane has room for a defining event.  Begins a new chunk if the
 * current one is full. */
bool ac_trace_has_room(ac_trace_lane_t *lane);

/* Write a defining event of two or three words. */
void ac_trace_put2(ac_trace_lane_t *lane, uint64_t word, uint64_t second);
void ac_trace_put3(ac_trace_lane_t *lane, uint64_t word, uint64_t second, uint64_t third);

ac_trace_known_t *ac_trace_known(ac_trace_lane_t *lane);

#endif

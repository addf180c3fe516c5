/* What a request that failed for want of memory would have needed, found out by replaying. */
#ifndef CMD_OOM_H
#define CMD_OOM_H

#include <jansson.h>

#include "read/segments.h"

typedef struct {
    const char *conf;   /* settings that take the place of the process's own; "": none do */
    const char *name;   /* how to speak of them */
    bool without_limit; /* the configured limit is left out as well */
    bool tried, served; /* after cmd_oom_replay */
    bool sure;          /* wherever the blocks had come to lie, there would have been room */
} cmd_oom_candidate_t;

enum { CMD_OOM_CANDIDATES = 4 }; /* [0]: the settings as they were */

/* The device's blocks as they lay are allocated again, in their order and next to each other, by
 * the allocator itself over a modelled device that has what the process reserved and what was free;
 * those that were free are freed, and the request follows: once with each candidate, in processes
 * of their own.  What was freed but not ready yet counts as held.
 *
 * With other settings the blocks would have come to lie elsewhere, so a replay that serves the
 * request does not prove that the program would have been served: it is `sure` where the pages that
 * the blocks can keep at most leave room for it, or where no more than new memory is needed.
 *
 * `limit` UINT64_MAX: none.  Not for layouts whose blocks are not all listed. */
typedef struct {
    const cmd_segments_t *segments;      /* of the device */
    const char *conf;                    /* of the process */
    uint64_t bytes;                      /* of the request */
    uint64_t reserved, available, limit; /* bytes */
} cmd_oom_state_t;
void cmd_oom_replay(const cmd_oom_state_t *state,
                    cmd_oom_candidate_t candidate[CMD_OOM_CANDIDATES]);

#endif

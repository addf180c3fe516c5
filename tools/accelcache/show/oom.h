/* Settings that would have served a request that failed for lack of memory, found by replays. */
#ifndef CMD_OOM_H
#define CMD_OOM_H

#include <jansson.h>

#include "read/segments.h"

typedef struct {
    const char *conf;   /* settings that take the place of the process's own; "": none do */
    const char *name;   /* how to speak of them */
    bool without_limit; /* without the configured limit, too */
    bool tried, served; /* after cmd_oom_replay */
    bool sure;          /* wherever the blocks had come to lie, there would have been room */
} cmd_oom_candidate_t;

enum { CMD_OOM_CANDIDATES = 4 }; /* [0]: the settings as they were */

/* The allocator itself allocates the device's blocks again, in their order and next to each other.  Its device is
 * modelled, with the bytes that the process reserved and that were free.  Then it frees the free blocks, and the
 * request follows: once with each candidate, in processes of their own.  Freed blocks that work may still use count
 * as held.
 *
 * With other settings the blocks would have come to lie elsewhere, so a replay that serves the request does not
 * prove that the program would have been served: it is `sure` if the pages that the blocks can keep at most leave
 * room for it, or if new memory suffices.
 *
 * `limit` UINT64_MAX: none.  All blocks must be listed. */
typedef struct {
    const cmd_segments_t *segments;      /* of the device */
    const char *conf;                    /* of the process */
    uint64_t bytes;                      /* of the request */
    uint64_t reserved, available, limit; /* bytes */
} cmd_oom_state_t;
void cmd_oom_replay(const cmd_oom_state_t *state,
                    cmd_oom_candidate_t candidate[CMD_OOM_CANDIDATES]);

#endif

/* What holds memory, as stacks from the outermost frame to the innermost: device, then module, or
 * stream and size, or the frames that a snapshot has.  For flame graphs and pprof. */
#ifndef CMD_STACKS_H
#define CMD_STACKS_H

#include "history.h"

typedef struct {
    char *frames;                  /* names, apart by '\n' */
    int64_t blocks, bytes;         /* in use at the end */
    int64_t all_blocks, all_bytes; /* of every request so far */
} cmd_stack_t;

typedef struct {
    cmd_stack_t *stack; /* by their frames, no two alike */
    size_t count;
    bool has_all; /* all_blocks and all_bytes are known */
} cmd_stacks_t;

cmd_stacks_t cmd_stacks(const cmd_history_t *history);
void cmd_stacks_free(cmd_stacks_t *stacks);

#endif

/* Holders of memory at a moment, as stacks from the outermost frame to the innermost: device, then module, or
 * stream and size, or the frames that were recorded.  For flame graphs and pprof. */
#ifndef CMD_STACKS_H
#define CMD_STACKS_H

#include "read/history.h"

typedef enum {
    CMD_AT_END,   /* at the end of the recording */
    CMD_AT_PEAK,  /* at the first moment of the most bytes in use, of all devices together */
    CMD_AT_LEAKED /* what the program never freed itself, also if its context has ended */
} cmd_moment_t;

/* The moment of that name ("end", "peak", "leaked"); false: there is none. */
bool cmd_moment_find(const char *name, cmd_moment_t *moment);
/* A heading: "at the peak", "at the end", "never freed". */
const char *cmd_moment_text(cmd_moment_t moment);

typedef struct {
    char *frames;                  /* names, with '\n' between them */
    char *site;                    /* name of the call site: the innermost frames that tell the caller */
    int64_t blocks, bytes;         /* in use at the moment */
    int64_t all_blocks, all_bytes; /* of every request so far */
} cmd_stack_t;

typedef struct {
    cmd_stack_t *stack; /* by their frames, no two alike */
    size_t count;
    bool has_all; /* all_blocks and all_bytes are known */
} cmd_stacks_t;

/* False: the history does not tell of that moment, and *error is one line, malloc'd.  The peak of a dump is the
 * one that the library noted, which covers the whole run; its history may begin later. */
bool cmd_stacks(const cmd_history_t *history, cmd_moment_t moment, cmd_stacks_t *stacks, char **error);
/* Adds up stacks with the same call site; `frames` come from one of them. */
bool cmd_stacks_sites(const cmd_history_t *history, cmd_moment_t moment, cmd_stacks_t *stacks, char **error);
/* Adds up by call site the blocks that were held before event `end` of a history with events. */
void cmd_stacks_before(const cmd_history_t *history, size_t end, cmd_stacks_t *stacks);
void cmd_stacks_free(cmd_stacks_t *stacks);

/* The call site of a request, as cmd_stacks_sites names it; without frames by its size and stream.  malloc'd. */
char *cmd_stacks_site(const json_t *frames, uint64_t bytes, uint64_t stream);

#endif

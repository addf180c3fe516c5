/* Stacks that a recorded trace defines (observe/trace_format.h), of all its lanes.  Nothing in the file is
 * taken for granted. */
#ifndef CMD_TRACE_SITES_H
#define CMD_TRACE_SITES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "read/recorded.h"

typedef struct cmd_trace_sites cmd_trace_sites_t;

cmd_trace_sites_t *cmd_trace_sites_new(void);
void cmd_trace_sites_free(cmd_trace_sites_t *sites);

/* A FRAME and a PIECE: `about` of word 0, and the words behind it.  False: no recorder writes this. */
bool cmd_trace_sites_frame(cmd_trace_sites_t *sites, uint64_t about, uint64_t frame);
bool cmd_trace_sites_piece(cmd_trace_sites_t *sites, uint64_t about, const uint64_t word[2]);

/* As cmd_recorded_frames.  `program`: the file that a path "" stands for. */
bool cmd_trace_sites_get(const cmd_trace_sites_t *sites, uint32_t stack, const char *program,
                         cmd_frame_t **frames, size_t *count);

#endif

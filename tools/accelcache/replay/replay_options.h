/* Options that `replay` and `tune` share. */
#ifndef CMD_REPLAY_OPTIONS_H
#define CMD_REPLAY_OPTIONS_H

#include "replay/replay.h"

/* Rows of a table of options: --pending K and --streams real into a cmd_replay_plan_t, --ordinal N into an int. */
int cmd_replay_pending(const char *value, void *plan);
int cmd_replay_streams(const char *value, void *plan);
int cmd_replay_ordinal(const char *value, void *ordinal);

/* --capacity.  CMD_OK, or CMD_USAGE after a message. */
int cmd_replay_capacity(const char *value, const cmd_ops_t *trace, uint64_t *bytes);

/* Returns true if the program's peak fits into `capacity` bytes (0: no limit), without which no setting
 * completes; false after a message. */
bool cmd_replay_fits(const char *path, const cmd_ops_t *trace, uint64_t capacity);

/* The table of costs, with what `path` (may be NULL) replaces; false after a message. */
bool cmd_replay_costs(cmd_costs_t *costs, const char *path);

/* A trace, with a line on stderr about what is to be known of it; NULL after a message. */
cmd_ops_t *cmd_replay_trace(const char *path, int ordinal);

/* A configuration string as it comes from `source`; false after a message. */
bool cmd_replay_conf(const char *conf, const char *source, ac_config_t *config);

#endif

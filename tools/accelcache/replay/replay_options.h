/* Options that `replay` and `tune` share. */
#ifndef CMD_REPLAY_OPTIONS_H
#define CMD_REPLAY_OPTIONS_H

#include "replay/replay.h"

/* A whole number within the bounds; false for anything else. */
bool cmd_whole_number(const char *text, uint64_t low, uint64_t high, uint64_t *value);

/* --pending K and --streams real into a plan: CMD_OK, or CMD_USAGE after a message. */
int cmd_replay_pending(cmd_replay_plan_t *plan, const char *value);
int cmd_replay_streams(cmd_replay_plan_t *plan, const char *value);

/* --capacity.  CMD_OK, or CMD_USAGE after a message. */
int cmd_replay_capacity(const char *value, const cmd_ops_t *trace, uint64_t *bytes);

/* Whether what the program held at a time fits into `capacity` bytes (0: no limit), without which
 * no setting completes; false after a message. */
bool cmd_replay_fits(const char *path, const cmd_ops_t *trace, uint64_t capacity);

/* The table of costs, with what `path` (may be NULL) replaces; false after a message. */
bool cmd_replay_costs(cmd_costs_t *costs, const char *path);

/* A trace, with a line on stderr about what is to be known of it; NULL after a message. */
cmd_ops_t *cmd_replay_trace(const char *path, int ordinal);

/* A configuration string as it comes from `source`; false after a message. */
bool cmd_replay_conf(const char *conf, const char *source, ac_config_t *config);

#endif

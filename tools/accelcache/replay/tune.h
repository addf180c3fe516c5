/* Searching for a configuration: points are configurations, measured by replays of a part of the
 * trace; the recommendation is checked on what the search did not see. */
#ifndef CMD_TUNE_H
#define CMD_TUNE_H

#include "replay/replay.h"

enum { TUNE_KEYS = 64, TUNE_CONF = 1024 };

typedef enum { TUNE_MEMORY, TUNE_TIME, TUNE_BALANCED } tune_objective_t;

/* A configuration: for each key (tune_search.c) the candidate that it has, 0 being the default.
 */
typedef struct {
    uint8_t choice[TUNE_KEYS];
    char conf[TUNE_CONF]; /* as ACCEL_ALLOC_CONF has it; empty: the default */
    cmd_replay_plan_t plan;
    cmd_replay_figures_t figures; /* of the part that is searched on */
    double value;                 /* by the objective; less is better */
} tune_point_t;

typedef struct {
    const cmd_ops_t *trace; /* the part that is searched on */
    cmd_replay_plan_t plan; /* common to all replays */
    tune_objective_t objective;
    double seconds; /* after these no replay begins */
    void (*progress)(double spent, size_t tried); /* seconds so far, settings; often */
    tune_point_t *point;                          /* all that were tried; [0]: the default */
    size_t count, room;
    size_t best;
    bool cut_short; /* `seconds` were over before the search was */
    double began;   /* of the search, for `progress` */
    size_t measured;
} tune_t;

/* Fill `point`, malloc'd. */
void tune_search(tune_t *tune);

/* Returns the worth of figures: memory by the peak of live bytes, driver time per 1000 operations, as if the
 * program ran ten times as long as its trace: the second replay counts for the other nine. If memory did not
 * suffice for the first replay: more than TUNE_FAILED, the less the later it ran out; if only for the second
 * one: between half of that and all of it. */
#define TUNE_FAILED 1e9
double tune_value(tune_objective_t objective, const cmd_replay_figures_t *figures,
                  const cmd_ops_t *trace);
double tune_memory(const cmd_replay_figures_t *figures, const cmd_ops_t *trace);
double tune_driver_ms(const cmd_replay_figures_t *figures);

/* Why the trace is too short to conclude from that `ours` is better than `usual`, or, with `ours`
 * NULL, that nothing is: one clause, malloc'd; NULL: it is not. */
char *tune_doubt(tune_objective_t objective, const cmd_ops_t *trace,
                 const cmd_replay_plan_t *usual, const cmd_replay_plan_t *ours);

/* The names of keys that are searched, for --help and messages; NULL behind the last. */
const char *tune_key(unsigned key);
/* Returns the text of a key's row in config.def. */
const char *tune_key_doc(unsigned key);

#endif

/* Whether a trace is long enough to conclude from; see tune_doubt in tune.h. */
#include "command.h"
#include "replay/tune.h"

#include <stdlib.h>

enum { RESAMPLES = 8 };

/* The share by which a setting has to be better (tune.c), and what driver time is worth 1 % of
 * memory, in ms per 1000 operations (tune_value). */
#define WORTH   0.03
#define MS_OF_1 0.05

/* Operations below which a single cuMemAlloc more or less is worth as much as a setting has to
 * be.  The search sees half of them. */
static size_t fewest_operations(const cmd_costs_t *costs) {
    double call_ms = costs->alloc.fixed / 1e6;
    return (size_t)(2 * 1000 * call_ms / (100 * WORTH * MS_OF_1));
}

/* Requests that come after a free: only these can use memory again. */
static size_t requests_after_a_free(const cmd_ops_t *trace) {
    size_t count = 0;
    bool freed = false;
    for (size_t i = 0; i < trace->count; i++) {
        freed |= trace->op[i].kind == CMD_OP_FREE;
        count += freed && trace->op[i].kind == CMD_OP_ALLOC;
    }
    return count;
}

/* Returns how much better `ours` is if each eighth of the requests is left out in turn: effects that add up over
 * a run, like small free pieces, stay.  If one of these resamples has no gain, a single stretch of requests made
 * all of it, and the next run may have none.  The standard error of the jackknife says no more here: peaks are
 * no smooth function of the requests. */
typedef struct {
    double least, most;
} gains_t;

static gains_t resample(tune_objective_t objective, const cmd_ops_t *trace,
                        const cmd_replay_plan_t *usual, const cmd_replay_plan_t *ours) {
    gains_t gains = {0};
    cmd_ops_t *part[RESAMPLES];
    cmd_replay_job_t job[2 * RESAMPLES];
    for (size_t i = 0; i < RESAMPLES; i++) {
        part[i] = cmd_ops_without(trace, trace->count * i / RESAMPLES,
                                  trace->count * (i + 1) / RESAMPLES);
        job[2 * i] = (cmd_replay_job_t){.trace = part[i], .plan = usual};
        job[2 * i + 1] = (cmd_replay_job_t){.trace = part[i], .plan = ours};
    }
    cmd_replay_jobs(job, (size_t)2 * RESAMPLES, false, NULL, NULL);
    for (size_t i = 0; i < RESAMPLES; i++) {
        double gain = 1 - tune_value(objective, &job[2 * i + 1].figures, part[i]) /
                              tune_value(objective, &job[2 * i].figures, part[i]);
        gains.least = i && gains.least < gain ? gains.least : gain;
        gains.most = i && gains.most > gain ? gains.most : gain;
        cmd_ops_free(part[i]);
    }
    return gains;
}

char *tune_doubt(tune_objective_t objective, const cmd_ops_t *trace,
                 const cmd_replay_plan_t *usual, const cmd_replay_plan_t *ours) {
    size_t fewest = fewest_operations(usual->costs);
    if (requests_after_a_free(trace) < RESAMPLES)
        return cmd_format("fewer than %d of its requests come after a free, so that it does not "
                          "show how memory is used again",
                          RESAMPLES);
    if (objective != TUNE_MEMORY && trace->count < fewest)
        return cmd_format("it has %zu operations, and below %zu one driver call more or less "
                          "moves the result by as much as makes a setting worth it",
                          trace->count, fewest);
    if (!ours)
        return NULL;
    gains_t gains = resample(objective, trace, usual, ours);
    if (gains.least > 0)
        return NULL;
    return cmd_format(
        "one eighth of its requests makes the whole gain: with each left out in turn "
        "it is between %.1f and %.1f %%",
        100 * gains.least, 100 * gains.most);
}

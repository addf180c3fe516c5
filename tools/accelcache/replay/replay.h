/* Replaying a trace through the allocator itself, over a modelled device or a real one. */
#ifndef CMD_REPLAY_H
#define CMD_REPLAY_H

#include "config/config.h"
#include "replay/model.h"
#include "read/ops.h"

/* Without a capacity the modelled device has this much. */
#define CMD_REPLAY_ROOM ((uint64_t)1 << 40)

typedef struct {
    ac_config_t config;
    uint64_t capacity; /* bytes; 0: CMD_REPLAY_ROOM, or the memory of the real device */
    unsigned repeat;   /* replays in a row by the same allocator, at least 1 */
    cmd_work_t work;
    uint64_t delay;           /* CMD_WORK_DELAY: operations */
    const cmd_costs_t *costs; /* of the modelled device */
    bool real;                /* the driver's device instead */
} cmd_replay_plan_t;

typedef enum {
    CMD_REPLAY_DONE,   /* the first replay completed */
    CMD_REPLAY_OOM,    /* the first replay ran out of memory at operation `failed_at` */
    CMD_REPLAY_FAILED, /* the device or the host failed: `why` */
} cmd_replay_end_t;

/* Plain data: it travels through pipes.  [0] is the first replay, [1] all later ones. */
typedef struct {
    cmd_replay_end_t end;
    uint64_t failed_at, failed_bytes;
    uint64_t later_failed_at; /* operation at which a later replay ran out of memory; 0: none did */
    uint64_t ops;     /* of one replay */
    double ns;        /* CPU time per operation, of the fastest replay */
    uint64_t peak[2]; /* bytes taken from the device at most */
    uint64_t call[2][CMD_CALLS];
    double driver_ms[2];      /* per 1000 operations */
    uint64_t waits[2];        /* times the host waited for work */
    uint64_t stream_waits[2]; /* times a stream was made to wait for another */
    bool simulated;           /* no GPU had a part in it */
    char why[160];
} cmd_replay_figures_t;

/* Run the plan.  Once in a process: the allocator's clocks are the process's. */
void cmd_replay_run(const cmd_ops_t *trace, const cmd_replay_plan_t *plan,
                    cmd_replay_figures_t *figures);

/* One replay to be made: in a process of its own. */
typedef struct {
    const cmd_ops_t *trace;
    const cmd_replay_plan_t *plan;
    cmd_replay_figures_t figures;
} cmd_replay_job_t;

/* Run all jobs, on all cores at once unless they use a real device or are to be timed
 * (`alone`).  `progress` (may be NULL) is called after each, and some times a second. */
void cmd_replay_jobs(cmd_replay_job_t *job, size_t count, bool alone,
                     void (*progress)(size_t done, void *arg), void *arg);

/* The least capacity, in whole pages, with which the plan completes; 0: it does not even with CMD_REPLAY_ROOM.
 * Bisects between the bound and the bytes that it takes without a limit.  A capacity below the result may
 * suffice, too, since placement is not monotonic.  `progress` is called some times a second, `done` means
 * nothing. */
uint64_t cmd_replay_least(const cmd_ops_t *trace, const cmd_replay_plan_t *plan,
                          void (*progress)(size_t done, void *arg), void *arg);

/* The least that any allocator could reserve: the peak of live bytes, in whole pages. */
uint64_t cmd_replay_bound(const cmd_ops_t *trace);

#endif

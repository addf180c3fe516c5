/* One replay: the loop over a trace's operations, and the device below the allocator (replay.h).
 */
#include "allocator/allocator_int.h"
#include "allocator/retired/streams.h"
#include "allocator/cache/thread_cache.h"
#include "command.h"
#include "replay/real_device.h"
#include "replay/replay.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
    const cmd_ops_t *trace;
    const cmd_replay_plan_t *plan;
    cmd_model_t *model; /* NULL: the driver's device */
    ac_arena_t *arena;
    ac_cache_t *cache; /* NULL: the configuration has none */
    ac_timeline_t *line;
    ac_joins_t joins;
    uint64_t *address; /* by block; 0: not allocated */
    uint64_t failed_at;
} replay_t;

static double cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* ------------------------------------------------------------------ work */

/* Does what the hooks of submitting calls do around the driver's call. */
static void submit(replay_t *r, uint64_t stream) {
    if (ac_fence_full(r->line))
        ac_fence_close(r->line, false);
    ac_fence_enter(r->line);
    if (stream)
        ac_sole_enter(r->line, stream, &r->joins);
}

static void submitted(replay_t *r) {
    ac_fence_leave(r->line);
    ac_arena_submitted(r->arena, false);
}

static void delayed_work(replay_t *r) {
    cmd_model_operation(r->model);
    submit(r, 0);
    submitted(r);
}

static unsigned stream_number(const replay_t *r, const cmd_op_t *op) {
    return op->stream == CMD_NO_STREAM ? r->trace->streams : op->stream;
}

static void stream_work(replay_t *r, const cmd_op_t *op) {
    unsigned stream = stream_number(r, op);
    submit(r, cmd_model_stream_key(stream));
    cmd_model_kernel(r->model, stream, op->bytes);
    submitted(r);
}

/* Does what the hooks of a synchronisation do.  Memory over the budget goes back after it. */
static void synchronise(replay_t *r) {
    uint64_t clock = ac_fence_now();
    ac_fence_close(r->line, false);
    cmd_model_synchronise(r->model);
    ac_fence_synced(r->line, clock);
    ac_allocator_settle_debt(ac_arena_allocator(r->arena));
}

/* ------------------------------------------------------------------ operations */

/* Acts like a thread of the program: through its cache. */
static inline ac_status_t plain_request(replay_t *r, const cmd_op_t *op) {
    uint64_t *address = &r->address[op->block];
    return r->cache ? ac_cache_alloc(r->cache, op->bytes, false, address)
                    : ac_arena_alloc(r->arena, op->bytes, false, address);
}

static inline ac_status_t plain_free(replay_t *r, uint64_t address) {
    return r->cache ? ac_cache_free(r->cache, address) : ac_block_free(address);
}

static ac_status_t request(replay_t *r, const cmd_op_t *op) {
    if (op->stream == CMD_NO_STREAM)
        return plain_request(r, op);
    return ac_arena_alloc_on(r->arena, cmd_model_stream_key(op->stream), op->bytes, false,
                             &r->address[op->block]);
}

static ac_status_t give_back(replay_t *r, const cmd_op_t *op) {
    if (op->stream == CMD_NO_STREAM)
        return plain_free(r, r->address[op->block]);
    return ac_block_free_on(r->arena, cmd_model_stream_key(op->stream), r->address[op->block]);
}

/* The operations, once.  `work` is a constant of each caller: the compiler makes a loop for each. */
static inline __attribute__((always_inline)) ac_status_t loop(replay_t *r, cmd_work_t work) {
    const cmd_op_t *op = r->trace->op, *end = op + r->trace->count;
    ac_status_t status = AC_OK;
    for (; op < end && status == AC_OK; op++) {
        if (work == CMD_WORK_STREAMS)
            cmd_model_operation(r->model);
        if (op->kind == CMD_OP_ALLOC) {
            if (work == CMD_WORK_STREAMS)
                status = request(r, op);
            else
                status = plain_request(r, op);
            if (work == CMD_WORK_STREAMS && status == AC_OK)
                stream_work(r, op);
        } else if (op->kind == CMD_OP_FREE) {
            if (work == CMD_WORK_STREAMS)
                status = give_back(r, op);
            else
                status = plain_free(r, r->address[op->block]);
            r->address[op->block] = 0;
        } else if (work != CMD_WORK_NONE) {
            synchronise(r);
        }
        if (work == CMD_WORK_DELAY)
            delayed_work(r);
    }
    r->failed_at = (uint64_t)(op - r->trace->op);
    return status;
}

static ac_status_t loop_once(replay_t *r) {
    switch (r->plan->work) {
    case CMD_WORK_DELAY:
        return loop(r, CMD_WORK_DELAY);
    case CMD_WORK_STREAMS:
        return loop(r, CMD_WORK_STREAMS);
    default:
        return loop(r, CMD_WORK_NONE);
    }
}

/* Frees what the trace left allocated, so that it can be replayed again. */
static void free_rest(replay_t *r) {
    for (uint32_t i = 0; i < r->trace->blocks; i++) {
        if (r->address[i])
            plain_free(r, r->address[i]);
        r->address[i] = 0;
    }
    if (r->plan->work != CMD_WORK_NONE)
        synchronise(r);
}

/* ------------------------------------------------------------------ a whole plan */

/* Counts of the device since the last round. */
static void take_figures(replay_t *r, cmd_model_figures_t *figures) {
    if (!r->model) {
        cmd_real_figures(figures);
        return;
    }
    cmd_model_figures(r->model, figures);
    cmd_model_reset(r->model);
}

/* `done`: operations of the round; fewer than all if one failed. */
static void add_figures(replay_t *r, cmd_replay_figures_t *figures, unsigned round, double done) {
    unsigned later = round > 0;
    unsigned rounds = later ? r->plan->repeat - 1 : 1;
    cmd_model_figures_t m;
    take_figures(r, &m);
    if (m.peak > figures->peak[later])
        figures->peak[later] = m.peak;
    for (unsigned i = 0; i < CMD_CALLS; i++)
        figures->call[later][i] += m.call[i];
    figures->driver_ms[later] += m.ns / 1e6 * 1000 / done / rounds;
    figures->waits[later] += m.waits;
    figures->stream_waits[later] += m.stream_waits;
}

static void replay(replay_t *r, cmd_replay_figures_t *figures) {
    for (unsigned round = 0; round < r->plan->repeat; round++) {
        cmd_model_figures_t before;
        take_figures(r, &before); /* what freeing the rest took belongs to no replay */
        double begin = cpu_ns();
        ac_status_t status = loop_once(r);
        double done = (double)(status == AC_OK ? r->trace->count : r->failed_at);
        double ns = (cpu_ns() - begin) / done;
        if (round == 0 || ns < figures->ns)
            figures->ns = ns;
        add_figures(r, figures, round, done);
        if (status == AC_OOM && round > 0) { /* in an allocator that is not new */
            figures->later_failed_at = r->failed_at;
            return;
        }
        if (status != AC_OK) {
            figures->end = status == AC_OOM ? CMD_REPLAY_OOM : CMD_REPLAY_FAILED;
            figures->failed_at = r->failed_at;
            figures->failed_bytes = r->trace->op[r->failed_at - 1].bytes;
            snprintf(figures->why, sizeof figures->why, "operation %llu failed",
                     (unsigned long long)r->failed_at);
            return;
        }
        free_rest(r);
        if (r->model && cmd_model_misuse(r->model)) {
            figures->end = CMD_REPLAY_FAILED;
            snprintf(figures->why, sizeof figures->why, "the allocator %s",
                     cmd_model_misuse(r->model));
            return;
        }
    }
}

/* The device and its memory; the context for its operations, or NULL after a reason. */
static void *open_device(replay_t *r, uint64_t *memory, cmd_replay_figures_t *figures) {
    const cmd_replay_plan_t *plan = r->plan;
    *memory = plan->capacity ? plan->capacity : CMD_REPLAY_ROOM;
    if (plan->real)
        return cmd_real_open(figures->why, sizeof figures->why, memory);
    r->model = cmd_model_new(plan->costs, *memory, plan->work, plan->delay,
                             plan->config.fence == AC_FENCE_SYNC);
    return r->model;
}

static ac_arena_t *make_arena(replay_t *r, cmd_replay_figures_t *figures) {
    static ac_device_stats_t stats;
    static ac_device_counters_t counters;
    uint64_t memory;
    void *context = open_device(r, &memory, figures);
    if (!context)
        return NULL;
    ac_settings_t settings = ac_settings_from(&r->plan->config, memory);
    /* A smaller capacity than the real device's is set as a limit. */
    if (r->plan->real && r->plan->capacity && r->plan->capacity < settings.limit)
        settings.limit = r->plan->capacity;
    ac_allocator_t *allocator = ac_allocator_create(&settings, &stats, &counters);
    ac_arena_t *arena =
        allocator ? ac_arena_create(allocator, r->model ? &cmd_model_ops : &cmd_real_ops, context)
                  : NULL;
    if (!arena)
        snprintf(figures->why, sizeof figures->why, "the allocator could not be made");
    return arena;
}

void cmd_replay_run(const cmd_ops_t *trace, const cmd_replay_plan_t *plan,
                    cmd_replay_figures_t *figures) {
    replay_t r = {.trace = trace, .plan = plan};
    *figures = (cmd_replay_figures_t){.ops = trace->count, .end = CMD_REPLAY_FAILED};
    r.address = cmd_alloc((trace->blocks + 1) * sizeof *r.address);
    atomic_store(&ac_sole_wanted, plan->config.single_stream);
    r.arena = make_arena(&r, figures);
    figures->simulated = !plan->real || cmd_real_simulated();
    if (r.arena) {
        figures->end = CMD_REPLAY_DONE;
        static ac_cache_tally_t tally;
        r.cache = ac_cache_open(r.arena, &tally);
        r.line = ac_arena_timeline(r.arena);
        for (unsigned i = 0; plan->work == CMD_WORK_STREAMS && i <= trace->streams; i++)
            ac_arena_stream_is(r.arena, cmd_model_stream_key(i), true);
        replay(&r, figures);
    }
    free(r.address);
    if (r.model)
        cmd_model_free(r.model);
}

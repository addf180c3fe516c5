/* The replay behind `accelcache oom` (oom.h). */
#include "command.h"
#include "show/oom.h"
#include "base/conf.h"
#include "replay/replay.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ the state, as operations */

static int by_address(const void *a, const void *b) {
    const cmd_segment_t *left = a, *right = b;
    return left->address < right->address ? -1 : left->address > right->address;
}

static bool is_idle(const cmd_block_t *block) {
    return block->state == AC_LAID_FREE || block->state == AC_LAID_CACHED;
}

typedef struct {
    cmd_ops_t ops;
    uint32_t *idle; /* numbers of blocks that are freed again */
    size_t idles;
} state_t;

static void request(state_t *state, uint64_t bytes) {
    state->ops.op[state->ops.count++] = (cmd_op_t){.bytes = bytes,
                                                   .block = state->ops.blocks++,
                                                   .stream = CMD_NO_STREAM,
                                                   .kind = CMD_OP_ALLOC};
}

/* Free memory too small for the segment's pool belongs to the block before it: as a request of its
 * own it would lie elsewhere, and all that follows would be moved. */
static void add_segment(state_t *state, const cmd_segments_t *list, const cmd_segment_t *segment) {
    enum { SMALL = 64 << 10 };
    bool joined = false; /* the operation before is a block of this segment */
    for (size_t i = 0; i < segment->blocks; i++) {
        const cmd_block_t *block = &list->block[segment->first + i];
        bool idle = is_idle(block);
        if (block->state == AC_LAID_UNMAPPED)
            continue; /* no memory */
        if (idle && joined && !segment->small && block->bytes <= SMALL) {
            state->ops.op[state->ops.count - 1].bytes += block->bytes;
            continue;
        }
        if (idle)
            state->idle[state->idles++] = state->ops.blocks;
        request(state, block->bytes);
        joined = true;
    }
}

static void build(state_t *state, const cmd_oom_state_t *of) {
    const cmd_segments_t *list = of->segments;
    size_t most = 2 * list->blocks + 1;
    cmd_segment_t *segment = cmd_alloc((list->segments + 1) * sizeof *segment);
    *state = (state_t){.ops = {.op = cmd_alloc(most * sizeof *state->ops.op), .format = "state"},
                       .idle = cmd_alloc((list->blocks + 1) * sizeof *state->idle)};
    if (list->segments)
        memcpy(segment, list->segment, list->segments * sizeof *segment);
    qsort(segment, list->segments, sizeof *segment, by_address);
    for (size_t i = 0; i < list->segments; i++)
        add_segment(state, list, &segment[i]);
    for (size_t i = 0; i < state->idles; i++)
        state->ops.op[state->ops.count++] =
            (cmd_op_t){.block = state->idle[i], .stream = CMD_NO_STREAM, .kind = CMD_OP_FREE};
    request(state, of->bytes);
    free(segment);
}

/* ------------------------------------------------------------------ candidates */

/* Applies the candidate's settings to the process's own.  False: they are not accepted. */
static bool plan_of(const cmd_oom_candidate_t *candidate, const cmd_oom_state_t *state,
                    const cmd_costs_t *costs, cmd_replay_plan_t *plan) {
    ac_config_error_t wrong;
    char *conf = cmd_conf_merge(state->conf, candidate->conf);
    uint64_t room = state->available == UINT64_MAX ? 0 : state->available;
    uint64_t capacity = state->reserved + room;
    *plan = (cmd_replay_plan_t){.repeat = 1, .work = CMD_WORK_NONE, .costs = costs};
    bool good = ac_config_parse(conf, &plan->config, &wrong, NULL) == 0;
    /* The capacity stands for the limit: a share of the device is none of the modelled one. */
    plan->config.memory_limit = 0;
    plan->config.per_process_memory_fraction = 1;
    plan->capacity =
        !candidate->without_limit && state->limit < capacity ? state->limit : capacity;
    free(conf);
    return good && plan->capacity > 0;
}

/* ------------------------------------------------------------------ wherever the blocks lie */

static uint64_t divide_up(uint64_t bytes, uint64_t by) {
    return (bytes + by - 1) / by;
}

/* Pages that cannot be moved as long as the blocks stay, at most: a block touches one more than it
 * fills.  Small blocks lie side by side in pages of their own. */
static uint64_t pages_kept(const cmd_segments_t *list, uint64_t page) {
    uint64_t pages = 0, small = 0;
    for (size_t i = 0; i < list->segments; i++) {
        const cmd_segment_t *segment = &list->segment[i];
        small += segment->small ? segment->bytes : 0;
        for (size_t k = 0; k < segment->blocks && !segment->small; k++) {
            const cmd_block_t *block = &list->block[segment->first + k];
            pages += is_idle(block) ? 0 : divide_up(block->bytes, page) + 1;
        }
    }
    return pages + (small ? divide_up(small, page) + 1 : 0);
}

static bool is_sure(const cmd_oom_state_t *state, const cmd_replay_plan_t *plan) {
    const ac_config_t *config = &plan->config;
    uint64_t page = config->low_memory ? AC_SEGMENT_ALIGN : config->page_size;
    if (!config->expandable_segments) /* a segment of its own */
        return plan->capacity >= state->reserved &&
               divide_up(state->bytes, AC_SEGMENT_ALIGN) * AC_SEGMENT_ALIGN <=
                   plan->capacity - state->reserved;
    uint64_t kept = pages_kept(state->segments, page);
    uint64_t needed = divide_up(state->bytes, page) + 1;
    return (kept + needed) * page <= plan->capacity;
}

void cmd_oom_replay(const cmd_oom_state_t *state,
                    cmd_oom_candidate_t candidate[CMD_OOM_CANDIDATES]) {
    cmd_replay_plan_t plan[CMD_OOM_CANDIDATES];
    cmd_replay_job_t job[CMD_OOM_CANDIDATES];
    cmd_oom_candidate_t *of[CMD_OOM_CANDIDATES];
    cmd_costs_t costs;
    size_t jobs = 0;
    state_t built;
    cmd_costs_default(&costs);
    build(&built, state);
    for (int i = 0; i < CMD_OOM_CANDIDATES; i++) {
        if (!candidate[i].name || !plan_of(&candidate[i], state, &costs, &plan[jobs]))
            continue;
        job[jobs] = (cmd_replay_job_t){.trace = &built.ops, .plan = &plan[jobs]};
        of[jobs++] = &candidate[i];
    }
    cmd_replay_jobs(job, jobs, false, NULL, NULL);
    for (size_t i = 0; i < jobs; i++) {
        of[i]->tried = job[i].figures.end != CMD_REPLAY_FAILED;
        of[i]->served = job[i].figures.end == CMD_REPLAY_DONE;
        of[i]->sure = of[i]->served && is_sure(state, &plan[i]);
    }
    free(built.ops.op);
    free(built.idle);
}

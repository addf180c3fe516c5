/* The modelled device (model.h). */
#include "replay/model_int.h"
#include "command.h"

#include <stdlib.h>
#include <string.h>

/* The contract's clock has no context; there is one model at a time in a process. */
static const cmd_model_t *current;

cmd_model_t *cmd_model_new(const cmd_costs_t *costs, uint64_t capacity, cmd_work_t work,
                           uint64_t delay, bool no_fences) {
    cmd_model_t *model = cmd_alloc(sizeof *model);
    model->costs = *costs;
    model->capacity = capacity;
    model->work = work;
    model->delay = delay;
    model->no_fences = no_fences;
    current = model;
    return model;
}

void cmd_model_free(cmd_model_t *model) {
    while (model->spare) {
        fence_t *next = model->spare->next;
        free(model->spare);
        model->spare = next;
    }
    for (unsigned i = 0; i < model->streams; i++)
        free(model->stream[i]);
    model_pages_free(model);
    free(model->stream);
    free(model->range);
    free(model);
    current = NULL;
}

void model_charge(cmd_model_t *model, unsigned call, const cmd_cost_t *cost, uint64_t bytes,
                  uint64_t pages) {
    double ns =
        cost->fixed + cost->per_mib * (double)bytes / 1048576 + cost->per_page * (double)pages;
    model->figures.call[call]++;
    model->figures.ns += ns;
    model->now += ns;
}

ac_status_t model_misuse(cmd_model_t *model, const char *what) {
    if (!model->misuse)
        model->misuse = what;
    return AC_FAILED;
}

const char *cmd_model_misuse(const cmd_model_t *model) {
    return model->misuse;
}

/* ------------------------------------------------------------------ memory */

static size_t find_range(const cmd_model_t *model, uint64_t address) {
    size_t low = 0, high = model->ranges;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (model->range[middle].address < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void model_take(cmd_model_t *model, uint64_t bytes) {
    model->used += bytes;
    if (model->used > model->figures.peak)
        model->figures.peak = model->used;
}

static ac_status_t segment_alloc(void *context, uint64_t bytes, uint64_t *address) {
    cmd_model_t *model = context;
    CHARGE(model, alloc, bytes);
    if (bytes > model->capacity - model->used)
        return AC_OOM;
    uint64_t start = BASE;
    size_t at = 0;
    for (; at < model->ranges && model->range[at].address - start < bytes; at++)
        start = model->range[at].address + model->range[at].size;
    if (bytes > END - start)
        return AC_OOM;
    if (model->ranges == model->range_room) {
        model->range_room = model->range_room ? model->range_room * 2 : 64;
        model->range = cmd_resize(model->range, model->range_room * sizeof *model->range);
    }
    memmove(&model->range[at + 1], &model->range[at],
            (model->ranges - at) * sizeof *model->range);
    model->range[at] = (range_t){start, bytes};
    model->ranges++;
    model_take(model, bytes);
    *address = start;
    return AC_OK;
}

/* ------------------------------------------------------------------ time */

static double all_done(const cmd_model_t *model) {
    double end = model->now;
    for (unsigned i = 0; i < model->streams; i++)
        if (model->stream[i]->end > end)
            end = model->stream[i]->end;
    return end;
}

static void wait_for_all(cmd_model_t *model) {
    double end = all_done(model);
    bool waits = end > model->now;
    if (model->work == CMD_WORK_DELAY) {
        waits = model->delay && model->waited < model->operations;
        model->waited = model->operations;
    }
    model->figures.waits += waits;
    model->now = end;
}

static ac_status_t segment_free(void *context, uint64_t address, uint64_t bytes) {
    (void)bytes;
    cmd_model_t *model = context;
    size_t at = find_range(model, address);
    if (at == model->ranges || model->range[at].address != address)
        return model_misuse(model, "freed a segment that it does not have");
    CHARGE(model, free, model->range[at].size);
    wait_for_all(model);
    model->used -= model->range[at].size;
    model->ranges--;
    memmove(&model->range[at], &model->range[at + 1],
            (model->ranges - at) * sizeof *model->range);
    return AC_OK;
}

static ac_status_t memory_free(void *context, uint64_t *bytes) {
    const cmd_model_t *model = context;
    *bytes = model->capacity - model->used;
    return AC_OK;
}

static stream_t *stream_at(cmd_model_t *model, unsigned stream) {
    while (model->streams <= stream) {
        model->stream = cmd_resize(model->stream, (model->streams + 1) * sizeof *model->stream);
        model->stream[model->streams++] = cmd_alloc(sizeof(stream_t));
    }
    return model->stream[stream];
}

/* Keys are addresses as handles would be: no default stream's. */
uint64_t cmd_model_stream_key(unsigned stream) {
    return 0x10000 + (uint64_t)stream * 64;
}

static stream_t *stream_of(cmd_model_t *model, uint64_t key) {
    return stream_at(model, (unsigned)((key - 0x10000) / 64));
}

void cmd_model_operation(cmd_model_t *model) {
    model->operations++;
    model->now += model->costs.operation.fixed;
}

void cmd_model_kernel(cmd_model_t *model, unsigned stream, uint64_t bytes) {
    stream_t *s = stream_at(model, stream);
    double *slot = &s->ends[s->submitted++ % CMD_RUN_AHEAD];
    if (*slot > model->now)
        model->now = *slot;
    double begin = s->end > model->now ? s->end : model->now;
    s->end = *slot =
        begin + model->costs.kernel.fixed + model->costs.kernel.per_mib * (double)bytes / 1048576;
}

void cmd_model_synchronise(cmd_model_t *model) {
    model->waited = model->operations;
    model->now = all_done(model);
}

/* ------------------------------------------------------------------ fences */

static fence_t *new_fence(cmd_model_t *model) {
    fence_t *fence = model->spare;
    if (fence)
        model->spare = fence->next;
    else
        fence = cmd_alloc(sizeof *fence);
    return fence;
}

static ac_status_t fence_record(void *context, bool unseen, void **out) {
    (void)unseen;
    cmd_model_t *model = context;
    if (model->no_fences)
        return AC_UNSUPPORTED;
    CHARGE(model, record, 0);
    fence_t *fence = new_fence(model);
    if (model->work == CMD_WORK_STREAMS)
        fence->time = all_done(model);
    else
        fence->operation = model->operations;
    *out = fence;
    return AC_OK;
}

static bool is_done(const cmd_model_t *model, const fence_t *fence) {
    if (model->work == CMD_WORK_STREAMS)
        return fence->time <= model->now;
    return fence->operation <= model->waited ||
           fence->operation + model->delay <= model->operations;
}

static ac_status_t fence_query(void *context, void *fence) {
    cmd_model_t *model = context;
    CHARGE(model, query, 0);
    return is_done(model, fence) ? AC_OK : AC_BUSY;
}

static ac_status_t fence_wait(void *context, void *what, uint64_t limit_ns) {
    cmd_model_t *model = context;
    const fence_t *fence = what;
    CHARGE(model, wait, 0);
    if (is_done(model, fence))
        return AC_OK;
    model->figures.waits++;
    if (model->work != CMD_WORK_STREAMS) {
        model->waited = fence->operation;
        return AC_OK;
    }
    if (limit_ns && fence->time > model->now + (double)limit_ns) {
        model->now += (double)limit_ns;
        return AC_BUSY;
    }
    model->now = fence->time;
    return AC_OK;
}

static void fence_release(void *context, void *what) {
    cmd_model_t *model = context;
    fence_t *fence = what;
    fence->next = model->spare;
    model->spare = fence;
}

static ac_status_t join_record(void *context, uint64_t stream, void **out) {
    cmd_model_t *model = context;
    CHARGE(model, record, 0);
    fence_t *fence = new_fence(model);
    if (model->work == CMD_WORK_STREAMS)
        fence->time = stream_of(model, stream)->end;
    else
        fence->operation = model->operations;
    *out = fence;
    return AC_OK;
}

static ac_status_t join_wait(void *context, void *fence, uint64_t stream) {
    cmd_model_t *model = context;
    if (stream == 0)
        return fence_wait(context, fence, 0);
    CHARGE(model, order, 0);
    model->figures.stream_waits++;
    if (model->work == CMD_WORK_STREAMS) {
        stream_t *s = stream_of(model, stream);
        double time = ((fence_t *)fence)->time;
        if (time > s->end)
            s->end = time;
    }
    return AC_OK;
}

static bool capturing(void *context, bool any) {
    (void)any;
    (void)context;
    return false;
}

static ac_status_t synchronize(void *context, uint64_t limit_ns) {
    cmd_model_t *model = context;
    (void)limit_ns;
    CHARGE(model, sync, 0);
    wait_for_all(model);
    return AC_OK;
}

static ac_status_t stream_order(void *context, uint64_t from, uint64_t to) {
    cmd_model_t *model = context;
    CHARGE(model, record, 0);
    CHARGE(model, order, 0);
    model->figures.stream_waits++;
    double end = stream_of(model, from)->end;
    stream_t *s = stream_of(model, to);
    if (end > s->end)
        s->end = end;
    return AC_OK;
}

static ac_status_t stream_touch(void *context, uint64_t stream) {
    cmd_model_t *model = context;
    (void)stream;
    CHARGE(model, record, 0);
    return AC_OK;
}

static uint64_t now_ns(void) {
    return (uint64_t)current->now;
}

const ac_device_ops_t cmd_model_ops = {
    .segment_alloc = segment_alloc,
    .segment_alloc_aside = segment_alloc,
    .segment_free = segment_free,
    .memory_free = memory_free,
    .fence_record = fence_record,
    .fence_query = fence_query,
    .fence_wait = fence_wait,
    .fence_release = fence_release,
    .join_record = join_record,
    .join_wait = join_wait,
    .capturing = capturing,
    .synchronize = synchronize,
    .stream_order = stream_order,
    .stream_touch = stream_touch,
    .range_support = model_range_support,
    .range_reserve = model_range_reserve,
    .range_release = model_range_release,
    .page_create = model_page_create,
    .page_release = model_page_release,
    .page_map = model_page_map,
    .pages_allow = model_pages_allow,
    .pages_unmap = model_pages_unmap,
    .now_ns = now_ns,
};

/* ------------------------------------------------------------------ figures */

void cmd_model_figures(const cmd_model_t *model, cmd_model_figures_t *figures) {
    *figures = model->figures;
}

void cmd_model_reset(cmd_model_t *model) {
    model->figures = (cmd_model_figures_t){.peak = model->used};
}

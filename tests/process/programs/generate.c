/* Generates random programs: proposes operations and keeps the ones that the model accepts. */
#include "generate_int.h"

#include <string.h>

uint32_t gen_below(gen_t *g, uint32_t n) {
    g->state ^= g->state << 13;
    g->state ^= g->state >> 7;
    g->state ^= g->state << 17;
    return n ? (uint32_t)((g->state >> 32) * n >> 32) : 0;
}

bool gen_chance(gen_t *g, unsigned percent) {
    return gen_below(g, 100) < percent;
}

bool gen_op(gen_t *g, unsigned thread, unsigned code, uint32_t a, uint32_t b, uint32_t c,
            uint32_t d) {
    op_t op = {(uint8_t)code, (uint8_t)thread, {a, b, c, d}};
    if (!model_apply(g->model, &op))
        return false;
    program_add(g->program, op);
    return true;
}

/* ---- choosing ---- */

int gen_block(gen_t *g, int ctx) {
    for (unsigned i = 0; i < 20; i++) {
        int at = (int)gen_below(g, g->blocks_most);
        const block_t *b = &g->model->block[at];
        if (b->live && b->local < 0 && (ctx < 0 || b->ctx == ctx))
            return at;
    }
    return -1;
}

int gen_context(gen_t *g) {
    for (unsigned i = 0; i < 20; i++) {
        int at = (int)gen_below(g, gen_chance(g, 70) ? g->model->devices : CONTEXTS);
        if (g->model->context[at].live)
            return at;
    }
    return 0;
}

static int any_slot(gen_t *g, int ctx) {
    for (unsigned i = 0; i < 20; i++) {
        int at = (int)gen_below(g, g->streams_most);
        const lane_t *lane = &g->model->lane[at];
        if (lane->live && (ctx < 0 || lane->ctx == ctx))
            return gen_chance(g, 10) ? at | STREAM_Z : at;
    }
    return -1;
}

int gen_stream(gen_t *g, unsigned thread, int ctx) {
    int slot = gen_chance(g, g->special_percent) ? -1 : any_slot(g, ctx);
    if (slot >= 0)
        return slot;
    if (g->model->current[thread] != ctx &&
        (!gen_chance(g, 40) || !gen_op(g, thread, OP_USE, (uint32_t)ctx, 0, 0, 0)))
        return any_slot(g, ctx);
    return (int)(STREAM_NULL + gen_below(g, 3)) | (gen_chance(g, 35) ? STREAM_Z : 0);
}

int gen_name(gen_t *g, int at, unsigned *thread) {
    const lane_t *lane = &g->model->lane[at];
    if (!lane->live)
        return -1;
    if (at < LANE_LEGACY)
        return at;
    if (at >= LANE_OWN)
        *thread = (unsigned)(at - LANE_OWN) % THREADS;
    if (g->model->current[*thread] != lane->ctx &&
        !gen_op(g, *thread, OP_USE, (uint32_t)lane->ctx, 0, 0, 0))
        return -1;
    return at >= LANE_OWN ? STREAM_OWN : gen_chance(g, 50) ? STREAM_NULL : STREAM_LEGACY;
}

int gen_event(gen_t *g, int ctx) {
    for (unsigned i = 0; i < 3; i++) {
        uint32_t at = gen_below(g, EVENTS);
        const event_t *event = &g->model->event[at];
        if (event->live && event->ctx == ctx)
            return (int)at;
        if (event->live && !gen_op(g, g->thread, OP_DROPEVENT, at, 0, 0, 0))
            continue;
        if (gen_op(g, g->thread, OP_EVENT, at, (uint32_t)ctx, 0, 0))
            return (int)at;
    }
    return -1;
}

/* ---- order ---- */

static int lane_of_chain(const model_t *m, uint32_t chain) {
    for (int i = 0; i < LANES; i++)
        if (m->lane[i].live && m->lane[i].chain == chain)
            return i;
    return -1;
}

/* Makes the host wait for the point, which belongs to a destroyed stream. */
static void wait_for_gone(gen_t *g, point_t point) {
    for (int i = 0; i < CONTEXTS; i++)
        if (g->model->context[i].live && past_has(&g->model->context[i].gone, point) &&
            (g->model->current[g->thread] == i ||
             gen_op(g, g->thread, OP_USE, (uint32_t)i, 0, 0, 0)) &&
            gen_op(g, g->thread, OP_SYNCCTX, 0, 0, 0, 0))
            return;
}

static void host_after(gen_t *g, point_t point) {
    if (past_has(&g->model->host, point))
        return;
    int lane = lane_of_chain(g->model, point.chain);
    unsigned thread = g->thread;
    int name = lane < 0 ? -1 : gen_name(g, lane, &thread);
    int event = name < 0 || gen_chance(g, 60) ? -1 : gen_event(g, g->model->lane[lane].ctx);
    if (name < 0)
        wait_for_gone(g, point);
    else if (event < 0 || !gen_op(g, thread, OP_RECORD, (uint32_t)event, (uint32_t)name, 0, 0))
        gen_op(g, thread, OP_SYNC, (uint32_t)name, 0, 0, 0);
    else
        gen_op(g, g->thread, OP_SYNCEVENT, (uint32_t)event, 0, 0, 0);
}

static void stream_after(gen_t *g, unsigned thread, uint32_t operand, point_t point) {
    int to = model_lane(g->model, thread, operand);
    if (to < 0 || past_has(&g->model->lane[to].past, point) || past_has(&g->model->host, point))
        return;
    int from = lane_of_chain(g->model, point.chain);
    unsigned by = g->thread;
    int name = from < 0 || gen_chance(g, 10) ? -1 : gen_name(g, from, &by);
    int event = name < 0 ? -1 : gen_event(g, g->model->lane[from].ctx);
    if (event < 0 || !gen_op(g, by, OP_RECORD, (uint32_t)event, (uint32_t)name, 0, 0) ||
        !gen_op(g, thread, OP_WAIT, operand, (uint32_t)event, 0, 0))
        host_after(g, point);
}

static unsigned points(const block_t *b, point_t *out) {
    out[0] = b->alloc;
    out[1] = b->write;
    memcpy(out + 2, b->read, b->readers * sizeof *out);
    return 2 + b->readers;
}

void gen_order(gen_t *g, unsigned thread, uint32_t operand, uint32_t block) {
    point_t point[READERS + 2];
    unsigned count = points(&g->model->block[block], point);
    int lane = model_lane(g->model, thread, operand), ctx = g->model->current[thread];
    for (unsigned i = 0; i < count; i++)
        stream_after(g, thread, operand, point[i]);
    if (model_lane(g->model, thread, operand) != lane)
        gen_op(g, thread, OP_USE, (uint32_t)ctx, 0, 0, 0);
}

void gen_order_host(gen_t *g, uint32_t block) {
    point_t point[READERS + 2];
    unsigned count = points(&g->model->block[block], point);
    for (unsigned i = 0; i < count; i++)
        host_after(g, point[i]);
}

/* ---- acting ---- */

static uint32_t how(gen_t *g) {
    uint32_t speed = gen_chance(g, g->slow_percent) ? 2 : gen_below(g, 2);
    return speed + (gen_chance(g, g->programmatic_percent) ? LAUNCH_PROGRAMMATIC : 0);
}

static void take(gen_t *g) {
    uint32_t at = gen_below(g, g->blocks_most), bytes = g->size[gen_below(g, g->sizes)];
    if (gen_chance(g, 15))
        bytes += gen_below(g, bytes / 2);
    if (g->model->block[at].live)
        return;
    int ctx = gen_context(g);
    int on = gen_chance(g, g->async_percent) ? gen_stream(g, g->thread, ctx) : -1;
    if (on >= 0) {
        if (!(gen_chance(g, 40) &&
              gen_op(g, g->thread, OP_ALLOCFROM, at, bytes, gen_below(g, POOLS), (uint32_t)on)) &&
            !gen_op(g, g->thread, OP_ALLOCASYNC, at, bytes, (uint32_t)on, 0))
            return;
    } else {
        if (g->model->current[g->thread] != ctx && gen_chance(g, 30))
            gen_op(g, g->thread, OP_USE, (uint32_t)ctx, 0, 0, 0);
        if (!gen_op(g, g->thread, g->pins && at % 4 == 0 ? OP_PIN : OP_ALLOC, at, bytes, 0, 0))
            return;
        on = gen_stream(g, g->thread, g->model->block[at].ctx);
    }
    if (on < 0 || !gen_chance(g, 70))
        return;
    bool fill =
        g->model->block[at].local >= 0 || gen_chance(g, 60); /* most blocks are written at once */
    gen_op(g, g->thread, fill ? OP_FILL : OP_SET, (uint32_t)on, at, fill ? how(g) : 0, 0);
}

/* Adds the operation. Adds the order that it lacks first, if necessary. */
static void ordered(gen_t *g, unsigned thread, unsigned code, uint32_t on, uint32_t a, uint32_t b,
                    uint32_t c, unsigned blocks) {
    if (gen_op(g, thread, code, on, a, b, c) || !gen_chance(g, g->order_percent))
        return;
    gen_order(g, thread, on, a);
    if (blocks > 1)
        gen_order(g, thread, on, b);
    gen_op(g, thread, code, on, a, b, c);
}

/* Returns a stream for the block, often the one that used it last. */
static int stream_for(gen_t *g, uint32_t block, unsigned *thread) {
    const block_t *b = &g->model->block[block];
    if (b->lane >= 0 && gen_chance(g, 50)) {
        int name = gen_name(g, b->lane, thread);
        if (name >= 0)
            return name;
    }
    int ctx = b->ctx;
    for (int i = 0; gen_chance(g, 30) && i < CONTEXTS; i++) /* from another context in reach */
        if ((g->model->context[i].peer[b->ctx] && !b->async) ||
            (g->model->context[i].live && b->devices >> g->model->context[i].device & 1))
            ctx = i;
    return gen_stream(g, *thread, ctx);
}

static void give(gen_t *g) {
    int at = gen_block(g, -1);
    unsigned thread = g->thread;
    if (at < 0)
        return;
    const block_t *b = &g->model->block[at];
    unsigned code = b->pinned ? OP_UNPIN : OP_FREE;
    if (gen_chance(g, b->async ? 85 : 10) && !b->pinned) {
        int on = stream_for(g, (uint32_t)at, &thread);
        if (on < 0 || gen_op(g, thread, OP_FREEASYNC, (uint32_t)at, (uint32_t)on, 0, 0))
            return;
        gen_order(g, thread, (uint32_t)on, (uint32_t)at);
        gen_op(g, thread, OP_FREEASYNC, (uint32_t)at, (uint32_t)on, 0, 0);
        return;
    }
    if (gen_op(g, thread, code, (uint32_t)at, 0, 0, 0))
        return;
    gen_order_host(g, (uint32_t)at);
    gen_op(g, thread, code, (uint32_t)at, 0, 0, 0);
}

static void kernel(gen_t *g) {
    int at = gen_block(g, -1);
    unsigned thread = g->thread;
    int on = at < 0 ? -1 : stream_for(g, (uint32_t)at, &thread);
    if (on < 0)
        return;
    int from = gen_chance(g, 25) ? gen_block(g, g->model->block[at].ctx) : -1;
    if (from >= 0)
        ordered(g, thread, OP_MIX, (uint32_t)on, (uint32_t)at, (uint32_t)from, how(g), 2);
    else
        ordered(g, thread, gen_chance(g, 60) ? OP_FILL : OP_CHECK, (uint32_t)on, (uint32_t)at,
                how(g), 0, 1);
}

/* Returns true if a copy crosses contexts. If a program makes unseen copies, all its copies
 * across contexts are unseen: the library's knowledge of a seen copy would cover them. */
static bool crosses(const gen_t *g, int to, int from) {
    return g->model->block[to].ctx != g->model->block[from].ctx;
}

static void transfer(gen_t *g) {
    static const unsigned one[] = {OP_SET, OP_PUT, OP_GET},
                          two[] = {OP_COPY, OP_PEERCOPY, OP_UNSEEN};
    int at = gen_block(g, -1), from = gen_chance(g, 40) ? gen_block(g, -1) : -1;
    unsigned thread = g->thread;
    int on = at < 0 ? -1 : stream_for(g, (uint32_t)at, &thread);
    if (on < 0)
        return;
    unsigned how = gen_below(g, g->model->found ? 3 : 2);
    if (from >= 0 && g->finds && crosses(g, at, from))
        how = 2;
    if (from >= 0)
        ordered(g, thread, two[how], (uint32_t)on, (uint32_t)at, (uint32_t)from, 0, 2);
    else
        ordered(g, thread, one[gen_below(g, 3)], (uint32_t)on, (uint32_t)at, 0, 0, 1);
}

static void now(gen_t *g) {
    static const unsigned one[] = {OP_SETNOW, OP_PUTNOW, OP_GETNOW};
    int ctx = g->model->current[g->thread], at = gen_block(g, ctx), from = gen_block(g, -1);
    uint32_t on = STREAM_NULL | (gen_chance(g, 40) ? STREAM_Z : 0);
    if (at < 0)
        return;
    if (from >= 0 && gen_chance(g, 20) && !(g->finds && crosses(g, at, from)))
        ordered(g, g->thread, OP_COPYNOW, on, (uint32_t)at, (uint32_t)from, 0, 2);
    else
        ordered(g, g->thread, one[gen_below(g, 3)], on, (uint32_t)at, 0, 0, 1);
}

static void wait_(gen_t *g) {
    int ctx = gen_context(g), on = gen_stream(g, g->thread, ctx);
    uint32_t event = gen_below(g, EVENTS);
    if (on < 0)
        return;
    switch (gen_below(g, 10)) {
    case 0:
        gen_op(g, g->thread, OP_SYNC, (uint32_t)on, 0, 0, 0);
        break;
    case 1:
        gen_op(g, g->thread, OP_POLL, (uint32_t)on, 0, 0, 0);
        break;
    case 2:
        gen_op(g, g->thread, OP_QUERY, event, 0, 0, 0);
        break;
    case 3:
        gen_op(g, g->thread, OP_SYNCEVENT, event, 0, 0, 0);
        break;
    case 4:
        if (gen_chance(g, 30))
            gen_op(g, g->thread, OP_SYNCCTX, 0, 0, 0, 0);
        break;
    case 5:
        gen_op(g, g->thread, OP_DROPEVENT, event, 0, 0, 0);
        break;
    case 6:
        gen_op(g, g->thread, gen_chance(g, 30) ? OP_CALLBACK : OP_HOST, (uint32_t)on, 0, 0, 0);
        break;
    case 7:
    case 8:
        if (!g->model->event[event].live)
            gen_op(g, g->thread, OP_EVENT, event, (uint32_t)ctx, 0, 0);
        gen_op(g, g->thread, OP_RECORD, event, (uint32_t)on, 0, 0);
        break;
    default:
        gen_op(g, g->thread, OP_WAIT, (uint32_t)on, event, 0, 0);
    }
}

static void stream(gen_t *g) {
    uint32_t at = gen_below(g, g->streams_most);
    if (g->model->lane[at].live)
        gen_op(g, g->thread, OP_DROP, at, 0, 0, 0);
    else if (!gen_chance(g, 15) ||
             !gen_op(g, g->thread, OP_GSTREAM, at, gen_below(g, GREENS), 0, 0))
        gen_op(g, g->thread, OP_STREAM, at, (uint32_t)gen_context(g), gen_below(g, 4), 0);
}

/* Ends a context. In half of the cases nothing waits for its work, and the model may refuse
 * that. */
static void drop_context(gen_t *g, uint32_t at) {
    bool primary = at < g->model->devices, hard = gen_chance(g, 50), leave = gen_chance(g, 70);
    if (!g->model->context[at].live || (primary && !gen_chance(g, 50)))
        return;
    for (unsigned i = 0; !hard && i < g->model->threads; i++)
        if (gen_op(g, i, OP_USE, at, 0, 0, 0))
            gen_op(g, i, OP_SYNCCTX, 0, 0, 0, 0);
    for (unsigned i = 0; leave && i < g->model->threads; i++)
        if (g->model->current[i] == (int)at)
            gen_op(g, i, OP_USE, gen_below(g, g->model->devices), 0, 0, 0);
    for (uint32_t i = 0; !hard && i < BLOCKS; i++)
        if (g->model->block[i].live && g->model->block[i].ctx == (int)at)
            gen_order_host(g, i);
    if (primary)
        gen_op(g, g->thread, OP_RESET, at, gen_below(g, 2), 0, 0);
    else
        gen_op(g, g->thread, OP_DROPCTX, at, 0, 0, 0);
}

static void peer(gen_t *g, uint32_t from, uint32_t to) {
    if (gen_op(g, g->thread, OP_PEER, from, to, 0, 0) || !g->model->context[from].peer[to])
        return;
    if (!gen_op(g, g->thread, OP_UNPEER, from, to, 0, 0) &&
        gen_op(g, g->thread, OP_USE, from, 0, 0, 0) &&
        gen_op(g, g->thread, OP_SYNCCTX, 0, 0, 0, 0))
        gen_op(g, g->thread, OP_UNPEER, from, to, 0, 0);
}

static void context(gen_t *g) {
    uint32_t at = gen_below(g, CONTEXTS);
    switch (gen_below(g, 8) + (g->finds ? 8 : 0)) {
    case 0:
        gen_op(g, g->thread, OP_NEWCTX, at, gen_below(g, g->model->devices), 0, 0);
        break;
    case 1:
        drop_context(g, at);
        break;
    case 2:
        peer(g, at, gen_below(g, CONTEXTS));
        break;
    case 3:
        gen_op(g, g->thread, OP_GREEN, gen_below(g, GREENS), gen_below(g, g->model->devices), 0,
               0);
        break;
    case 4:
        if (gen_chance(g, 30))
            gen_op(g, g->thread, OP_DROPGREEN, gen_below(g, GREENS), 0, 0, 0);
        break;
    default:
        gen_op(g, g->thread, OP_USE, at, 0, 0, 0);
    }
}

static void ask(gen_t *g) {
    int at = gen_block(g, -1);
    if (g->finds && gen_chance(g, 50))
        gen_op(g, g->thread, OP_FIND, 0, 0, 0, 0);
    switch (gen_below(g, 12)) {
    case 0:
        gen_op(g, g->thread, OP_EMPTY, 0, 0, 0, 0);
        break;
    case 1:
        if (at >= 0 && gen_chance(g, 30))
            gen_op(g, g->thread, OP_HANDLE, (uint32_t)at, 0, 0, 0);
        break;
    case 2:
        if (g->pools_touched)
            gen_op(g, g->thread, OP_TRIMPOOL, gen_below(g, g->model->devices), 0, 0, 0);
        break;
    case 3:
    case 4:
    case 5:
        gen_op(g, g->thread, OP_INFO, 0, 0, 0, 0);
        break;
    case 6:
        if (at >= 0)
            gen_op(g, g->thread, OP_ID, (uint32_t)at, 0, 0, 0);
        break;
    case 7:
        if (at >= 0)
            gen_op(g, g->thread, OP_SYNCMEMOPS, (uint32_t)at, gen_below(g, 2), 0, 0);
        break;
    default:
        if (at >= 0)
            gen_op(g, g->thread, OP_RANGE, (uint32_t)at, 0, 0, 0);
    }
}

static void pool(gen_t *g) {
    uint32_t at = gen_below(g, POOLS), device = gen_below(g, g->model->devices);
    if (gen_op(g, g->thread, OP_POOL, at, device, 0, 0))
        return;
    switch (gen_below(g, 16)) {
    case 0:
        gen_op(g, g->thread, OP_DROPPOOL, at, 0, 0, 0);
        break;
    case 1:
        gen_op(g, g->thread, OP_POOLREACH, at, device, 0, 0);
        break;
    case 2:
        if (g->pools_touched)
            gen_op(g, g->thread, OP_DEVICEPOOL, at, 0, 0, 0);
        break;
    case 3:
        gen_op(g, g->thread, OP_POOLTRIM, at, 0, 0, 0);
        break;
    case 4:
        gen_op(g, g->thread, OP_POOLSET, at, gen_below(g, 5), 0, 0);
        break;
    default:
        gen_op(g, g->thread, OP_POOLASK, at, 0, 0, 0);
    }
}

static void pass_time(gen_t *g) {
    if (gen_chance(g, 5))
        gen_op(g, g->thread, OP_RENEW, 0, 0, 0, 0);
    gen_op(g, g->thread, OP_ADVANCE, gen_chance(g, 10) ? gen_below(g, 2000) : gen_below(g, 60), 0,
           0, 0);
}

static void act(gen_t *g) {
    static void (*const table[ACT_COUNT])(gen_t *) = {
        take,        give,      kernel,  transfer, now,  wait_,    stream,
        gen_capture, gen_graph, context, ask,      pool, pass_time};
    unsigned at = gen_below(g, g->weights), what = 0;
    while (at >= g->weight[what])
        at -= g->weight[what++];
    table[what](g);
}

void generate(program_t *program, unsigned long seed, size_t operations) {
    gen_t g = {.state = seed * 0x9e3779b97f4a7c15u + 0x1234567, .program = program};
    program_init(program);
    program->seed = seed;
    for (unsigned i = 0; i < 8; i++)
        gen_below(&g, 2);
    gen_settings(&g);
    g.model = model_new(program);
    for (unsigned i = 0; i < (g.streams_most + 1) / 2; i++)
        stream(&g);
    /* Failed proposals are cheap, but the loop needs a limit for states that accept none. */
    for (size_t tries = 40 * operations; tries && program->count < operations; tries--) {
        if (!gen_below(&g, g.threads_stay))
            g.thread = gen_below(&g, program->threads);
        if (g.model->current[g.thread] < 0)
            gen_op(&g, g.thread, gen_chance(&g, 40) ? OP_STALE : OP_USE,
                   gen_below(&g, program->devices), 0, 0, 0);
        else if (!gen_capture_step(&g))
            act(&g);
    }
    gen_end_captures(&g);
    model_free(g.model);
}

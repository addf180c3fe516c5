/* Operations of the model: one function per row of ops.def. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_int.h"

static bool capturing(const model_t *m) {
    for (int i = 0; i < CAPTURES; i++)
        if (m->capture[i].live)
            return true;
    return false;
}

/* ---- contexts ---- */

static void context_begin(model_t *m, int at, int device) {
    context_t *context = &m->context[at];
    context->live = true;
    context->device = device;
    past_clear(&context->gone);
    lane_begin(m, LANE_LEGACY + at, at, false);
    for (unsigned i = 0; i < m->threads; i++)
        lane_begin(m, LANE_OWN + at * THREADS + (int)i, at, true);
}

APPLY(USE) {
    if (!m->context[op->at[0]].live)
        return false;
    m->current[op->thread] = (int)op->at[0];
    return true;
}

APPLY(NEWCTX) {
    if (m->context[op->at[0]].live || op->at[1] >= m->devices || capturing(m))
        return false;
    context_begin(m, (int)op->at[0], (int)op->at[1]);
    return true;
}

static bool of_device(const model_t *m, const block_t *b, int device) {
    return m->context[b->ctx].device == device;
}

/* Returns true if the block ends with the context. Memory of pools belongs to the device, and
 * ends with its primary context. */
static bool goes_with(const model_t *m, const block_t *b, int at) {
    if (!b->live)
        return false;
    return b->async ? at < (int)m->devices && of_device(m, b, at) : b->ctx == at;
}

/* Returns true if only work of the context itself may still use its memory. */
static bool context_may_end(const model_t *m, int at) {
    for (int i = 0; i < BLOCKS; i++) {
        const block_t *b = &m->block[i];
        if (!goes_with(m, b, at))
            continue;
        for (unsigned j = 0; j < b->readers + 2; j++) {
            point_t point = j < b->readers ? b->read[j] : j == b->readers ? b->write : b->alloc;
            if (!past_has(&m->host, point) && m->chain[point.chain].ctx != at)
                return false;
        }
    }
    return true;
}

static void context_end(model_t *m, int at) {
    for (int i = 0; i < LANES; i++)
        if (m->lane[i].live && m->lane[i].ctx == at)
            lane_end(m, i);
    for (int i = 0; i < EVENTS; i++)
        m->event[i].live &= m->event[i].ctx != at;
    for (int i = 0; i < GRAPHS; i++)
        m->graph[i].live &= m->graph[i].ctx != at;
    for (int i = 0; i < BLOCKS; i++) {
        block_t *b = &m->block[i];
        if (goes_with(m, b, at))
            b->live = false;
        else if (b->live && b->ctx == at)
            b->ctx = m->context[at].device;
    }
    for (int i = 0; i < CONTEXTS; i++)
        m->context[i].peer[at] = m->context[at].peer[i] = false;
    m->context[at].live = false;
}

APPLY(DROPCTX) {
    int at = (int)op->at[0];
    if (op->at[0] < m->devices || !m->context[at].live || capturing(m) || !context_may_end(m, at))
        return false;
    for (unsigned i = 0; i < m->threads; i++)
        if (m->current[i] == at)
            m->current[i] = -1;
    context_end(m, at);
    return true;
}

static void pool_end(model_t *m, int pool) {
    m->pool[pool].live = m->pool[pool].current = false;
    for (int i = 0; i < BLOCKS; i++)
        if (m->block[i].pool == pool)
            m->block[i].pool = -1;
}

/* Returns true if the host knows that no other context of the device works. A reset also ends
 * stream-ordered memory that the device's pools still hold. */
static bool others_idle(const model_t *m, int device) {
    for (int i = 0; i < CONTEXTS; i++)
        if (i != device && m->context[i].live && m->context[i].device == device &&
            !past_covers(&m->host, &m->context[i].gone))
            return false;
    for (int i = 0; i < LANES; i++) {
        const lane_t *lane = &m->lane[i];
        if (lane->live && lane->ctx != device && m->context[lane->ctx].device == device &&
            !past_covers(&m->host, &lane->past))
            return false;
    }
    return true;
}

/* Refused if the device has green contexts: CUDA does not document their state after a reset. */
APPLY(RESET) {
    int at = (int)op->at[0];
    if (op->at[0] >= m->devices || op->at[1] > 1 || capturing(m) || !context_may_end(m, at) ||
        !others_idle(m, at))
        return false;
    for (int i = 0; i < GREENS; i++)
        if (m->green[i].live && m->green[i].device == at)
            return false;
    context_end(m, at);
    for (int i = 0; i < POOLS; i++)
        if (m->pool[i].live && m->pool[i].device == at)
            pool_end(m, i);
    context_begin(m, at, at);
    return true;
}

/* See model_apply. */
APPLY(STALE) {
    return m->current[op->thread] < 0 && !model_unsafe(m, op->thread);
}

APPLY(PEER) {
    context_t *from = &m->context[op->at[0]], *to = &m->context[op->at[1]];
    if (!from->live || !to->live || from->device == to->device || capturing(m) ||
        from->peer[op->at[1]])
        return false;
    from->peer[op->at[1]] = true;
    return true;
}

static bool host_knows_context(const model_t *m, int ctx) {
    for (int i = 0; i < LANES; i++)
        if (m->lane[i].live && m->lane[i].ctx == ctx && !past_covers(&m->host, &m->lane[i].past))
            return false;
    return past_covers(&m->host, &m->context[ctx].gone);
}

/* Refused while the context has graphs: a later launch may use the other context's memory. */
APPLY(UNPEER) {
    context_t *from = &m->context[op->at[0]];
    if (!from->live || !from->peer[op->at[1]] || capturing(m) ||
        !host_knows_context(m, (int)op->at[0]))
        return false;
    for (int i = 0; i < GRAPHS; i++)
        if (m->graph[i].live && m->graph[i].ctx == (int)op->at[0])
            return false;
    from->peer[op->at[1]] = false;
    return true;
}

APPLY(GREEN) {
    if (m->green[op->at[0]].live || op->at[1] >= m->devices || capturing(m))
        return false;
    m->green[op->at[0]].live = true;
    m->green[op->at[0]].device = (int)op->at[1];
    return true;
}

/* ---- streams ---- */

APPLY(STREAM) {
    if (op->at[0] >= STREAMS || m->lane[op->at[0]].live || !m->context[op->at[1]].live)
        return false;
    lane_begin(m, (int)op->at[0], (int)op->at[1], !(op->at[2] & 1));
    return true;
}

APPLY(GSTREAM) {
    if (op->at[0] >= STREAMS || m->lane[op->at[0]].live || !m->green[op->at[1]].live)
        return false;
    lane_begin(m, (int)op->at[0], m->green[op->at[1]].device, false);
    m->lane[op->at[0]].green = (int)op->at[1];
    m->chain[m->lane[op->at[0]].chain].ctx = -1;
    return true;
}

APPLY(DROPGREEN) {
    int green = (int)op->at[0];
    if (!m->green[green].live || capturing(m))
        return false;
    for (int i = 0; i < STREAMS; i++)
        if (m->lane[i].live && m->lane[i].green == green)
            lane_end(m, i);
    m->green[green].live = false;
    return true;
}

APPLY(DROP) {
    if (op->at[0] >= STREAMS || !m->lane[op->at[0]].live || m->lane[op->at[0]].capture >= 0)
        return false;
    lane_end(m, (int)op->at[0]);
    return true;
}

APPLY(HOST) {
    int lane = model_lane(m, op->thread, op->at[0]);
    return lane >= 0 && work(m, lane, 0, NULL, 0);
}

/* Graphs have no callbacks, so a capturing stream takes none. */
APPLY(CALLBACK) {
    int lane = model_lane(m, op->thread, op->at[0]);
    return lane >= 0 && m->lane[lane].capture < 0 && work(m, lane, 0, NULL, 0);
}

static bool quiet(const model_t *m, const op_t *op, int lane) {
    return lane >= 0 && m->lane[lane].capture < 0 && !model_unsafe(m, op->thread) &&
           lane_takes_work(m, &m->lane[lane]);
}

APPLY(POLL) {
    return quiet(m, op, model_lane(m, op->thread, op->at[0]));
}

APPLY(SYNC) {
    int lane = model_lane(m, op->thread, op->at[0]);
    if (!quiet(m, op, lane))
        return false;
    past_join(&m->host, &m->lane[lane].past);
    return true;
}

/* Joins no streams of green contexts: CUDA does not document whether this call waits for them. */
APPLY(SYNCCTX) {
    int ctx = m->current[op->thread];
    for (int i = 0; i < LANES; i++)
        if (m->lane[i].live && m->lane[i].ctx == ctx && m->lane[i].capture >= 0)
            return false;
    if (model_unsafe(m, op->thread))
        return false;
    for (int i = 0; i < LANES; i++)
        if (m->lane[i].live && m->lane[i].ctx == ctx && m->lane[i].green < 0)
            past_join(&m->host, &m->lane[i].past);
    past_join(&m->host, &m->context[ctx].gone);
    return true;
}

/* ---- blocks ---- */

static block_t *block_begin(model_t *m, uint32_t at, int ctx, uint32_t bytes) {
    block_t *b = &m->block[at];
    *b = (block_t){.live = true,
                   .ctx = ctx,
                   .local = -1,
                   .pool = -1,
                   .serial = ++m->serial,
                   .bytes = bytes,
                   .lane = -1};
    return b;
}

APPLY(ALLOC) {
    if (m->block[op->at[0]].live || !op->at[1] || model_unsafe(m, op->thread))
        return false;
    block_begin(m, op->at[0], m->current[op->thread], op->at[1])->plain = capturing(m);
    return true;
}

/* Refused during any capture, as by the driver. */
APPLY(PIN) {
    if (m->block[op->at[0]].live || !op->at[1] || capturing(m) || model_unsafe(m, op->thread))
        return false;
    block_t *b = block_begin(m, op->at[0], m->current[op->thread], op->at[1]);
    b->pinned = b->plain = true;
    return true;
}

static bool waited_for(const model_t *m, const block_t *b, point_t point) {
    return (m->loose && !b->plain) || m->chain[point.chain].device == m->context[b->ctx].device ||
           past_has(&m->host, point);
}

/* Returns true if the block may be freed. The driver's free waits for uses on the block's device,
 * but not on others. */
static bool may_be_freed(const model_t *m, const op_t *op) {
    const block_t *b = &m->block[op->at[0]];
    bool may = b->live && b->local < 0 && !model_unsafe(m, op->thread) &&
               waited_for(m, b, b->write);
    for (unsigned i = 0; may && i < b->readers; i++)
        may = waited_for(m, b, b->read[i]);
    return may;
}

APPLY(UNPIN) {
    block_t *b = &m->block[op->at[0]];
    if (!b->pinned || !may_be_freed(m, op))
        return false;
    b->live = false;
    return true;
}

APPLY(FREE) {
    block_t *b = &m->block[op->at[0]];
    if (b->pinned || !may_be_freed(m, op))
        return false;
    if (b->async) {
        past_set(&m->item, &m->host);
        if (!use_ordered(m, (use_t){op->at[0], true}))
            return false;
    }
    b->live = false;
    return true;
}

static bool alloc_in_order(model_t *m, const op_t *op, int lane, int pool) {
    if (lane < 0 || m->block[op->at[0]].live || !op->at[1])
        return false;
    int local = m->lane[lane].capture, ctx = m->lane[lane].ctx;
    if (local >= 0 && m->capture[local].nodes == NODES)
        return false;
    if (local < 0 && !work(m, lane, ITEM_SILENT, NULL, 0))
        return false;
    block_t *b = block_begin(m, op->at[0], ctx, op->at[1]);
    b->async = true;
    b->local = local;
    b->lane = lane;
    if (local >= 0) {
        work(m, lane, 0, &(use_t){op->at[0], true}, 1);
        return true;
    }
    b->alloc = (point_t){m->lane[lane].chain, m->tails[m->lane[lane].chain]};
    b->pool = pool;
    if (pool >= 0)
        b->devices = m->pool[pool].devices;
    return true;
}

APPLY(ALLOCASYNC) {
    int lane = model_lane(m, op->thread, op->at[2]), pool = POOLS;
    while (pool-- && (lane < 0 || !m->pool[pool].current ||
                      m->pool[pool].device != m->context[m->lane[lane].ctx].device))
        ;
    return alloc_in_order(m, op, lane, pool);
}

APPLY(ALLOCFROM) {
    int lane = model_lane(m, op->thread, op->at[3]), pool = (int)op->at[2];
    return lane >= 0 && m->pool[pool].live &&
           m->pool[pool].device == m->context[m->lane[lane].ctx].device &&
           alloc_in_order(m, op, lane, pool);
}

APPLY(FREEASYNC) {
    block_t *b = &m->block[op->at[0]];
    int lane = model_lane(m, op->thread, op->at[1]);
    use_t last = {op->at[0], true};
    if (lane < 0 || !b->live || b->pinned ||
        (b->async ? !of_device(m, b, m->context[m->lane[lane].ctx].device)
                  : b->ctx != m->lane[lane].ctx) ||
        b->local != m->lane[lane].capture || !work(m, lane, ITEM_SILENT, &last, 1))
        return false;
    b->live = false;
    b->local = -1;
    return true;
}

/* ---- pools ---- */

APPLY(POOL) {
    if (m->pool[op->at[0]].live || op->at[1] >= m->devices || model_unsafe(m, op->thread))
        return false;
    m->pool[op->at[0]].live = true;
    m->pool[op->at[0]].current = false;
    m->pool[op->at[0]].device = (int)op->at[1];
    m->pool[op->at[0]].devices = 1u << op->at[1];
    return true;
}

static bool pool_there(const model_t *m, const op_t *op) {
    return m->pool[op->at[0]].live && !model_unsafe(m, op->thread);
}

/* Blocks of the pool stay allocated. */
APPLY(DROPPOOL) {
    if (!pool_there(m, op))
        return false;
    pool_end(m, (int)op->at[0]);
    return true;
}

APPLY(POOLREACH) {
    if (!pool_there(m, op) || op->at[1] >= m->devices ||
        m->pool[op->at[0]].devices >> op->at[1] & 1)
        return false;
    m->pool[op->at[0]].devices |= 1u << op->at[1];
    for (int i = 0; i < BLOCKS; i++)
        if (m->block[i].live && m->block[i].pool == (int)op->at[0])
            m->block[i].devices |= 1u << op->at[1];
    return true;
}

APPLY(POOLSET) {
    return pool_there(m, op) && op->at[1] <= 4;
}

APPLY(POOLASK) {
    return pool_there(m, op);
}

APPLY(POOLTRIM) {
    return pool_there(m, op);
}

APPLY(DEVICEPOOL) {
    if (!pool_there(m, op))
        return false;
    for (int i = 0; i < POOLS; i++)
        if (m->pool[i].device == m->pool[op->at[0]].device)
            m->pool[i].current = false;
    m->pool[op->at[0]].current = true;
    return true;
}

/* ---- uses ---- */

/* Returns true if work of the lane's context may use the block. `copies` may use every block. */
static bool reaches(const model_t *m, int lane, uint32_t block, bool copies) {
    const block_t *b = &m->block[block];
    if (lane < 0 || !b->live)
        return false;
    int ctx = m->lane[lane].ctx;
    return b->ctx == ctx || copies || (m->context[ctx].peer[b->ctx] && !b->async) ||
           b->devices >> m->context[ctx].device & 1;
}

static bool uses_one(model_t *m, const op_t *op, bool write, unsigned what) {
    int lane = model_lane(m, op->thread, op->at[0]);
    use_t use = {op->at[1], write};
    return reaches(m, lane, op->at[1], false) && work(m, lane, what, &use, 1);
}

static bool uses_two(model_t *m, const op_t *op, bool copies, unsigned what) {
    int lane = model_lane(m, op->thread, op->at[0]);
    use_t use[2] = {{op->at[1], true}, {op->at[2], false}};
    if (op->at[1] == op->at[2] || !reaches(m, lane, op->at[1], copies) ||
        !reaches(m, lane, op->at[2], copies))
        return false;
    return work(m, lane, what, use, 2);
}

static unsigned kernel(uint32_t how) {
    return ITEM_KERNEL | (how & LAUNCH_PROGRAMMATIC ? ITEM_PROGRAMMATIC : 0);
}

APPLY(FILL) {
    return uses_one(m, op, true, kernel(op->at[2]));
}

APPLY(CHECK) {
    return uses_one(m, op, false, kernel(op->at[2]));
}

APPLY(MIX) {
    return uses_two(m, op, false, kernel(op->at[3]));
}

APPLY(SET) {
    return uses_one(m, op, true, 0);
}

/* Refused during a capture: host memory of captured copies would have to outlive the graph. */
static bool uncaptured(const model_t *m, const op_t *op) {
    int lane = model_lane(m, op->thread, op->at[0]);
    return lane >= 0 && m->lane[lane].capture < 0;
}

APPLY(PUT) {
    return uncaptured(m, op) && uses_one(m, op, true, 0);
}

APPLY(GET) {
    return uncaptured(m, op) && uses_one(m, op, false, 0);
}

APPLY(COPY) {
    return uses_two(m, op, true, 0);
}

APPLY(PEERCOPY) {
    return uses_two(m, op, true, 0);
}

APPLY(FIND) {
    (void)op;
    m->found = true;
    return true;
}

APPLY(UNSEEN) {
    return m->found && uncaptured(m, op) && uses_two(m, op, true, 0);
}

static bool without_stream(const model_t *m, const op_t *op) {
    return (op->at[0] & STREAM_MASK) == STREAM_NULL && !model_unsafe(m, op->thread) &&
           uncaptured(m, op);
}

APPLY(SETNOW) {
    return without_stream(m, op) && uses_one(m, op, true, 0);
}

APPLY(PUTNOW) {
    return without_stream(m, op) && uses_one(m, op, true, 0);
}

APPLY(GETNOW) {
    if (!without_stream(m, op) || !uses_one(m, op, false, 0))
        return false;
    past_join(&m->host, &m->lane[model_lane(m, op->thread, op->at[0])].past);
    return true;
}

APPLY(COPYNOW) {
    return without_stream(m, op) && uses_two(m, op, true, 0);
}

static bool outside(const model_t *m, const op_t *op) {
    const block_t *b = &m->block[op->at[0]];
    return b->live && b->local < 0 && !b->pinned && !model_unsafe(m, op->thread);
}

APPLY(RANGE) {
    return outside(m, op);
}

APPLY(HANDLE) {
    return outside(m, op) && !m->block[op->at[0]].async;
}

APPLY(ID) {
    return outside(m, op);
}

APPLY(SYNCMEMOPS) {
    return op->at[1] < 2 && outside(m, op);
}

/* ---- the rest ---- */

/* The thread's default streams end with it. Their work continues. */
APPLY(RENEW) {
    if (!op->thread || capturing(m))
        return false;
    for (int i = 0; i < CONTEXTS; i++) {
        int at = LANE_OWN + i * THREADS + (int)op->thread;
        if (!m->context[i].live)
            continue;
        lane_end(m, at);
        lane_begin(m, at, i, true);
    }
    m->current[op->thread] = 0;
    return true;
}

APPLY(ADVANCE) {
    (void)m;
    return op->at[0] < 1000000;
}

APPLY(EMPTY) {
    (void)m;
    (void)op;
    return true;
}

APPLY(INFO) {
    (void)m;
    (void)op;
    return true;
}

APPLY(TRIMPOOL) {
    return op->at[0] < m->devices && !model_unsafe(m, op->thread);
}

/* ---- all operations ---- */

bool model_apply(model_t *m, const op_t *op) {
    static bool (*const apply[])(model_t *, const op_t *) = {
#define OP(symbol, name, operands, doc) apply_##symbol,
#include "ops.def"
#undef OP
    };
    bool stale = op->thread < m->threads && m->current[op->thread] < 0;
    if (stale && op->code != OP_USE && op->code != OP_STALE && op->code != OP_RENEW &&
        op->code != OP_ADVANCE)
        return false;
    return op->thread < m->threads && apply[op->code](m, op);
}

model_t *model_new(const program_t *program) {
    model_t *m = calloc(1, sizeof *m);
    if (!m) {
        fputs("programs: out of memory\n", stderr);
        exit(2);
    }
    m->devices = program->devices;
    m->threads = program->threads;
    m->loose = program->loose;
    for (int i = 0; i < LANES; i++)
        m->lane[i].capture = -1;
    for (int i = 0; i < EVENTS; i++)
        m->event[i].capture = -1;
    for (int i = 0; i < BLOCKS; i++)
        m->block[i].local = -1;
    for (unsigned i = 0; i < m->devices; i++)
        context_begin(m, (int)i, (int)i);
    return m;
}

void model_free(model_t *m) {
    for (int i = 0; i < LANES; i++) {
        past_free(&m->lane[i].past);
        past_free(&m->lane[i].kernel_past);
        past_free(&m->lane[i].capture_past);
    }
    for (int i = 0; i < EVENTS; i++) {
        past_free(&m->event[i].past);
        past_free(&m->event[i].capture_past);
    }
    for (int i = 0; i < CONTEXTS; i++)
        past_free(&m->context[i].gone);
    past_free(&m->host);
    past_free(&m->item);
    free(m->tails);
    free(m->chain);
    free(m);
}

size_t model_filter(program_t *program) {
    model_t *m = model_new(program);
    size_t kept = 0, count = program->count;
    for (size_t i = 0; i < count; i++)
        if (model_apply(m, &program->ops[i]))
            program->ops[kept++] = program->ops[i];
    program->count = kept;
    model_free(m);
    return count - kept;
}

/* The model's order: streams, items, uses of blocks, captured or not. */
#include "model_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- chains ---- */

/* Returns a chain. Reuses one of a destroyed stream if the host knows that its work has ended:
 * all new work follows it. */
static uint32_t chain_new(model_t *m) {
    for (uint32_t i = 1; i <= m->chains; i++)
        if (m->chain[i].idle && past_has(&m->host, (point_t){m->tails[i] ? i : 0, m->tails[i]}))
            return i;
    if (m->chains + 2 > m->chain_room) {
        m->chain_room = m->chain_room ? 2 * m->chain_room : 128;
        m->tails = realloc(m->tails, m->chain_room * sizeof *m->tails);
        m->chain = realloc(m->chain, m->chain_room * sizeof *m->chain);
        if (!m->tails || !m->chain) {
            fputs("programs: out of memory\n", stderr);
            exit(2);
        }
    }
    m->chains++;
    m->tails[m->chains] = 0;
    return m->chains;
}

/* ---- streams ---- */

void lane_begin(model_t *m, int at, int ctx, bool blocking) {
    lane_t *lane = &m->lane[at];
    lane->live = true;
    lane->ctx = ctx;
    lane->blocking = blocking;
    lane->legacy = at >= LANE_LEGACY && at < LANE_OWN;
    lane->green = -1;
    lane->kernel_last = false;
    lane->chain = chain_new(m);
    m->chain[lane->chain].idle = false;
    m->chain[lane->chain].device = m->context[ctx].device;
    m->chain[lane->chain].ctx = ctx;
    lane->capture = -1;
    past_clear(&lane->past);
}

void lane_end(model_t *m, int at) {
    lane_t *lane = &m->lane[at];
    lane->live = false;
    m->chain[lane->chain].idle = true;
    if (lane->green < 0) /* otherwise no synchronisation is known to wait for it */
        past_join(&m->context[lane->ctx].gone, &lane->past);
}

int model_lane(const model_t *m, unsigned thread, uint32_t operand) {
    uint32_t which = operand & STREAM_MASK;
    int at = (int)which, ctx = m->current[thread];
    if (which >= STREAMS) {
        if (ctx < 0)
            return -1;
        bool own = which == STREAM_OWN || (which == STREAM_NULL && operand & STREAM_Z);
        at = own ? LANE_OWN + ctx * THREADS + (int)thread : LANE_LEGACY + ctx;
    }
    return m->lane[at].live ? at : -1;
}

bool lane_takes_work(const model_t *m, const lane_t *lane) {
    for (int i = 0; lane->legacy && i < LANES; i++)
        if (m->lane[i].live && m->lane[i].capture >= 0 && m->lane[i].blocking &&
            m->lane[i].ctx == lane->ctx)
            return false;
    return true;
}

bool model_unsafe(const model_t *m, unsigned thread) {
    for (int i = 0; i < CAPTURES; i++) {
        const capture_t *capture = &m->capture[i];
        if (capture->live &&
            (capture->thread == thread ? capture->mode != 2 : capture->mode == 0))
            return true;
    }
    return false;
}

/* ---- items ---- */

/* A programmatic launch after a kernel follows the same items as that kernel. */
void item_begin(model_t *m, const lane_t *lane, unsigned what) {
    bool overlaps = what & ITEM_PROGRAMMATIC && lane->kernel_last;
    past_set(&m->item, overlaps ? &lane->kernel_past : &lane->past);
    past_join(&m->item, &m->host);
    if (lane->blocking)
        past_join(&m->item, &m->lane[LANE_LEGACY + lane->ctx].past);
    for (int i = 0; lane->legacy && i < LANES; i++)
        if (m->lane[i].live && m->lane[i].blocking && m->lane[i].ctx == lane->ctx)
            past_join(&m->item, &m->lane[i].past);
}

point_t item_end(model_t *m, lane_t *lane, unsigned what) {
    point_t point = {lane->chain, ++m->tails[lane->chain]};
    if (what & ITEM_SILENT) {
        past_raise(&lane->past, point);
        return point;
    }
    lane->kernel_last = what & ITEM_KERNEL;
    if (lane->kernel_last)
        past_set(&lane->kernel_past, &m->item);
    past_join(&lane->past, &m->item);
    past_raise(&lane->past, point);
    return point;
}

/* ---- uses ---- */

bool use_ordered(const model_t *m, use_t use) {
    const block_t *b = &m->block[use.block];
    if (!past_has(&m->item, b->alloc) || !past_has(&m->item, b->write))
        return false;
    for (unsigned i = 0; use.write && i < b->readers; i++)
        if (!past_has(&m->item, b->read[i]))
            return false;
    return use.write || b->readers < READERS;
}

void use_done(model_t *m, use_t use, point_t point, int lane) {
    block_t *b = &m->block[use.block];
    b->lane = lane;
    if (use.write) {
        b->write = point;
        b->readers = 0;
        return;
    }
    for (unsigned i = 0; i < b->readers; i++)
        if (past_has(&m->item, b->read[i]))
            b->read[i--] = b->read[--b->readers];
    point_t *last = b->readers ? &b->read[b->readers - 1] : NULL;
    if (!last || last->chain != point.chain || last->pos != point.pos) /* once per graph */
        b->read[b->readers++] = point;
}

static bool captured_use_ordered(const model_t *m, const lane_t *lane, use_t use) {
    const capture_t *capture = &m->capture[lane->capture];
    for (unsigned i = 0; i < capture->nodes; i++) {
        const node_t *node = &capture->node[i];
        if (node->block == use.block && node->serial == m->block[use.block].serial &&
            (node->write || use.write) && !past_has(&lane->capture_past, node->point))
            return false;
    }
    return true;
}

static bool capture_work(model_t *m, lane_t *lane, const use_t *uses, unsigned count) {
    capture_t *capture = &m->capture[lane->capture];
    if (capture->nodes + count > NODES)
        return false;
    for (unsigned i = 0; i < count; i++)
        if (!captured_use_ordered(m, lane, uses[i]))
            return false;
    point_t point = {lane->capture_chain, ++capture->tails[lane->capture_chain]};
    past_raise(&lane->capture_past, point);
    for (unsigned i = 0; i < count; i++) {
        const block_t *b = &m->block[uses[i].block];
        capture->node[capture->nodes++] =
            (node_t){uses[i].block, b->serial, uses[i].write, b->local >= 0, point};
    }
    return true;
}

bool work(model_t *m, int at, unsigned what, const use_t *uses, unsigned count) {
    lane_t *lane = &m->lane[at];
    for (unsigned i = 0; i < count; i++)
        if (m->block[uses[i].block].local >= 0 && m->block[uses[i].block].local != lane->capture)
            return false;
    if (lane->capture >= 0)
        return !(what & ITEM_PROGRAMMATIC) && capture_work(m, lane, uses, count);
    if (!lane_takes_work(m, lane))
        return false;
    item_begin(m, lane, what);
    for (unsigned i = 0; i < count; i++)
        if (!use_ordered(m, uses[i]))
            return false;
    point_t point = item_end(m, lane, what);
    for (unsigned i = 0; i < count; i++)
        use_done(m, uses[i], point, at);
    return true;
}

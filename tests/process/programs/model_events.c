/* The model of events, captures and graphs. */
#include "model_int.h"

/* ---- events ---- */

APPLY(EVENT) {
    event_t *event = &m->event[op->at[0]];
    if (event->live || !m->context[op->at[1]].live)
        return false;
    event->live = true;
    event->recorded = false;
    event->ctx = (int)op->at[1];
    event->capture = -1;
    return true;
}

static bool in_capture(const model_t *m, const event_t *event) {
    return event->capture >= 0 && m->capture[event->capture].live &&
           m->capture[event->capture].serial == event->capture_serial;
}

APPLY(DROPEVENT) {
    event_t *event = &m->event[op->at[0]];
    if (!event->live || in_capture(m, event))
        return false;
    event->live = false;
    return true;
}

APPLY(RECORD) {
    event_t *event = &m->event[op->at[0]];
    int at = model_lane(m, op->thread, op->at[1]);
    lane_t *lane = at < 0 ? NULL : &m->lane[at];
    if (!event->live || !lane || lane->ctx != event->ctx)
        return false;
    if (lane->capture >= 0) {
        event->capture = lane->capture;
        event->capture_serial = m->capture[lane->capture].serial;
        past_set(&event->capture_past, &lane->capture_past);
        return true;
    }
    if (!work(m, at, 0, NULL, 0))
        return false;
    event->capture = -1;
    event->recorded = true;
    past_set(&event->past, &lane->past);
    return true;
}

/* A stream that waits for a captured event joins the capture. */
static bool wait_captured(model_t *m, int at, const event_t *event) {
    lane_t *lane = &m->lane[at];
    capture_t *capture = &m->capture[event->capture];
    if (!in_capture(m, event) || lane->legacy || lane->ctx != capture->ctx)
        return false;
    if (lane->capture < 0) {
        if (capture->members == MEMBERS)
            return false;
        lane->capture = event->capture;
        lane->capture_chain = ++capture->members;
        capture->tails[lane->capture_chain] = 0;
        past_clear(&lane->capture_past);
    } else if (lane->capture != event->capture) {
        return false;
    }
    past_join(&lane->capture_past, &event->capture_past);
    return true;
}

APPLY(WAIT) {
    int at = model_lane(m, op->thread, op->at[0]);
    event_t *event = &m->event[op->at[1]];
    if (at < 0 || !event->live)
        return false;
    if (event->capture >= 0)
        return wait_captured(m, at, event);
    if (m->lane[at].capture >= 0 || !work(m, at, 0, NULL, 0))
        return false;
    if (event->recorded)
        past_join(&m->lane[at].past, &event->past);
    return true;
}

APPLY(QUERY) {
    const event_t *event = &m->event[op->at[0]];
    return event->live && event->capture < 0 && !model_unsafe(m, op->thread);
}

APPLY(SYNCEVENT) {
    if (!apply_QUERY(m, op))
        return false;
    if (m->event[op->at[0]].recorded)
        past_join(&m->host, &m->event[op->at[0]].past);
    return true;
}

/* ---- captures ---- */

APPLY(CAPTURE) {
    int at = model_lane(m, op->thread, op->at[0]), free_one = -1;
    if (at < 0 || m->lane[at].legacy || m->lane[at].capture >= 0 || op->at[1] > 2)
        return false;
    for (int i = CAPTURES; i--;)
        if (!m->capture[i].live)
            free_one = i;
    if (free_one < 0)
        return false;
    capture_t *capture = &m->capture[free_one];
    *capture = (capture_t){.live = true,
                           .ctx = m->lane[at].ctx,
                           .origin = at,
                           .mode = (int)op->at[1],
                           .thread = op->thread,
                           .members = 1,
                           .serial = ++m->serial};
    m->lane[at].capture = free_one;
    m->lane[at].capture_chain = 1;
    past_clear(&m->lane[at].capture_past);
    return true;
}

static bool all_joined(const model_t *m, const capture_t *capture) {
    for (uint32_t i = 1; i <= capture->members; i++)
        if (capture->tails[i] &&
            !past_has(&m->lane[capture->origin].capture_past, (point_t){i, capture->tails[i]}))
            return false;
    return true;
}

/* Members without work must be joined too, or the graph would omit them. */
APPLY(ENDCAPTURE) {
    int at = model_lane(m, op->thread, op->at[0]);
    int which = at < 0 ? -1 : m->lane[at].capture;
    capture_t *capture = which < 0 ? NULL : &m->capture[which];
    graph_t *graph = &m->graph[op->at[1]];
    if (!capture || capture->origin != at || capture->thread != op->thread || graph->live ||
        !all_joined(m, capture))
        return false;
    for (int i = 0; i < BLOCKS; i++)
        if (m->block[i].live && m->block[i].local == which)
            return false;
    graph->live = true;
    graph->ctx = capture->ctx;
    graph->nodes = 0;
    for (unsigned i = 0; i < capture->nodes; i++)
        if (!capture->node[i].local)
            graph->node[graph->nodes++] = capture->node[i];
    for (int i = 0; i < LANES; i++)
        if (m->lane[i].capture == which)
            m->lane[i].capture = -1;
    capture->live = false;
    return true;
}

APPLY(LAUNCH) {
    const graph_t *graph = &m->graph[op->at[0]];
    int at = model_lane(m, op->thread, op->at[1]);
    if (!graph->live || at < 0 || m->lane[at].capture >= 0 || m->lane[at].ctx != graph->ctx ||
        !lane_takes_work(m, &m->lane[at]))
        return false;
    item_begin(m, &m->lane[at], 0);
    for (unsigned i = 0; i < graph->nodes; i++) {
        const node_t *node = &graph->node[i];
        const block_t *b = &m->block[node->block];
        if (!b->live || b->serial != node->serial ||
            !use_ordered(m, (use_t){node->block, node->write}))
            return false;
    }
    point_t point = item_end(m, &m->lane[at], 0);
    for (int write = 0; write < 2; write++) /* a write covers reads of the same launch */
        for (unsigned i = 0; i < graph->nodes; i++)
            if (graph->node[i].write == write)
                use_done(m, (use_t){graph->node[i].block, write}, point, at);
    return true;
}

APPLY(DROPGRAPH) {
    if (!m->graph[op->at[0]].live)
        return false;
    m->graph[op->at[0]].live = false;
    return true;
}

/* Generates captures and launches of the resulting graphs. */
#include "generate_int.h"

static const capture_t *capture_of(const gen_t *g, int *which) {
    for (*which = 0; *which < CAPTURES; (*which)++)
        if (g->model->capture[*which].live)
            return &g->model->capture[*which];
    return NULL;
}

void gen_capture(gen_t *g) {
    static const uint32_t modes[] = {2, 2, 2, 1, 0};
    int on = gen_stream(g, g->thread, gen_context(g));
    if (on >= 0)
        gen_op(g, g->thread, OP_CAPTURE, (uint32_t)on, modes[gen_below(g, 5)], 0, 0);
}

/* Returns a stream of the capture, and a thread that can name it. */
static int member(gen_t *g, int which, unsigned *thread) {
    int found = -1;
    unsigned count = 0;
    for (int i = 0; i < LANES; i++)
        if (g->model->lane[i].live && g->model->lane[i].capture == which &&
            !gen_below(g, ++count))
            found = i;
    *thread = g->model->capture[which].thread;
    return found < 0 ? -1 : gen_name(g, found, thread);
}

static void fork_(gen_t *g, int which) {
    const capture_t *capture = &g->model->capture[which];
    unsigned by, other = g->thread;
    int from = member(g, which, &by), to = gen_stream(g, other, capture->ctx);
    int event = from < 0 || to < 0 ? -1 : gen_event(g, capture->ctx);
    if (event >= 0 && gen_op(g, by, OP_RECORD, (uint32_t)event, (uint32_t)from, 0, 0))
        gen_op(g, other, OP_WAIT, (uint32_t)to, (uint32_t)event, 0, 0);
}

/* Allocates or frees memory of the graph, in the graph. */
static void local(gen_t *g, int which) {
    unsigned by;
    int on = member(g, which, &by);
    uint32_t at = gen_below(g, g->blocks_most);
    const block_t *b = &g->model->block[at];
    if (on < 0)
        return;
    if (!b->live && gen_chance(g, g->async_percent))
        gen_op(g, by, OP_ALLOCASYNC, at, g->size[gen_below(g, g->sizes)], (uint32_t)on, 0);
    else if (b->live && b->local == which && gen_chance(g, 30))
        gen_op(g, by, OP_FREEASYNC, at, (uint32_t)on, 0, 0);
}

static void use(gen_t *g, int which) {
    static const unsigned one[] = {OP_FILL, OP_FILL, OP_CHECK, OP_SET}, two[] = {OP_MIX, OP_COPY};
    unsigned by;
    int on = member(g, which, &by);
    uint32_t at = gen_below(g, g->blocks_most), from = gen_below(g, g->blocks_most);
    if (on < 0)
        return;
    /* The simulated device knows a graph's memory only after the graph runs: no copies or fills
     * of it. */
    bool own = g->model->block[at].local >= 0 || g->model->block[from].local >= 0;
    if (gen_chance(g, 30))
        gen_op(g, by, two[own ? 0 : gen_below(g, 2)], (uint32_t)on, at, from, gen_below(g, 2));
    else
        gen_op(g, by, one[gen_below(g, own ? 3 : 4)], (uint32_t)on, at, gen_below(g, 3), 0);
}

static void end(gen_t *g, int which) {
    const capture_t *capture = &g->model->capture[which];
    unsigned thread = capture->thread, by;
    int origin = gen_name(g, capture->origin, &thread);
    for (int i = 0; origin >= 0 && i < LANES; i++) {
        if (!g->model->lane[i].live || g->model->lane[i].capture != which || i == capture->origin)
            continue;
        by = thread;
        int name = gen_name(g, i, &by), event = gen_event(g, capture->ctx);
        if (name >= 0 && event >= 0 &&
            gen_op(g, by, OP_RECORD, (uint32_t)event, (uint32_t)name, 0, 0))
            gen_op(g, thread, OP_WAIT, (uint32_t)origin, (uint32_t)event, 0, 0);
    }
    for (uint32_t i = 0; i < BLOCKS; i++)
        if (g->model->block[i].live && g->model->block[i].local == which)
            gen_op(g, thread, OP_FREEASYNC, i, (uint32_t)origin, 0, 0);
    for (uint32_t i = 0; i < GRAPHS; i++)
        if (gen_op(g, thread, OP_ENDCAPTURE, (uint32_t)origin, i, 0, 0))
            return;
    if (gen_op(g, thread, OP_DROPGRAPH, gen_below(g, GRAPHS), 0, 0, 0))
        for (uint32_t i = 0; i < GRAPHS; i++)
            if (gen_op(g, thread, OP_ENDCAPTURE, (uint32_t)origin, i, 0, 0))
                return;
}

/* During a capture, half of all operations are part of it. */
bool gen_capture_step(gen_t *g) {
    int which;
    if (!capture_of(g, &which) || !gen_chance(g, 50))
        return false;
    unsigned what = gen_below(g, 20);
    if (what == 0)
        end(g, which);
    else if (what < 4)
        fork_(g, which);
    else if (what < 7)
        local(g, which);
    else
        use(g, which);
    return true;
}

void gen_end_captures(gen_t *g) {
    int which;
    for (unsigned tries = 0; tries < 50 && capture_of(g, &which); tries++)
        end(g, which);
}

static bool usable(const gen_t *g, const graph_t *graph) {
    for (unsigned i = 0; i < graph->nodes; i++) {
        const block_t *b = &g->model->block[graph->node[i].block];
        if (!b->live || b->serial != graph->node[i].serial)
            return false;
    }
    return true;
}

void gen_graph(gen_t *g) {
    uint32_t at = gen_below(g, GRAPHS);
    const graph_t *graph = &g->model->graph[at];
    if (!graph->live)
        return;
    if (!usable(g, graph) || gen_chance(g, 10)) {
        gen_op(g, g->thread, OP_DROPGRAPH, at, 0, 0, 0);
        return;
    }
    int on = gen_stream(g, g->thread, graph->ctx);
    if (on < 0 || gen_op(g, g->thread, OP_LAUNCH, at, (uint32_t)on, 0, 0))
        return;
    for (unsigned i = 0; i < graph->nodes; i++)
        gen_order(g, g->thread, (uint32_t)on, graph->node[i].block);
    gen_op(g, g->thread, OP_LAUNCH, at, (uint32_t)on, 0, 0);
}

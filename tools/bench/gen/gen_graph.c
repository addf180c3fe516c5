/* Learning on a graph (gen.h).  Batches are sampled neighbourhoods, three hops around 1024 nodes.
 * The number of new neighbours differs from batch to batch, so that hardly any size occurs twice.
 * Stream 1 samples the next batch and gathers its features while stream 0 learns. */
#include "gen.h"

enum { HOPS = 3, FEATURES = 256, HIDDEN = 512, CLASSES = 172, SEEDS = 1024 };

typedef struct {
    uint64_t nodes[HOPS + 1], edges[HOPS];
    gen_block_t row[HOPS], column[HOPS], id, features, labels;
} batch_t;

static void sample(gen_t *gen, batch_t *batch) {
    static const unsigned fan[HOPS] = {15, 10, 5};
    batch->nodes[0] = SEEDS;
    batch->labels = gen_alloc(gen, SEEDS * 8, 1);
    for (int hop = 0; hop < HOPS; hop++) {
        uint64_t most = batch->nodes[hop] * fan[hop];
        batch->edges[hop] = most * gen_between(gen, 55, 85) / 100;
        gen_block_t drawn = gen_alloc(gen, most * 8, 1);
        gen_block_t counts = gen_alloc(gen, (batch->nodes[hop] + 1) * 8, 1);
        batch->row[hop] = gen_alloc(gen, batch->edges[hop] * 8, 1);
        batch->column[hop] = gen_alloc(gen, batch->edges[hop] * 8, 1);
        gen_free(gen, counts);
        gen_block_t table = gen_alloc(gen, batch->edges[hop] * 24, 1);
        batch->nodes[hop + 1] =
            batch->nodes[hop] + batch->edges[hop] * gen_between(gen, 30, 60) / 100;
        gen_drop(gen, &batch->id);
        batch->id = gen_alloc(gen, batch->nodes[hop + 1] * 8, 1);
        gen_free(gen, table);
        gen_free(gen, drawn);
    }
    batch->features = gen_alloc(gen, batch->nodes[HOPS] * FEATURES * 4, 1);
}

static uint64_t width(int layer) {
    return layer == HOPS - 1 ? CLASSES : HIDDEN;
}

/* A layer works on the outer hop first. */
static void learn(gen_t *gen, batch_t *batch, const unsigned *weights) {
    gen_block_t out[HOPS], kept[HOPS], mask[HOPS], gradient[HOPS * 2];
    for (int layer = 0; layer < HOPS; layer++) {
        int hop = HOPS - 1 - layer;
        uint64_t in = layer ? HIDDEN : FEATURES;
        gen_block_t messages = gen_alloc(gen, batch->edges[hop] * in * 4, 0);
        kept[layer] = gen_alloc(gen, batch->nodes[hop] * in * 4, 0);
        gen_free(gen, messages);
        gen_block_t own = gen_alloc(gen, batch->nodes[hop] * width(layer) * 4, 0);
        gen_block_t others = gen_alloc(gen, batch->nodes[hop] * width(layer) * 4, 0);
        out[layer] = gen_alloc(gen, batch->nodes[hop] * width(layer) * 4, 0);
        gen_free(gen, own);
        gen_free(gen, others);
        mask[layer] = gen_alloc(gen, batch->nodes[hop] * width(layer), 0);
    }
    gen_block_t loss = gen_alloc(gen, 4, 0);
    gen_block_t d = gen_alloc(gen, SEEDS * CLASSES * 4, 0);
    for (int layer = HOPS - 1; layer >= 0; layer--) {
        int hop = HOPS - 1 - layer;
        uint64_t in = layer ? HIDDEN : FEATURES;
        gen_free(gen, mask[layer]);
        gradient[2 * layer] = gen_alloc(gen, weights[2 * layer] * 4, 0);
        gradient[2 * layer + 1] = gen_alloc(gen, weights[2 * layer + 1] * 4, 0);
        gen_free(gen, kept[layer]);
        gen_block_t messages = gen_alloc(gen, batch->edges[hop] * in * 4, 0);
        gen_block_t back = layer ? gen_alloc(gen, batch->nodes[hop + 1] * in * 4, 0) : 0;
        gen_free(gen, messages);
        gen_free(gen, d);
        gen_free(gen, out[layer]);
        d = back;
    }
    gen_sync(gen); /* the loss is read */
    gen_free(gen, loss);
    for (int i = 0; i < HOPS * 2; i++) {
        gen_block_t step = gen_alloc(gen, weights[i] * 4, 0);
        gen_free(gen, step);
        gen_free(gen, gradient[i]);
    }
}

static void drop_batch(gen_t *gen, batch_t *batch) {
    for (int hop = 0; hop < HOPS; hop++) {
        gen_free(gen, batch->row[hop]);
        gen_free(gen, batch->column[hop]);
    }
    gen_free(gen, batch->id);
    gen_free(gen, batch->features);
    gen_free(gen, batch->labels);
}

void gen_graph(gen_t *gen) {
    unsigned weights[HOPS * 2];
    for (int layer = 0; layer < HOPS; layer++)
        weights[2 * layer] = weights[2 * layer + 1] =
            (unsigned)((layer ? HIDDEN : FEATURES) * width(layer));
    for (int i = 0; i < HOPS * 2; i++)
        for (int copy = 0; copy < 3; copy++) /* with two moments */
            gen_alloc(gen, weights[i] * (uint64_t)4, 0);
    /* The graph itself, and the features that fit. */
    gen_alloc(gen, (uint64_t)180 << 20, 0);
    gen_alloc(gen, (uint64_t)1400 << 20, 0);
    gen_alloc(gen, (uint64_t)2600 << 20, 0);
    batch_t now = {0}, next;
    sample(gen, &now);
    while (!gen_enough(gen)) {
        next = (batch_t){0};
        sample(gen, &next);
        learn(gen, &now, weights);
        drop_batch(gen, &now);
        now = next;
    }
}

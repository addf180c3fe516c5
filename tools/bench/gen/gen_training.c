/* Training a decoder (gen.h).  `fixed` and `varlen` train all weights.  `lora` trains adapters of
 * weights that are sharded over eight devices.  Stream 1 gathers the weights, a layer ahead of use.
 * Stream 2 keeps the inputs of layers on the host, except every fourth, and brings them back. */
#include "gen_layer.h"

#include <string.h>

enum { HALF = 2, FULL = 4, MOST_LAYERS = 32, SHARDS = 8 };
enum { ON_COMPUTE, ON_GATHER, ON_COPY };

/* ------------------------------------------------------------------ all weights */

typedef struct {
    gen_t *gen;
    const net_t *net;
    bool states; /* of the optimiser: made in the first step */
    layer_t layer[MOST_LAYERS];
    gen_block_t input[MOST_LAYERS];
    gradients_t gradients[MOST_LAYERS];
    gen_block_t embedding; /* its gradient */
} training_t;

static void micro_batch(training_t *t, shape_t shape) {
    gen_t *gen = t->gen;
    batch_inputs_t batch;
    batch_make(gen, t->net, shape, &batch);
    gen_block_t x = batch.tensor[BATCH_TENSORS - 1];
    batch.tensor[BATCH_TENSORS - 1] = 0;
    for (unsigned i = 0; i < t->net->layers; i++) {
        t->input[i] = x;
        x = layer_forward(gen, t->net, shape, &t->layer[i], true);
    }
    gen_block_t change = net_loss(gen, t->net, shape, x);
    for (unsigned i = t->net->layers; i-- > 0;) {
        change = layer_backward(gen, t->net, shape, &t->layer[i], change, &t->gradients[i]);
        gen_free(gen, t->input[i]);
    }
    gen_block_t fresh =
        gen_alloc(gen, (uint64_t)t->net->vocabulary * t->net->hidden * HALF, ON_COMPUTE);
    if (t->embedding)
        gen_free(gen, fresh);
    else
        t->embedding = fresh;
    gen_free(gen, change);
    batch_drop(gen, &batch);
}

/* Adam, one tensor after the other, and in single precision. */
static void update(training_t *t, uint64_t elements) {
    gen_t *gen = t->gen;
    if (!t->states) {
        gen_alloc(gen, FULL, ON_COMPUTE); /* the count of steps */
        gen_alloc(gen, elements * FULL, ON_COMPUTE);
        gen_alloc(gen, elements * FULL, ON_COMPUTE);
    }
    gen_block_t wide = gen_alloc(gen, elements * FULL, ON_COMPUTE);
    gen_block_t root = gen_alloc(gen, elements * FULL, ON_COMPUTE);
    gen_block_t step = gen_alloc(gen, elements * FULL, ON_COMPUTE);
    gen_free(gen, root);
    gen_free(gen, wide);
    gen_free(gen, step);
}

static void optimise(training_t *t) {
    gen_t *gen = t->gen;
    const net_t *net = t->net;
    gen_block_t norm[MOST_LAYERS * WEIGHTS];
    unsigned norms = 0;
    for (unsigned i = 0; i < net->layers; i++)
        for (int w = 0; w < WEIGHTS; w++)
            norm[norms++] = gen_alloc(gen, FULL, ON_COMPUTE);
    gen_block_t total = gen_alloc(gen, FULL, ON_COMPUTE);
    for (unsigned i = 0; i < norms; i++)
        gen_free(gen, norm[i]);
    for (unsigned i = 0; i < net->layers; i++)
        for (int w = 0; w < WEIGHTS; w++)
            update(t, net_weight(net, w));
    update(t, (uint64_t)net->vocabulary * net->hidden);
    gen_free(gen, total);
    t->states = true;
    for (unsigned i = 0; i < net->layers; i++) /* the next step makes new gradients */
        for (int w = 0; w < WEIGHTS; w++)
            gen_drop(gen, &t->gradients[i].weight[w]);
    gen_drop(gen, &t->embedding);
    gen_sync(gen);
}

static const net_t small_net = {.layers = 28,
                                .hidden = 1536,
                                .heads = 12,
                                .key_value = 256,
                                .inner = 8960,
                                .vocabulary = 32000};

/* Draws sequences that fit into `tokens` tokens, as a sampler packs them. */
static shape_t draw_shape(gen_t *gen, uint64_t tokens) {
    shape_t shape = {1, gen_length(gen)};
    if (shape.length > tokens)
        shape.length = tokens;
    shape.batch = tokens / shape.length;
    if (shape.batch > 16)
        shape.batch = 16;
    return shape;
}

static void train(gen_t *gen, bool varying) {
    static training_t t;
    t = (training_t){.gen = gen, .net = &small_net};
    for (unsigned i = 0; i < small_net.layers; i++)
        for (int w = 0; w < WEIGHTS; w++)
            gen_alloc(gen, net_weight(&small_net, w) * HALF, ON_COMPUTE);
    gen_alloc(gen, (uint64_t)small_net.vocabulary * small_net.hidden * HALF, ON_COMPUTE);
    for (unsigned step = 1; !gen_enough(gen); step++) {
        for (int i = 0; i < (varying ? 2 : 1); i++)
            micro_batch(&t, varying ? draw_shape(gen, 8192) : (shape_t){4, 2048});
        optimise(&t);
        if (varying && step % 10 == 0)
            net_evaluate(gen, &small_net);
    }
}

void gen_fixed(gen_t *gen) {
    train(gen, false);
}

void gen_varlen(gen_t *gen) {
    train(gen, true);
}

/* ------------------------------------------------------------------ adapters */

typedef struct {
    gen_block_t flat, norm[2];
} gathered_t;

static gathered_t gather(gen_t *gen, const net_t *net) {
    return (gathered_t){gen_alloc(gen, net_layer_weights(net) * HALF, ON_GATHER),
                        {gen_alloc(gen, net->hidden * HALF, ON_GATHER),
                         gen_alloc(gen, net->hidden * HALF, ON_GATHER)}};
}

static void scatter(gen_t *gen, gathered_t *g) {
    gen_drop(gen, &g->norm[0]);
    gen_drop(gen, &g->norm[1]);
    gen_drop(gen, &g->flat);
}

static bool stays(unsigned layer) {
    return layer % 4 == 3;
}

typedef struct {
    gen_t *gen;
    const net_t *net;
    gen_block_t input[MOST_LAYERS]; /* on the device; 0: on the host */
    gradients_t gradients[MOST_LAYERS];
    gathered_t now, next;
} adapting_t;

/* Forward pass; only the inputs are kept.  Inputs that go to the host do so while the next layer
 * works. */
static gen_block_t adapt_forward(adapting_t *t, shape_t shape, gen_block_t x) {
    gen_t *gen = t->gen;
    const unsigned layers = t->net->layers;
    layer_t layer;
    t->next = gather(gen, t->net);
    for (unsigned i = 0; i < layers; i++) {
        t->now = t->next;
        if (i + 1 < layers)
            t->next = gather(gen, t->net);
        t->input[i] = x;
        x = layer_forward(gen, t->net, shape, &layer, false);
        scatter(gen, &t->now);
        if (i > 0 && !stays(i - 1))
            gen_drop(gen, &t->input[i - 1]);
    }
    return x;
}

static void bring_back(adapting_t *t, shape_t shape, unsigned layer) {
    if (!t->input[layer])
        t->input[layer] =
            gen_alloc(t->gen, shape.batch * shape.length * t->net->hidden * HALF, ON_COPY);
}

static void adapt_backward(adapting_t *t, shape_t shape, gen_block_t change) {
    gen_t *gen = t->gen;
    layer_t layer;
    t->next = gather(gen, t->net);
    for (unsigned i = t->net->layers; i-- > 0;) {
        t->now = t->next;
        if (i > 0)
            t->next = gather(gen, t->net);
        bring_back(t, shape, i);
        if (i > 0)
            bring_back(t, shape, i - 1);
        gen_block_t again = layer_forward(gen, t->net, shape, &layer, true);
        gen_free(gen, again);
        change = layer_backward(gen, t->net, shape, &layer, change, &t->gradients[i]);
        gen_drop(gen, &t->input[i]);
        scatter(gen, &t->now);
    }
    gen_free(gen, change);
}

static void adapt_batch(adapting_t *t, shape_t shape) {
    gen_t *gen = t->gen;
    batch_inputs_t batch;
    batch_make(gen, t->net, shape, &batch);
    gen_block_t x = batch.tensor[BATCH_TENSORS - 1];
    batch.tensor[BATCH_TENSORS - 1] = 0;
    x = adapt_forward(t, shape, x);
    adapt_backward(t, shape, net_loss(gen, t->net, shape, x));
    batch_drop(gen, &batch);
}

static uint64_t adapter_bytes(const net_t *net, int weight, int part) {
    unsigned side = part ? net_outputs(net, weight) : net_inputs(net, weight);
    return (uint64_t)side * net->rank * FULL;
}

static void adapt_optimise(adapting_t *t, bool states) {
    gen_t *gen = t->gen;
    gen_block_t bucket = gen_alloc(gen, (uint64_t)25 << 20, ON_GATHER); /* to reduce in */
    gen_block_t total = gen_alloc(gen, FULL, ON_COMPUTE);
    gen_free(gen, bucket);
    for (unsigned i = 0; i < t->net->layers; i++) {
        for (int w = 0; w <= W_MIX; w++) {
            for (int part = 0; part < 2; part++) {
                uint64_t bytes = adapter_bytes(t->net, w, part);
                if (!states) {
                    gen_alloc(gen, bytes, ON_COMPUTE);
                    gen_alloc(gen, bytes, ON_COMPUTE);
                }
                gen_block_t wide = gen_alloc(gen, bytes, ON_COMPUTE);
                gen_block_t step = gen_alloc(gen, bytes, ON_COMPUTE);
                gen_free(gen, wide);
                gen_free(gen, step);
                gen_drop(gen, &t->gradients[i].part[w][part]);
            }
        }
    }
    gen_free(gen, total);
    gen_sync(gen);
}

void gen_lora(gen_t *gen) {
    static const net_t net = {.layers = 32,
                              .hidden = 4096,
                              .heads = 32,
                              .key_value = 1024,
                              .inner = 14336,
                              .vocabulary = 32000,
                              .rank = 16};
    static adapting_t t;
    t = (adapting_t){.gen = gen, .net = &net};
    for (unsigned i = 0; i < net.layers; i++) {
        gen_alloc(gen, (net_layer_weights(&net) + SHARDS - 1) / SHARDS * HALF, ON_COMPUTE);
        for (int w = 0; w <= W_MIX; w++)
            for (int part = 0; part < 2; part++)
                gen_alloc(gen, adapter_bytes(&net, w, part), ON_COMPUTE);
    }
    for (int i = 0; i < 2; i++) /* embedding and head */
        gen_alloc(gen, (uint64_t)net.vocabulary * net.hidden * HALF, ON_COMPUTE);
    for (unsigned step = 1; !gen_enough(gen); step++) {
        unsigned batches = 1u << gen_between(gen, 0, 2);
        for (unsigned i = 0; i < batches; i++)
            adapt_batch(&t, draw_shape(gen, 6144));
        adapt_optimise(&t, step > 1);
        if (step % 10 == 0)
            net_evaluate(gen, &net);
    }
}

/* Serving a decoder (gen.h).  Requests come in bursts and are processed together, a token of each
 * at a time.  Keys and values of a request lie in one buffer for each layer.  A full buffer grows
 * by half: the copy stream fills the new one before the old one is freed.  A new prompt is
 * processed alone, first.  Requests end with their answer, or are cancelled. */
#include "gen_layer.h"

enum { HALF = 2, FULL = 4, MOST_LAYERS = 32, MOST_REQUESTS = 48, PROMPTS_FIRST = 2 };
enum { ON_COMPUTE, ON_COPY };

typedef struct {
    uint64_t length, ends, room; /* tokens: now, at the end, in the buffers */
    gen_block_t cache[MOST_LAYERS];
} request_t;

static uint64_t cache_bytes(const net_t *net, uint64_t tokens) {
    return tokens * net->key_value * 2 * HALF;
}

/* Runs a pass over the layers: allocates all its tensors except the caches. */
static void pass(gen_t *gen, const net_t *net, shape_t shape) {
    layer_t layer;
    batch_inputs_t batch;
    batch_make(gen, net, shape, &batch);
    gen_block_t x = batch.tensor[BATCH_TENSORS - 1];
    batch.tensor[BATCH_TENSORS - 1] = 0;
    for (unsigned i = 0; i < net->layers; i++) {
        gen_block_t out = layer_forward(gen, net, shape, &layer, false);
        gen_free(gen, x);
        x = out;
    }
    gen_block_t scores = gen_alloc(gen, shape.batch * net->vocabulary * FULL, ON_COMPUTE);
    gen_block_t sorted = gen_alloc(gen, shape.batch * net->vocabulary * FULL, ON_COMPUTE);
    gen_block_t order = gen_alloc(gen, shape.batch * net->vocabulary * 8, ON_COMPUTE);
    gen_free(gen, sorted);
    gen_free(gen, order);
    gen_sync(gen); /* the tokens are read */
    gen_free(gen, scores);
    gen_free(gen, x);
    batch_drop(gen, &batch);
}

static void begin_request(gen_t *gen, const net_t *net, request_t *request) {
    request->length = gen_length(gen);
    request->ends = request->length + gen_length(gen) / 4 + 8;
    request->room = request->length + 32;
    for (unsigned i = 0; i < net->layers; i++)
        request->cache[i] = gen_alloc(gen, cache_bytes(net, request->room), ON_COMPUTE);
    pass(gen, net, (shape_t){1, request->length});
}

static void grow(gen_t *gen, const net_t *net, request_t *request) {
    request->room += request->room / 2;
    for (unsigned i = 0; i < net->layers; i++) {
        gen_block_t larger = gen_alloc(gen, cache_bytes(net, request->room), ON_COPY);
        gen_free(gen, request->cache[i]);
        request->cache[i] = larger;
    }
}

static void end_request(gen_t *gen, const net_t *net, request_t *request) {
    for (unsigned i = 0; i < net->layers; i++)
        gen_drop(gen, &request->cache[i]);
}

void gen_serving(gen_t *gen) {
    static const net_t net = {.layers = 32,
                              .hidden = 4096,
                              .heads = 32,
                              .key_value = 1024,
                              .inner = 14336,
                              .vocabulary = 128256};
    static request_t request[MOST_REQUESTS];
    unsigned count = 0, most = 16;
    for (unsigned i = 0; i < net.layers; i++)
        for (int w = 0; w < WEIGHTS; w++)
            gen_alloc(gen, net_weight(&net, w) * HALF, ON_COMPUTE);
    gen_alloc(gen, (uint64_t)net.vocabulary * net.hidden * HALF, ON_COMPUTE);
    while (!gen_enough(gen)) {
        if (gen_chance(gen, 4)) /* the load of the server */
            most = (unsigned)gen_between(gen, 4, MOST_REQUESTS);
        for (int i = 0; i < PROMPTS_FIRST && count < most; i++)
            begin_request(gen, &net, &request[count++]);
        pass(gen, &net, (shape_t){count, 1});
        for (unsigned i = 0; i < count;) {
            /* Several tokens are guessed at a time; some guesses are right. */
            request[i].length += gen_between(gen, 4, 24);
            if (request[i].length >= request[i].ends || gen_chance(gen, 1)) {
                end_request(gen, &net, &request[i]);
                request[i] = request[--count];
                continue;
            }
            if (request[i].length > request[i].room)
                grow(gen, &net, &request[i]);
            i++;
        }
    }
}

/* The passes of a layer are tables of steps (gen_layer.h). */
#include "gen_layer.h"

#include <string.h>

enum { HALF = 2, FULL = 4 };

typedef enum {
    NONE,
    IN_WIDE,
    IN_SCALE,
    IN,
    QUERY,
    KEY,
    VALUE,
    TURN,
    QUERY_T,
    KEY_T,
    MIXED,
    SUMS,
    MIX,
    MIDDLE,
    MID_WIDE,
    MID_SCALE,
    MID,
    GATE,
    UP,
    ACTED,
    PRODUCT,
    DOWN,
    OUT,
    D_OUT,
    D_PRODUCT,
    D_ACTED,
    D_UP,
    D_GATE,
    D_MID_A,
    D_MID_B,
    D_MID,
    D_WIDE,
    D_MIDDLE,
    D_RESIDUE,
    D_MIXED,
    D_QUERY_T,
    D_KEY_T,
    D_VALUE,
    D_WORK,
    D_SUMS,
    D_QUERY,
    D_KEY,
    D_IN_A,
    D_IN_B,
    D_IN_C,
    D_IN,
    D_INPUT,
    TENSORS
} tensor_t;
_Static_assert((int)TENSORS <= (int)LAYER_TENSORS, "every tensor has its place");

/* Number of elements of a tensor for each token. */
typedef enum { ONE, HIDDEN, KEY_VALUE, INNER, HEADS } width_t;

typedef enum {
    MAKE,   /* a tensor of `width` elements of `bytes` a token */
    LINEAR, /* the output of the weight `width`, with its adapter if it has one */
    DROP,   /* frees it */
    LAST,   /* frees it unless the backward pass needs it */
    GRAD    /* the gradient of the weight `width` */
} what_t;

typedef struct {
    uint8_t what, tensor, width, bytes;
} step_t;

static const step_t forward_steps[] = {
    {MAKE, IN_WIDE, HIDDEN, FULL}, /* norms are computed in single precision */
    {MAKE, IN_SCALE, ONE, FULL},
    {MAKE, IN, HIDDEN, HALF},
    {DROP, IN_WIDE, 0, 0},
    {LAST, IN_SCALE, 0, 0},
    {LINEAR, QUERY, W_QUERY, HALF},
    {LINEAR, KEY, W_KEY, HALF},
    {LINEAR, VALUE, W_VALUE, HALF},
    {LAST, IN, 0, 0},
    {MAKE, TURN, HIDDEN, HALF}, /* positions are rotated into queries and keys */
    {MAKE, QUERY_T, HIDDEN, HALF},
    {DROP, TURN, 0, 0},
    {DROP, QUERY, 0, 0},
    {MAKE, TURN, KEY_VALUE, HALF},
    {MAKE, KEY_T, KEY_VALUE, HALF},
    {DROP, TURN, 0, 0},
    {DROP, KEY, 0, 0},
    {MAKE, MIXED, HIDDEN, HALF},
    {MAKE, SUMS, HEADS, FULL},
    {LAST, QUERY_T, 0, 0},
    {LAST, KEY_T, 0, 0},
    {LAST, VALUE, 0, 0},
    {LAST, SUMS, 0, 0},
    {LINEAR, MIX, W_MIX, HALF},
    {LAST, MIXED, 0, 0},
    {MAKE, MIDDLE, HIDDEN, HALF},
    {DROP, MIX, 0, 0},
    {MAKE, MID_WIDE, HIDDEN, FULL},
    {MAKE, MID_SCALE, ONE, FULL},
    {MAKE, MID, HIDDEN, HALF},
    {DROP, MID_WIDE, 0, 0},
    {LAST, MID_SCALE, 0, 0},
    {LINEAR, GATE, W_GATE, HALF},
    {LINEAR, UP, W_UP, HALF},
    {LAST, MID, 0, 0},
    {MAKE, ACTED, INNER, HALF},
    {LAST, GATE, 0, 0},
    {MAKE, PRODUCT, INNER, HALF},
    {LAST, ACTED, 0, 0},
    {LAST, UP, 0, 0},
    {LINEAR, DOWN, W_DOWN, HALF},
    {LAST, PRODUCT, 0, 0},
    {MAKE, OUT, HIDDEN, HALF},
    {DROP, DOWN, 0, 0},
    {LAST, MIDDLE, 0, 0},
};

static const step_t backward_steps[] = {
    {MAKE, D_PRODUCT, INNER, HALF},
    {GRAD, NONE, W_DOWN, HALF},
    {DROP, PRODUCT, 0, 0},
    {MAKE, D_ACTED, INNER, HALF},
    {MAKE, D_UP, INNER, HALF},
    {DROP, D_PRODUCT, 0, 0},
    {DROP, UP, 0, 0},
    {DROP, ACTED, 0, 0},
    {MAKE, D_GATE, INNER, HALF},
    {DROP, D_ACTED, 0, 0},
    {DROP, GATE, 0, 0},
    {MAKE, D_MID_A, HIDDEN, HALF},
    {GRAD, NONE, W_UP, HALF},
    {DROP, D_UP, 0, 0},
    {MAKE, D_MID_B, HIDDEN, HALF},
    {GRAD, NONE, W_GATE, HALF},
    {DROP, D_GATE, 0, 0},
    {DROP, MID, 0, 0},
    {MAKE, D_MID, HIDDEN, HALF},
    {DROP, D_MID_A, 0, 0},
    {DROP, D_MID_B, 0, 0},
    {MAKE, D_WIDE, HIDDEN, FULL},
    {GRAD, NONE, W_NORM2, HALF},
    {MAKE, D_MIDDLE, HIDDEN, HALF},
    {DROP, D_WIDE, 0, 0},
    {DROP, D_MID, 0, 0},
    {DROP, MID_SCALE, 0, 0},
    {DROP, MIDDLE, 0, 0},
    {MAKE, D_RESIDUE, HIDDEN, HALF},
    {DROP, D_MIDDLE, 0, 0},
    {DROP, D_OUT, 0, 0},
    {MAKE, D_MIXED, HIDDEN, HALF},
    {GRAD, NONE, W_MIX, HALF},
    {MAKE, D_QUERY_T, HIDDEN, HALF},
    {MAKE, D_KEY_T, KEY_VALUE, HALF},
    {MAKE, D_VALUE, KEY_VALUE, HALF},
    {MAKE, D_WORK, HIDDEN, FULL},
    {MAKE, D_SUMS, HEADS, FULL},
    {DROP, D_WORK, 0, 0},
    {DROP, D_SUMS, 0, 0},
    {DROP, D_MIXED, 0, 0},
    {DROP, MIXED, 0, 0},
    {DROP, SUMS, 0, 0},
    {DROP, QUERY_T, 0, 0},
    {DROP, KEY_T, 0, 0},
    {DROP, VALUE, 0, 0},
    {MAKE, D_QUERY, HIDDEN, HALF},
    {DROP, D_QUERY_T, 0, 0},
    {MAKE, D_KEY, KEY_VALUE, HALF},
    {DROP, D_KEY_T, 0, 0},
    {MAKE, D_IN_A, HIDDEN, HALF},
    {GRAD, NONE, W_QUERY, HALF},
    {DROP, D_QUERY, 0, 0},
    {MAKE, D_IN_B, HIDDEN, HALF},
    {GRAD, NONE, W_KEY, HALF},
    {DROP, D_KEY, 0, 0},
    {MAKE, D_IN_C, HIDDEN, HALF},
    {GRAD, NONE, W_VALUE, HALF},
    {DROP, D_VALUE, 0, 0},
    {DROP, D_IN_B, 0, 0},
    {DROP, D_IN_C, 0, 0},
    {DROP, IN, 0, 0},
    {MAKE, D_WIDE, HIDDEN, FULL},
    {GRAD, NONE, W_NORM1, HALF},
    {MAKE, D_IN, HIDDEN, HALF},
    {DROP, D_WIDE, 0, 0},
    {DROP, D_IN_A, 0, 0},
    {DROP, IN_SCALE, 0, 0},
    {MAKE, D_INPUT, HIDDEN, HALF},
    {DROP, D_IN, 0, 0},
    {DROP, D_RESIDUE, 0, 0},
};

/* ------------------------------------------------------------------ sizes */

unsigned net_inputs(const net_t *net, int weight) {
    return weight == W_DOWN ? net->inner : net->hidden;
}

unsigned net_outputs(const net_t *net, int weight) {
    switch (weight) {
    case W_KEY:
    case W_VALUE:
        return net->key_value;
    case W_GATE:
    case W_UP:
        return net->inner;
    default:
        return net->hidden;
    }
}

uint64_t net_weight(const net_t *net, int weight) {
    if (weight >= W_NORM1)
        return net->hidden;
    return (uint64_t)net_inputs(net, weight) * net_outputs(net, weight);
}

uint64_t net_layer_weights(const net_t *net) {
    uint64_t sum = 0;
    for (int i = 0; i < WEIGHTS; i++)
        sum += net_weight(net, i);
    return sum;
}

bool net_adapted(const net_t *net, int weight) {
    return net->rank && weight <= W_MIX;
}

static uint64_t width_of(const net_t *net, unsigned width) {
    switch (width) {
    case HIDDEN:
        return net->hidden;
    case KEY_VALUE:
        return net->key_value;
    case INNER:
        return net->inner;
    case HEADS:
        return net->heads;
    default:
        return 1;
    }
}

/* ------------------------------------------------------------------ steps */

typedef struct {
    gen_t *gen;
    const net_t *net;
    uint64_t tokens;
    layer_t *layer;
    gradients_t *gradients;
    bool keep;
} pass_t;

/* Adds the adapter's result for the same input to the output of the weight. */
static gen_block_t adapted(pass_t *p, int weight, gen_block_t output) {
    gen_t *gen = p->gen;
    uint64_t inputs = net_inputs(p->net, weight), outputs = net_outputs(p->net, weight);
    gen_block_t *kept = p->layer->adapter[weight];
    kept[0] = gen_alloc(gen, p->tokens * inputs * HALF, 0); /* after dropout */
    kept[1] = gen_alloc(gen, p->tokens * inputs, 0);        /* what was dropped */
    kept[2] = gen_alloc(gen, p->tokens * p->net->rank * HALF, 0);
    gen_block_t part = gen_alloc(gen, p->tokens * outputs * HALF, 0);
    gen_block_t sum = gen_alloc(gen, p->tokens * outputs * HALF, 0);
    gen_free(gen, part);
    gen_free(gen, output);
    for (int i = 0; i < ADAPTER_TENSORS && !p->keep; i++)
        gen_drop(gen, &kept[i]);
    return sum;
}

static void keep_or_add(gen_t *gen, gen_block_t *gradient, uint64_t bytes) {
    gen_block_t fresh = gen_alloc(gen, bytes, 0);
    if (*gradient)
        gen_free(gen, fresh);
    else
        *gradient = fresh;
}

static void adapter_gradient(pass_t *p, int weight) {
    gen_t *gen = p->gen;
    gen_block_t *kept = p->layer->adapter[weight], *part = p->gradients->part[weight];
    gen_block_t low = gen_alloc(gen, p->tokens * p->net->rank * HALF, 0);
    keep_or_add(gen, &part[1], (uint64_t)net_outputs(p->net, weight) * p->net->rank * HALF);
    keep_or_add(gen, &part[0], (uint64_t)net_inputs(p->net, weight) * p->net->rank * HALF);
    gen_block_t change = gen_alloc(gen, p->tokens * net_inputs(p->net, weight) * HALF, 0);
    gen_free(gen, low);
    for (int i = 0; i < ADAPTER_TENSORS; i++)
        gen_drop(gen, &kept[i]);
    gen_free(gen, change);
}

static void gradient(pass_t *p, int weight) {
    if (net_adapted(p->net, weight))
        adapter_gradient(p, weight);
    else if (!p->net->rank) /* with adapters the weights themselves are frozen */
        keep_or_add(p->gen, &p->gradients->weight[weight], net_weight(p->net, weight) * HALF);
}

static void take_step(pass_t *p, const step_t *step) {
    gen_block_t *tensor = &p->layer->tensor[step->tensor];
    switch ((what_t)step->what) {
    case MAKE:
        *tensor = gen_alloc(p->gen, p->tokens * width_of(p->net, step->width) * step->bytes, 0);
        break;
    case LINEAR:
        *tensor = gen_alloc(p->gen, p->tokens * net_outputs(p->net, step->width) * HALF, 0);
        if (net_adapted(p->net, step->width))
            *tensor = adapted(p, step->width, *tensor);
        break;
    case DROP:
        gen_drop(p->gen, tensor);
        break;
    case LAST:
        if (!p->keep)
            gen_drop(p->gen, tensor);
        break;
    case GRAD:
        gradient(p, step->width);
        break;
    }
}

gen_block_t layer_forward(gen_t *gen, const net_t *net, shape_t shape, layer_t *layer,
                          bool keep) {
    pass_t p = {.gen = gen,
                .net = net,
                .tokens = shape.batch * shape.length,
                .layer = layer,
                .keep = keep};
    memset(layer, 0, sizeof *layer);
    for (size_t i = 0; i < sizeof forward_steps / sizeof *forward_steps; i++)
        take_step(&p, &forward_steps[i]);
    gen_block_t out = layer->tensor[OUT];
    layer->tensor[OUT] = 0; /* the caller's */
    return out;
}

gen_block_t layer_backward(gen_t *gen, const net_t *net, shape_t shape, layer_t *layer,
                           gen_block_t change, gradients_t *gradients) {
    pass_t p = {.gen = gen,
                .net = net,
                .tokens = shape.batch * shape.length,
                .layer = layer,
                .gradients = gradients,
                .keep = true};
    layer->tensor[D_OUT] = change;
    for (size_t i = 0; i < sizeof backward_steps / sizeof *backward_steps; i++)
        take_step(&p, &backward_steps[i]);
    return layer->tensor[D_INPUT];
}

/* ------------------------------------------------------------------ the ends */

void batch_make(gen_t *gen, const net_t *net, shape_t shape, batch_inputs_t *batch) {
    uint64_t tokens = shape.batch * shape.length;
    batch->tensor[0] = gen_alloc(gen, tokens * 8, 0); /* tokens */
    batch->tensor[1] = gen_alloc(gen, tokens * 8, 0); /* labels */
    batch->tensor[2] = gen_alloc(gen, shape.length * 8, 0);
    batch->tensor[3] = gen_alloc(gen, shape.length * (net->hidden / net->heads) * FULL, 0);
    batch->tensor[4] = gen_alloc(gen, tokens * net->hidden * HALF, 0); /* embedded */
}

void batch_drop(gen_t *gen, batch_inputs_t *batch) {
    for (int i = 0; i < BATCH_TENSORS; i++)
        gen_drop(gen, &batch->tensor[i]);
}

gen_block_t net_loss(gen_t *gen, const net_t *net, shape_t shape, gen_block_t output) {
    uint64_t tokens = shape.batch * shape.length, cells = tokens * net->vocabulary;
    gen_block_t normed = gen_alloc(gen, tokens * net->hidden * HALF, 0);
    gen_block_t scores = gen_alloc(gen, cells * HALF, 0);
    gen_block_t wide = gen_alloc(gen, cells * FULL, 0);
    gen_drop(gen, &scores);
    gen_block_t log = gen_alloc(gen, cells * FULL, 0);
    gen_drop(gen, &wide);
    gen_block_t each = gen_alloc(gen, tokens * FULL, 0), loss = gen_alloc(gen, FULL, 0);
    gen_drop(gen, &each);
    gen_block_t change = gen_alloc(gen, cells * FULL, 0);
    gen_drop(gen, &log);
    gen_block_t narrow = gen_alloc(gen, cells * HALF, 0);
    gen_drop(gen, &change);
    gen_block_t back = gen_alloc(gen, tokens * net->hidden * HALF, 0);
    gen_drop(gen, &narrow);
    gen_drop(gen, &normed);
    gen_block_t first = gen_alloc(gen, tokens * net->hidden * HALF, 0);
    gen_drop(gen, &back);
    gen_drop(gen, &loss);
    gen_free(gen, output);
    return first;
}

void net_evaluate(gen_t *gen, const net_t *net) {
    enum { TOKENS = 6, MOST_LAYERS = 64 };
    shape_t prompt = {gen_between(gen, 1, 4), gen_length(gen) / 4 + 16}, one = prompt;
    gen_block_t keys[MOST_LAYERS], values[MOST_LAYERS];
    batch_inputs_t batch;
    layer_t layer;
    batch_make(gen, net, prompt, &batch);
    gen_block_t x = gen_alloc(gen, prompt.batch * prompt.length * net->hidden * HALF, 0);
    uint64_t row = prompt.batch * net->key_value * HALF;
    for (unsigned i = 0; i < net->layers; i++) {
        gen_block_t out = layer_forward(gen, net, prompt, &layer, false);
        keys[i] = gen_alloc(gen, prompt.length * row, 0);
        values[i] = gen_alloc(gen, prompt.length * row, 0);
        gen_free(gen, x);
        x = out;
    }
    gen_free(gen, x);
    batch_drop(gen, &batch);
    one.length = 1;
    for (unsigned n = 1; n <= TOKENS; n++) {
        x = gen_alloc(gen, one.batch * net->hidden * HALF, 0);
        for (unsigned i = 0; i < net->layers; i++) {
            gen_block_t out = layer_forward(gen, net, one, &layer, false);
            gen_block_t longer = gen_alloc(gen, (prompt.length + n) * row, 0);
            gen_free(gen, keys[i]);
            keys[i] = longer;
            longer = gen_alloc(gen, (prompt.length + n) * row, 0);
            gen_free(gen, values[i]);
            values[i] = longer;
            gen_free(gen, x);
            x = out;
        }
        gen_block_t scores = gen_alloc(gen, one.batch * net->vocabulary * FULL, 0);
        gen_sync(gen); /* the token is read */
        gen_free(gen, scores);
        gen_free(gen, x);
    }
    for (unsigned i = 0; i < net->layers; i++) {
        gen_free(gen, keys[i]);
        gen_free(gen, values[i]);
    }
}

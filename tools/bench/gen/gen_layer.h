/* One layer of a decoder, as an eager framework runs it: its tensors, their sizes, and the last
 * use of each.  Shared by the generators of training and serving. */
#ifndef CMD_GEN_LAYER_H
#define CMD_GEN_LAYER_H

#include "gen.h"

/* Weights of a layer. */
enum { W_QUERY, W_KEY, W_VALUE, W_MIX, W_GATE, W_UP, W_DOWN, W_NORM1, W_NORM2, WEIGHTS };

typedef struct {
    unsigned layers, hidden, heads, key_value, inner, vocabulary;
    unsigned rank; /* of adapters; 0: none */
} net_t;

uint64_t net_weight(const net_t *net, int weight); /* elements */
uint64_t net_layer_weights(const net_t *net);
/* Sides of a linear weight. */
unsigned net_inputs(const net_t *net, int weight);
unsigned net_outputs(const net_t *net, int weight);
bool net_adapted(const net_t *net, int weight);

enum { LAYER_TENSORS = 56, ADAPTER_TENSORS = 3 };

/* Tensors of one layer that live from its forward to its backward pass. */
typedef struct {
    gen_block_t tensor[LAYER_TENSORS];
    gen_block_t adapter[WEIGHTS][ADAPTER_TENSORS]; /* kept by adapters for the backward pass */
} layer_t;

/* Gradients of a layer: of its weights, or of its adapters' two parts. */
typedef struct {
    gen_block_t weight[WEIGHTS], part[WEIGHTS][2];
} gradients_t;

typedef struct {
    uint64_t batch, length; /* sequences, tokens in each */
} shape_t;

/* Runs the forward pass over `input`, which is not freed.  With `keep`, the tensors of the
 * backward pass stay in *layer.  Returns the output. */
gen_block_t layer_forward(gen_t *gen, const net_t *net, shape_t shape, layer_t *layer, bool keep);

/* Runs the backward pass.  Frees `change` and all tensors that the layer kept, and returns the
 * change of its input.  Adds to gradients that exist already. */
gen_block_t layer_backward(gen_t *gen, const net_t *net, shape_t shape, layer_t *layer,
                           gen_block_t change, gradients_t *gradients);

/* The ends of the net: the tensors of a batch; head and loss, forward and backward. */
enum { BATCH_TENSORS = 5 };
typedef struct {
    gen_block_t tensor[BATCH_TENSORS];
} batch_inputs_t;
void batch_make(gen_t *gen, const net_t *net, shape_t shape, batch_inputs_t *batch);
void batch_drop(gen_t *gen, batch_inputs_t *batch);
/* Frees `output`, returns its change. */
gen_block_t net_loss(gen_t *gen, const net_t *net, shape_t shape, gen_block_t output);

/* Runs a prompt, then some tokens one by one, with keys and values that grow by
 * concatenation. */
void net_evaluate(gen_t *gen, const net_t *net);

#endif

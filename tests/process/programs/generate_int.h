/* Interface between the files that generate programs. */
#ifndef GENERATE_INT_H
#define GENERATE_INT_H

#include "generate.h"
#include "model.h"

/* Next action, chosen by weight. The weights of a program are drawn with its settings. */
typedef enum {
    ACT_TAKE,
    ACT_GIVE,
    ACT_KERNEL,
    ACT_TRANSFER,
    ACT_NOW,
    ACT_WAIT,
    ACT_STREAM,
    ACT_CAPTURE,
    ACT_GRAPH,
    ACT_CONTEXT,
    ACT_ASK,
    ACT_POOL,
    ACT_TIME,
    ACT_COUNT
} act_t;

enum { SIZES = 6 };

typedef struct {
    uint64_t state;
    program_t *program;
    model_t *model;
    unsigned thread; /* that makes the next operation */
    unsigned weight[ACT_COUNT], weights;
    unsigned threads_stay; /* approximate operations of a thread in a row */
    unsigned blocks_most, streams_most;
    unsigned async_percent, special_percent, programmatic_percent, order_percent, slow_percent;
    bool pins; /* every fourth block is pinned memory */
    bool pools_touched, finds; /* finds: copies across contexts use the unknown function */
    unsigned sizes;
    uint32_t size[SIZES];
} gen_t;

uint32_t gen_below(gen_t *g, uint32_t n); /* 0 if n is 0 */
bool gen_chance(gen_t *g, unsigned percent);

/* Settings and weights. */
void gen_settings(gen_t *g);

/* Appends an operation. Returns false if the model refuses it, and leaves the program
 * unchanged. */
bool gen_op(gen_t *g, unsigned thread, unsigned code, uint32_t a, uint32_t b, uint32_t c,
            uint32_t d);

/* Each returns a random live object, or -1 if there is none. gen_block: of the context, unless
 * that is -1. */
int gen_block(gen_t *g, int ctx);
int gen_context(gen_t *g);
/* Returns a stream operand for the thread in the context, or -1. Makes the context current if
 * necessary. */
int gen_stream(gen_t *g, unsigned thread, int ctx);
/* Returns an operand for the stream, or -1 if it is destroyed. *thread becomes a thread that can
 * name it. */
int gen_name(gen_t *g, int lane, unsigned *thread);

/* Makes the stream come after all uses of the block by events and waits. */
void gen_order(gen_t *g, unsigned thread, uint32_t operand, uint32_t block);
/* Makes the host wait for all uses of the block. */
void gen_order_host(gen_t *g, uint32_t block);
/* Returns an event of the context that may be recorded, or -1. */
int gen_event(gen_t *g, int ctx);

/* Adds a step of a capture, begins one, or launches a graph. */
void gen_capture(gen_t *g);
bool gen_capture_step(gen_t *g);
void gen_graph(gen_t *g);
void gen_end_captures(gen_t *g);

#endif

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
    unsigned threads_stay; /* operations of a thread in a row, about */
    unsigned blocks_most, streams_most;
    unsigned async_percent, special_percent, programmatic_percent, order_percent, slow_percent;
    bool pins; /* every fourth block is of pinned memory */
    bool pools_touched, finds; /* finds: no other way leads across contexts */
    unsigned sizes;
    uint32_t size[SIZES];
} gen_t;

uint32_t gen_below(gen_t *g, uint32_t n); /* 0 if n is 0 */
bool gen_chance(gen_t *g, unsigned percent);

/* Settings and weights. */
void gen_settings(gen_t *g);

/* False: out of order, the program stays as it is. */
bool gen_op(gen_t *g, unsigned thread, unsigned code, uint32_t a, uint32_t b, uint32_t c,
            uint32_t d);

/* Any live block (of the context, unless that is -1), stream, ...; -1: none found. */
int gen_block(gen_t *g, int ctx);
int gen_context(gen_t *g);
/* A stream operand for the thread, of the context; makes that current if it has to. -1: none. */
int gen_stream(gen_t *g, unsigned thread, int ctx);
/* Names the stream; *thread becomes one that can.  -1: it is gone. */
int gen_name(gen_t *g, int lane, unsigned *thread);

/* Makes the stream come after all uses of the block by events and waits. */
void gen_order(gen_t *g, unsigned thread, uint32_t operand, uint32_t block);
/* Makes the host know them. */
void gen_order_host(gen_t *g, uint32_t block);
/* An event of the context that may be recorded; -1: none. */
int gen_event(gen_t *g, int ctx);

/* A step of a capture, or the beginning of one; launching graphs. */
void gen_capture(gen_t *g);
bool gen_capture_step(gen_t *g);
void gen_graph(gen_t *g);
void gen_end_captures(gen_t *g);

#endif

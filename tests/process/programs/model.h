/* Model of a program: decides by CUDA's rules, without a device, which operations are correct.
 *
 * The model applies one operation after the other. For each item of work it knows the items
 * that happen before it. It uses only rules that CUDA documents: stream order, the legacy
 * default stream, events, waits, synchronisations, captures and launches of their graphs. An
 * operation passes only if all of this holds:
 *
 *   - its objects exist, and the driver's rules for calls during captures allow it,
 *   - each use of a block comes after the block's allocation, and two uses of a block are ordered
 *     if one of them writes,
 *   - a stream-ordered free comes after all uses. cuMemFree of stream-ordered memory does too,
 *     and the host must know it. cuMemFree of plain memory may come at any time, but uses on
 *     other devices must be known to be complete, unless the program is loose,
 *   - before a context ends, the host knows that all uses of its memory are complete. Work of
 *     the context's own streams is exempt: the driver completes it first.
 * If the documentation leaves an order open, the model has none. An answer that depends on time
 * (a query) orders nothing. cuMemFree orders nothing either, although real drivers wait in
 * it. */
#ifndef MODEL_H
#define MODEL_H

#include "past.h"
#include "program.h"

enum {
    LANE_LEGACY = STREAMS,
    LANE_OWN = LANE_LEGACY + CONTEXTS,
    LANES = LANE_OWN + CONTEXTS * THREADS,
    READERS = 16, /* unordered readers of a block */
    CAPTURES = 4,
    MEMBERS = 8, /* streams of a capture */
    NODES = 64   /* uses of memory in a graph */
};

/* A stream. */
typedef struct {
    bool live, blocking, legacy;
    int ctx, green; /* green: its green context, or -1 */
    uint32_t chain;
    past_t past;        /* past of the next item */
    past_t kernel_past; /* past of the last item, if that is a kernel */
    bool kernel_last;
    int capture; /* -1: none */
    uint32_t capture_chain;
    past_t capture_past; /* in chains of the capture */
} lane_t;

typedef struct {
    uint32_t block, serial;
    bool write, local; /* local: in memory that the graph allocates */
    point_t point;     /* in chains of the capture */
} node_t;

typedef struct {
    bool live;
    int ctx, origin, mode;
    unsigned thread, members, nodes;
    uint32_t serial, tails[MEMBERS + 1];
    node_t node[NODES];
} capture_t;

typedef struct {
    bool live;
    int ctx;
    unsigned nodes;
    node_t node[NODES];
} graph_t;

typedef struct {
    bool live, recorded;
    int ctx, capture; /* -1: none; stays after the end of the capture */
    uint32_t capture_serial;
    past_t past, capture_past;
} event_t;

typedef struct {
    bool live, async, plain; /* plain: allocated during a capture, so perhaps by the driver */
    bool pinned;             /* host memory */
    int ctx, local;          /* local: the capture that allocated it, else -1 */
    int pool;                /* -1: none, or destroyed */
    unsigned devices;        /* bits of the devices that can use a pool's memory */
    uint32_t serial, bytes;
    point_t alloc, write, read[READERS];
    unsigned readers;
    int lane; /* the last one that used it */
} block_t;

typedef struct {
    bool live;
    int device;
    bool peer[CONTEXTS]; /* contexts with memory that this one can use */
    past_t gone;         /* work of destroyed streams */
} context_t;

typedef struct {
    unsigned devices, threads;
    bool loose, found;    /* found: FIND got the unknown function */
    int current[THREADS]; /* -1: destroyed */
    context_t context[CONTEXTS];
    lane_t lane[LANES];
    event_t event[EVENTS];
    block_t block[BLOCKS];
    capture_t capture[CAPTURES];
    graph_t graph[GRAPHS];
    struct {
        bool live;
        int device;
    } green[GREENS];
    struct {
        bool live, current; /* current: the device's */
        int device;
        unsigned devices; /* that can use its memory */
    } pool[POOLS];
    past_t host, item; /* item: past of the current operation */
    uint32_t *tails;   /* newest position of each chain */
    struct {
        int device, ctx; /* ctx: -1 for a stream of a green context */
        bool idle;       /* its stream is destroyed */
    } * chain;
    uint32_t chains, chain_room, serial;
} model_t;

model_t *model_new(const program_t *program);
void model_free(model_t *model);

/* Applies an operation. Returns false, and changes nothing, if it is not in order. */
bool model_apply(model_t *model, const op_t *op);

/* Returns the stream that the operand names in the thread, or -1. */
int model_lane(const model_t *model, unsigned thread, uint32_t operand);

/* Removes operations that are not in order from the program. Returns their number. */
size_t model_filter(program_t *program);

#endif

/* Interface between the files of the model. */
#ifndef MODEL_INT_H
#define MODEL_INT_H

#include "model.h"

typedef struct {
    uint32_t block;
    bool write;
} use_t;

/* Kinds of items. A stream-ordered allocation or free is silent: it follows its stream, but
 * orders nothing else, not even as work of the legacy stream. */
enum { ITEM_KERNEL = 1, ITEM_PROGRAMMATIC = 2, ITEM_SILENT = 4 };

void lane_begin(model_t *m, int at, int ctx, bool blocking);
void lane_end(model_t *m, int at);

/* Returns false while a stream that synchronises with the lane captures: work is then
 * refused. */
bool lane_takes_work(const model_t *m, const lane_t *lane);

/* Returns true if the calling thread must not make calls that are unsafe during captures. */
bool model_unsafe(const model_t *m, unsigned thread);

/* item_begin sets m->item to the past of a new item of the lane, which does not capture. If
 * the item is in order, the caller calls item_end, which adds the item and returns its
 * point. */
void item_begin(model_t *m, const lane_t *lane, unsigned what);
point_t item_end(model_t *m, lane_t *lane, unsigned what);

/* use_ordered returns true if an item with the past m->item may use the block. use_done
 * records the use. */
bool use_ordered(const model_t *m, use_t use);
void use_done(model_t *m, use_t use, point_t point, int lane);

/* Adds an item with its uses, captured or not. Returns false, and changes nothing, if it is
 * out of order. */
bool work(model_t *m, int lane, unsigned what, const use_t *uses, unsigned count);

/* Applies one operation, like model_apply. */
#define APPLY(name)                     bool apply_##name(model_t *m, const op_t *op)
#define OP(symbol, name, operands, doc) APPLY(symbol);
#include "ops.def"
#undef OP

#endif

/* Interface between the files that run the operations. */
#ifndef OPERATIONS_INT_H
#define OPERATIONS_INT_H

#include "execute_int.h"

typedef struct {
    const op_t *op;
    int lane, capture;
} call_t;

#define RUN(name)                       CUresult run_##name(const call_t *c)
#define OP(symbol, name, operands, doc) RUN(symbol);
#include "ops.def"
#undef OP

/* Selects the entry point: `name`, or `name`_ptsz if the operand has STREAM_Z. */
#define BY(stream, name)     ((stream)&STREAM_Z ? name##_ptsz : name)
#define NOW_BY(stream, name) ((stream)&STREAM_Z ? name##_ptds : name)

/* Returns the handle of the operand in the calling thread. */
static inline CUstream handle(uint32_t operand) {
    switch (operand & STREAM_MASK) {
    case STREAM_NULL:
        return NULL;
    case STREAM_LEGACY:
        return CU_STREAM_LEGACY;
    case STREAM_OWN:
        return CU_STREAM_PER_THREAD;
    default:
        return run.stream[operand & STREAM_MASK];
    }
}

/* Applies the operation's effect on the blocks' contents. If it is captured, the effect
 * applies at every launch. */
void change(const call_t *c, change_kind_t kind, uint32_t to, uint32_t from, uint32_t value);

CUresult drop_pool(unsigned pool);

#endif

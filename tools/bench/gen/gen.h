/* Generated traces: interface of the generators.  All data follows from the seed, with integer
 * arithmetic only, so that a trace is the same on every machine. */
#ifndef CMD_GEN_H
#define CMD_GEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A block of the trace; 0: none. */
typedef uint32_t gen_block_t;

typedef struct {
    FILE *out;
    uint64_t random;     /* state */
    uint64_t wanted;     /* operations after which a generator ends its last step */
    uint64_t most_bytes; /* of a block, for kinds that draw sizes: --max */
    uint64_t count;      /* operations written */
    uint64_t live, peak; /* bytes */
    uint64_t *bytes;     /* by block; 0: freed */
    size_t blocks, room;
} gen_t;

/* One allocation or free; freeing 0 does nothing.  `gen_drop` also forgets the block. */
gen_block_t gen_alloc(gen_t *gen, uint64_t bytes, unsigned stream);
void gen_free(gen_t *gen, gen_block_t block);
void gen_drop(gen_t *gen, gen_block_t *block);
void gen_sync(gen_t *gen);

/* Returns true if the trace is long enough.  Generators call this at the end of a step. */
static inline bool gen_enough(const gen_t *gen) {
    return gen->count >= gen->wanted;
}

uint64_t gen_random(gen_t *gen);                               /* 64 bits */
uint64_t gen_between(gen_t *gen, uint64_t low, uint64_t high); /* both included */
bool gen_chance(gen_t *gen, unsigned percent);
/* Draws a length from 32 to 8192.  Half of them are below 512: many are short, few are long. */
unsigned gen_length(gen_t *gen);

typedef void gen_kind_fn(gen_t *gen);
gen_kind_fn gen_fixed, gen_varlen, gen_lora, gen_serving, gen_amr, gen_graph, gen_grow,
    gen_islands, gen_rmm;

#endif

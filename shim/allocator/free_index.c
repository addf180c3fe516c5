/* Free blocks by size (block.h). */
#include <stddef.h>

#include "allocator/block.h"

unsigned ac_free_index_bin(uint64_t size) {
    uint64_t granules = size >> AC_GRANULE_BITS;
    if (granules < 16)
        return (unsigned)granules; /* one bin per size */
    unsigned log = 63 - (unsigned)__builtin_clzll(granules);
    unsigned bin = (log - 3) * 16 + (unsigned)((granules >> (log - 4)) & 15);
    return bin < AC_BINS ? bin : AC_BINS - 1;
}

void ac_free_index_insert(ac_free_index_t *index, ac_block_t *block) {
    unsigned bin = ac_free_index_bin(block->size);
    block->list_prev = NULL;
    block->list_next = index->bin[bin];
    if (block->list_next)
        block->list_next->list_prev = block;
    index->bin[bin] = block;
    index->nonempty[bin / 64] |= (uint64_t)1 << (bin % 64);
}

void ac_free_index_remove(ac_free_index_t *index, ac_block_t *block) {
    unsigned bin = ac_free_index_bin(block->size);
    if (block->list_next)
        block->list_next->list_prev = block->list_prev;
    if (block->list_prev) {
        block->list_prev->list_next = block->list_next;
        return;
    }
    index->bin[bin] = block->list_next;
    if (!block->list_next)
        index->nonempty[bin / 64] &= ~((uint64_t)1 << (bin % 64));
}

static ac_block_t *scan(ac_block_t *block, const ac_fit_t *fit, unsigned limit) {
    ac_block_t *best = NULL;
    for (; block && limit; block = block->list_next, limit--) {
        if (block->size < fit->size || block->size < fit->least || block->size >= fit->below ||
            block->position > fit->until)
            continue;
        if (!best || block->size < best->size)
            best = block;
        if (best->size == fit->size)
            break;
    }
    return best;
}

static unsigned next_bin(const ac_free_index_t *index, unsigned bin) {
    unsigned word = bin / 64;
    if (word >= AC_BIN_WORDS)
        return AC_BINS;
    uint64_t bits = index->nonempty[word] & (~(uint64_t)0 << (bin % 64));
    while (!bits) {
        if (++word == AC_BIN_WORDS)
            return AC_BINS;
        bits = index->nonempty[word];
    }
    return word * 64 + (unsigned)__builtin_ctzll(bits);
}

ac_block_t *ac_free_index_find(const ac_free_index_t *index, const ac_fit_t *fit,
                               bool exhaustive) {
    uint64_t from = fit->size > fit->least ? fit->size : fit->least;
    unsigned own = ac_free_index_bin(from);
    /* Bins above the own one fit by size; only `below`, `until` and the last bin, which holds
     * sizes without bound, can reject there. */
    for (unsigned bin = next_bin(index, own); bin < AC_BINS; bin = next_bin(index, bin + 1)) {
        unsigned limit = exhaustive || bin == AC_BINS - 1 ? UINT32_MAX : AC_BIN_SCAN;
        ac_block_t *best = scan(index->bin[bin], fit, limit);
        if (best)
            return best;
    }
    return NULL;
}

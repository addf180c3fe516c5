/* Free blocks by size: finding one (free_index.h). */
#include "allocator/space/free_index.h"

static ac_block_t *scan(ac_block_t *block, const ac_fit_t *fit, unsigned limit) {
    ac_block_t *best = NULL;
    for (; block && limit; block = block->bin_next, limit--) {
        if (block->size < fit->size || block->size < fit->least || block->size >= fit->below ||
            (fit->until && block->ticket.place > fit->until))
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
        unsigned limit = exhaustive || bin == AC_BINS - 1 ? UINT32_MAX
                         : fit->until                     ? AC_BIN_SCAN_ORDERED
                                                          : AC_BIN_SCAN;
        ac_block_t *best = scan(index->bin[bin], fit, limit);
        if (best)
            return best;
    }
    return NULL;
}

/* Free blocks by size: finding one (free_index.h). */
#include "allocator/space/free_index.h"

/* The smallest of the first `limit` blocks of a bin that have `from` bytes and less than `span`
 * more. */
static inline ac_block_t *scan(ac_block_t *block, uint64_t from, uint64_t span, uint64_t until,
                               unsigned limit) {
    ac_block_t *best = NULL;
    uint64_t least = span; /* beyond `from` */
    for (; block && limit; block = block->bin_next, limit--) {
        uint64_t over = block->size - from; /* wraps to a huge value if the block is smaller */
        if (over >= least || (until && block->ticket.place > until))
            continue;
        best = block;
        least = over;
        if (!over)
            break;
    }
    return best;
}

/* The first bin from `bin` on that holds a block, perhaps one beyond `last`; AC_BINS: none up to there. */
static unsigned next_bin(const ac_free_index_t *index, unsigned bin, unsigned last) {
    unsigned word = bin / 64;
    if (bin > last)
        return AC_BINS;
    uint64_t bits = index->nonempty[word] & (~(uint64_t)0 << (bin % 64));
    while (!bits) {
        if (++word > last / 64)
            return AC_BINS;
        bits = index->nonempty[word];
    }
    return word * 64 + (unsigned)__builtin_ctzll(bits);
}

/* Returns a block of `from` bytes or more, but less than `from + span`. Bins beyond `last` hold none. */
__attribute__((always_inline)) static inline ac_block_t *find(const ac_free_index_t *index,
                                                              unsigned own, uint64_t from,
                                                              uint64_t span, uint64_t until,
                                                              unsigned last, bool exhaustive) {
    unsigned limit = exhaustive ? UINT32_MAX : until ? AC_BIN_SCAN_ORDERED : AC_BIN_SCAN;
    /* Bins above the own one fit by size; only `span` and `until` can reject there. */
    for (unsigned bin = next_bin(index, own, last); bin < AC_BINS; bin = next_bin(index, bin + 1, last)) {
        ac_block_t *best = scan(index->bin[bin], from, span, until, limit);
        if (best)
            return best;
    }
    return NULL;
}

ac_block_t *ac_free_index_find(const ac_free_index_t *index, const ac_fit_t *fit,
                               bool exhaustive) {
    uint64_t from = fit->size > fit->least ? fit->size : fit->least;
    uint64_t span = fit->below > from ? fit->below - from : 0;
    return find(index, ac_free_index_bin(from), from, span, fit->until, AC_BINS - 1, exhaustive);
}

ac_block_t *ac_free_index_first(const ac_free_index_t *index, uint64_t size, uint64_t below) {
    return find(index, ac_free_index_bin_unbounded(size), size, below - size, 0, AC_BINS - 1, false);
}

bool ac_free_index_has_better(const ac_free_index_t *index, uint64_t size, const ac_block_t *than) {
    return find(index, ac_free_index_bin_unbounded(size), size, than->size - size, 0, than->bin, false);
}

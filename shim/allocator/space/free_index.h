/* Free blocks by size: 64 bins per power of two, last freed first.  The search for a bin scans a few words, however
 * many blocks there are.  Bins are narrow, so that a search visits few blocks: with many blocks each visit is a
 * cache miss. */
#ifndef AC_FREE_INDEX_H
#define AC_FREE_INDEX_H

#include "allocator/policy.h"
#include "allocator/space/block.h"

/* A block has the number of its bin in 16 bits. */
enum { AC_BIN_BITS = 6, AC_BIN_WORDS = 40, AC_BINS = AC_BIN_WORDS * 64 };

/* An index of zeros is empty.  The bins are a separate array: most are never used, and take no host memory then. */
typedef struct ac_free_index {
    uint64_t nonempty[AC_BIN_WORDS];
    ac_block_t **bin; /* [AC_BINS] */
} ac_free_index_t;
#define AC_BINS_BYTES (AC_BINS * sizeof(ac_block_t *))

/* The bin of a size in bytes (a multiple of AC_GRANULE): one bin per size below 64 granules. */
static inline unsigned ac_free_index_bin_unbounded(uint64_t size) {
    const unsigned steps = 1 << AC_BIN_BITS;
    uint64_t granules = size >> AC_GRANULE_BITS;
    unsigned shift = (63 ^ (unsigned)__builtin_clzll(granules | steps)) - AC_BIN_BITS;
    return shift * steps + (unsigned)(granules >> shift);
}

static inline unsigned ac_free_index_bin(uint64_t size) {
    unsigned bin = ac_free_index_bin_unbounded(size);
    return bin < AC_BINS ? bin : AC_BINS - 1;
}

/* The bin of a block: none reaches the last one, for the page map has no room for it. */
static inline unsigned ac_free_index_bin_of(const ac_block_t *block) {
    return ac_free_index_bin_unbounded(block->size);
}

static inline void ac_free_index_insert_in(ac_free_index_t *index, ac_block_t *block,
                                           unsigned bin) {
    block->bin = (uint16_t)bin;
    index->nonempty[bin / 64] |= (uint64_t)1 << (bin % 64);
    ac_bin_push(&index->bin[bin], block);
}

static inline void ac_free_index_insert(ac_free_index_t *index, ac_block_t *block) {
    ac_free_index_insert_in(index, block, ac_free_index_bin_of(block));
}

static inline void ac_free_index_remove(ac_free_index_t *index, ac_block_t *block) {
    size_t bin = block->bin;
    ac_bin_remove(block);
    if (!block->bin_next && block->bin_at == &index->bin[bin])
        index->nonempty[bin / 64] &= ~((uint64_t)1 << (bin % 64));
}

/* Removes one block and inserts another, or the same one with a new size.  After a split, the rest of a large block
 * mostly stays in the same bin.  So does a large block that a small one joins. */
static inline void ac_free_index_replace(ac_free_index_t *index, ac_block_t *block,
                                         ac_block_t *other) {
    unsigned bin = ac_free_index_bin_of(other);
    ac_block_t **first = &index->bin[bin], *next = block->bin_next;
    if (block->bin_at == first) {
        other->bin = (uint16_t)bin;
        other->bin_at = first;
        other->bin_next = next;
        if (next)
            next->bin_at = &other->bin_next;
        *first = other;
        return;
    }
    ac_free_index_remove(index, block);
    ac_free_index_insert_in(index, other, bin);
}

/* The blocks that a request accepts; see ac_free_index_find. */
typedef struct {
    uint64_t size;  /* bytes needed */
    uint64_t least; /* blocks smaller than this do not serve */
    uint64_t below; /* blocks of this size or larger do not serve */
    uint64_t until; /* nor do blocks with a later position; 0: positions do not matter */
} ac_fit_t;

/* Near-best fit: the smallest of the first AC_BIN_SCAN fitting blocks of the request's own
 * bin, else of the next bins that hold one.  With `exhaustive` the own bin is searched to its
 * end first.  NULL if none was found. */
ac_block_t *ac_free_index_find(const ac_free_index_t *index, const ac_fit_t *fit,
                               bool exhaustive);

/* Returns a near-best fit of `size` bytes or more, but less than `below`, whatever its position.  A segment of
 * `size` bytes can exist. */
ac_block_t *ac_free_index_first(const ac_free_index_t *index, uint64_t size, uint64_t below);

/* Returns true if ac_free_index_first would find a block that is smaller than `than`, which is larger than
 * `size` and in some index. */
bool ac_free_index_has_better(const ac_free_index_t *index, uint64_t size, const ac_block_t *than);

#endif

/* Where one thread leaves blocks for another one's cache.
 *
 * Where one thread allocates and another one frees, free memory would be cut by the first and
 * coalesced by the second, block by block under the lock.  Instead the second one chains what it
 * frees, some blocks at a time, and posts the chain: one atomic operation on the inbox of the cache
 * that handed the blocks out.  Its owner takes all that is there when a request of its misses.
 *
 * The inbox is a stack that is only ever taken whole, so no block in it is taken twice.  Its word
 * also has the number of the arena that the cache is of, 0 while it is closed: a cache that was
 * closed, or opened again for another arena, gets nothing.  What is posted is ready: the thread that
 * freed it made sure of that, and its release and the owner's acquire order what it wrote.
 *
 * Records lie in the cache of the processor whose thread wrote to them last, and from there each one may
 * take longer than all that is done with it.  So each block of a chain names another one some places
 * behind it, and one that was handed out after that the one that is handed out so much later: both
 * sides have the processor fetch these meanwhile.  No more is done with what a block names, which may
 * be anything by now.
 *
 * In the account a block is held by the cache that freed it until it is posted, by none in the
 * inbox, and by the owner's from when it is taken; `segment->allocated` counts it all the while. */
#ifndef AC_INBOX_H
#define AC_INBOX_H

#include "allocator/space/block.h"
#include "observe/stats.h"

/* The last blocks that were put on a stack, in turn: who takes them off again needs the first of them
 * some blocks after the next one. */
enum { AC_AHEAD = 4 };
typedef struct {
    ac_block_t *block[AC_AHEAD];
    unsigned turn;
} ac_ahead_t;

/* The block, which is put there now, names what is to be fetched when it is taken off.  A slot of a slab
 * does not: the place is in use (block.h). */
static inline void ac_ahead_name(ac_ahead_t *ahead, ac_block_t *block) {
    if (atomic_load_explicit(&block->slab, memory_order_relaxed))
        return;
    ac_block_t **at = &ahead->block[ahead->turn++ % AC_AHEAD], *before = *at;
    *at = block;
    block->ahead = before ? before : block;
}

/* The block was put there, or came of it: what it named is about to be looked at. */
static inline void ac_ahead_touch(const ac_block_t *block) {
    if (!atomic_load_explicit(&block->slab, memory_order_relaxed))
        ac_block_touch(block->ahead);
}

/* Blocks by list_next, and how many there are of small and of large ones.  {0}: none. */
typedef struct {
    ac_block_t *first, *last;
    ac_ahead_t ahead;
    unsigned blocks[AC_FLOWS];
    uint64_t bytes[AC_FLOWS];
} ac_chain_t;

void ac_chain_add(ac_chain_t *chain, ac_block_t *block, int flow);

static inline unsigned ac_chain_blocks(const ac_chain_t *chain) {
    return chain->blocks[0] + chain->blocks[1];
}

static inline uint64_t ac_chain_bytes(const ac_chain_t *chain) {
    return chain->bytes[0] + chain->bytes[1];
}

/* What blocks weigh in an inbox: their bytes, and that for each.  Who takes them walks them all, with the
 * cache closed to a recall or under the lock, so there may not be too many small ones either. */
#define AC_INBOX_EACH ((uint64_t)16 << 10)

static inline uint64_t ac_inbox_weight(uint64_t blocks, uint64_t bytes) {
    return bytes + blocks * AC_INBOX_EACH;
}

/* `weight` of what is in it: before it is there, and until it is taken. */
typedef struct {
    _Atomic uint64_t word; /* the arena's number, and the first block by list_next */
    _Atomic uint64_t weight;
} ac_inbox_t;

/* From now on it gets blocks of the arena. */
void ac_inbox_open(ac_inbox_t *inbox, uint16_t arena);

/* By any thread: the chain, of the arena, is in the inbox, whose record stays readable for ever.
 * False: that is closed, or of another arena. */
bool ac_inbox_post(ac_inbox_t *inbox, uint16_t arena, const ac_chain_t *chain);

/* All that was posted, by list_next, is the caller's; with `arena` 0 the inbox is closed. */
ac_block_t *ac_inbox_take(ac_inbox_t *inbox, uint16_t arena);

/* What is in it now. */
const ac_block_t *ac_inbox_first(const ac_inbox_t *inbox);

static inline bool ac_inbox_has_any(const ac_inbox_t *inbox) {
    return atomic_load_explicit(&inbox->weight, memory_order_relaxed);
}

#endif

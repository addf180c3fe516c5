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
 * take longer than all that is done with it.  So who posts leaves a trail of the last blocks, and who takes
 * has the processor fetch all of these at once; a block that was handed out after that names one that is
 * handed out some places later, which is fetched while it is freed.  No more is done with what is named
 * so, which may be anything by now.  The links of a chain and all else that both sides write are in the
 * first line of a record: the second one they only read.
 *
 * The headroom that a free makes (cache_tally.c) goes with the block to the cache that hands it out
 * next.  Else that cache would raise peaks for each few blocks that another thread freed.  It counts if
 * both caches were granted theirs since peaks were raised last: `raised` of the block says when.
 *
 * In the account a block is held by the cache that freed it until it is posted, by none in the
 * inbox, and by the owner's from when it is taken; `segment->allocated` counts it all the while. */
#ifndef AC_INBOX_H
#define AC_INBOX_H

#include "allocator/space/block.h"
#include "observe/stats.h"

/* The blocks that a thread put into chains last, in turn, as far as `posted`. */
enum { AC_TRAIL = 128 };
typedef struct {
    _Alignas(64) uint32_t turn;
    _Atomic uint32_t posted;
    ac_block_t *_Atomic block[AC_TRAIL];
} ac_trail_t;

/* The last blocks that were put on a stack, in turn: who takes them off again needs the first of them
 * some blocks after the next one. */
enum { AC_AHEAD = 4 };
typedef struct {
    ac_block_t *block[AC_AHEAD];
    unsigned turn;
} ac_ahead_t;

/* Whether it is a slot of a slab, whose bin_next is in use (block.h).  Where a slab was dissolved the last
 * use of it by who did that, under the lock, comes before the first one here. */
static inline bool ac_inbox_is_slot(const ac_block_t *block) {
    return atomic_load_explicit(&block->slab, memory_order_acquire);
}

/* The block, which is put there now, names what is to be fetched when it is taken off.  A slot of a slab
 * does not: the place is in use (block.h). */
static inline void ac_ahead_name(ac_ahead_t *ahead, ac_block_t *block) {
    if (ac_inbox_is_slot(block))
        return;
    ac_block_t **at = &ahead->block[ahead->turn++ % AC_AHEAD], *before = *at;
    *at = block;
    block->ahead = before ? before : block;
}

/* The block was put there, or came of it: what it named is about to be looked at. */
static inline void ac_ahead_touch(const ac_block_t *block) {
    if (!ac_inbox_is_slot(block))
        __builtin_prefetch(block->ahead);
}

/* Blocks by link, and how many there are of small and of large ones.  {0}: none. */
typedef struct {
    ac_block_t *first, *last;
    unsigned blocks[AC_FLOWS];
    uint64_t bytes[AC_FLOWS];
} ac_chain_t;

void ac_chain_add(ac_chain_t *chain, ac_trail_t *trail, ac_block_t *block, int flow);

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
    _Atomic uint64_t word; /* the arena's number, and the first block by link */
    _Atomic uint64_t weight;
    ac_trail_t *_Atomic trail; /* of who posted last; NULL */
} ac_inbox_t;

/* From now on it gets blocks of the arena. */
void ac_inbox_open(ac_inbox_t *inbox, uint16_t arena);

/* By any thread: the chain, of the arena, is in the inbox, whose record stays readable for ever.
 * False: that is closed, or of another arena. */
bool ac_inbox_post(ac_inbox_t *inbox, uint16_t arena, const ac_chain_t *chain, ac_trail_t *trail);

/* All that was posted, by link, is the caller's; with `arena` 0 the inbox is closed. */
ac_block_t *ac_inbox_take(ac_inbox_t *inbox, uint16_t arena);

/* What is in it now. */
const ac_block_t *ac_inbox_first(const ac_inbox_t *inbox);

static inline bool ac_inbox_has_any(const ac_inbox_t *inbox) {
    return atomic_load_explicit(&inbox->weight, memory_order_relaxed);
}

#endif

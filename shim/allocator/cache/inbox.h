/* Inboxes of thread caches, for blocks that another thread freed (remote frees).
 *
 * Without an inbox, a thread that allocates would split free memory, and a thread that frees would coalesce
 * it, block by block under the lock.  Instead the freeing thread collects freed blocks in a chain.  It posts
 * the chain by one atomic operation to the inbox of the cache that handed the blocks out.  The owner of that
 * cache takes the whole inbox when one of its requests misses.
 *
 * The inbox is a stack that is only taken whole, so that no block is taken twice.  Its word also contains the
 * number of the cache's arena, or 0 while the inbox is closed.  A post to a closed cache, or to one that was
 * opened again for another arena, fails.  Posted blocks are ready; the freeing thread checks that before.  Its
 * release and the owner's acquire order its writes.
 *
 * A record lies in the cache of the processor that wrote it last.  To fetch it from there may take longer than
 * all work on it.  So the posting thread keeps a trail of its last blocks, and the taking thread prefetches
 * all of these at once.  In addition each block names one that is handed out some places later, which is
 * prefetched when the block is freed.  The code only prefetches named records, because they may have been
 * reused.  All fields that both sides write, such as the links of a chain, are in the first cache line of a
 * record.  Both sides only read the second line.
 *
 * The headroom that a free gives (cache_tally.c) moves with the block to the cache that hands it out next.
 * Otherwise that cache would have to raise peaks after every few blocks that another thread freed.  The
 * headroom counts only if both caches got theirs after the last raise of peaks; `raised` of the block shows it.
 *
 * In the account, the freeing cache holds a block until the post.  No cache holds a block in the inbox.  The
 * owner's cache holds it after the take.  `segment->allocated` counts the block all the time. */
#ifndef AC_INBOX_H
#define AC_INBOX_H

#include "allocator/space/block.h"
#include "observe/stats.h"

/* A ring of the blocks that a thread put into chains last.  `posted` is the value of `turn` at the last post. */
enum { AC_TRAIL = 128 };
typedef struct {
    _Alignas(64) uint32_t turn;
    _Atomic uint32_t posted;
    ac_block_t *_Atomic block[AC_TRAIL];
} ac_trail_t;

/* A ring of the last blocks that were put on a stack.  The oldest of them is taken off AC_AHEAD places after the
 * next block that is put there. */
enum { AC_AHEAD = 4 };
typedef struct {
    ac_block_t *block[AC_AHEAD];
    unsigned turn;
} ac_ahead_t;

/* Returns true if the block is a slot of a slab: its bin_next is in use (block.h).  Acquire: after a slab was
 * dissolved, the last use of the record by that thread, under the lock, comes before the first use here. */
static inline bool ac_inbox_is_slot(const ac_block_t *block) {
    return atomic_load_explicit(&block->slab, memory_order_acquire);
}

/* Stores in a block that is put on the stack the block to prefetch with it.  A slot of a slab stores none, because
 * the field is in use (block.h). */
static inline void ac_ahead_name(ac_ahead_t *ahead, ac_block_t *block) {
    if (ac_inbox_is_slot(block))
        return;
    ac_block_t **at = &ahead->block[ahead->turn++ % AC_AHEAD], *before = *at;
    *at = block;
    block->ahead = before ? before : block;
}

/* Prefetches the block that a block of the stack names, because it will soon be used. */
static inline void ac_ahead_touch(const ac_block_t *block) {
    if (!ac_inbox_is_slot(block))
        __builtin_prefetch(block->ahead);
}

/* A list of blocks by link, with the numbers and bytes of small and large ones.  {0}: empty. */
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

/* Weight that each block adds to its bytes in an inbox.  It also limits the number of small blocks.  The thread that
 * takes them walks over all of them, and meanwhile a recall of the cache has to wait or the lock is held. */
#define AC_INBOX_EACH ((uint64_t)16 << 10)

static inline uint64_t ac_inbox_weight(uint64_t blocks, uint64_t bytes) {
    return bytes + blocks * AC_INBOX_EACH;
}

/* An inbox.  `weight` is added before a chain is posted and subtracted after it was taken. */
typedef struct {
    _Atomic uint64_t word; /* the arena's number, and the first block by link */
    _Atomic uint64_t weight;
    ac_trail_t *_Atomic trail; /* of the cache that posted last; NULL: none */
} ac_inbox_t;

/* Opens the inbox for blocks of the arena. */
void ac_inbox_open(ac_inbox_t *inbox, uint16_t arena);

/* Posts a chain of the arena's blocks.  Any thread may call it; the inbox's memory is never unmapped.  Returns false
 * if the inbox is closed or of another arena. */
bool ac_inbox_post(ac_inbox_t *inbox, uint16_t arena, const ac_chain_t *chain, ac_trail_t *trail);

/* Takes all posted blocks, as a list by link.  With `arena` 0 it also closes the inbox. */
ac_block_t *ac_inbox_take(ac_inbox_t *inbox, uint16_t arena);

/* Returns the first block of the inbox without taking it. */
const ac_block_t *ac_inbox_first(const ac_inbox_t *inbox);

static inline bool ac_inbox_has_any(const ac_inbox_t *inbox) {
    return atomic_load_explicit(&inbox->weight, memory_order_relaxed);
}

#endif

/* Lanes: blocks that a thread freed in the order of a stream and keeps for its next requests on that stream.
 * With a lane neither the free nor the request takes a lock.
 *
 * A lane belongs to a cache (thread_cache.h) and a stream.  Its blocks lie in entries of the cache's table; the
 * keys of these entries contain the lane's number.  The blocks are ready only for work of that stream.  It is not
 * known when other work may use them.  For other requests they are memory that was freed in the stream's order
 * (retired/streams.h) and is not yet in the lists of that memory.  They *leave* for these lists whenever the
 * cache gives back its blocks, and so before the device grows.  They share the budget of ready blocks of the
 * cache, and the device statistics count them as ready.
 *
 * Conditions.  A lane serves if all conditions held under one value of ac_generation.  Each change of a condition
 * increments this value.  The conditions are:
 *   context: it is current, not broken, and may be served; nothing captures; contexts do not reach each other's
 *            memory; all work is seen;
 *   memory pool: it is the current one and served here;
 *   stream: its handle and slot are valid, and its order protects memory.
 * Work of other streams may come before a free of this stream without being part of its recorded order (hidden
 * work, ordered.c).  Such work changes `others`.  Then the entries of the lane leave.
 *
 * Positions.  A block that is freed here gets the position of its stream's slot plus one.  A thread that proves
 * this position first ends the current position, after the read here.  Then it makes a driver call that covers
 * all work that the stream has by then (ac_order_read).  If that call came before work that the freeing thread
 * knows of, the read here would have found the new position, because the driver takes both by its own atomic
 * operations.  When the block is handed out again it keeps that position, like a block that the lock handed on
 * (ticket.h).
 *
 * Blocks.  A lane has blocks with AC_OWNER_STREAM in `owner_arena`, of one memory pool.  They were handed out new
 * or in the order of the same stream.  Otherwise older work that the stream does not follow could still use them.
 * A size is kept from its second request on, like plain sizes.
 *
 * Statistics of the pool.  `net` is the number of bytes that the thread took, minus those that it gave.  It is added
 * to the pool's figures when the tallies are absorbed (cache_tally.c).  So the pool's peaks may lack the changes
 * in lanes. */
#ifndef AC_LANE_H
#define AC_LANE_H

#include "allocator/cache/thread_cache.h"
#include "allocator/order/generation.h"
#include "allocator/retired/ordered.h"
#include "allocator/space/mempool.h"

enum {
    AC_LANES = 32,
    AC_LANE_BITS = 9, /* of the hash of a stream */
};
_Static_assert(AC_LANES << AC_KEY_STREAM_SHIFT <= (AC_GRANULE - 1), "a key has the number of a lane");

typedef struct {
    const void *stream; /* its resolved handle; NULL: not in use */
    uint64_t generation;
    uint64_t number; /* the lane's number in keys */
    ac_ordered_lane_t order;
} ac_lane_t;
_Static_assert(sizeof(ac_lane_t) == 64, "one line");

/* The lanes of a cache.  They are accessed by the owner, or under the lock while the owner keeps out.  Only `net` may
 * be read at any time. */
struct ac_lanes {
    _Alignas(64) ac_lane_t lane[AC_LANES];
    /* Offsets of lanes by the hash of a stream: of the stream's lane if it has one, or of another lane. */
    uint16_t at[1 << AC_LANE_BITS];
    uint64_t net, absorbed;
    uint64_t syncs;   /* number of the program's synchronisations that the pool's figures include */
    unsigned mempool; /* the pool of the lanes; 0: no lane was ever in use */
    unsigned count;   /* lanes in use */
    unsigned refused; /* requests and frees that got no lane, because all were in use */
};

/* A request or free that names a stream, after a check that no condition forbids a lane.  `generation` was read
 * before that check, so that a later change of a condition makes the lane invalid. */
typedef struct {
    const void *handle; /* resolved */
    ac_stream_t stream;
    unsigned mempool; /* the current one */
    uint64_t generation;
} ac_lane_ask_t;

/* Returns the lane for the stream's hash: the lane of this stream or of another one. */
static inline ac_lane_t *ac_lane_of(ac_lanes_t *lanes, const void *stream) {
    uint64_t hash = (uint64_t)(uintptr_t)stream * 0x9e3779b97f4a7c15u;
    return (ac_lane_t *)((char *)lanes + lanes->at[hash >> (64 - AC_LANE_BITS)]);
}

/* Returns true if the lane belongs to the stream and its conditions hold. */
static inline bool ac_lane_serves(const ac_lane_t *lane, const void *stream) {
    return lane->stream == stream && lane->generation == ac_generation_now() &&
           (atomic_load_explicit(lane->order.others, memory_order_acquire) == lane->order.item ||
            AC_FAILPOINT(lane_hidden_ignored));
}

static inline bool ac_lanes_are_synced(const ac_lanes_t *lanes) {
    return lanes->syncs == atomic_load_explicit(&ac_mempool_syncs, memory_order_relaxed);
}

/* Returns the epoch of a block from a lane: 0, because work of the block's former user may be older than any epoch
 * that is known here. */
static inline uint64_t ac_lane_epoch(ac_timeline_t *timeline) {
    return AC_FAILPOINT(lane_handed_out_new) ? ac_fence_handout(timeline) : 0;
}

/* Converts a label of plain blocks to the label of blocks in lanes. */
static inline uint32_t ac_lane_label(uint32_t label) {
    return label | (uint32_t)AC_OWNER_STREAM << 16;
}

/* Serves `bytes` on the stream.  Called inside. */
static inline ac_take_t ac_lane_pop(ac_cache_t *cache, const void *stream, uint64_t bytes,
                                    uint64_t *address) {
    ac_lanes_t *lanes = cache->lanes;
    ac_lane_t *lane = ac_lane_of(lanes, stream);
    uint64_t size = (bytes + AC_GRANULE - 1) & ~(AC_GRANULE - 1);
    uint64_t key = size | lane->number;
    ac_entry_t *entry = ac_cache_entry(cache, key);
    ac_block_t *block = entry->top;
    if (__builtin_expect(entry->size != key || !block, 0) ||
        __builtin_expect(!ac_lane_serves(lane, stream) || !ac_lanes_are_synced(lanes), 0))
        return AC_TAKE_NONE;
    AC_WINDOW(lane_serves);
    ac_cache_side_t *side = entry->side;
    entry->top = block->link;
    cache->room += entry->charge;
    ac_cache_hand_out(cache, side, block, ac_lane_label(cache->asks), size, bytes, ac_lane_epoch);
    ac_tally_add(&cache->tally->async_taken, 1);
    ac_tally_add(&lanes->net, size);
    *address = ac_block_address(block);
    return __builtin_expect((cache->headroom -= (int64_t)size) < 0, 0) ? AC_TAKE_DUE : AC_TAKE_SERVED;
}

/* Returns true if the lane's stream follows all work in progress on the allocated block. */
static inline bool ac_lane_comes_after(const ac_lane_t *lane, const ac_block_t *block) {
    return block->ticket.key == ac_key_of(lane->order.slot)
               ? block->ticket.place > lane->order.base || AC_FAILPOINT(lane_former_stream)
               : block->ticket.key == AC_KEY_NONE || AC_FAILPOINT(lane_takes_any);
}

/* Does the work of ac_lane_push for a block of another module.  Returns false for a label that a block in a lane cannot
 * have. */
bool ac_lane_push_other(ac_cache_t *cache, ac_block_t *block, const void *stream, uint64_t address);

/* Keeps the block that is allocated at `address` and freed on the stream.  It may be of any module.  Called inside.
 * Returns false if the block is not kept. */
static inline bool ac_lane_push(ac_cache_t *cache, ac_block_t *block, const void *stream,
                                uint64_t address) {
    ac_lanes_t *lanes = cache->lanes;
    ac_lane_t *lane = ac_lane_of(lanes, stream);
    if (atomic_load_explicit(&block->address, memory_order_acquire) != address)
        return false;
    if (__builtin_expect(atomic_load_explicit(&block->label, memory_order_relaxed) !=
                             ac_lane_label(cache->frees), 0))
        return ac_lane_push_other(cache, block, stream, address);
    if (!ac_lane_serves(lane, stream))
        return false;
    uint64_t size = block->size;
    uint64_t key = size | lane->number;
    ac_entry_t *entry = ac_cache_entry(cache, key);
    if (__builtin_expect(entry->size != key || cache->room < 0, 0) ||
        __builtin_expect(!ac_lane_comes_after(lane, block), 0))
        return false;
    uint64_t requested = atomic_load_explicit(&block->requested, memory_order_relaxed);
    uint64_t bytes = (requested + AC_GRANULE - 1) & ~(AC_GRANULE - 1);
    ac_cache_take_in(cache, entry->side, block, false);
    ac_tally_add(&cache->tally->async_given, 1);
    ac_tally_add(&lanes->net, -bytes);
    block->ticket.key = (uint8_t)ac_key_of(lane->order.slot);
    block->ticket.place = atomic_load_explicit(lane->order.position, memory_order_relaxed) + 1;
    cache->room -= entry->charge;
    block->link = entry->top;
    entry->top = block;
    return true;
}

/* ac_lane_take serves `bytes` on the stream from its lane.  ac_lane_give keeps a block that was freed on the stream and
 * handed out to the owner.  The caller has checked that the context is current. */
static inline ac_take_t ac_lane_take(ac_cache_t *cache, const void *stream, uint64_t bytes,
                                     uint64_t *address) {
    if (__builtin_expect(!cache->lanes || !ac_cache_enter(cache), 0))
        return AC_TAKE_NONE;
    ac_take_t taken = ac_lane_pop(cache, stream, bytes, address);
    ac_cache_leave(cache);
    return taken;
}
static inline bool ac_lane_give(ac_cache_t *cache, const void *stream, uint64_t address) {
    ac_block_t *block = *ac_cache_handed(cache, address);
    if (__builtin_expect(!cache->lanes || !ac_cache_enter(cache), 0))
        return false;
    bool kept = ac_lane_push(cache, block, stream, address);
    ac_cache_leave(cache);
    return kept;
}

/* Called after ac_lane_take or _give failed.  They make the lane or check its conditions again, and may take the lock
 * to enter the cache.  Return false if only the lists of the stream can serve the request or take the block. */
bool ac_lane_take_long(ac_cache_t *cache, const ac_lane_ask_t *ask, uint64_t bytes,
                       uint64_t *address);
bool ac_lane_give_long(ac_cache_t *cache, const ac_lane_ask_t *ask, uint64_t address);

/* Moves the blocks of the stream's lane to the stream's lists, because a condition forbids lanes.  Called by the
 * owner. */
void ac_lane_clear(ac_cache_t *cache, const void *handle);

#endif

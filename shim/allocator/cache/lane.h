/* Lanes: what a thread frees in the order of a stream, and keeps for its own next requests that name
 * the stream, so that such a pair takes no lock either.
 *
 * A lane belongs to a cache (thread_cache.h) and a stream.  Its blocks lie in entries of the cache's table,
 * whose keys have the lane's number.  They are ready for work of that stream alone; nothing else is known of
 * when they are.  For all others they are memory that was freed in the stream's order (retired/streams.h) and
 * is yet to be put where such memory waits: they *leave* for there whenever the cache gives back what it
 * keeps, so before the device grows.  They share the budget of what the cache keeps ready, and the device
 * statistics count them as ready.
 *
 * When a lane serves.  What holds for the context (it is current, not broken, may be served,
 * nothing captures, contexts do not reach each other's memory, all work is seen), for the memory
 * pool (the current one, served here), and for the stream (its handle, its slot, its order
 * protects) was found out under one value of ac_generation, and whatever ends it makes that grow.
 * What is hidden from the stream (ordered.c) shows in `others`: then the lane's entries go.
 *
 * Positions.  A block that is freed here gets the position of its slot, plus one: what proves that
 * position has ended the present one after this look, before a call of the driver that takes in
 * all that the stream had by then (ac_order_read).  Had this call come before work that the free's
 * thread knows of, the look would have found the new position: the driver takes both by atomic
 * operations of its own.  Handed out again the block says that position, as one does that was
 * handed on by the lock (ticket.h).
 *
 * Which blocks.  Those with AC_OWNER_STREAM in `owner_arena`, of one memory pool, that were handed
 * out new, or in the order of the same stream: nothing older may be under way that the stream does
 * not come after.  A size is kept from its second request on, as plain ones are.
 *
 * The pool's figures.  `net` is what the thread took less what it gave.  It joins the pool's figures
 * when the tallies are absorbed (cache_tally.c), so the pool's peaks may lack what lanes keep. */
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
    uint64_t number; /* in keys */
    ac_ordered_lane_t order;
} ac_lane_t;
_Static_assert(sizeof(ac_lane_t) == 64, "one line");

/* Of a cache; the owner's, or the lock's while it keeps out, but for `net`. */
struct ac_lanes {
    _Alignas(64) ac_lane_t lane[AC_LANES];
    /* Of the stream's lane if it has one, or of another: its offset, by the stream's hash. */
    uint16_t at[1 << AC_LANE_BITS];
    uint64_t net, absorbed;
    uint64_t syncs;   /* synchronisations of the program that the pool's figures take in */
    unsigned mempool; /* 0: none of the lanes was ever in use */
    unsigned count;   /* lanes in use */
    unsigned refused; /* requests and frees for which there was no lane, all being in use */
};

/* A request or a free that names a stream, where ac_cache_ and no other condition forbids a lane.
 * `generation` is from before that was looked at. */
typedef struct {
    const void *handle; /* resolved */
    ac_stream_t stream;
    unsigned mempool; /* the current one */
    uint64_t generation;
} ac_lane_ask_t;

/* A lane, of this or of another stream. */
static inline ac_lane_t *ac_lane_of(ac_lanes_t *lanes, const void *stream) {
    uint64_t hash = (uint64_t)(uintptr_t)stream * 0x9e3779b97f4a7c15u;
    return (ac_lane_t *)((char *)lanes + lanes->at[hash >> (64 - AC_LANE_BITS)]);
}

/* Whether the lane is the stream's, and serves. */
static inline bool ac_lane_serves(const ac_lane_t *lane, const void *stream) {
    return lane->stream == stream && lane->generation == ac_generation_now() &&
           (atomic_load_explicit(lane->order.others, memory_order_acquire) == lane->order.item ||
            AC_FAILPOINT(lane_hidden_ignored));
}

static inline bool ac_lanes_are_synced(const ac_lanes_t *lanes) {
    return lanes->syncs == atomic_load_explicit(&ac_mempool_syncs, memory_order_relaxed);
}

/* Work of the owner before may be older than anything that could be said here. */
static inline uint64_t ac_lane_epoch(ac_timeline_t *timeline) {
    return AC_FAILPOINT(lane_handed_out_new) ? ac_fence_handout(timeline) : 0;
}

/* Of blocks in lanes, from that of others. */
static inline uint32_t ac_lane_label(uint32_t label) {
    return label | (uint32_t)AC_OWNER_STREAM << 16;
}

/* Inside: serve `bytes` on the stream. */
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

/* Whether nothing is under way on the block, which is allocated, that the lane's stream does not
 * come after. */
static inline bool ac_lane_comes_after(const ac_lane_t *lane, const ac_block_t *block) {
    return block->ticket.key == ac_key_of(lane->order.slot)
               ? block->ticket.place > lane->order.base || AC_FAILPOINT(lane_former_stream)
               : block->ticket.key == AC_KEY_NONE || AC_FAILPOINT(lane_takes_any);
}

/* The same as ac_lane_push where the block has another label: that of another module, or of no block
 * that a lane may have (lane.c). */
bool ac_lane_push_other(ac_cache_t *cache, ac_block_t *block, const void *stream, uint64_t address);

/* Inside: keep the block that is allocated at `address`, and freed on the stream, of whichever module:
 * as ac_cache_give_handed. */
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

/* Serve `bytes` on the stream from its lane, as ac_cache_take does; keep the block that was freed on
 * it, which the owner was handed.  The context is known to be current. */
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

/* The same where that fails: the lane is made, or looked at
 * anew, and the cache may be entered by way of the lock.  False: only the lists of the stream may
 * serve, or take the block. */
bool ac_lane_take_long(ac_cache_t *cache, const ac_lane_ask_t *ask, uint64_t bytes,
                       uint64_t *address);
bool ac_lane_give_long(ac_cache_t *cache, const ac_lane_ask_t *ask, uint64_t address);

/* A condition forbids lanes: by the owner, what the one of the stream has is in the stream's lists
 * from now on. */
void ac_lane_clear(ac_cache_t *cache, const void *handle);

#endif

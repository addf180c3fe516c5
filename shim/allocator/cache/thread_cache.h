/* Thread caches: free blocks that a thread keeps for its own next requests.  A request or free that the cache
 * serves is a *hit*.  A hit takes no lock and makes no device call.
 *
 * A cache belongs to one thread and one arena.  Its blocks lie in the *entries* of a table, one per size, last
 * freed first.  Small blocks (<= AC_SMALL_LIMIT) are fetched several at a time.  The cache gives blocks back in
 * these cases:
 *   - its budget is used up;
 *   - a request of the thread finds no free memory, and the program is too large to grow instead
 *     (ac_caches_allowance);
 *   - the thread ends;
 *   - memory is short.  Before the device is asked for memory, before a wait, and before each trim, the caches of
 *     all threads are *recalled*.  Therefore blocks in caches count as free memory for all these decisions.
 *
 * In a small program (ac_cache_weighs) a request that finds no free memory takes only the bytes that it needs
 * from its cache, the largest sizes first.  These are few.  The small blocks that stay serve most of the
 * program's requests.  Waiting blocks that became ready are kept within the budget.  While other blocks wait,
 * the device is asked about them before other blocks go.
 *
 * The table.  The hash of a size gives its own place, and a bucket of AC_CACHE_WAYS entries around that.  A hit
 * looks only at the own place.  If an entry is found elsewhere in its bucket, it is swapped to its own place.
 * The first request of a size only leaves a tag, and the second one makes an entry.  Otherwise blocks of
 * sizes that do not return would each cost a split and a search.  In a full bucket a new size replaces one
 * without blocks.  If all have blocks, the new size gets no entry.
 *
 * The budget.  Whole blocks in caches prevent coalescing of free memory, in proportion to their bytes.  So the
 * ready blocks that all threads keep of a device are limited to AC_CACHE_KEPT, whatever the size of its memory.
 * A cache has AC_CACHE_OWN bytes and *leases* more under the lock; a recall takes leases back.  The last block
 * may exceed the room, so that an alternating free and request of one size always hits.  A block is charged
 * its bytes, but at most AC_KEPT_CHARGE, so that a few large blocks stay.  If there is no room and no lease,
 * a *sweep* gives back the largest blocks, down to 3/4 of the budget.  A size of which it leaves none is
 * *refused*: its blocks are not kept until the size is requested right after a free.  After many refusals all
 * of them are forgotten.
 *
 * A hit holds `busy`.  A thread that recalls caches sets a bit of `gate` and runs a heavy barrier (barrier.h).  It
 * touches the table only if it then finds the cache not busy.  The owner reads `gate` after it set `busy`, and
 * does not touch its cache while the bit is set.
 *
 * Waiting blocks.  fence.h decides whether freed memory is ready.  A block that is not ready *waits* in the cache,
 * after earlier freed blocks of its size.  When the entry has no ready blocks, all waiting ones that became ready
 * join it at once, because one fence covers many.  A request that misses leaves waiting blocks there.  The
 * statistics count waiting blocks as active, and a recall moves them to the arena's lists (retired.h).  A block
 * that other contexts may access, or that a capture may have recorded, never waits here; its free takes the lock.
 *
 * Statistics.  A hit adds to the tally of its cache (ac_cache_tally_t), which the device statistics absorb under
 * the allocator's lock.  `headroom` is the number of bytes that hits may hand out before this is due.  It keeps
 * the peak of allocated bytes exact (cache_tally.c).
 *
 * Requests and frees that name a stream have their own entries in the table (lane.h).
 *
 * Free blocks of other sizes, ready or not, stay *loose* for a short time: until the owner takes the lock for its
 * next request, or until there are AC_CACHE_LOOSE of them.  Blocks that another thread's cache handed out go back
 * to that cache (inbox.h). */
#ifndef AC_THREAD_CACHE_H
#define AC_THREAD_CACHE_H

#include "allocator/cache/inbox.h"
#include "allocator/order/barrier.h"
#include "allocator/order/capture.h"
#include "allocator/order/retire.h"
#include "allocator/policy.h"
#include "allocator/settings.h"
#include "allocator/space/slab.h"
#include "failpoint.h"
#include "observe/stats.h"

enum {
    AC_CACHE_BITS = 9,
    AC_CACHE_ENTRIES = 1 << AC_CACHE_BITS,
    AC_CACHE_WAYS = 4, /* entries of a bucket */
    AC_CACHE_WORDS = AC_CACHE_ENTRIES / 64,
    AC_CACHE_PART = AC_CACHE_ENTRIES / 64,
    AC_CACHE_SEEN_BITS = 8,
    AC_CACHE_HANDED_BITS = 11,
    AC_CACHE_LOOSE = 16,
    AC_CACHE_OTHERS = 1024, /* frees of other modules' blocks before the module of `frees` changes */
    AC_CACHE_STREAMS = 12, /* class of stream entries; lower: small sizes, and each power of two above */
    AC_CACHE_CLASSES = AC_CACHE_STREAMS + 1
};

/* Bytes that the peak of allocated bytes may lack with several caches; or this share of the peak, if that is more. */
#define AC_CACHE_MISSED ((int64_t)256 << 10)
enum { AC_CACHE_MISSED_SHARE = 1024 };

/* Bytes and blocks by which a pool may grow through one cache before the device statistics absorb it, whatever its
 * headroom.  In bytes, the limits of all caches together are at least a share of the peak of allocated bytes.  The
 * growth is checked each time that AC_CACHE_UNSEEN bytes were cut for the cache.  So the peaks of the other
 * figures lack at most twice as much. */
#define AC_CACHE_UNSEEN ((int64_t)8 << 20)
enum { AC_CACHE_UNSEEN_BLOCKS = 2048, AC_CACHE_UNSEEN_SHARE = 256 };
#define AC_CACHE_WEIGHT(size) ((int64_t)(size) + AC_CACHE_UNSEEN / AC_CACHE_UNSEEN_BLOCKS)

/* Size of the largest block that a cache keeps. */
#define AC_CACHE_LARGEST ((uint64_t)64 << 30)

/* AC_CACHE_KEPT: bytes of ready blocks that all caches of a device keep at most, if the settings allow it.  The
 * AC_CACHE_OWN bytes of each cache without a lease, and its one block beyond the room, are not included.
 * Replays of training programs show that caching up to this size costs no memory, and more does, for programs of
 * all sizes. */
#define AC_CACHE_KEPT ((uint64_t)32 << 20)
#define AC_CACHE_OWN  ((uint64_t)1 << 20)

/* Number of blocks from which on a cache leases no more, so that a recall is short. */
enum { AC_CACHE_BLOCKS = 8192 };

typedef struct ac_lanes ac_lanes_t;

typedef struct {
    uint64_t size;         /* key (size of its blocks, and the stream) with AC_ENTRY_ flags; 0: not in use */
    ac_block_t *top;       /* ready blocks by link, last freed first */
    ac_cache_side_t *side; /* figures of its pool in the tally */
    uint8_t fetched;       /* number of blocks fetched at the last miss */
    uint8_t class;         /* of its key (ac_cache_class) */
    uint32_t charge;       /* bytes of the budget that each of its blocks takes */
} ac_entry_t;
enum { AC_ENTRY_BITS = 5 };
_Static_assert(sizeof(ac_entry_t) == 1 << AC_ENTRY_BITS, "an entry is found by its offset");

/* Flags of an entry.  Sizes are multiples of AC_GRANULE, so that a hit never finds an entry with a flag; the slow path
 * calls ac_cache_find.  REFUSED: a sweep decided to keep no block of the size.  EMPTY: the entry has had no blocks
 * since the owner gave all back; the flag is cleared when the entry is found. */
enum { AC_ENTRY_REFUSED = 1, AC_ENTRY_EMPTY = 2, AC_ENTRY_FLAGS = 3 };

/* Shift of the stream's number in keys.  The key of an entry is a size.  Its bits between the flags and the granule
 * are 0 for plain blocks, or the number of the lane (lane.h). */
enum { AC_KEY_STREAM_SHIFT = 3 };

static inline uint64_t ac_entry_key(const ac_entry_t *entry) {
    return entry->size & ~(uint64_t)AC_ENTRY_FLAGS;
}

static inline uint64_t ac_key_size(uint64_t key) {
    return key & ~(AC_GRANULE - 1);
}

static inline uint64_t ac_entry_size(const ac_entry_t *entry) {
    return ac_key_size(entry->size);
}

/* Returns true if the entry has that key, with any flags. */
static inline bool ac_entry_is_of(const ac_entry_t *entry, uint64_t key) {
    return (entry->size ^ key) <= AC_ENTRY_FLAGS;
}

/* Bits of the gate; each sends all requests and frees to the slow path.
 * RECALLED: a recall owns the table.  GONE: the arena is dead.  STEPPED: the settings round sizes up.
 * FENCED: the kernel has no membarrier, so that the owner needs a full fence.
 * RESTS: another thread took the cache's headroom (cache_tally.c). */
enum {
    AC_GATE_RECALLED = 1,
    AC_GATE_GONE = 2,
    AC_GATE_STEPPED = 4,
    AC_GATE_FENCED = 8,
    AC_GATE_RESTS = 16
};

/* Invariants (ac_allocator_check):
 *   - The blocks of an entry, ready or not, have the state AC_BLOCK_CACHED, its size, and the cache's arena.
 *   - Refused and unused entries have no blocks.
 *   - An entry lies in the bucket of its key, and no two entries have the same key.
 *   - `kept` has the bits of all entries that may have blocks.
 *   - `room` is the budget minus the charges of all ready blocks.  These charges, without the largest one, are
 *     within the budget.
 *   - The budget is AC_CACHE_OWN (or the limit of the settings if that is less) plus `leased`.
 *   - All leases together are within AC_CACHE_KEPT and the limit.
 *   - The epochs of waiting blocks never fall along a ring.  The tally has the sums of waiting blocks, and these are
 *     within `may_wait`. */
struct ac_cache {
    _Atomic uint32_t busy;
    _Atomic uint32_t gate; /* AC_GATE_ bits; they change under the allocator's lock */
    /* Labels of allocated blocks.  `asks`: label of blocks that the owner requests.  `frees`: label of most blocks
     * that it frees.  A free of another label is counted separately for its module; after `others` of these, or on
     * a slow path, ac_cache_free_for changes `frees`. */
    uint32_t asks, frees, least; /* least: label of module 0 */
    int32_t others;
    uint16_t owner_arena; /* the arena's number */
    ac_arena_t *arena;
    ac_timeline_t *timeline;
    ac_cache_tally_t *tally;
    ac_block_t *last; /* the block that was handed out last, and the own place of its size */
    ac_entry_t *last_own;
    int64_t room; /* the budget minus the charges of all ready blocks; the last block may make it negative */
    int64_t headroom; /* bytes that may be handed out before peaks are due (cache_tally.c) */
    int64_t unseen[AC_FLOWS]; /* bytes that may be cut before the growth is checked (AC_CACHE_UNSEEN) */
    uint64_t raised;  /* `raised` of the device's caches when the headroom was granted (inbox.h) */
    uint64_t budget;     /* for ready blocks; 0: nothing is kept */
    uint64_t leased;     /* part of the budget */
    uint64_t refused;    /* the key that was refused last */
    uint64_t refused_at; /* number of the owner's frees at that time */
    unsigned refusals;   /* number since refusals were last forgotten */
    uint64_t flushed[AC_FLOWS];  /* reached clock when all ready blocks of the pool left */
    uint64_t may_wait[AC_FLOWS]; /* limit of the bytes of waiting blocks */
    /* Bytes of waiting blocks that are worth a fence (ac_budget_fence).  `share` is the value of the time when the
     * cache woke up; it is for blocks in entries, which serve only their size.  Early fences for them save programs
     * with much work in progress 2 % of their memory.  `live_share` is for loose blocks, which serve all sizes. */
    uint64_t share, live_share;
    uint64_t given, fenced; /* numbers of frees and of waiting frees when a fence was last due */
    uint32_t dues;          /* fences that were due */
    uint64_t kept[AC_CACHE_CLASSES][AC_CACHE_WORDS]; /* bit per entry that may have blocks */
    uint8_t words[AC_CACHE_CLASSES];         /* bit per word of `kept` that is not 0 */
    uint16_t classes;                        /* bit per class with a word that is not 0 */
    uint64_t parked[AC_CACHE_WORDS];         /* bit per entry that may have waiting blocks */
    uint32_t divisions[AC_DIVISION_SLOTS];   /* of the settings */
    ac_cache_t *next, *awake_next;           /* the allocator's lists, under its lock */
    ac_cache_t *sibling;                     /* the owner's next cache */
    /* Blocks of sizes that are not kept, which were freed without the lock.  As soon as the owner has the lock, they
     * go to the free memory, or to the arena's lists if they wait. */
    ac_block_t *loose[AC_CACHE_LOOSE];
    unsigned loose_count;
    /* `out`: blocks that the owner freed and the cache `out_home` handed out, until they are posted there.
     * `unplaced`: blocks that were posted here and found no room without the lock. */
    ac_chain_t out;
    ac_cache_t *out_home;
    ac_block_t *_Atomic unplaced; /* by link; a read from outside the cache is a hint */
    ac_lanes_t *lanes;             /* lane.h; NULL: none yet */
    bool listed, was_awake;        /* cache_tally.c, under the lock */
    bool narrow;                   /* there was nothing to lease; until a recall */
    uint64_t loose_bytes;
    ac_modules_named_t named;      /* of the tally; only the owner uses it */
    uint64_t made;                 /* bit per AC_CACHE_PART entries, if one of them may be in use */
    /* The members below are large and mostly unused.  Pages that are never touched take no memory. */
    ac_entry_t entry[AC_CACHE_ENTRIES];
    /* The newest waiting block of each entry; NULL: none.  The blocks form a ring by link: the link of the newest
     * one is the oldest one. */
    ac_block_t *wait[AC_CACHE_ENTRIES];
    /* Requested keys without an entry (cache_table.c). */
    uint64_t seen[1 << AC_CACHE_SEEN_BITS];
    /* Blocks that served the owner's requests, by address.  A free reads this first.  The record shows later changes
     * by other threads.  A record with another address now belongs to another block (block.h). */
    ac_block_t *handed[1 << AC_CACHE_HANDED_BITS];
    /* Other threads write to the inbox, so it has its own cache line.  It is last because it stays as it is when the
     * structure serves another owner. */
    _Alignas(64) ac_inbox_t inbox;
    ac_trail_t trail;
};

/* Opens a cache of the arena for the calling thread.  The caller lends `tally`, which is zero.  Returns NULL if host
 * memory is short, the arena is dead, or the settings forbid caches. */
ac_cache_t *ac_cache_open(ac_arena_t *arena, ac_cache_tally_t *tally);

/* Returns true if the arena is dead.  The cache then serves nothing and has to be closed. */
static inline bool ac_cache_is_gone(const ac_cache_t *cache) {
    return atomic_load(&cache->gate) & AC_GATE_GONE;
}

/* Closes the cache: gives back its blocks, absorbs its tally and sets the tally to zero.  Called by the owner. */
void ac_cache_close(ac_cache_t *cache);

/* Called when the owner ends: gives back what the cache keeps.  It stays, with its tally, for the next thread that
 * gets both (ac_cache_take_over), and no thread posts to it until then.  Returns false if the cache has to be closed:
 * its context has gone, or it knows streams of the thread. */
bool ac_cache_hand_on(ac_cache_t *cache);
void ac_cache_take_over(ac_cache_t *cache);

/* Sets the module (stats.h) of the owner's later requests (_ask_for) or frees (_free_for).  Called by the owner.  A hit
 * counts nothing for modules.  The blocks since the last change are charged when the module changes. */
static inline unsigned ac_cache_asking(const ac_cache_t *cache) {
    return (uint8_t)cache->asks;
}

static inline void ac_cache_ask_for(ac_cache_t *cache, unsigned module) {
    if (__builtin_expect(ac_cache_asking(cache) == module, 1))
        return;
    ac_cache_tally_ask_for(cache->tally, &cache->named, module);
    cache->asks = ac_block_label(module, AC_BLOCK_ALLOCATED, cache->owner_arena);
}

static inline void ac_cache_free_for(ac_cache_t *cache, unsigned module) {
    cache->others = AC_CACHE_OTHERS;
    if (__builtin_expect((uint8_t)cache->frees == module, 1))
        return;
    ac_cache_tally_free_for(cache->tally, &cache->named, module);
    cache->frees = ac_block_label(module, AC_BLOCK_ALLOCATED, cache->owner_arena);
}

/* --- hits --- */

/* Inlines a function into each hook, because a call would save and restore registers. */
#define AC_CACHE_HOT __attribute__((always_inline)) static inline

/* Keeps the block that is allocated at `address`, ready or not.  Returns false if the free needs the lock.  Also
 * returns false if the record is no longer of that block; this is checked inside the cache, where it cannot change. */
bool ac_cache_give(ac_cache_t *cache, ac_block_t *block, uint64_t address);

/* Returns a hash with its highest bits as the index.  They differ for neighbours and for multiples of large powers of
 * two. */
static inline uint32_t ac_cache_hash(uint64_t n) {
    return (uint32_t)n * 0x9e3779b1u;
}

/* Returns the own place of a size.  It computes an offset, because an index would take one or two more instructions in
 * each hit. */
static inline ac_entry_t *ac_cache_entry(ac_cache_t *cache, uint64_t size) {
    uint32_t high = ac_cache_hash(size) >> (32 - AC_CACHE_BITS - AC_ENTRY_BITS);
    return (ac_entry_t *)((char *)cache->entry + (high & -(uint32_t)sizeof *cache->entry));
}

static inline ac_entry_t *ac_cache_bucket(ac_cache_t *cache, const ac_entry_t *entry) {
    return &cache->entry[(size_t)(entry - cache->entry) & ~((size_t)AC_CACHE_WAYS - 1)];
}

/* Finds the entry of the size, clears its EMPTY flag and swaps it to its own place; NULL if there is none.  Called by
 * the owner, inside, or under the lock while the cache is usable (cache_table.c). */
ac_entry_t *ac_cache_find(ac_cache_t *cache, uint64_t size);

static inline ac_block_t **ac_cache_handed(ac_cache_t *cache, uint64_t address) {
    return &cache->handed[ac_cache_hash(address) >> (32 - AC_CACHE_HANDED_BITS)];
}

static inline int ac_cache_flow(uint64_t size) {
    return size > AC_SMALL_LIMIT;
}

/* Returns the bytes of the budget that a block of the size takes. */
static inline uint32_t ac_cache_charge(uint64_t size) {
    return size < AC_KEPT_CHARGE ? (uint32_t)size : AC_KEPT_CHARGE;
}

/* Returns the class of a size.  Larger sizes have a higher class; small sizes have class 0. */
static inline int ac_cache_class(uint64_t size) {
    if (size <= AC_SMALL_LIMIT)
        return 0;
    int class = 64 - __builtin_clzll((size - 1) / AC_SMALL_LIMIT);
    return class < AC_CACHE_STREAMS ? class : AC_CACHE_STREAMS - 1;
}

static inline uint32_t ac_cache_gate(const ac_cache_t *cache) {
    return atomic_load_explicit(&cache->gate, memory_order_acquire);
}

/* Returns true if the owner, which is the calling thread, may use the cache; false for NULL. */
static inline bool ac_cache_usable(const ac_cache_t *cache) {
    return cache && !(ac_cache_gate(cache) & (AC_GATE_RECALLED | AC_GATE_GONE));
}

/* Keeps other threads from the table until ac_cache_leave; the owner is *inside* meanwhile.  Returns false if another
 * thread uses the table, or if keeping it out takes the slow path (ac_cache_take_long). */
static inline bool ac_cache_enter(ac_cache_t *cache) {
    bool early = AC_FAILPOINT(gate_before_busy) && atomic_load(&cache->gate) == 0;
    AC_WINDOW(cache_enters);
    atomic_store_explicit(&cache->busy, 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(atomic_load_explicit(&cache->gate, memory_order_acquire) == 0, 1) ||
        early)
        return true;
    atomic_store_explicit(&cache->busy, 0, memory_order_release);
    return false;
}

static inline void ac_cache_leave(ac_cache_t *cache) {
    atomic_store_explicit(&cache->busy, 0, memory_order_release);
}

/* Outcome of a request.  AC_TAKE_DUE: it was served and used up the headroom, so the owner leaves the cache and then
 * calls ac_cache_raise. */
typedef enum { AC_TAKE_NONE, AC_TAKE_SERVED, AC_TAKE_DUE } ac_take_t;

/* Grants the cache headroom, or raises the peaks.  Returns true.  Takes the lock. */
bool ac_cache_raise(ac_cache_t *cache);

/* Hands a block of the cache to the program, with that label.  `clock` returns the epoch: ac_fence_handout or another
 * function of its type.  The caller subtracts the size from the headroom. */
AC_CACHE_HOT void ac_cache_hand_out(ac_cache_t *cache, ac_cache_side_t *side, ac_block_t *block,
                                    uint32_t label, uint64_t size, uint64_t bytes,
                                    uint64_t clock(ac_timeline_t *)) {
    ac_block_set_label(block, label); /* first, because a later store would need one more register */
    if (__builtin_expect(atomic_load_explicit(&block->requested, memory_order_relaxed) != bytes, 0))
        atomic_store_explicit(&block->requested, bytes, memory_order_relaxed); /* see block.h */
    atomic_store_explicit(&block->ticket.epoch, clock(cache->timeline), memory_order_relaxed);
    *ac_cache_handed(cache, ac_block_address(block)) = block;
    ac_tally_add(&side->flow.taken, 1);
    ac_tally_add(&side->flow.taken_bytes, size);
    ac_tally_add(&side->flow.taken_requested, bytes);
}

/* Stores the block as the one that the next free compares first.  `own`: the own place of its size. */
AC_CACHE_HOT void ac_cache_note_last(ac_cache_t *cache, ac_block_t *block, ac_entry_t *own) {
    cache->last = block;
    cache->last_own = own;
}

/* Takes a freed block into the cache's account; called after ac_cache_free_for.  `ordered`: it is ready only by stream
 * order.  _without does not add its bytes to the headroom. */
AC_CACHE_HOT void ac_cache_take_in_without(ac_cache_t *cache, ac_cache_side_t *side,
                                               ac_block_t *block, bool ordered) {
    uint64_t size = block->size;
    uint64_t requested = atomic_load_explicit(&block->requested, memory_order_relaxed);
    ac_block_set_state(block, AC_BLOCK_CACHED);
    ac_tally_add(&side->flow.given, 1);
    ac_tally_add(&side->flow.given_bytes, size);
    ac_tally_add(&side->flow.given_requested, requested);
    if (ordered)
        ac_tally_add(&cache->tally->ordered, 1);
}

AC_CACHE_HOT void ac_cache_take_in(ac_cache_t *cache, ac_cache_side_t *side, ac_block_t *block,
                                   bool ordered) {
    uint64_t size = block->size; /* read once, because the tally is written in between */
    ac_cache_take_in_without(cache, side, block, ordered);
    cache->headroom += (int64_t)size;
}

/* Returns the headroom that the block brings from a chain to a cache that was granted its own at
 * `raised` (inbox.h). */
AC_CACHE_HOT int64_t ac_cache_brings(const ac_block_t *block, uint64_t raised) {
    bool counts = !ac_inbox_is_slot(block) &&
                  (block->raised == raised || AC_FAILPOINT(posted_room_kept));
    return counts ? (int64_t)block->size : 0;
}

/* Returns true if the block brings headroom of a later raise than `raised`, the one of the owner's headroom.  The owner
 * is inside all the time, so its cache is at rest by now.  That headroom counts once the cache is awake. */
static inline bool ac_cache_brings_later(const ac_block_t *block, uint64_t raised) {
    return !ac_inbox_is_slot(block) && (block->raised & 1) && block->raised > raised;
}

/* Serves a request of `bytes` by the first block of `size`.  Called inside. */
AC_CACHE_HOT ac_take_t ac_cache_pop(ac_cache_t *cache, uint64_t size, uint64_t bytes,
                                    uint64_t *address, uint64_t clock(ac_timeline_t *)) {
    ac_entry_t *entry = ac_cache_entry(cache, size);
    ac_block_t *block = entry->top;
    if (__builtin_expect(entry->size != size || !block, 0))
        return AC_TAKE_NONE;
    ac_cache_side_t *side = entry->side;
    entry->top = block->link;
    cache->room += entry->charge;
    ac_cache_note_last(cache, block, entry);
    ac_cache_hand_out(cache, side, block, cache->asks, size, bytes, clock);
    *address = ac_block_address(block);
    return __builtin_expect((cache->headroom -= (int64_t)size) < 0, 0) ? AC_TAKE_DUE : AC_TAKE_SERVED;
}

/* Serves `bytes` from the cache.  AC_TAKE_NONE: it has no block, or the request takes the slow path. */
AC_CACHE_HOT ac_take_t ac_cache_take(ac_cache_t *cache, uint64_t bytes, uint64_t *address,
                                     uint64_t clock(ac_timeline_t *)) {
    if (__builtin_expect(!ac_cache_enter(cache), 0))
        return AC_TAKE_NONE;
    uint64_t size = (bytes + AC_GRANULE - 1) & ~(AC_GRANULE - 1);
    ac_take_t taken = ac_cache_pop(cache, size, bytes, address, clock);
    ac_cache_leave(cache);
    return taken;
}

/* Returns true if the owner freed blocks without the lock that ac_cache_tidy has to place. */
static inline bool ac_cache_is_untidy(const ac_cache_t *cache, bool request) {
    return cache->loose_count || cache->unplaced || (request && cache->out.first);
}

/* Returns true if blocks wait in the cache. */
static inline bool ac_cache_waits(const ac_cache_t *cache) {
    const ac_cache_side_t *side = cache->tally->side;
    return __atomic_load_n(&side[0].waiting.blocks, __ATOMIC_RELAXED) |
           __atomic_load_n(&side[1].waiting.blocks, __ATOMIC_RELAXED);
}

/* Returns the entry of the size, at any place of its bucket and with any flags; NULL if there is none.  The loop is
 * unrolled, because most sizes here have none.  Called by the owner, because only the owner writes sizes. */
static inline ac_entry_t *ac_cache_peek(ac_cache_t *cache, uint64_t size) {
    _Static_assert(AC_CACHE_WAYS == 4, "all entries of a bucket are looked at");
    ac_entry_t *bucket = ac_cache_bucket(cache, ac_cache_entry(cache, size));
    if (ac_entry_is_of(&bucket[0], size))
        return &bucket[0];
    if (ac_entry_is_of(&bucket[1], size))
        return &bucket[1];
    if (ac_entry_is_of(&bucket[2], size))
        return &bucket[2];
    return ac_entry_is_of(&bucket[3], size) ? &bucket[3] : NULL;
}

/* Returns true if the entry, of that size if there is one, may serve, and is not in its own place. */
static inline bool ac_cache_is_apart(ac_cache_t *cache, const ac_entry_t *entry, uint64_t size) {
    return entry && entry->size == size && entry != ac_cache_entry(cache, size);
}

/* Serves a request that ac_cache_take could not serve, without the lock: from waiting or posted blocks, or from an
 * entry outside of its own place.  `size`: size of the request, unless sizes are rounded up further.  `known`:
 * ac_cache_peek finds an entry of it. */
bool ac_cache_take_waiting(ac_cache_t *cache, uint64_t size, bool known, uint64_t bytes,
                           uint64_t *address);

/* Calls ac_cache_take_waiting if it may find a block.  `entry`: result of ac_cache_peek for the size.  Without an entry
 * that serves, the table has no blocks of the size.  Then only posted blocks are a reason for the call. */
static inline bool ac_cache_take_beside(ac_cache_t *cache, const ac_entry_t *entry, uint64_t size,
                                        uint64_t bytes, uint64_t *address) {
    bool serves = entry && !(entry->size & AC_ENTRY_REFUSED);
    return ((serves && (ac_cache_is_apart(cache, entry, size) || ac_cache_waits(cache) ||
                        cache->unplaced)) ||
            ac_inbox_has_any(&cache->inbox) || atomic_load(&cache->gate)) &&
           ac_cache_take_waiting(cache, size, serves, bytes, address);
}

static inline bool ac_cache_take_long(ac_cache_t *cache, uint64_t bytes, uint64_t *address) {
    uint64_t size = (bytes + AC_GRANULE - 1) & ~(AC_GRANULE - 1);
    return ac_cache_take_beside(cache, ac_cache_peek(cache, size), size, bytes, address);
}

/* Keeps a ready block in `entry`, the own place of its size; called after ac_cache_free_for.  `ordered`: it is ready
 * only by stream order.  Returns false if there is no room or the place has another size. */
AC_CACHE_HOT bool ac_cache_push_to(ac_cache_t *cache, ac_entry_t *entry, ac_block_t *block,
                                   bool ordered) {
    uint64_t size = block->size;
    if (__builtin_expect(entry->size != size || cache->room < 0, 0))
        return false;
    ac_cache_take_in(cache, entry->side, block, ordered);
    cache->room -= entry->charge;
    block->link = entry->top;
    entry->top = block;
    return true;
}

AC_CACHE_HOT bool ac_cache_push(ac_cache_t *cache, ac_block_t *block, bool ordered) {
    return ac_cache_push_to(cache, ac_cache_entry(cache, block->size), block, ordered);
}

/* Returns true if the block is of the cache's arena and caches may have it. */
static inline bool ac_cache_may_have(const ac_cache_t *cache, const ac_block_t *block) {
    return atomic_load_explicit(&block->owner_arena, memory_order_relaxed) == cache->owner_arena;
}

/* Returns true if the record is of a block that is allocated at `address` and that the cache may have.  Acquire:
 * another thread may have given the record to the block just now (slab.c). */
static inline bool ac_cache_owns(const ac_cache_t *cache, const ac_block_t *block,
                                 uint64_t address) {
    return atomic_load_explicit(&block->address, memory_order_acquire) == address &&
           atomic_load_explicit(&block->state, memory_order_relaxed) == AC_BLOCK_ALLOCATED &&
           ac_cache_may_have(cache, block);
}

/* Returns the record of the block that starts at `address`; it may be outdated.  NULL: not known. */
static inline ac_block_t *ac_cache_record(ac_cache_t *cache, uint64_t address) {
    ac_block_t *block = *ac_cache_handed(cache, address);
    return __builtin_expect(ac_block_address(block) == address, 1) ? block
                                                                   : ac_slab_look(address);
}

/* Returns the block that is allocated at `address`, if the cache may have it; otherwise NULL. */
static inline ac_block_t *ac_cache_block(ac_cache_t *cache, uint64_t address) {
    ac_block_t *block = ac_cache_record(cache, address);
    return block && ac_cache_owns(cache, block, address) ? block : NULL;
}

/* Returns true if no work was submitted since the block was handed out. */
AC_CACHE_HOT bool ac_cache_untouched(const ac_cache_t *cache, const ac_block_t *block) {
    return ac_fence_untouched_alone(
        cache->timeline, atomic_load_explicit(&block->ticket.epoch, memory_order_relaxed));
}

/* Returns true if the label is of an allocated block of another module, and `others` allows it.  Sets *module.  The
 * caller then charges the block to that module, so that the sum over modules stays equal to the frees. */
AC_CACHE_HOT bool ac_cache_is_of_other(ac_cache_t *cache, uint32_t label, uint32_t *module) {
    *module = label - cache->least;
    return *module < AC_MODULES && --cache->others >= 0;
}

/* Outcome of a free.  REST: the block is untouched and not yet kept; call ac_cache_give_untouched.  TOUCHED: work was
 * submitted since the block was handed out; call ac_cache_give_rest.  In both cases the owner is inside its cache
 * until that call. */
typedef enum { AC_GIVE_NONE, AC_GIVE_KEPT, AC_GIVE_REST, AC_GIVE_TOUCHED } ac_give_t;

/* Returns true if the record is of the block that starts at `address`. */
AC_CACHE_HOT bool ac_cache_lies_at(const ac_block_t *block, uint64_t address) {
    return atomic_load_explicit(&block->address, memory_order_acquire) == address;
}

/* Second part of ac_cache_give_handed_or_rest, with the record of the address.  `own`: the own place of its size.
 * `found`: another cache may have handed out the block.  If so, the function does not keep it. */
AC_CACHE_HOT ac_give_t ac_cache_give_inside(ac_cache_t *cache, ac_block_t *block, ac_entry_t *own,
                                            bool found) {
    uint32_t label = atomic_load_explicit(&block->label, memory_order_relaxed), module;
    bool kept = false;
    if (__builtin_expect(label == cache->frees && (!found || block->home == cache), 1)) {
        bool untouched = ac_cache_untouched(cache, block);
        kept = untouched && ac_cache_push_to(cache, own, block, false);
        if (__builtin_expect(!kept, 0)) {
            if (AC_FAILPOINT(rest_given_outside))
                ac_cache_leave(cache);
            return untouched ? AC_GIVE_REST : AC_GIVE_TOUCHED;
        }
    } else if (!found && ac_cache_is_of_other(cache, label, &module) && ac_cache_untouched(cache, block)) {
        uint64_t size = block->size; /* read here, once: ac_cache_push_to writes */
        kept = ac_cache_push_to(cache, own, block, false);
        if (kept)
            ac_cache_tally_free_of(cache->tally, &cache->named, module, size);
    }
    ac_cache_leave(cache);
    return kept ? AC_GIVE_KEPT : AC_GIVE_NONE;
}

/* Keeps the block at `address` if this cache handed it out and no work was submitted since.  The caller has checked
 * (ac_fence_simple) that nothing captures, contexts do not reach each other's memory, and all work is seen.
 * *rest: the block, for AC_GIVE_REST and AC_GIVE_TOUCHED. */
AC_CACHE_HOT ac_give_t ac_cache_give_handed_or_rest(ac_cache_t *cache, uint64_t address,
                                                    ac_block_t **rest) {
    /* Mostly a free is of the block that was handed out last.  A branch tests that, because loads from the tables
     * would have to wait for the stores of the request. */
    ac_block_t *block = cache->last;
    ac_entry_t *own = cache->last_own;
    if (__builtin_expect(!ac_cache_enter(cache), 0))
        return AC_GIVE_NONE;
    if (__builtin_expect(!ac_cache_lies_at(block, address), 0)) {
        block = *ac_cache_handed(cache, address);
        if (__builtin_expect(!ac_cache_lies_at(block, address), 0)) {
            ac_cache_leave(cache); /* another thread may write the record, so read no more of it */
            return AC_GIVE_NONE;
        }
        own = ac_cache_entry(cache, block->size);
    }
    *rest = block;
    return ac_cache_give_inside(cache, block, own, false);
}

/* Frees the block at `address` like ac_cache_give_handed_or_rest.  The caller looked up the record, which may be of a
 * block from another cache. */
AC_CACHE_HOT ac_give_t ac_cache_give_found_or_rest(ac_cache_t *cache, uint64_t address,
                                                   ac_block_t *block) {
    if (!ac_cache_enter(cache))
        return AC_GIVE_NONE;
    if (ac_cache_lies_at(block, address))
        return ac_cache_give_inside(cache, block, ac_cache_entry(cache, block->size), true);
    ac_cache_leave(cache);
    return AC_GIVE_NONE;
}

/* Keep the block after AC_GIVE_TOUCHED (_rest) or AC_GIVE_REST (_untouched), like ac_cache_give; the owner is outside
 * on return.  _untouched does not check the block's order again. */
bool ac_cache_give_rest(ac_cache_t *cache, ac_block_t *block);
bool ac_cache_give_untouched(ac_cache_t *cache, ac_block_t *block);

/* Returns true if a block of a size that is not kept may be loose. */
static inline bool ac_cache_may_loosen(const ac_cache_t *cache, uint64_t size) {
    return cache->loose_count < AC_CACHE_LOOSE && size <= AC_CACHE_LARGEST &&
           cache->loose_bytes + size <= cache->may_wait[1];
}

/* Adds a block of the cache, of a size that is not kept, to the loose blocks.  The caller has checked for room. */
static inline void ac_cache_loosen(ac_cache_t *cache, ac_block_t *block) {
    ac_block_guess_neighbours(block);
    cache->loose[cache->loose_count++] = block;
    cache->loose_bytes += block->size;
}

/* Returns true if a freed block of this cache may be loose because its size has no entry.  Most sizes that are not kept
 * have none. */
AC_CACHE_HOT bool ac_cache_loosens(ac_cache_t *cache, const ac_block_t *block) {
    return block->home == cache && !ac_cache_peek(cache, block->size) &&
           ac_cache_may_loosen(cache, block->size);
}

/* Makes a block loose after AC_GIVE_REST; the owner is outside on return.  Returns false, with the owner still inside,
 * if the caller has to call ac_cache_give_untouched. */
AC_CACHE_HOT bool ac_cache_loosen_rest(ac_cache_t *cache, ac_block_t *block) {
    if (!ac_cache_loosens(cache, block))
        return false;
    AC_WINDOW(free_owned);
    ac_cache_take_in(cache, &cache->tally->side[ac_cache_flow(block->size)], block, false);
    ac_cache_loosen(cache, block);
    ac_cache_leave(cache);
    return true;
}

AC_CACHE_HOT bool ac_cache_give_handed(ac_cache_t *cache, uint64_t address) {
    ac_block_t *block;
    ac_give_t given = ac_cache_give_handed_or_rest(cache, address, &block);
    if (__builtin_expect(given >= AC_GIVE_REST, 0))
        ac_cache_leave(cache);
    return given == AC_GIVE_KEPT;
}

/* --- frees during work: blocks that wait in the entry of their size --- */

/* Counts a freed block that waits; it stays active.  `side`: of its size. */
AC_CACHE_HOT void ac_cache_count_waiting(ac_cache_t *cache, ac_cache_side_t *side,
                                         const ac_block_t *block) {
    uint64_t size = block->size;
    uint64_t requested = atomic_load_explicit(&block->requested, memory_order_relaxed);
    ac_tally_add(&side->flow.given, 1);
    ac_tally_add(&side->flow.given_bytes, size);
    ac_tally_add(&side->flow.given_requested, requested);
    ac_tally_add(&side->waiting.blocks, 1);
    ac_tally_add(&side->waiting.bytes, size);
    ac_tally_add(&side->waiting.requested, requested);
    ac_tally_add(&cache->tally->fenced, 1);
    cache->headroom += (int64_t)size;
}

/* Called when a fence is due.  If nearly all frees since the last call waited, allows rough epochs for the next
 * handouts, except now and then. */
void ac_cache_note_due(ac_cache_t *cache);

/* Lets a freed block wait in the cache for `target`.  The caller puts it into an entry or makes it loose. */
AC_CACHE_HOT void ac_cache_await(ac_cache_t *cache, ac_cache_side_t *side, ac_block_t *block,
                                 uint64_t target, uint64_t share) {
    ac_cache_count_waiting(cache, side, block);
    AC_BLOCK_SET(block, ticket.epoch, target);
    block->ticket.key = AC_KEY_OWN;
    block->ticket.all = false;
    ac_block_set_state(block, AC_BLOCK_CACHED);
    if (__builtin_expect(ac_fence_want_own(cache->timeline, ac_fence_weight(share, block->size)), 0))
        ac_cache_note_due(cache);
}

static inline ac_block_t **ac_cache_wait(ac_cache_t *cache, const ac_entry_t *entry) {
    return &cache->wait[entry - cache->entry];
}

/* Sets the bit of an entry with waiting blocks. */
static inline void ac_cache_note_parked(ac_cache_t *cache, const ac_entry_t *entry) {
    size_t i = (size_t)(entry - cache->entry);
    cache->parked[i / 64] |= (uint64_t)1 << i % 64;
}

AC_CACHE_HOT void ac_cache_park(ac_cache_t *cache, const ac_entry_t *entry, ac_block_t *block,
                                uint64_t target) {
    ac_block_t **wait = ac_cache_wait(cache, entry), *last = *wait;
    block->link = block;
    if (__builtin_expect(last != NULL, 0)) {
        block->link = last->link;
        last->link = block;
    }
    *wait = block;
    ac_cache_note_parked(cache, entry);
    ac_cache_await(cache, entry->side, block, target, cache->share);
}

/* Returns true if there is room for one more waiting block of the size.  `side`: of its size. */
AC_CACHE_HOT bool ac_cache_may_wait(const ac_cache_t *cache, const ac_cache_side_t *side,
                                    uint64_t size) {
    return side->waiting.bytes + size <= cache->may_wait[ac_cache_flow(size)];
}

/* Lets a block wait after AC_GIVE_TOUCHED: in its entry, or loose if its size has none.  The owner is outside on
 * return.  Returns false, with the owner still inside, if the caller has to call ac_cache_give_rest. */
AC_CACHE_HOT bool ac_cache_park_rest(ac_cache_t *cache, ac_block_t *block) {
    uint64_t target, size = block->size;
    const ac_entry_t *own = ac_cache_entry(cache, size);
    ac_cache_side_t *side = &cache->tally->side[ac_cache_flow(size)];
    bool kept = own->size == size;
    if ((!kept && !ac_cache_loosens(cache, block)) ||
        !ac_order_awaits_alone(cache->timeline, &block->ticket, size, &target) ||
        !ac_cache_may_wait(cache, side, size))
        return false;
    AC_WINDOW(free_owned);
    block->home = cache;
    if (kept) {
        ac_cache_park(cache, own, block, target);
    } else {
        ac_cache_await(cache, side, block, target, cache->live_share);
        ac_cache_loosen(cache, block);
    }
    ac_cache_leave(cache);
    return true;
}

#endif

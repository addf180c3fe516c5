/* Thread caches: free blocks that a thread keeps for its own next requests, so that a request or
 * a free that meets one (a *hit*) takes no lock and makes no device call.
 *
 * A cache belongs to one thread and one arena.  Its blocks lie in the *entries* of a table, one
 * per size, last freed first; small ones (<= AC_SMALL_LIMIT) are fetched several at a
 * time.  Blocks come back from the cache when its budget is used up, when a request of the thread
 * finds no free memory and the program is not so small that it may grow (ac_caches_allowance),
 * when the thread ends, and whenever memory is short: before a device is asked for more, before a
 * wait, and before every trim, each thread's cache is *recalled*.  So what caches hold is free
 * memory wherever it matters.
 *
 * In a program that holds little (ac_cache_weighs) a request that finds no free memory takes from
 * its cache no more than it needs, of the largest sizes first: these are few, and the small ones that
 * stay are most of the program's requests.  What waited and is ready by then is kept as far as the
 * budget goes, and while more waits the device is asked before anything else goes.
 *
 * The table.  A size has a place of its own by its hash, and a bucket of AC_CACHE_WAYS entries
 * around it.  A hit looks at the own place alone; an entry that is found elsewhere in its bucket
 * changes places with the one there.  The first request of a size only leaves a tag, the second
 * one makes its entry: blocks of sizes that do not return would come and go at the price of a
 * split and a search each.  In a full bucket a new size replaces one that has no blocks.  If
 * all have blocks, it gets no entry.
 *
 * The budget.  Whole blocks beside free memory keep it from being put together, by their bytes:
 * what all threads together keep ready of a device is bounded (AC_CACHE_KEPT), whatever its
 * memory.  A cache has AC_CACHE_OWN bytes and *leases* more under the lock; a recall takes leases
 * back.  The last block may have more bytes than there was room for: so a pair of one size always
 * hits.  A block is charged its bytes, and at most AC_KEPT_CHARGE: so a few large blocks stay.
 * When there is no room and no lease a *sweep* gives back the largest blocks, down to 3/4
 * of the budget, and a size that it leaves none of is *refused*: it is not kept any more, until
 * it is asked for right after it was freed.  After many refusals they are forgotten.
 *
 * A hit holds `busy`; a thread that recalls caches sets a bit of `gate`, runs a heavy barrier
 * (barrier.h), and touches the table only when it then finds the cache not busy.  The owner looks
 * at `gate` after it set `busy`, and leaves its cache alone while the bit is set.
 *
 * Whatever decides if freed memory is ready (fence.h) decides here as well.  A block that is not
 * ready *waits* in the cache, behind those of its size that were freed before; what has become
 * ready joins the ready ones when there are none, in one burst, because one fence covers many. A
 * request that misses leaves it there.  Such blocks count as active in the statistics, and a
 * recall moves them to the arena's lists (retired.h).  Blocks that other contexts may access, or
 * that a capture may have recorded, never wait here; freeing them takes the lock.
 *
 * Statistics.  A hit adds to the tally of its cache (ac_cache_tally_t), which the device
 * statistics absorb under the allocator's lock.  `headroom` is how many bytes hits may hand out
 * before that is due: it keeps the peak of allocated bytes exact (cache_tally.c).
 *
 * Requests and frees that name a stream have bins of their own in the table (lane.h).
 *
 * Free blocks of other sizes, ready or not, stay *loose* for a moment: until the owner takes the lock
 * for its next request, or there are AC_CACHE_LOOSE of them.  Those that another thread was handed go
 * back to its cache (inbox.h). */
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
    AC_CACHE_OTHERS = 1024, /* frees of other modules' blocks, before another one takes its turn */
    AC_CACHE_STREAMS = 12, /* class of all bins of streams; below: small sizes, and each power of two above */
    AC_CACHE_CLASSES = AC_CACHE_STREAMS + 1
};

/* With several caches the peak of allocated bytes may lack so many bytes, or this share of itself. */
#define AC_CACHE_MISSED ((int64_t)256 << 10)
enum { AC_CACHE_MISSED_SHARE = 1024 };

/* Bytes and blocks that a pool may grow by through one cache before the device statistics absorb it, whatever its
 * headroom.  In bytes it is a share of the peak of allocated bytes, of all caches together, if that is more.
 * Growth is looked at each time that AC_CACHE_UNSEEN was cut for the cache: the peaks of the other figures lack at
 * most twice as much. */
#define AC_CACHE_UNSEEN ((int64_t)8 << 20)
enum { AC_CACHE_UNSEEN_BLOCKS = 2048, AC_CACHE_UNSEEN_SHARE = 256 };
#define AC_CACHE_WEIGHT(size) ((int64_t)(size) + AC_CACHE_UNSEEN / AC_CACHE_UNSEEN_BLOCKS)

/* Larger blocks are never kept. */
#define AC_CACHE_LARGEST ((uint64_t)64 << 30)

/* Of ready blocks, where the settings allow for it: all caches of a device together, but for the
 * bytes that each has without a lease, and the one block that there was no room for.  What is
 * kept costs no memory up to here, and does above: replays of training programs show it, whatever
 * they hold. */
#define AC_CACHE_KEPT ((uint64_t)32 << 20)
#define AC_CACHE_OWN  ((uint64_t)1 << 20)

/* With so many blocks a cache leases no more: a recall is to be over soon. */
enum { AC_CACHE_BLOCKS = 8192 };

typedef struct ac_lanes ac_lanes_t;

typedef struct {
    uint64_t size;         /* its key (bytes of each of its blocks, and the stream), with AC_ENTRY_ flags;
                              0: not in use */
    ac_block_t *top;       /* ready ones by link, last freed first */
    ac_cache_side_t *side; /* in the account */
    uint8_t fetched;       /* how many came at the last miss */
    uint8_t class;         /* of its key (ac_cache_class) */
    uint32_t charge;       /* what each of its blocks takes of the budget */
} ac_entry_t;
enum { AC_ENTRY_BITS = 5 };
_Static_assert(sizeof(ac_entry_t) == 1 << AC_ENTRY_BITS, "an entry is found by its offset");

/* Flags of an entry.  Sizes are multiples of AC_GRANULE, so an entry with a flag is not hit, and ac_cache_find is
 * asked.  REFUSED: no block of the size is kept, by a sweep.  EMPTY: no blocks since the owner gave all back; goes
 * when the entry is found. */
enum { AC_ENTRY_REFUSED = 1, AC_ENTRY_EMPTY = 2, AC_ENTRY_FLAGS = 3 };

/* The key of an entry: a size, and in the bits between the flags and the granule 0 for plain blocks, or the
 * number of the stream in whose order its blocks are ready (lane.h). */
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

/* Whether the entry is of that key, whatever its flags. */
static inline bool ac_entry_is_of(const ac_entry_t *entry, uint64_t key) {
    return (entry->size ^ key) <= AC_ENTRY_FLAGS;
}

/* Why hits take the long way: AC_GATE_RECALLED, _GONE: see above.  AC_GATE_STEPPED: the settings
 * round sizes.  AC_GATE_FENCED: the kernel has no barrier for the other side, so that this one
 * needs its own.  AC_GATE_RESTS, set by others: the cache has lost its headroom (cache_tally.c). */
enum {
    AC_GATE_RECALLED = 1,
    AC_GATE_GONE = 2,
    AC_GATE_STEPPED = 4,
    AC_GATE_FENCED = 8,
    AC_GATE_RESTS = 16
};

/* Invariants (ac_allocator_check): the blocks of an entry, ready or not, are in state
 * AC_BLOCK_CACHED, of its size and of the cache's arena; refused entries and unused ones have
 * none.  An entry lies in the bucket of its key, no key has two, and
 * `kept` has the bits of those that may have blocks.  `room` is the budget less the charges of all
 * ready blocks: without the largest one these are within the budget, which is AC_CACHE_OWN, or
 * the limit if that is less, and `leased`; all leases are within AC_CACHE_KEPT and the limit.
 * What waits has tickets whose epochs never fall along a ring; the tally has its sums, which are
 * within `may_wait`. */
struct ac_cache {
    _Atomic uint32_t busy;
    _Atomic uint32_t gate; /* AC_GATE_ bits; they change under the allocator's lock */
    /* Labels of blocks that are allocated: what the owner asks for has the first, and what a hit
     * takes back mostly the second, or it counts by itself for the block's module.  After so many of
     * these, `others`, or where a hit does not do, ac_cache_free_for is told. */
    uint32_t asks, frees, least; /* least: that of module 0 */
    int32_t others;
    uint16_t owner_arena; /* the arena's number */
    ac_arena_t *arena;
    ac_timeline_t *timeline;
    ac_cache_tally_t *tally;
    ac_block_t *last; /* that was handed out, and the own place of its size */
    ac_entry_t *last_own;
    int64_t room; /* the budget less the charges of all ready blocks; below 0 by the last one */
    int64_t headroom; /* bytes that may be handed out before peaks are due (cache_tally.c) */
    int64_t unseen[AC_FLOWS]; /* bytes that may be cut before growth is looked at (AC_CACHE_UNSEEN) */
    uint64_t raised;  /* `raised` of the device's caches when the headroom was granted (inbox.h) */
    uint64_t budget;     /* of that; 0: nothing is kept */
    uint64_t leased;     /* of the budget */
    uint64_t refused;    /* key that was not kept last */
    uint64_t refused_at; /* frees of the owner before */
    unsigned refusals;   /* since those of the past were forgotten */
    uint64_t flushed[AC_FLOWS];  /* what was reached when all that was ready of one kind left */
    uint64_t may_wait[AC_FLOWS]; /* bytes of what waits */
    /* Of it: so many are worth a fence (ac_budget_fence).  `share` is of the time when the cache was
     * granted room: what waits in an entry serves its size alone, and fences that come early for it
     * save programs with much work under way 2 % of their memory.  What is loose serves all. */
    uint64_t share, live_share;
    uint64_t given, fenced; /* frees, and those of them that waited, when a fence was due last */
    uint32_t dues;          /* fences that were due */
    uint64_t kept[AC_CACHE_CLASSES][AC_CACHE_WORDS]; /* bit per entry that may have blocks */
    uint8_t words[AC_CACHE_CLASSES];         /* bit per word of these that is not 0 */
    uint16_t classes;                        /* bit per class that has any */
    uint64_t parked[AC_CACHE_WORDS];         /* bit per entry that may have blocks that wait */
    uint32_t divisions[AC_DIVISION_SLOTS];   /* of the settings */
    ac_cache_t *next, *awake_next;           /* the allocator's lists, under its lock */
    ac_cache_t *sibling;                     /* the owner's next cache */
    /* Blocks of sizes that are not kept, given without the lock: they go to the free memory, or the
     * arena's lists if they wait, as soon as the owner has it again. */
    ac_block_t *loose[AC_CACHE_LOOSE];
    unsigned loose_count;
    /* Blocks that the owner freed and another cache handed out, until they are posted there; and
     * what was posted here and found no room without the lock. */
    ac_chain_t out;
    ac_cache_t *out_home;
    ac_block_t *_Atomic unplaced; /* by link; a look from outside it is a hint */
    ac_lanes_t *lanes;             /* lane.h; NULL: none yet */
    bool listed, was_awake;        /* cache_tally.c, under the lock */
    bool narrow;                   /* there was nothing to lease; until a recall */
    uint64_t loose_bytes;
    ac_modules_named_t named;      /* of the tally, by the owner */
    uint64_t made;                 /* bit per AC_CACHE_PART entries, one of which may be in use */
    /* What follows is large and mostly unused: pages of it that are never touched take no memory. */
    ac_entry_t entry[AC_CACHE_ENTRIES];
    /* Of each entry the blocks that wait: the newest one, whose link is the oldest, and so
     * on around; NULL: none. */
    ac_block_t *wait[AC_CACHE_ENTRIES];
    /* Keys without an entry that were asked for (cache_table.c). */
    uint64_t seen[1 << AC_CACHE_SEEN_BITS];
    /* Blocks that requests of the owner were served with, by address: a free looks here first.
     * What another thread did to one since shows in its record; one that says another address by
     * now is another block's (block.h). */
    ac_block_t *handed[1 << AC_CACHE_HANDED_BITS];
    /* Other threads write to it.  Last, and on a line of its own: it stays as it is when the record
     * serves another owner. */
    _Alignas(64) ac_inbox_t inbox;
    ac_trail_t trail;
};

/* A cache of the arena for the calling thread; `tally` is borrowed and zero.  NULL when host
 * memory is short, the arena is dead or the settings forbid it. */
ac_cache_t *ac_cache_open(ac_arena_t *arena, ac_cache_tally_t *tally);

/* Whether the arena is dead: the cache serves nothing any more, and is to be closed. */
static inline bool ac_cache_is_gone(const ac_cache_t *cache) {
    return atomic_load(&cache->gate) & AC_GATE_GONE;
}

/* By the owner: what the cache holds goes back, its tally is absorbed and zero again. */
void ac_cache_close(ac_cache_t *cache);

/* Called when the owner ends: gives back what the cache keeps.  It stays, with its tally, for the next thread that
 * gets both (ac_cache_take_over), and no thread posts to it until then.  Returns false if the cache has to be closed:
 * its context has gone, or it knows streams of the thread. */
bool ac_cache_hand_on(ac_cache_t *cache);
void ac_cache_take_over(ac_cache_t *cache);

/* By the owner: what it asks for from now on is for that module (stats.h); what it gives is that
 * module's.  A hit does not count for modules: what passed is named when another one's turn is. */
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

/* Several hooks hit, each with a copy of its own: a call would save and restore what it needs. */
#define AC_CACHE_HOT __attribute__((always_inline)) static inline

/* Keep the block that is allocated at `address`, ready or not.  False: only the lock can, or the
 * record is not its any more: only inside the cache that does not change. */
bool ac_cache_give(ac_cache_t *cache, ac_block_t *block, uint64_t address);

/* Its highest bits are the index: neighbours are apart, and so are multiples of large powers of
 * two. */
static inline uint32_t ac_cache_hash(uint64_t n) {
    return (uint32_t)n * 0x9e3779b1u;
}

/* The own place of a size.  By an offset: an index would take one or two instructions more, in
 * each hit. */
static inline ac_entry_t *ac_cache_entry(ac_cache_t *cache, uint64_t size) {
    uint32_t high = ac_cache_hash(size) >> (32 - AC_CACHE_BITS - AC_ENTRY_BITS);
    return (ac_entry_t *)((char *)cache->entry + (high & -(uint32_t)sizeof *cache->entry));
}

static inline ac_entry_t *ac_cache_bucket(ac_cache_t *cache, const ac_entry_t *entry) {
    return &cache->entry[(size_t)(entry - cache->entry) & ~((size_t)AC_CACHE_WAYS - 1)];
}

/* The entry of the size, awake and in its own place; NULL.  By the owner, inside or with the
 * lock while the cache is usable (cache_table.c). */
ac_entry_t *ac_cache_find(ac_cache_t *cache, uint64_t size);

static inline ac_block_t **ac_cache_handed(ac_cache_t *cache, uint64_t address) {
    return &cache->handed[ac_cache_hash(address) >> (32 - AC_CACHE_HANDED_BITS)];
}

static inline int ac_cache_flow(uint64_t size) {
    return size > AC_SMALL_LIMIT;
}

/* What a block of the size takes of the budget. */
static inline uint32_t ac_cache_charge(uint64_t size) {
    return size < AC_KEPT_CHARGE ? (uint32_t)size : AC_KEPT_CHARGE;
}

/* Entries of larger sizes have a higher class: 0 is that of the small ones. */
static inline int ac_cache_class(uint64_t size) {
    if (size <= AC_SMALL_LIMIT)
        return 0;
    int class = 64 - __builtin_clzll((size - 1) / AC_SMALL_LIMIT);
    return class < AC_CACHE_STREAMS ? class : AC_CACHE_STREAMS - 1;
}

/* The cache may be used by its owner, which this thread is. NULL may not. */
static inline uint32_t ac_cache_gate(const ac_cache_t *cache) {
    return atomic_load_explicit(&cache->gate, memory_order_acquire);
}

static inline bool ac_cache_usable(const ac_cache_t *cache) {
    return cache && !(ac_cache_gate(cache) & (AC_GATE_RECALLED | AC_GATE_GONE));
}

/* Between the two no other thread touches the table.  False: one does, or it takes more to
 * keep it out (ac_cache_take_long). */
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

/* Outcome of a request.  AC_TAKE_DUE: it was served and the headroom is used up, so the owner calls
 * ac_cache_raise once it is not inside any more. */
typedef enum { AC_TAKE_NONE, AC_TAKE_SERVED, AC_TAKE_DUE } ac_take_t;

/* Grants the cache headroom, or raises the peaks.  Returns true.  Takes the lock. */
bool ac_cache_raise(ac_cache_t *cache);

/* The block, which is the cache's, is the program's from now on, with that label; `clock` is
 * ac_fence_handout or its sibling.  The caller takes its size from the headroom. */
AC_CACHE_HOT void ac_cache_hand_out(ac_cache_t *cache, ac_cache_side_t *side, ac_block_t *block,
                                    uint32_t label, uint64_t size, uint64_t bytes,
                                    uint64_t clock(ac_timeline_t *)) {
    ac_block_set_label(block, label); /* first: to hold it would take one more register */
    if (__builtin_expect(atomic_load_explicit(&block->requested, memory_order_relaxed) != bytes, 0))
        atomic_store_explicit(&block->requested, bytes, memory_order_relaxed); /* see block.h */
    atomic_store_explicit(&block->ticket.epoch, clock(cache->timeline), memory_order_relaxed);
    *ac_cache_handed(cache, ac_block_address(block)) = block;
    ac_tally_add(&side->flow.taken, 1);
    ac_tally_add(&side->flow.taken_bytes, size);
    ac_tally_add(&side->flow.taken_requested, bytes);
}

/* It is what a free asks for first; `own`: the own place of its size. */
AC_CACHE_HOT void ac_cache_note_last(ac_cache_t *cache, ac_block_t *block, ac_entry_t *own) {
    cache->last = block;
    cache->last_own = own;
}

/* The block is the cache's again; `ordered`: ready by its stream alone.  After
 * ac_cache_free_for.  _without: its bytes are no headroom yet. */
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
    uint64_t size = block->size; /* read once: the tally is written between */
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

/* Whether the block brings headroom of a raise after `raised`, when the owner, which is inside all the
 * while, was granted its own.  The cache is at rest by now, and that headroom counts once it is awake. */
static inline bool ac_cache_brings_later(const ac_block_t *block, uint64_t raised) {
    return !ac_inbox_is_slot(block) && (block->raised & 1) && block->raised > raised;
}

/* The first block for a request of `bytes`, which are served with `size`.  Inside. */
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

/* Serve `bytes` from the cache.  AC_TAKE_NONE: it has none, or it takes longer. */
AC_CACHE_HOT ac_take_t ac_cache_take(ac_cache_t *cache, uint64_t bytes, uint64_t *address,
                                     uint64_t clock(ac_timeline_t *)) {
    if (__builtin_expect(!ac_cache_enter(cache), 0))
        return AC_TAKE_NONE;
    uint64_t size = (bytes + AC_GRANULE - 1) & ~(AC_GRANULE - 1);
    ac_take_t taken = ac_cache_pop(cache, size, bytes, address, clock);
    ac_cache_leave(cache);
    return taken;
}

/* Whether the owner gave blocks away without the lock: what ac_cache_tidy is for. */
static inline bool ac_cache_is_untidy(const ac_cache_t *cache, bool request) {
    return cache->loose_count || cache->unplaced || (request && cache->out.first);
}

/* Whether blocks wait in the cache. */
static inline bool ac_cache_waits(const ac_cache_t *cache) {
    const ac_cache_side_t *side = cache->tally->side;
    return __atomic_load_n(&side[0].waiting.blocks, __ATOMIC_RELAXED) |
           __atomic_load_n(&side[1].waiting.blocks, __ATOMIC_RELAXED);
}

/* The entry of the size, wherever it is in its bucket and whatever its flags; NULL: there is none.
 * Written out: most sizes that are looked for here have none.  By the owner: sizes are written by no
 * other thread. */
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

/* What ac_cache_take does not, but for what only the lock can: from what waited, and from beside
 * the own place.  `size`: what such a request is served with unless sizes are rounded up further;
 * `known`: ac_cache_peek finds an entry of it. */
bool ac_cache_take_waiting(ac_cache_t *cache, uint64_t size, bool known, uint64_t bytes,
                           uint64_t *address);

/* The same where there may be any; `entry` is what ac_cache_peek says of the size.  Without an entry
 * that serves, nothing is kept in the table, and what was posted is all that there is to place. */
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

/* Keep the block, which is ready, `ordered` by its stream alone, in the own place of its size.  After
 * ac_cache_free_for.  False: there is no room. */
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

/* Whether the block is one of the cache's arena that caches may have. */
static inline bool ac_cache_may_have(const ac_cache_t *cache, const ac_block_t *block) {
    return atomic_load_explicit(&block->owner_arena, memory_order_relaxed) == cache->owner_arena;
}

/* Whether the record is that of a block that is allocated at `address` and the cache may have.
 * Acquire: another thread may have given it to the block just now (slab.c). */
static inline bool ac_cache_owns(const ac_cache_t *cache, const ac_block_t *block,
                                 uint64_t address) {
    return atomic_load_explicit(&block->address, memory_order_acquire) == address &&
           atomic_load_explicit(&block->state, memory_order_relaxed) == AC_BLOCK_ALLOCATED &&
           ac_cache_may_have(cache, block);
}

/* The record of what starts at `address`, at worst outdated; NULL. */
static inline ac_block_t *ac_cache_record(ac_cache_t *cache, uint64_t address) {
    ac_block_t *block = *ac_cache_handed(cache, address);
    return __builtin_expect(ac_block_address(block) == address, 1) ? block
                                                                   : ac_slab_look(address);
}

/* The block that is allocated at `address`, if the cache may have it.  NULL: ac_cache_free knows.
 */
static inline ac_block_t *ac_cache_block(ac_cache_t *cache, uint64_t address) {
    ac_block_t *block = ac_cache_record(cache, address);
    return block && ac_cache_owns(cache, block, address) ? block : NULL;
}

/* Whether nothing was submitted since the block was handed out. */
AC_CACHE_HOT bool ac_cache_untouched(const ac_cache_t *cache, const ac_block_t *block) {
    return ac_fence_untouched_alone(
        cache->timeline, atomic_load_explicit(&block->ticket.epoch, memory_order_relaxed));
}

/* Whether the label is that of an allocated block of a module, number `module`, and this may go on: the
 * caller counts for that one, so that the sum of all stays what was given. */
AC_CACHE_HOT bool ac_cache_is_of_other(ac_cache_t *cache, uint32_t label, uint32_t *module) {
    *module = label - cache->least;
    return *module < AC_MODULES && --cache->others >= 0;
}

/* What became of a free.  AC_GIVE_REST, AC_GIVE_TOUCHED: the block is still to be given, by
 * ac_cache_give_untouched or ac_cache_give_rest, and the owner is inside its cache until then; the latter:
 * something was submitted since it was handed out. */
typedef enum { AC_GIVE_NONE, AC_GIVE_KEPT, AC_GIVE_REST, AC_GIVE_TOUCHED } ac_give_t;

/* Whether the record is that of what starts at `address`. */
AC_CACHE_HOT bool ac_cache_lies_at(const ac_block_t *block, uint64_t address) {
    return atomic_load_explicit(&block->address, memory_order_acquire) == address;
}

/* The rest of ac_cache_give_handed_or_rest, of a record that is that of the address; `own`: the own place of
 * its size.  `found`: it is not known to be one that the owner was handed, and is left alone where it is not. */
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

/* Keep the block at `address` if the cache's owner was handed it and nothing was
 * submitted beside, while nothing captures, contexts do not reach each other's memory, and all
 * work is seen: the caller has made sure of that (ac_fence_simple).  *rest: the block that is still to be
 * given. */
AC_CACHE_HOT ac_give_t ac_cache_give_handed_or_rest(ac_cache_t *cache, uint64_t address,
                                                    ac_block_t **rest) {
    /* Mostly what was handed out last.  Told by a branch: by its address and size alone the tables would
     * have to wait for what the request wrote. */
    ac_block_t *block = cache->last;
    ac_entry_t *own = cache->last_own;
    if (__builtin_expect(!ac_cache_enter(cache), 0))
        return AC_GIVE_NONE;
    if (__builtin_expect(!ac_cache_lies_at(block, address), 0)) {
        block = *ac_cache_handed(cache, address);
        if (__builtin_expect(!ac_cache_lies_at(block, address), 0)) {
            ac_cache_leave(cache); /* another thread may write to the record: no more is read of it */
            return AC_GIVE_NONE;
        }
        own = ac_cache_entry(cache, block->size);
    }
    *rest = block;
    return ac_cache_give_inside(cache, block, own, false);
}

/* The same with a record that was looked up, which may be another owner's. */
AC_CACHE_HOT ac_give_t ac_cache_give_found_or_rest(ac_cache_t *cache, uint64_t address,
                                                   ac_block_t *block) {
    if (!ac_cache_enter(cache))
        return AC_GIVE_NONE;
    if (ac_cache_lies_at(block, address))
        return ac_cache_give_inside(cache, block, ac_cache_entry(cache, block->size), true);
    ac_cache_leave(cache);
    return AC_GIVE_NONE;
}

/* The same long way for what is left of it: as ac_cache_give, and the owner is inside no more.
 * _untouched: of what is, whose order is not looked at again. */
bool ac_cache_give_rest(ac_cache_t *cache, ac_block_t *block);
bool ac_cache_give_untouched(ac_cache_t *cache, ac_block_t *block);

/* Whether a block of a size that is not kept may be loose. */
static inline bool ac_cache_may_loosen(const ac_cache_t *cache, uint64_t size) {
    return cache->loose_count < AC_CACHE_LOOSE && size <= AC_CACHE_LARGEST &&
           cache->loose_bytes + size <= cache->may_wait[1];
}

/* The block, which is the cache's, is of a size that is not kept: there is room for it. */
static inline void ac_cache_loosen(ac_cache_t *cache, ac_block_t *block) {
    ac_block_guess_neighbours(block);
    cache->loose[cache->loose_count++] = block;
    cache->loose_bytes += block->size;
}

/* Whether the block, which the owner freed, may be loose without a look further: most sizes that are not
 * kept have no entry. */
AC_CACHE_HOT bool ac_cache_loosens(ac_cache_t *cache, const ac_block_t *block) {
    return block->home == cache && !ac_cache_peek(cache, block->size) &&
           ac_cache_may_loosen(cache, block->size);
}

/* The block, which ac_cache_give_inside found untouched, is loose, and the owner is inside no more.
 * False: ac_cache_give_untouched knows. */
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

/* --- frees beside work that wait in the entry of their size, as far as one look tells so --- */

/* Counts the block, which is freed and waits: it is active as before; `side`: of its size. */
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

/* A fence is due: whether nearly all frees since the last time waited.  Then most of so many handouts
 * need not be told from earlier work, but now and then. */
void ac_cache_note_due(ac_cache_t *cache);

/* The block, which was freed, waits in the cache from now on: in an entry, or loose. */
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

/* Blocks wait in the entry. */
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

/* Whether a block that is freed now and not ready may wait here; `side`: of its size. */
AC_CACHE_HOT bool ac_cache_may_wait(const ac_cache_t *cache, const ac_cache_side_t *side,
                                    uint64_t size) {
    return side->waiting.bytes + size <= cache->may_wait[ac_cache_flow(size)];
}

/* The block, which ac_cache_give_inside found touched, waits in its entry, or loose where its size has
 * none, and the owner is inside no more.  False: ac_cache_give_rest knows. */
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

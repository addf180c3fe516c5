/* Blocks, segments and free indices: the records behind the allocator.  They lie in host memory, none in device
 * memory.
 *
 * The allocator's lock guards all fields, except in a thread's cache: the owner of a cache reads and writes blocks
 * from inside it without the lock (thread_cache.h). The state tells which of the two holds the block (state.def).
 * Any thread may read the atomic fields of a record at any time.  The values may be outdated. */
#ifndef AC_BLOCK_H
#define AC_BLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/ticket.h"
#include "allocator/list.h"
#include "allocator/space/page_map.h"
#include "observe/stats.h"

typedef struct ac_block ac_block_t;
typedef struct ac_segment ac_segment_t;
typedef struct ac_arena ac_arena_t;
typedef struct ac_allocator ac_allocator_t;
typedef struct ac_cache ac_cache_t; /* cache/thread_cache.h */
typedef struct ac_space ac_space_t; /* space.h */
typedef struct ac_store ac_store_t;
typedef struct ac_lifetime ac_lifetime_t; /* lifetime.h */
struct ac_range;
struct ac_slab;

/* state.def has the holder of a block by state, and the steps between states. */
typedef enum __attribute__((packed)) {
    AC_BLOCK_UNUSED,    /* a spare record */
    AC_BLOCK_TRANSIT,   /* in the hands of a function that has the lock */
    AC_BLOCK_FREE,      /* in its pool's free index, if the segment serves requests */
    AC_BLOCK_ALLOCATED, /* the program holds it */
    AC_BLOCK_RETIRED,   /* freed, and waits as its ticket says: retired.h */
    AC_BLOCK_CACHED,    /* a thread keeps it; it waits if it has a ticket: thread_cache.h */
    AC_BLOCK_SLAB,      /* divided into slots for small blocks: slab.h */
    AC_BLOCK_UNMAPPED,  /* addresses of a range without memory: range.h */
    AC_BLOCK_MOVING,    /* of a range; a thread maps or unmaps memory there: expand.c */
    AC_BLOCK_STATES
} ac_block_state_t;

/* `address` is first, and written whole.  A thread's cache looks at it in records that may serve another block by
 * that time (thread_cache.h). A returned record has no address.  So a record that has a block's address while the
 * program holds the block is that block's.
 *
 * Invariants: the blocks of a segment tile it in address order; no two neighbours are both free; the page map's
 * slot at `address` is this record, for every state but UNUSED, UNMAPPED and MOVING. Blocks in slabs have no
 * neighbours, and only their slab knows of them (slab.h).
 *
 * The state tells which list the two pairs of pointers belong to:
 *
 *              bin_at, bin_next                 list_prev, list_next
 *   UNUSED     spare records (next)             -
 *   FREE       a bin of its pool's index        holes of ranges, newest first
 *   RETIRED    a bin of its stream's index      as `due`: the queue of its key (order/ledger.h)
 *   CACHED     its entry, ring or chain (link)  -
 *   SLAB       -                                as RETIRED, while it serves nothing
 *   ALLOCATED  -                                -
 *   UNMAPPED   -                                those of its range
 *
 * Slots of slabs are in no index: their bin_next lists all records of slots (slab.h). */
struct ac_block {
    /* Two cache lines of its own: neighbours may belong to other threads, which write to them with every hit.  The
     * first line has all that a split or a merge reads or writes in neighbours, in blocks of the same bin and in
     * spares.  A split reaches three of these records, and would miss twice as many lines otherwise. */
    _Alignas(64) _Atomic uint64_t address; /* a multiple of AC_GRANULE, but in spare records */
    uint64_t size;                         /* bytes, a multiple of AC_GRANULE */
    ac_block_t *prev, *next;               /* neighbours in the segment */
    union {
        ac_block_t **bin_at; /* see above: the pointer to this one there */
        /* CACHED: see above; the value stays after the block is handed out.  ALLOCATED in a private pool: the
         * next block of its chain. */
        ac_block_t *link;
    };
    union {
        ac_block_t *bin_next; /* see above */
        ac_block_t *ahead; /* CACHED, ALLOCATED: one that is handed out soon after it (inbox.h) */
        uint64_t raised; /* CACHED, in a chain: its headroom goes where the chain goes (inbox.h) */
        struct {            /* ALLOCATED, RETIRED: in a private pool (api/pools_int.h) */
            uint32_t stack; /* number of the call stack that asked; 0: none */
            uint32_t named; /* the last check of live blocks that was given it */
        };
    };
    union {
        struct {
            _Atomic uint8_t module;         /* allocated: of the module that asked (stats.h) */
            _Atomic ac_block_state_t state; /* a byte */
            /* Number of the arena with caches that may keep it when it is freed, and AC_OWNER_STREAM if it is
             * freed in the order of a stream; 0: none. */
            _Atomic uint16_t owner_arena;
        };
        _Atomic uint32_t label; /* all three: a hit writes and compares them at once */
    };
    uint16_t bin;    /* of its index: the bin of its size at the time of the insert */
    uint8_t mempool; /* allocated: of the request that named a stream (mempool.h); 0: none did */
    union {
        struct {
            uint8_t place : 7; /* of its start in the page map, as far as it is known (page_map.h) */
            bool oversize : 1; /* allocated: counted in oversize_allocations, even if the limit changed since */
        };
        uint8_t place_alone; /* both, and it is not */
    };
    union {
        struct {
            /* Allocated: what ac_order_retire asks for as `used`.  Freed, and not free: what it waits
             * for. Free: no key, and the device is done with it when `epoch` was reached.  `epoch` is
             * in the first line. */
            ac_ticket_t ticket;
            union {
                ac_block_t *list_prev; /* see above */
                ac_cache_t *home; /* CACHED, ALLOCATED: that it lies in or was handed out by; NULL */
            };
            ac_block_t *list_next; /* see above */
        };
        ac_due_t due; /* what waits: RETIRED, SLAB */
    };
    ac_segment_t *segment;
    union {
        _Atomic uint64_t requested; /* bytes asked for, until the block is free or cached */
        _Atomic uint64_t age;       /* FREE, of a range: ac_range_hole_age */
    };
    struct ac_slab *_Atomic slab; /* that it is divided into, or lies in; NULL */
    ac_lifetime_t *lifetime; /* ALLOCATED: what others know of it; NULL: nothing */
};
_Static_assert(offsetof(ac_block_t, ticket.epoch) == 56, "the first line holds what it is said to");
_Static_assert(sizeof(ac_block_t) == 128, "two lines");

/* Returns the block that the entry of a ledger is part of. */
static inline ac_block_t *ac_block_of(const ac_due_t *due) {
    return (ac_block_t *)((uintptr_t)due - offsetof(ac_block_t, due));
}

static inline uint32_t ac_block_label(unsigned module, ac_block_state_t state,
                                      uint16_t owner_arena) {
    return module | (uint32_t)state << 8 | (uint32_t)owner_arena << 16;
}
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a label's parts lie in that order");

/* Arenas with larger numbers keep no blocks in the order of a stream. */
enum { AC_OWNER_STREAM = 0x8000 };

typedef AC_QUEUE_TYPE(ac_block_t) ac_block_queue_t;
typedef AC_QUEUE_TYPE(ac_segment_t) ac_segment_queue_t;

typedef void ac_block_visit_fn(ac_block_t *block, void *arg);

AC_LIST(ac_blocks, ac_block_t, list_)
AC_CHAIN(ac_bin, ac_block_t, bin_)
AC_QUEUE(ac_block_queue, ac_block_queue_t, ac_block_t, list_)

/* Threads read these fields without the lock, so each is written whole.  Locks order the writes. */
#define AC_BLOCK_SET(block, field, value)                                                        \
    atomic_store_explicit(&(block)->field, (value), memory_order_relaxed)

static inline uint64_t ac_block_address(const ac_block_t *block) {
    return atomic_load_explicit(&block->address, memory_order_relaxed);
}

/* Returns true if the range lies in the block.  The program may use the first `size` bytes, and the rest of their
 * last granule.  The sum does not overflow. */
static inline bool ac_block_spans(const ac_block_t *block, uint64_t size, uint64_t address,
                                  uint64_t bytes) {
    uint64_t whole = (size + AC_GRANULE - 1) & ~(AC_GRANULE - 1);
    uint64_t left;
    return !__builtin_sub_overflow(whole, address - ac_block_address(block), &left) &&
           bytes <= left;
}

/* Returns true if the program holds the block and asked for these bytes of it; false proves nothing.
 * Without a lock: if another thread frees the block meanwhile, either answer may come. */
static inline bool ac_block_has(const ac_block_t *block, uint64_t address, uint64_t bytes) {
    uint64_t end; /* an address below the block makes it overflow, or greater than any size */
    return !__builtin_add_overflow(address - ac_block_address(block), bytes, &end) &&
           end <= atomic_load_explicit(&block->requested, memory_order_relaxed) &&
           atomic_load_explicit(&block->state, memory_order_relaxed) == AC_BLOCK_ALLOCATED;
}

/* Debug and sanitizer builds check each step against state.def.  An illegal step goes to ac_block_bad_step, which
 * ends the process unless a test replaced it.  ac_block_stepped: all steps taken so far. */
#ifdef AC_CHECKED
extern AC_HIDDEN void (*ac_block_bad_step)(ac_block_state_t from, ac_block_state_t to);
extern AC_HIDDEN _Atomic bool ac_block_stepped[AC_BLOCK_STATES][AC_BLOCK_STATES];
void ac_block_check_step(ac_block_state_t from, ac_block_state_t to);
#endif

/* The one way to change a block's state; the caller holds the block as state.def says. */
static inline void ac_block_set_state(ac_block_t *block, ac_block_state_t to) {
#ifdef AC_CHECKED
    ac_block_check_step(atomic_load_explicit(&block->state, memory_order_relaxed), to);
#endif
    AC_BLOCK_SET(block, state, to);
}

/* Sets the state and the rest of the label. */
static inline void ac_block_set_label(ac_block_t *block, uint32_t label) {
#ifdef AC_CHECKED
    ac_block_check_step(atomic_load_explicit(&block->state, memory_order_relaxed),
                        (ac_block_state_t)(label >> 8 & 0xff));
#endif
    AC_BLOCK_SET(block, label, label);
}

/* The caller, which holds the lock, takes the block out of the list that it is in. */
static inline void ac_block_take_out(ac_block_t *block) {
    ac_block_set_state(block, AC_BLOCK_TRANSIT);
}

/* Returns true if the block waits in a thread's cache, by its ticket.  For the holder of the block. */
static inline bool ac_block_waits_cached(const ac_block_t *block) {
    return block->state == AC_BLOCK_CACHED && block->ticket.key == AC_KEY_OWN;
}

/* Returns true if a graph may use the block, which the program freed. */
static inline bool ac_block_is_held(const ac_block_t *block) {
    return block->state == AC_BLOCK_RETIRED && block->ticket.key == AC_KEY_CAPTURE;
}

/* A record that comes from no list of spares. */
static inline void ac_block_blank(ac_block_t *block) {
    AC_BLOCK_SET(block, state, AC_BLOCK_UNUSED);
}

/* An unused record becomes that of a block, in no list, between these. */
static inline void ac_block_init_between(ac_block_t *block, uint64_t address, uint64_t size,
                                         ac_segment_t *segment, ac_block_t *prev,
                                         ac_block_t *next) {
#ifdef AC_CHECKED
    if (block->state != AC_BLOCK_UNUSED)
        ac_block_bad_step(block->state, AC_BLOCK_UNUSED);
#endif
    AC_BLOCK_SET(block, address, address);
    block->size = size;
    block->segment = segment;
    block->prev = prev;
    block->next = next;
    AC_BLOCK_SET(block, slab, NULL);
    block->lifetime = NULL;
    block->ticket.place = 0;
    block->ticket.key = AC_KEY_NONE;
    block->ticket.all = false;
    block->mempool = 0;
    block->place_alone = AC_PLACE_NONE;
    ac_block_set_label(block, ac_block_label(AC_MODULE_UNKNOWN, AC_BLOCK_TRANSIT, 0));
}

/* Initializes the record of a block that has no neighbours yet. */
static inline void ac_block_init(ac_block_t *block, uint64_t address, uint64_t size,
                                 ac_segment_t *segment) {
    ac_block_init_between(block, address, size, segment, NULL, NULL);
}

/* Returns true if the block has memory, and no thread is about to unmap or map it. */
static inline bool ac_block_has_memory(const ac_block_t *block) {
    return block->state != AC_BLOCK_UNMAPPED && block->state != AC_BLOCK_MOVING;
}

/* Whether a thread is about to take the memory away or to bring it, maybe for a request. */
static inline bool ac_block_is_moving(const ac_block_t *block) {
    return block->state == AC_BLOCK_MOVING;
}

/* Prefetches the neighbours: among many blocks no cache of the processor has them. */
static inline void ac_block_touch_neighbours(const ac_block_t *block) {
    __builtin_prefetch(block->next);
    __builtin_prefetch(block->prev);
}

/* Prefetches the neighbours without the lock.  They may change: a useless fetch does no harm. */
static inline void ac_block_guess_neighbours(const ac_block_t *block) {
#ifdef AC_TSAN
    (void)block;
#else
    ac_block_touch_neighbours(block);
#endif
}

/* Prefetches the whole record. */
static inline void ac_block_touch(const ac_block_t *block) {
    __builtin_prefetch(block);
    __builtin_prefetch((const void *)((uintptr_t)block + 64)); /* of NULL, too */
}

/* Prefetches the first line for a write.  After a read, the processor would have to ask the last writer for it
 * twice. */
static inline void ac_block_touch_to_write(const ac_block_t *block) {
#ifdef __x86_64__ /* compilers emit nothing unless told of a processor that has it; every one accepts it */
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)block));
#else
    __builtin_prefetch(block, 1);
#endif
}

/* Invariants: `busy` counts the blocks that are not free; a segment with
 * busy == 0 consists of one free block.  `allocated` and `held` count what lies in slabs, and not
 * the slabs. */
struct ac_segment {
    uint64_t address, size; /* bytes, multiples of AC_SEGMENT_ALIGN */
    ac_arena_t *arena;      /* arena of its space, for the page map; NULL: of a private pool */
    ac_space_t *space;
    struct ac_free_index *frees; /* the one of `index` (ac_segment_set_index) */
    ac_block_t *first;
    ac_segment_t *prev, *next;           /* the arena's list */
    ac_segment_t *idle_prev, *idle_next; /* the arena's idle list, while busy is 0 */
    uint32_t busy;
    uint32_t allocated; /* of them: allocated, or in a thread's cache, waiting or not */
    uint32_t held;      /* of them: held */
    uint32_t synced;    /* native: blocks that ask for SYNC_MEMOPS */
    uint8_t pool;       /* AC_POOL_SMALL or AC_POOL_LARGE */
    uint8_t index;      /* index of its free blocks: its pool, or AC_INDEX_... */
    bool oversize;   /* counted in oversize_segments */
    bool special;    /* it has a range, or is not in the page map */
    union {
        struct {
            bool tainted; /* shared outside, or guarded: serves no other request, goes back when idle */
            bool sealed; /* native: its free memory serves no request (segment.c) */
        };
        uint16_t barred; /* both: it is one or the other */
    };
    uint32_t taints; /* why: reasons that ac_block_taint was given and that still hold */
    /* The allocator's epoch when it became idle (give_back.c). */
    uint32_t idle_epoch;
    /* A fence target: the device is done with all free memory of the segment after it.  If a stream's order
     * protects free memory, the target is later than the free. */
    uint64_t quiet;
    struct ac_range *range; /* reserved addresses (range.h), NULL: the driver's memory */
    const void *source;     /* of a private pool: the program's allocator, NULL: none */
};

/* Returns true if its free blocks are in the free index. */
static inline bool ac_segment_serves(const ac_segment_t *segment) {
    return !segment->barred;
}

/* Takes the block out of a thread's cache like ac_block_take_out.  Its segment counts it no more. */
static inline void ac_block_uncache(ac_block_t *block) {
    block->segment->allocated--;
    ac_block_take_out(block);
}

AC_LIST(ac_segments, ac_segment_t, )
AC_QUEUE(ac_idle_queue, ac_segment_queue_t, ac_segment_t, idle_)

/* The block keeps `size` bytes; what follows becomes `rest`, an unused record before: in transit,
 * and in age and clock as the whole was.  Lists, the page map and statistics are the caller's. */
static inline void ac_block_split(ac_block_t *block, uint64_t size, ac_block_t *rest) {
    ac_block_t *next = block->next;
    ac_block_init_between(rest, ac_block_address(block) + size, block->size - size, block->segment,
                          block, next);
    AC_BLOCK_SET(rest, requested, block->requested);
    AC_BLOCK_SET(rest, ticket.epoch, block->ticket.epoch);
    block->next = rest;
    if (next)
        next->prev = rest;
    block->size = size;
}

/* Merges the right neighbour into the block.  The neighbour is in no list any more; its record is returned. */
static inline ac_block_t *ac_block_merge(ac_block_t *block) {
    ac_block_t *gone = block->next, *next = gone->next;
    block->next = next;
    if (next)
        next->prev = block;
    block->size += gone->size;
    return gone;
}

#endif

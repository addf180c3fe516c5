/* Blocks, segments and free indices: the records behind the allocator, in host memory.  Nothing
 * of them lies in device memory.
 *
 * The allocator's lock guards all fields, but in the cache of a thread: there its owner reads and
 * writes blocks from inside the cache without the lock (thread_cache.h).  Which of the two holds
 * says the state (state.def).  Any thread may read the atomic fields of a record at any time, and
 * is told the past at worst. */
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

/* state.def: who holds a block, and the steps between these. */
typedef enum __attribute__((packed)) {
    AC_BLOCK_UNUSED,    /* a spare record */
    AC_BLOCK_TRANSIT,   /* in the hands of a function that has the lock */
    AC_BLOCK_FREE,      /* in its pool's free index, where the segment serves */
    AC_BLOCK_ALLOCATED, /* the program holds it */
    AC_BLOCK_RETIRED,   /* freed, and waits as its ticket says: retired.h */
    AC_BLOCK_CACHED,    /* a thread keeps it; it waits if it has a ticket: thread_cache.h */
    AC_BLOCK_SLAB,      /* divided into slots for small blocks: slab.h */
    AC_BLOCK_UNMAPPED,  /* addresses of a range without memory: range.h */
    AC_BLOCK_MOVING,    /* of a range; a thread maps or unmaps memory there: expand.c */
    AC_BLOCK_STATES
} ac_block_state_t;

/* `address` is first, and written whole: a thread's cache looks at it in records that may serve
 * another block by now (thread_cache.h).  That a record says a block's very address while the
 * program holds the block means that it is the block's: returned records say none.
 *
 * Invariants: the blocks of a segment tile it in address order; no two neighbours are both
 * free; the page map's slot at `address` is this record, for every state but UNUSED, UNMAPPED and
 * MOVING.  Blocks in slabs have no neighbours, and only their slab knows of them (slab.h).
 *
 * Which list the two pairs of pointers belong to says the state:
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
 * Slots of slabs are in no index: there bin_next lists all records of slots (slab.h). */
struct ac_block {
    /* In lines of the processor's cache of its own: neighbours may belong to other threads, which
     * write to them with every hit.  What is looked at, or written to, in a block because it is
     * beside another one, in its bin or a spare, is in the first of the two: a split and a merge
     * reach three of these, and would miss as many lines again. */
    _Alignas(64) _Atomic uint64_t address; /* a multiple of AC_GRANULE, but in spare records */
    uint64_t size;                         /* bytes, a multiple of AC_GRANULE */
    ac_block_t *prev, *next;               /* neighbours in the segment */
    union {
        ac_block_t **bin_at; /* see above: the pointer to this one there */
        ac_block_t *link;    /* CACHED: see above; once it is handed out what it was then.
                                ALLOCATED in a private pool: the next one of its chain there */
    };
    union {
        ac_block_t *bin_next; /* see above */
        ac_block_t *ahead; /* CACHED, ALLOCATED: one that is handed out soon after it (inbox.h) */
        uint64_t raised; /* CACHED, in a chain: whether its headroom goes where that does (inbox.h) */
        struct {            /* ALLOCATED, RETIRED: in a private pool (api/pools_int.h) */
            uint32_t stack; /* number of the call stack that asked; 0: none */
            uint32_t named; /* the last check of live blocks that was given it */
        };
    };
    union {
        struct {
            _Atomic uint8_t module;         /* allocated: of the module that asked (stats.h) */
            _Atomic ac_block_state_t state; /* a byte */
            _Atomic uint16_t
                owner_arena; /* number of the arena whose caches may take it when it is freed, with
                                AC_OWNER_STREAM when it is freed in the order of a stream; 0: none */
        };
        _Atomic uint32_t label; /* all three: a hit writes and compares them at once */
    };
    uint16_t bin;    /* of the index that it is in: where it was put by its size then */
    uint8_t mempool; /* allocated: of the request that named a stream (mempool.h); 0: none did */
    union {
        struct {
            uint8_t place : 7; /* of its start in the page map, as far as it is known (page_map.h) */
            bool oversize : 1; /* allocated: counted in oversize_allocations, whose limit may change */
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
    ac_lifetime_t *lifetime; /* ALLOCATED: what others were told of it; NULL: nothing */
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

/* What threads look at without the lock is written whole; what orders it are the locks. */
#define AC_BLOCK_SET(block, field, value)                                                        \
    atomic_store_explicit(&(block)->field, (value), memory_order_relaxed)

static inline uint64_t ac_block_address(const ac_block_t *block) {
    return atomic_load_explicit(&block->address, memory_order_relaxed);
}

/* Whether the range lies in the block, the first `size` bytes of which and the rest of their last
 * granule the program may use.  Without overflow. */
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

/* Debug and sanitizer builds look each step up in state.def: one that is not there is given to
 * ac_block_bad_step, which ends the process unless a test set it.  ac_block_stepped: those that
 * were taken so far. */
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

/* The same with what else is in the label. */
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

/* Whether the block is in a thread's cache and waits there, as its ticket says; by who holds
 * it. */
static inline bool ac_block_waits_cached(const ac_block_t *block) {
    return block->state == AC_BLOCK_CACHED && block->ticket.key == AC_KEY_OWN;
}

/* Whether a graph may use the block, which the program freed. */
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

/* The same without neighbours yet. */
static inline void ac_block_init(ac_block_t *block, uint64_t address, uint64_t size,
                                 ac_segment_t *segment) {
    ac_block_init_between(block, address, size, segment, NULL, NULL);
}

/* Whether there is memory under the block, and no thread is about to take it away or bring it. */
static inline bool ac_block_has_memory(const ac_block_t *block) {
    return block->state != AC_BLOCK_UNMAPPED && block->state != AC_BLOCK_MOVING;
}

/* Whether a thread is about to take the memory away or to bring it, maybe for a request. */
static inline bool ac_block_is_moving(const ac_block_t *block) {
    return block->state == AC_BLOCK_MOVING;
}

/* They are about to be looked at, and among many blocks lie in no cache of the processor. */
static inline void ac_block_touch_neighbours(const ac_block_t *block) {
    __builtin_prefetch(block->next);
    __builtin_prefetch(block->prev);
}

/* The same without the lock, under which these change: a fetch that is of no use does no harm. */
static inline void ac_block_guess_neighbours(const ac_block_t *block) {
#ifdef AC_TSAN
    (void)block;
#else
    ac_block_touch_neighbours(block);
#endif
}

/* All of the record is about to be looked at. */
static inline void ac_block_touch(const ac_block_t *block) {
    __builtin_prefetch(block);
    __builtin_prefetch((const void *)((uintptr_t)block + 64)); /* of NULL, too */
}

/* Its first line is about to be written to.  Read first, it would come from the processor that wrote to it
 * last as a copy, and had to be asked for once more. */
static inline void ac_block_touch_to_write(const ac_block_t *block) {
#ifdef __x86_64__ /* no instruction to compilers that know of no such processor; every one takes it */
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
    ac_arena_t *arena;      /* whose space it is in: the page map names it; NULL: of a private pool */
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
    uint8_t index;      /* of the arena's: where its free blocks are; its pool, or AC_INDEX_... */
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
    /* A fence target: the device is done with all free memory of the segment when it was reached.
     * Where a stream's order protects what is free, that comes later than the free. */
    uint64_t quiet;
    struct ac_range *range; /* reserved addresses (range.h), NULL: the driver's memory */
    const void *source;     /* of a private pool: the program's allocator, NULL: none */
};

/* Whether its free blocks are in the free index. */
static inline bool ac_segment_serves(const ac_segment_t *segment) {
    return !segment->barred;
}

/* The same as ac_block_take_out, out of a thread's cache: its segment counts it no more. */
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

/* The block takes in its right neighbour, whose record is returned: in no list any more. */
static inline ac_block_t *ac_block_merge(ac_block_t *block) {
    ac_block_t *gone = block->next, *next = gone->next;
    block->next = next;
    if (next)
        next->prev = block;
    block->size += gone->size;
    return gone;
}

#endif

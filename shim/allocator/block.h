/* Blocks, segments and free indices: the records behind the allocator.  Host memory of our
 * own; nothing lies in device memory.  All fields are guarded by the allocator's lock. */
#ifndef AC_BLOCK_H
#define AC_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/page_map.h"

typedef struct ac_block ac_block_t;
typedef struct ac_segment ac_segment_t;
typedef struct ac_arena ac_arena_t;
struct ac_range;

typedef enum {
    AC_BLOCK_UNUSED,    /* a spare record */
    AC_BLOCK_FREE,      /* in its pool's free index, unless the segment is tainted */
    AC_BLOCK_ALLOCATED, /* the program holds it */
    AC_BLOCK_PENDING,   /* freed; work submitted before the free may still touch it */
    AC_BLOCK_HELD,      /* freed; a graph that was captured meanwhile may touch it: held.h */
    AC_BLOCK_RECENT,    /* free, kept whole for a request of its very size: recent.c */
    AC_BLOCK_ORDERED,   /* pending; freed in the order of a stream: ordered.c */
    AC_BLOCK_UNMAPPED,  /* addresses of a range without memory: range.h */
    AC_BLOCK_MOVING     /* of a range; a thread maps or unmaps memory there: expand.c */
} ac_block_state_t;

/* Invariants: the blocks of a segment tile it in address order; no two neighbours are both
 * free; the page map's slot at `address` is this record, for every state but UNUSED. */
struct ac_block {
    uint64_t address, size;  /* bytes, multiples of AC_GRANULE */
    uint64_t requested;      /* bytes the program asked for; allocated, pending, held blocks.
                                Free ones of a range: the age (ac_range_hole_age) */
    uint64_t clock;          /* fence clock when handed out; when pending or held: what for */
    ac_block_t *prev, *next; /* neighbours in the segment */
    ac_block_t *list_prev, *list_next; /* free: its bin; pending: queue; held: list;
                                          unused: spares; ordered: a bin of its stream */
    ac_block_t *age_prev, *age_next;   /* ordered: the list of its stream, oldest first;
                                          free ones of a range: those with whole pages */
    uint64_t position; /* of the free in its stream (order.h); 0: none. Ordered blocks, and
                          allocated ones that took over such memory: `early` */
    ac_segment_t *segment;
    ac_block_state_t state;
    uint8_t stream; /* slot of that stream; AC_ORDER_NONE: not known any more */
    bool all;       /* ordered: waits for all contexts */
    bool early;     /* allocated: work of the owner before may still be under way */
    bool async;     /* allocated: by a request that named a stream */
    bool oversize;  /* counted in oversize_allocations: the limit may change meanwhile */
};

/* Invariants: `busy` counts the blocks that are not free; a segment with
 * busy == 0 consists of one free block. */
struct ac_segment {
    uint64_t address, size; /* bytes, multiples of AC_SEGMENT_ALIGN */
    ac_arena_t *arena;
    ac_block_t *first;
    ac_segment_t *prev, *next;           /* the arena's list */
    ac_segment_t *idle_prev, *idle_next; /* the arena's idle list, while busy is 0 */
    uint32_t busy;
    uint32_t allocated; /* of them: allocated */
    uint32_t held;      /* of them: held */
    uint8_t pool;       /* AC_POOL_SMALL or AC_POOL_LARGE */
    bool oversize;      /* counted in oversize_segments */
    bool tainted;       /* shared outside: never serves again, goes back when idle */
    struct ac_range
        *range; /* reserved addresses with pages (range.h), NULL: the driver's memory */
};

/* Free blocks by size: 16 bins per power of two, last freed first.  Finding a bin is a scan of
 * ten words whatever the number of blocks. */
enum { AC_BIN_WORDS = 10, AC_BINS = AC_BIN_WORDS * 64, AC_BIN_SCAN = 16 };

typedef struct {
    uint64_t nonempty[AC_BIN_WORDS];
    ac_block_t *bin[AC_BINS];
} ac_free_index_t;

void ac_free_index_insert(ac_free_index_t *index, ac_block_t *block);
void ac_free_index_remove(ac_free_index_t *index, ac_block_t *block);

/* What a request accepts; see ac_free_index_find. */
typedef struct {
    uint64_t size;  /* bytes needed */
    uint64_t least; /* blocks smaller than this do not serve */
    uint64_t below; /* blocks of this size or larger do not serve */
    uint64_t until; /* nor do those with a later position */
} ac_fit_t;

/* Near-best fit: the smallest of the first AC_BIN_SCAN fitting blocks of the request's own
 * bin, else of the next bins that hold one.  With `exhaustive` the own bin is searched to its
 * end first.  NULL if none was found. */
ac_block_t *ac_free_index_find(const ac_free_index_t *index, const ac_fit_t *fit,
                               bool exhaustive);

/* The bin of a size in bytes (a multiple of AC_GRANULE). */
unsigned ac_free_index_bin(uint64_t size);

#endif

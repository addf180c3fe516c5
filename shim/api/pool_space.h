/* Memory of private pools: segments, and blocks in them.  Plain data structures, no lock, no device:
 * pools.c has the lock, and gets segments.
 *
 * A line has the memory of one pool for one stream of one device.  Blocks are divided and put together
 * within a line alone, so that the order of the stream protects what is freed there.  Invariants: the
 * blocks of a segment tile it in address order; no two neighbours are both free; every allocated
 * block is in the table by address. */
#ifndef AC_POOL_SPACE_H
#define AC_POOL_SPACE_H

#include "api/api_int.h"

enum { AC_POOL_BINS = 256, AC_POOL_BIN_BITS = 3 };

typedef enum { AC_POOL_FREE, AC_POOL_USED, AC_POOL_PENDING } ac_pool_state_t;

typedef struct ac_pool_segment ac_pool_segment_t;
typedef struct ac_pool_line ac_pool_line_t;

/* ... or about to be: ac_pool_ask. */
#define AC_POOL_ASKED UINT64_MAX

typedef struct ac_pool_block {
    uint64_t address, size;
    size_t bytes; /* asked for */
    uint32_t stack; /* used: of the request (ac_history_stack) */
    ac_pool_segment_t *segment;
    struct ac_pool_block *prev, *next;         /* neighbours */
    struct ac_pool_block *bin_prev, *bin_next; /* free: a bin; pending: the line's list */
    struct ac_pool_block *chain;               /* used: of the table */
    ac_pool_state_t state;
    uint64_t named;    /* the last accel_pool_check_live that was given it */
    uint64_t recorded; /* ac_pools_used_elsewhere, when other streams had work with it; or 0 */
    bool all;          /* pending: of all contexts */
    uint64_t target;   /* pending: free when this was reached (fence.h); 0: not known yet ... */
} ac_pool_block_t;

struct ac_pool_segment {
    uint64_t address, size;
    ac_pool_line_t *line;
    const accel_allocator_t *source; /* NULL: the cache */
    ac_pool_block_t *first;
    ac_pool_segment_t *next; /* of the line */
    accel_pool_id_t pool;    /* once it was cut */
    size_t busy;             /* blocks that are not free */
    bool small;
};

struct ac_pool_line {
    ac_pool_t *pool;
    int device;
    void *stream;
    uint64_t life;        /* of the stream */
    ac_pool_line_t *next; /* of the pool */
    ac_pool_segment_t *segments;
    ac_pool_block_t *pending; /* oldest first */
    ac_pool_block_t *pending_last;
    uint64_t filled[2][AC_POOL_BINS / 64];
    ac_pool_block_t *bin[2][AC_POOL_BINS]; /* [1]: of small segments */
    size_t reserved, allocated;            /* bytes */
    bool gone;       /* no request is of its stream any more (pools.c) ... */
    bool rested;     /* ... and the device is done with the stream's work, ... */
    bool all;        /* ... for which it waits as for that of a pending block */
    uint64_t target;
};

/* Bytes that a request takes, and the segment that it is served from; 0: no device has as much. */
uint64_t ac_pool_round(size_t bytes);
uint64_t ac_pool_segment_size(uint64_t size);

/* A block of at least `size` bytes out of free memory, divided but with `whole`; it is used.  NULL:
 * there is none. */
ac_pool_block_t *ac_pool_take(ac_pool_line_t *line, uint64_t size, size_t bytes, bool whole,
                              uint32_t stack);

/* Memory for a segment, which becomes one free block.  False: host memory is short. */
bool ac_pool_add(ac_pool_line_t *line, uint64_t address, uint64_t size,
                 const accel_allocator_t *source);

/* The used block is free at once, or pending. */
void ac_pool_give(ac_pool_block_t *block);
void ac_pool_defer(ac_pool_block_t *block, uint64_t target, bool all);

/* All free blocks of the line are pending, as if they were freed now; `recorded`: as of a block. */
void ac_pool_withhold(ac_pool_line_t *line, uint64_t recorded);

/* Pending blocks whose target was reached are free.  Those whose target was not known when _ask was
 * called last wait for `target` of `all` from now on; 0: they go on waiting for one. */
void ac_pool_ask(ac_pool_line_t *line);
void ac_pool_drain(ac_pool_line_t *line, const uint64_t reached[2], uint64_t target, bool all);

/* Used blocks that a segment is to have, in the order of addresses. */
typedef struct {
    uint64_t address, size;
    size_t bytes; /* asked for */
} ac_pool_place_t;

/* Records of them, and of the free memory between them; NULL: host memory is short. */
ac_pool_block_t *ac_pool_lay_out(ac_pool_segment_t *segment, const ac_pool_place_t *place,
                                 size_t count);
void ac_pool_drop_layout(ac_pool_block_t *first);

/* The segment has those blocks from now on, and none of those before, whatever they waited for. */
void ac_pool_replace(ac_pool_segment_t *segment, ac_pool_block_t *first);

/* A segment without a block that is not free leaves its line, by its record, which is the caller's to
 * free(). NULL: there is none. */
ac_pool_segment_t *ac_pool_cut(ac_pool_line_t *line);

/* All memory of the line has gone, with its blocks. */
void ac_pool_lose(ac_pool_line_t *line);

/* The used block that begins at the address, and the one that the address lies in. */
ac_pool_block_t *ac_pool_block_at(uint64_t address);
ac_pool_block_t *ac_pool_block_around(uint64_t address);

/* The segment of whichever pool that the address lies in. */
ac_pool_segment_t *ac_pool_segment_around(uint64_t address);

#endif

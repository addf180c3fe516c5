/* Shared by the files on private pools: pools.c serves requests and frees, pool_ways.c chooses the pool of a
 * request, pool_line.c has the memory, pool_index.c finds it by address, pool_report.c tells what is in the
 * pools, checkpoints.c restores a former state of one.  One lock guards all of it. */
#ifndef AC_POOLS_INT_H
#define AC_POOLS_INT_H

#include "allocator/space/segment.h"
#include "api/api_int.h"
#include "track/context.h"
#include "lock.h"

typedef struct ac_pool_line ac_pool_line_t;

struct ac_pool {
    ac_pool_t *next;
    accel_pool_id_t id;
    const accel_allocator_t *allocator; /* source of segments; NULL: that of raw memory */
    unsigned flags;
    int users;
    unsigned ways;  /* that are not ended */
    unsigned calls; /* requests under way: the record stays */
    ac_pool_line_t *lines;
};

/* Guards all pools, and what is in them. */
extern ac_mutex_t ac_pools_lock;
extern ac_pool_t *ac_pools;

/* Counts, under the lock, when work of other streams may have come to a block: it was recorded, or freed
 * so that it waits for a fence.  A block notes the count in `ticket.place`. */
extern uint64_t ac_pools_used_elsewhere;

/* Returns, under the lock, the pool of that id that has users; NULL: there is none. */
ac_pool_t *ac_pool_named(accel_pool_id_t id);

/* The id of no pool. */
#define AC_POOL_NONE {0, 0}

/* Both need the lock.  _make returns a pool of the id, without users; NULL: host memory is short.  _sweep removes
 * the record of a pool without segments that no call can reach any more. */
ac_pool_t *ac_pool_make(accel_pool_id_t id, unsigned flags, const accel_allocator_t *allocator);
void ac_pool_sweep(ac_pool_t *pool);

/* Fences of the device's primary context; NULL: it is not in use. */
ac_timeline_t *ac_pool_timeline(int device);

/* --- pool_line.c: memory of a pool for one stream; all under the lock --- */

/* The order of the stream protects what is freed in a line, so a line serves its own stream alone.  Its
 * blocks are blocks of space/block.h, but outside of the page map and of every arena.  RETIRED blocks wait
 * for a fence: until `ticket.epoch` is reached, or with 0 until they are given one (ac_pool_ask). */
struct ac_pool_line {
    ac_space_t space; /* first: a segment's `space` is its line */
    ac_pool_t *pool;
    ac_pool_line_t *next; /* of the pool */
    int device;
    void *stream;
    uint64_t life;              /* of the stream (ac_stream_life) */
    ac_block_queue_t pending;   /* RETIRED blocks, oldest first */
    size_t reserved, allocated; /* bytes */
    bool gone;                  /* no request is of its stream any more ... */
    bool rested;                /* ... and the device is done with the stream's work, ... */
    ac_ticket_t rest;           /* ... for which it waits as a RETIRED block does */
};

/* A new line of the pool; NULL: host memory is short.  _end: of a line without segments. */
ac_pool_line_t *ac_pool_line_begin(ac_pool_t *pool, int device);
void ac_pool_line_end(ac_pool_line_t *line);

static inline ac_pool_line_t *ac_pool_line_of(const ac_segment_t *segment) {
    return (ac_pool_line_t *)(void *)segment->space;
}

/* Returns true if the line's stream was destroyed, or its thread has ended. */
static inline bool ac_pool_line_is_gone(const ac_pool_line_t *line) {
    return line->gone || ac_stream_is_gone(line->stream, line->life);
}

/* Returns true if the line waits for a fence, or has blocks that do. */
static inline bool ac_pool_line_waits(const ac_pool_line_t *line) {
    return line->pending.first || (line->gone && !line->rested);
}

/* Bytes that a request takes, and of the segment that it is served from. */
uint64_t ac_pool_round(size_t bytes); /* 0: no device has as much */
uint64_t ac_pool_segment_size(uint64_t size);

/* Returns an allocated block of at least `size` bytes; `whole`: without a split.  NULL: there is none. */
ac_block_t *ac_pool_take(ac_pool_line_t *line, uint64_t size, size_t bytes, bool whole,
                         uint32_t stack);

/* Adds a segment, which is one free block.  False: host memory is short. */
bool ac_pool_add(ac_pool_line_t *line, uint64_t address, uint64_t size,
                 const accel_allocator_t *source);

/* The allocated block is free; or waits for a fence, and `ticket.place` becomes `elsewhere`. */
void ac_pool_give(ac_block_t *block);
void ac_pool_defer(ac_block_t *block, uint64_t elsewhere);

/* Makes all free blocks of the line wait, as if they were freed now. */
void ac_pool_withhold(ac_pool_line_t *line, uint64_t elsewhere);

/* The moment that blocks without one wait for: `now` has no clock until a line needs it. */
typedef struct {
    ac_timeline_t *timeline;
    ac_moment_t now, newest; /* `newest`: that anything waits for; without a clock: nothing does */
} ac_pool_moment_t;
void ac_pool_ask(ac_pool_line_t *line, ac_pool_moment_t *moment);

/* Frees blocks if their work is over. */
void ac_pool_drain(ac_pool_line_t *line, const ac_timeline_t *timeline);

/* The segment leaves the line, with its free memory. */
void ac_pool_remove(ac_segment_t *segment);

/* All memory of the line has gone, with its blocks. */
void ac_pool_lose(ac_pool_line_t *line);

/* Makes sure that `places` blocks and the gaps between them have records; else false. */
bool ac_pool_reserve(size_t places);

/* The segment has these allocated blocks, in the order of addresses, and no others, whatever waited there. */
void ac_pool_restore(ac_segment_t *segment, const ac_laid_block_t *place, size_t count);

/* --- pool_report.c --- */

/* Copies segments and blocks, in the order of addresses: of the pool, or with NULL of all, on the device, or with -1
 * on all.  Under the lock.  False: host memory is short. */
bool ac_pool_lay_out(ac_layout_t *layout, const ac_pool_t *pool, int device);

/* --- pool_index.c: memory of pools by address; all under the lock --- */

/* Makes room for a block and a segment.  False: host memory is short. */
bool ac_pool_index_reserve(void);
void ac_pool_index_add(ac_segment_t *segment);
void ac_pool_index_remove(const ac_segment_t *segment);
void ac_pool_index_enter(ac_block_t *block);
void ac_pool_index_leave(ac_block_t *block);

/* The allocated block that begins at the address, and the one around it. */
ac_block_t *ac_pool_block_at(uint64_t address);
ac_block_t *ac_pool_block_around(uint64_t address);

/* The segment of any pool that the address lies in; the one at place `i` in the order of addresses.  NULL:
 * there is none. */
ac_segment_t *ac_pool_segment_around(uint64_t address);
ac_segment_t *ac_pool_segment_number(size_t i);

#endif

/* Ranges: segments of reserved addresses.  Pages of physical memory are mapped to them for blocks
 * (`expandable_segments`).
 *
 * A range is one segment, 4 times as large as the device's memory if enough addresses are available, so that nearly
 * every request finds room.  Its blocks tile it like those of any segment.  Addresses without a page are a block,
 * too, AC_BLOCK_UNMAPPED, in no index.  So free memory is mapped and ready, as it is elsewhere.  Pages come, go and
 * move only when a request finds no free memory that fits (expand.h).
 *
 * Pages are counted in units of AC_SEGMENT_ALIGN. Invariants (ac_range_check):
 *   - an UNMAPPED block starts and ends at units, none of them mapped; so do MOVING ones but for their ends in
 *     mapped units; under all other blocks every unit is mapped;
 *   - two UNMAPPED blocks are never neighbours;
 *   - the page map covers exactly the mapped units, and those of MOVING blocks that get pages;
 *   - pages do not overlap: the first unit of a page has its handle and its number of units, and each unit has
 *     its distance to the first.
 *
 * The allocator's lock guards all of it, with one exception: the thread that moves pages of a MOVING block owns its
 * units, and works on them without the lock. */
#ifndef AC_RANGE_H
#define AC_RANGE_H

#include "allocator/space/block.h"

typedef struct ac_range ac_range_t;

enum {
    AC_UNIT_MAPPED = 1, /* a page covers it */
    AC_UNIT_PINNED = 2, /* what others know of the memory here must stay true: it never moves */
    AC_UNIT_SHOWN = 4    /* if `span` is not 0: a thread shows the page to another process */
};

typedef struct {
    uint64_t page; /* handle of the device, if `span` is not 0 */
    uint16_t span; /* units of the page that begins here; 0: none does */
    uint16_t back; /* if a page is mapped: units since its first */
    uint32_t flags : 8;
    uint32_t synced : 24; /* if `span` is not 0: blocks on the page that ask for SYNC_MEMOPS */
} ac_unit_t;

/* Units of the largest page: `span` and `back` count no further. */
enum { AC_UNIT_MOST = UINT16_MAX };
_Static_assert(sizeof(ac_unit_t) == 16, "one for each 2 MiB of reserved addresses");

/* A guarded block (guard_place.h), held or freed; kept at the first unit of its pages until another one is laid
 * there. */
typedef struct {
    uint64_t address, requested; /* bytes; 0: there was none */
    uint64_t asked_ns, freed_ns; /* of the device's clock; freed_ns 0: the program holds it */
    uint32_t units;              /* of its pages */
    uint8_t asked_by, freed_by;  /* modules (stats.h) */
    bool marked;                 /* the bytes around the block have the pattern */
    bool gone;                   /* freed, and its pages, too */
} ac_guarded_t;

typedef struct {
    uint64_t cursor;      /* unit at which the search for the next place begins */
    uint64_t held;        /* bytes of blocks that the program holds */
    uint64_t waiting;     /* blocks that were freed and have their pages yet */
    uint64_t leaving;     /* runs of pages that threads are giving back */
    ac_guarded_t *record; /* by unit */
} ac_guard_t;

struct ac_range {
    uint64_t address, size; /* bytes, multiples of AC_SEGMENT_ALIGN */
    ac_arena_t *arena;
    ac_segment_t *segment; /* NULL: the context has gone; the pages have not yet */
    ac_range_t *next;      /* the arena's list of lost ranges */
    ac_block_t *unmapped;  /* the UNMAPPED blocks, by list_next and list_prev */
    unsigned calls;        /* threads that work on units of it without the lock */
    uint64_t mapped;       /* bytes of pages, as the statistics know them */
    uint64_t high;         /* no unit from here on ever had a page */
    ac_guard_t *guard;     /* its blocks are guarded ones (guard_place.h); NULL: they are not */
    ac_unit_t *unit;       /* one per AC_SEGMENT_ALIGN */
};

/* Returns the bytes of the records of a range of `size` bytes. */
static inline size_t ac_guard_record_bytes(uint64_t size) {
    return (size_t)(size >> AC_PAGE_BITS) * sizeof(ac_guarded_t);
}

static inline uint64_t ac_range_unit(const ac_range_t *range, uint64_t address) {
    return (address - range->address) >> AC_PAGE_BITS;
}

static inline uint64_t ac_range_address(const ac_range_t *range, uint64_t unit) {
    return range->address + (unit << AC_PAGE_BITS);
}

/* _begin: returns the first unit of the page that covers a mapped unit.  _end: the unit behind its last. */
static inline uint64_t ac_range_page_begin(const ac_range_t *range, uint64_t unit) {
    return unit - range->unit[unit].back;
}

static inline uint64_t ac_range_page_end(const ac_range_t *range, uint64_t unit) {
    uint64_t begin = ac_range_page_begin(range, unit);
    return begin + range->unit[begin].span;
}

static inline bool ac_range_is_mapped(const ac_range_t *range, uint64_t unit) {
    return range->unit[unit].flags & AC_UNIT_MAPPED;
}

/* Returns the end of the units from `unit` on that are all mapped, or all not mapped, at most `end`. */
static inline uint64_t ac_range_same(const ac_range_t *range, uint64_t unit, uint64_t end) {
    if (!ac_range_is_mapped(range, unit)) {
        while (unit < end && !ac_range_is_mapped(range, unit))
            unit++;
        return unit;
    }
    while (unit < end && ac_range_is_mapped(range, unit))
        unit = ac_range_page_end(range, unit);
    return unit < end ? unit : end;
}

/* Take reserved addresses over as a segment of one unmapped block.  NULL: host memory is short.
 */
ac_range_t *ac_range_add(ac_space_t *space, int pool, int index, uint64_t address, uint64_t size);

/* The record of a range without segment; its pages have gone. */
void ac_range_forget(ac_range_t *range);

/* Called when the segment is removed with its context.  Clears its part of the page map. */
void ac_range_lose(ac_segment_t *segment);

/* --- free memory with whole pages: the holes, which pages are moved out of --- */

/* Enters or removes a free block in the list of holes.  `fresh`: it was freed just now.  Otherwise it is what a
 * request left of a hole, and is as old.  Its clock says when pages may leave: after all work that was submitted
 * before the last free in it, on any stream. */
void ac_range_hole_enter(ac_block_t *block, bool fresh);
void ac_range_hole_leave(ac_block_t *block);

/* The age of a hole: a counter that grows with every free (lower half) and with every epoch of
 * ac_allocator_decay (upper half).  A hole has that of the last free in it, but for small ones
 * (ac_range_hole_keeps).  It may overflow, which costs order only. */
static inline uint64_t ac_range_hole_age(const ac_block_t *block) {
    return block->age;
}

/* Returns the age of a large hole that a free of `freed` bytes next to it does not change, else UINT64_MAX.
 * Accepts any free block. */
uint64_t ac_range_hole_keeps(const ac_block_t *block, uint64_t freed);
static inline void ac_range_hole_set_age(ac_block_t *block, uint64_t age) {
    AC_BLOCK_SET(block, age, age);
}

/* How many epochs ended since the last free in it. */
uint32_t ac_range_hole_epochs(const ac_block_t *block);

/* --- moving: a part of a range in the hands of one thread --- */

/* Records in reserve, so that giving a part back never fails. */
typedef struct {
    ac_block_t *first;
    unsigned count;
} ac_spares_t;

/* _fill: gets at least `count` spares.  Returns false if host memory is short; the spares stay.  _return: returns
 * all. */
bool ac_spares_fill(ac_store_t *store, ac_spares_t *spares, unsigned count);
void ac_spares_return(ac_store_t *store, ac_spares_t *spares);

/* Makes [from, to), which lies in free and unmapped blocks from `block` on, one MOVING block.  Takes up to
 * AC_CLAIM_SPARES, and adds the records of the blocks that it merges.  NULL: host memory is short, and nothing has
 * changed. */
enum { AC_CLAIM_SPARES = 2 };
ac_block_t *ac_range_claim(ac_block_t *block, uint64_t from, uint64_t to, ac_spares_t *spares);

/* The page map answers for the units [first, end) of a MOVING block, which have no pages.  False:
 * host memory is short; settle it. */
bool ac_range_cover(const ac_range_t *range, uint64_t first, uint64_t end);

/* Takes the units of the MOVING block that have no page, or `all`, out of the page map. */
void ac_range_uncover(const ac_block_t *moving, bool all);

/* Turns the MOVING block into free and unmapped ones, according to its units.  Pages in [barred, end) are of no
 * use: that part stays MOVING until the context ends.  The device is done with the free parts after `quiet`. Takes
 * one spare less than it has parts. */
void ac_range_settle(ac_block_t *moving, uint64_t barred, uint64_t end, uint64_t quiet,
                     ac_spares_t *spares);

/* Turns the MOVING block into one block: all of it is mapped now, or nothing. */
void ac_range_settle_whole(ac_block_t *moving, bool mapped, uint64_t quiet, ac_spares_t *spares);

/* All of it is mapped, and was free memory of that age when it was claimed; the hole that it joins is
 * no older than what else lies in it. */
void ac_range_put_back(ac_block_t *moving, uint64_t age, uint64_t quiet, ac_spares_t *spares);

/* Finds the last adjacent whole pages of the hole, each of at most `span` units (0: any). Pages that another
 * process sees do not count, pinned ones only if `pinned`. Result: units [*first, *first + *count), at most `most`
 * but for the first page.  Returns false if there is none. */
bool ac_range_tail(const ac_block_t *hole, uint64_t span, bool pinned, uint64_t most,
                   uint64_t *first, uint64_t *count);

/* Returns true if a hole has a whole page, which could go back.  `guarded`: holes of guarded blocks count, too. */
bool ac_range_any_whole(const ac_space_t *space, bool guarded);

/* Pins the pages of the block: others know its memory. */
void ac_range_pin(const ac_block_t *block);

/* Returns the addresses at which the pages of the block begin and end. */
void ac_range_pages(const ac_block_t *block, uint64_t *begin, uint64_t *end);

/* Adds to the number of blocks on the page under `address` that ask for SYNC_MEMOPS. Returns the end of the page. */
uint64_t ac_range_count_synced(ac_range_t *range, uint64_t address, int by);
uint32_t ac_range_synced(const ac_range_t *range, uint64_t address);

/* Bytes of whole pages without an allocated or held block. */
uint64_t ac_range_idle_bytes(const ac_range_t *range);

/* Mapped bytes, and what is wrong with the range (NULL: nothing). */
uint64_t ac_range_check(const ac_range_t *range, const char **wrong);

#endif

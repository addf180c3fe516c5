/* Growing by pages.  If no free memory fits a request, the place in a range that lacks the fewest pages gets them
 * (range.h, place.c).
 *
 * Pages come, in this order,
 *   1. from the device, within the budget (policy.h);
 *   2. out of holes: adjacent whole pages from the high end of the smallest hole that has enough, with one
 *      unmapping.  Pinned pages never move.  A page moves only after all work that was submitted before the
 *      last free in the hole: no stream's order protects an unmapping;
 *   3. from the device in exchange for whole pages in holes that did not fit.  Small pages thus take no more
 *      memory while large blocks have pages to spare;
 *   4. from the device, beyond the budget.  Beyond `wait_budget` the request first waits for holes in use by
 *      the device, unless that wait might never end.
 *
 * A step claims what it works on under the lock, so that no index or list shows it.  It calls the device without
 * the lock, and settles under the lock again.  Pages that came before a failure stay as free memory. */
#ifndef AC_EXPAND_H
#define AC_EXPAND_H

#include <string.h>

#include "allocator/space/range.h"
#include "allocator/supply/supply.h"

/* Limits of one step: ac_growth_t lies on the stack of a thread of the program. */
enum { AC_EXPAND_RUNS = 56, AC_EXPAND_GAPS = 32 };

/* Pages side by side that are taken from a hole. */
typedef struct {
    ac_block_t *block; /* MOVING; the lock is needed to look at it */
    ac_range_t *range;
    uint64_t first, count; /* units */
    uint64_t age, quiet;   /* of the hole, if it stays there: nothing was freed in it */
    bool traded;           /* its pages did not fit: they go, and new ones come instead */
    bool taken;            /* unmapped */
} ac_run_t;

typedef struct {
    ac_growth_ask_t *ask;
    ac_range_t *range;
    ac_block_t *block;                       /* MOVING: the place of the request */
    uint64_t first, end;                     /* units that the block touches */
    uint64_t quiet;                          /* the device is done with what was there before */
    uint64_t page;                           /* bytes of one that is made for it */
    uint64_t create;                         /* bytes that the step may create */
    uint64_t traded;                         /* bytes of pages that go for some of them */
    uint64_t owed;                           /* bytes of these that have to go, for the limit */
    uint64_t laid, created, released, moved; /* bytes, as the device did */
    uint64_t pages_created, pages_moved, pages_released;
    uint64_t barred, barred_end; /* addresses: pages that stay unused and do not go */
    bool whole;                  /* pages as large blocks have, for one that has smaller ones */
    bool force;                  /* the device has no more: moving comes first */
    bool starved;                /* holes were passed over that are not complete */
    bool partial;                /* more runs are needed than one step takes */
    bool patient;                /* the request has waited for all work that it may wait for */
    bool calm;                   /* pages may move: unmapping waits for nothing */
    uint64_t peerings;           /* of the allocator, when it was claimed */
    unsigned runs, at_run;
    uint64_t at_unit; /* of that run: the next page to be used */
    ac_spares_t spares;
    unsigned gaps;
    struct {
        uint64_t first, end;      /* units of the place that lack pages, in order */
    } gap[AC_EXPAND_GAPS];        /* [gaps] */
    ac_run_t run[AC_EXPAND_RUNS]; /* [runs]: the others hold no values */
} ac_growth_t;

/* Initializes all but the runs. */
static inline void ac_growth_init(ac_growth_t *growth, ac_growth_ask_t *ask) {
    memset(growth, 0, offsetof(ac_growth_t, gap));
    growth->ask = ask;
}

static inline ac_unit_t *ac_expand_unit(const ac_range_t *range, uint64_t unit) {
    return &range->unit[unit];
}

/* --- under the lock --- */

/* Which holes, and which of their pages. */
typedef struct {
    int pool;         /* AC_POOL_ALL: both */
    uint64_t span;    /* units of the largest page; 0: any */
    bool pinned;      /* pinned ones, too */
    bool within;      /* never more bytes than requested */
    bool guarded;     /* of guarded blocks (space/guard_place.h), and no others */
    uint32_t epochs;  /* least age of the hole in whole epochs; 0: any */
    uint64_t reached; /* up to which target work is over: ac_supply_reached */
} ac_hole_pick_t;

/* Returns the oldest hole with pages that fit `pick`, or NULL. Sets *starved if a hole was passed over because of
 * its work. */
ac_block_t *ac_expand_oldest_hole(ac_arena_t *arena, const ac_hole_pick_t *pick, bool *starved);

/* Claims pages of the hole that fit `pick` as a run: up to `most` units, but at least one page.  Returns false if
 * host memory is short. */
bool ac_expand_claim_run(ac_run_t *run, ac_block_t *hole, const ac_hole_pick_t *pick,
                         uint64_t most, ac_spares_t *spares);

/* Put back what is left of the run.  Pages that stay are as old as the hole was, and the device is done
 * with them as soon: a growth that is given up makes no hole younger. */
void ac_expand_settle_run(const ac_run_t *run, ac_spares_t *spares);

/* Before it is settled: peers that came meanwhile may reach the pages that were claimed, too.  The
 * lock may be dropped meanwhile. */
void ac_expand_catch_up(ac_growth_t *growth);

/* Gives back whole pages of complete holes (ac_supply_kind_t). */
uint64_t ac_expand_shrink(ac_arena_t *arena, const ac_shrink_t *shrink);

/* Gives back up to `bytes` of picked pages; AC_UNLIMITED: all.  Calls `leaving`, if not NULL, before the device
 * gets them, without the lock.  Returns bytes. */
uint64_t ac_expand_give_back(ac_arena_t *arena, ac_hole_pick_t *pick, uint64_t bytes,
                             void (*leaving)(const ac_growth_t *batch));

/* Give back the addresses of ranges without any page.  Returns bytes. */
uint64_t ac_expand_give_addresses(ac_arena_t *arena);

/* The range has `bytes` more pages, or less. */
void ac_expand_account(ac_range_t *range, int64_t bytes);

/* --- without the lock, on what was claimed --- */

/* Unmaps the runs.  A run that the device keeps is not `taken`. */
void ac_expand_take_away(ac_growth_t *growth);

/* Give one page back. */
void ac_expand_release(ac_growth_t *growth, uint64_t page, uint64_t bytes);

/* Releases the pages of a run that was taken. */
void ac_expand_release_run(ac_growth_t *growth, const ac_run_t *run);

#endif

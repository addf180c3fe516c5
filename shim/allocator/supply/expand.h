/* Growing by pages: where a request of an expandable arena finds no free memory that fits, the
 * place in its range that lacks the fewest pages gets them (range.h, place.c).
 *
 * Pages come, in this order,
 *   1. from the device, as long as what is reserved stays within the budget (policy.h), or a fixed
 *      share of the high-water mark of allocated bytes;
 *   2. out of holes: whole pages side by side from the high end of one, with one unmapping, whatever
 *      their sizes as long as they fit; of the smallest hole that has enough.  Only where all work
 *      that was submitted before the last free in the hole has completed: taking a page away is no
 *      work of a stream, so no stream's order protects it.  Never pages that are pinned;
 *   3. from the device, for whole pages in holes that did not fit, and go back to it: blocks of
 *      2 MiB pages do not take more memory for as long as those of large pages have some to spare;
 *   4. from the device beyond the budget; beyond the waiting limit (`wait_budget`) only after
 *      waiting for holes that are not complete yet, where waiting cannot last for ever.
 *
 * A step plans and claims under the lock, which leaves what it works on in no index and no list
 * that others look at; it asks the device without the lock; and it settles under the lock again,
 * by what the device did: pages that came before a failure stay, as free memory. */
#ifndef AC_EXPAND_H
#define AC_EXPAND_H

#include <string.h>

#include "allocator/space/range.h"
#include "allocator/supply/supply.h"

/* Of one step: ac_growth_t lies on the stack of a thread of the program. */
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
    ac_block_t *block;                       /* MOVING: where the request goes */
    uint64_t first, end;                     /* units that the block touches */
    uint64_t quiet;                          /* the device is done with what was there before */
    uint64_t page;                           /* bytes of one that is made for it */
    uint64_t create;                         /* bytes that the device may be asked for */
    uint64_t traded;                         /* bytes of pages that go for some of them */
    uint64_t owed;                           /* so many of these have to, for the limit */
    uint64_t laid, created, released, moved; /* bytes, as the device did */
    uint64_t pages_created, pages_moved, pages_released;
    uint64_t barred, barred_end; /* addresses: pages that stay unused and do not go */
    bool whole;                  /* pages as large blocks have, for one that has smaller ones */
    bool force;                  /* the device has no more: moving comes first */
    bool starved;                /* holes were passed over that are not complete */
    bool partial;                /* more runs are needed than one step takes */
    bool patient;                /* all that could be waited for was */
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

/* Everything but the runs becomes 0. */
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
    bool pinned;      /* pinned ones as well */
    bool within;      /* never more bytes than were asked for */
    bool guarded;     /* of guarded blocks (space/guard_place.h), and no others */
    uint32_t epochs;  /* holes that were free for so many whole ones; 0: all */
    uint64_t reached; /* up to which target work is over: ac_supply_reached */
} ac_hole_pick_t;

/* The hole freed first that has such pages.  *starved: one was passed over for its work. */
ac_block_t *ac_expand_oldest_hole(ac_arena_t *arena, const ac_hole_pick_t *pick, bool *starved);

/* Take such pages of the hole, of up to `most` units but for the first one: a run.  False: host memory
 * is short. */
bool ac_expand_claim_run(ac_run_t *run, ac_block_t *hole, const ac_hole_pick_t *pick,
                         uint64_t most, ac_spares_t *spares);

/* Put back what is left of the run.  Pages that stay are as old as the hole was, and the device is done
 * with them as soon: a growth that is given up makes no hole younger. */
void ac_expand_settle_run(const ac_run_t *run, ac_spares_t *spares);

/* Before it is settled: peers that came meanwhile may reach the pages that were claimed, too.  The
 * lock may be dropped meanwhile. */
void ac_expand_catch_up(ac_growth_t *growth);

/* As ac_supply_kind_t says: whole pages of complete holes. */
uint64_t ac_expand_shrink(ac_arena_t *arena, const ac_shrink_t *shrink);

/* Give back up to `bytes` of the picked ones, AC_UNLIMITED: all.  `leaving` is called without the lock
 * for those that are about to; NULL.  Returns bytes. */
uint64_t ac_expand_give_back(ac_arena_t *arena, ac_hole_pick_t *pick, uint64_t bytes,
                             void (*leaving)(const ac_growth_t *batch));

/* Give back the addresses of ranges without any page.  Returns bytes. */
uint64_t ac_expand_give_addresses(ac_arena_t *arena);

/* The range has `bytes` more pages, or less. */
void ac_expand_account(ac_range_t *range, int64_t bytes);

/* --- without the lock, on what was claimed --- */

/* Unmap the runs; those that the device would not let go are not `taken`. */
void ac_expand_take_away(ac_growth_t *growth);

/* Give one page back. */
void ac_expand_release(ac_growth_t *growth, uint64_t page, uint64_t bytes);

/* Give those of a run back that was taken. */
void ac_expand_release_run(ac_growth_t *growth, const ac_run_t *run);

#endif

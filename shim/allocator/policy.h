/* What the allocator decides by an amount: the size of a segment, what goes back first, what is worth a move of
 * pages or a wait.  Pure functions: no lock, no device, no lists.  Amounts are bytes unless a name says otherwise.
 * Constants stand in policy.def: AC_LARGE is the value of the row LARGE.  They are ints: a product needs a factor
 * of 64 bits. */
#ifndef AC_POLICY_H
#define AC_POLICY_H

#include "allocator/settings.h"

enum {
#define TUNING(name, value, ...) AC_##name = (value),
#include "allocator/policy.def"
#undef TUNING
};

/* --- budgets --- */

/* Reserved bytes beyond which something else comes before new memory.  Each has a floor: a small program neither
 * gives back, nor moves pages, nor waits. */
typedef enum {
    AC_BUDGET_IDLE,  /* idle memory goes back */
    AC_BUDGET_PAGES, /* pages move out of free blocks */
    AC_BUDGET_WAIT,  /* a request waits for freed memory that is in use by the device */
    AC_BUDGET_HOLES  /* a request waits for free pages that are in use by the device */
} ac_budget_t;

uint64_t ac_budget_floor(const ac_settings_t *settings, ac_budget_t budget);

/* Returns the budget of a program that held at most `live` bytes at a time. */
uint64_t ac_budget(const ac_settings_t *settings, ac_budget_t budget, uint64_t live);

/* Returns the pending bytes that are worth a fence: half of what may wait within the budget.  The other half is
 * left for the time until the fence completes. */
uint64_t ac_budget_fence(const ac_settings_t *settings, uint64_t live);

/* Returns the bytes that may wait for a fence while one stream does all the work, if the device or the limit has
 * `left` bytes. */
uint64_t ac_budget_sole(uint64_t live, uint64_t reserved, uint64_t left);

/* Returns the bytes beyond gc_threshold x limit, out of `reserved`. */
uint64_t ac_budget_garbage(const ac_settings_t *settings, uint64_t reserved);

/* --- native segments --- */

typedef enum { AC_FOR_SMALL, AC_FOR_MEDIUM, AC_FOR_LARGE, AC_FOR_BIG } ac_for_t;

/* How a request grows. */
typedef struct {
    uint64_t segment[3]; /* bytes to ask the device for, in this order while it has no memory */
    uint64_t trim;       /* bytes of idle segments that go back first */
    bool exceeds;        /* segment[0] is beyond the budget nevertheless */
    bool waits;          /* the request may wait for the work that keeps idle segments */
} ac_plan_t;

/* Plans growth for a request of `size` bytes, which is rounded.  The program held at most `live` bytes at a time,
 * with the request.  The device gave `reserved` bytes, or is being asked for them. */
ac_plan_t ac_policy_plan(const ac_settings_t *settings, uint64_t live, uint64_t reserved, ac_for_t kind,
                         uint64_t size);

/* Returns true if a program is large enough for memory by kind of block. */
static inline bool ac_policy_parts(const ac_settings_t *settings, uint64_t live) {
    return live / AC_APART_FLOOR >= settings->large_segment_size;
}

/* Returns the size of the least big block. */
static inline uint64_t ac_policy_big(uint64_t live) {
    return live / AC_BIG_SHARE > AC_LARGE ? live / AC_BIG_SHARE : AC_LARGE;
}

/* Returns true if a request, or a segment, of `size` bytes should be kept whole. */
static inline bool ac_policy_whole(uint64_t size, uint64_t live) {
    return size >= AC_LARGE && size >= live / AC_LARGE_SHARE;
}

/* --- pages --- */

/* Pages of half the size (supply/fine.h). */
typedef struct {
    uint64_t live;   /* high-water mark when pages became half as large; 0: they are not */
    uint64_t page;   /* size of a page at that time */
    uint64_t old;    /* rests of old blocks, which are no reason again */
    uint64_t looked; /* reserved bytes at which the next look is due */
} ac_fine_t;

/* What moves of pages cost, and what was learned from it. */
typedef struct {
    ac_fine_t fine;
    uint64_t spent_ns;          /* modelled cost of all moves */
    uint64_t earned_ns;         /* of moves without trades, less a small amount for each request */
    uint64_t requests, seen_ns; /* requests of the program and `spent_ns` at the last look */
    uint64_t calm_ns, still_ns; /* time of the last move or quiet window, and `spent_ns` then */
    unsigned share;             /* learned budget, percent above the high-water mark; 0: none */
    unsigned costly, quiet;     /* windows in a row with many moves, and with hardly any */
} ac_toll_t;

/* Notes that `pages` pages moved out of `runs` places, and that `traded` bytes were created as pages of `page`
 * bytes for others that were released. */
void ac_policy_charge(ac_toll_t *toll, uint64_t runs, uint64_t pages, uint64_t traded, uint64_t page);

/* Looks at the moves since the last look, after `requests` requests of the program.  A budget that was learned
 * also falls with time: `now_ns`, 0 if not known.  Returns true if it fell. */
bool ac_policy_learn(ac_toll_t *toll, const ac_settings_t *settings, uint64_t requests, uint64_t now_ns);

/* Returns true if new pages for large blocks are half as large. */
bool ac_policy_fine(const ac_toll_t *toll, const ac_settings_t *settings);

/* Returns the bytes of a page for a large request of `size` bytes. */
uint64_t ac_policy_page(const ac_toll_t *toll, const ac_settings_t *settings, uint64_t size);

/* Returns the free bytes on pages of large blocks that make pages half as large.  UINT64_MAX: other reasons weigh
 * more, or the last look was recent. */
uint64_t ac_policy_rests(const ac_toll_t *toll, const ac_settings_t *settings, uint64_t live, uint64_t reserved);

/* Returns the reserved bytes beyond which pages of `page` bytes move rather than new ones come. */
uint64_t ac_policy_pages(const ac_toll_t *toll, const ac_settings_t *settings, uint64_t live, uint64_t page);

/* Returns the reserved bytes beyond which idle memory goes back, pages included. */
uint64_t ac_policy_kept(const ac_toll_t *toll, const ac_settings_t *settings, uint64_t live);

#endif

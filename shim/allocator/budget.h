/* How much may stay reserved for so many live bytes, before something else comes first than asking
 * the device for more.  One formula, `live` times 1 + share and never less than a floor, with a
 * row for each question.  Arithmetic alone: no lock but for the settings. */
#ifndef AC_BUDGET_H
#define AC_BUDGET_H

#include "allocator/policy.h"
#include "allocator/settings.h"

/* A program that has hardly begun neither gives back, nor moves pages, nor waits: each budget has a floor. */
typedef enum {
    AC_BUDGET_IDLE,  /* idle memory goes back rather than be kept beyond it */
    AC_BUDGET_PAGES, /* pages are moved out of holes rather than created beyond it */
    AC_BUDGET_WAIT, /* freed memory that waits for work is waited for rather than grow beyond it */
    AC_BUDGET_HOLES /* the same for holes that the device still works on */
} ac_budget_t;

static inline uint64_t ac_budget_floor(const ac_settings_t *settings, ac_budget_t budget) {
    switch (budget) {
    case AC_BUDGET_IDLE:
        return AC_FLOOR_IDLE * settings->large_segment_size;
    case AC_BUDGET_WAIT:
        return AC_FLOOR_WAIT * settings->large_segment_size;
    case AC_BUDGET_PAGES:
        return AC_FLOOR_PAGES * settings->page;
    case AC_BUDGET_HOLES:
        break;
    }
    return 0;
}

static inline double ac_budget_share(const ac_settings_t *settings, ac_budget_t budget) {
    if (budget == AC_BUDGET_WAIT || budget == AC_BUDGET_HOLES)
        return settings->wait_budget;
    if (budget == AC_BUDGET_IDLE && !settings->expandable_segments)
        return AC_SHARE_SEGMENTS / 100.0;
    double share = settings->page_budget > 0 ? settings->page_budget : AC_SHARE_PAGES / 100.0;
    double least = budget == AC_BUDGET_IDLE ? AC_SHARE_SEGMENTS / 100.0 : 0;
    return share < least ? least : share;
}

/* Bytes; `live`: those that the program holds, most at a time. */
static inline uint64_t ac_budget(const ac_settings_t *settings, ac_budget_t budget,
                                 uint64_t live) {
    uint64_t bytes = live + (uint64_t)((double)live * ac_budget_share(settings, budget));
    uint64_t floor = ac_budget_floor(settings, budget);
    return bytes > floor ? bytes : floor;
}

/* Freed memory of so many bytes that waits is worth a fence: half of what may be within the
 * budget, so that there is an older fence to wait for when that is used up. */
static inline uint64_t ac_budget_fence(const ac_settings_t *settings, uint64_t live) {
    return (ac_budget(settings, AC_BUDGET_WAIT, live) - live) / 2 + 1;
}

/* Whether what moving pages costs is watched (supply/toll.h). */
static inline bool ac_budget_learns(const ac_settings_t *settings) {
    return !settings->frugal && settings->page_budget == 0;
}

#endif

/* What hooks ask of supply/: pages, which arenas may grow by (expand.h), and memory that is owed to
 * the device.  All functions are thread-safe and take the allocator's lock themselves. */
#ifndef AC_PAGES_H
#define AC_PAGES_H

#include "allocator/space/block.h"

/* Whether the arena's device knows pages, it is asked once. */
bool ac_expand_able(ac_arena_t *arena);

/* What the device would not give where native segments served instead: for the user to be
 * told. */
typedef enum { AC_REFUSED_NOTHING, AC_REFUSED_ADDRESSES, AC_REFUSED_PAGES } ac_refused_t;
ac_refused_t ac_expand_refused(ac_allocator_t *allocator);

/* Others get to know memory of the process by its address.  With expandable_segments:auto native
 * segments serve from then on, for all devices: each allocator leaves its pages at its next growth,
 * or by ac_expand_leave. */
extern AC_HIDDEN _Atomic bool ac_expand_shared;

/* Under the lock: if so, leave the pages.  What is free on them serves only requests that would fail
 * else, and goes back to the device.  True: it did so just now; what threads keep is not of the
 * settings then, and the free pages are owed. */
bool ac_expand_leave(ac_allocator_t *allocator);

/* The context of the arena, which was dropped, has gone: give back what is left of its ranges. */
void ac_expand_bury(ac_arena_t *arena);

/* More may reach the device's memory from now on: tell the device so for all pages.  NULL: it has no
 * allocator yet. */
void ac_expand_allow(ac_allocator_t *allocator);

/* Memory that was to go back while the device worked is owed: `ac_trim_owed` while any allocator
 * may owe some, of which `ac_trim_notify` tells (no lock is held; NULL: no thread).  */
extern AC_HIDDEN _Atomic bool ac_trim_owed;
extern AC_HIDDEN void (*ac_trim_notify)(void);

/* Bytes that went back to the driver so far, of all devices and of pinned memory, by any thread. */
extern AC_HIDDEN _Atomic uint64_t ac_given_back;

/* What became of a request for a guarded block (supply/guard.h). */
typedef enum {
    AC_GUARD_SERVED = 0,
    AC_GUARD_NOT_NOW,   /* a stream captures, the context goes, or a call failed */
    AC_GUARD_NO_PAGES,  /* the device has none, or their size is odd */
    AC_GUARD_TOO_LARGE, /* for one page: AC_UNIT_MOST units (space/range.h) */
    AC_GUARD_SHARE,     /* beyond their own bytes they would take more than a share of the memory */
    AC_GUARD_FULL,      /* the device, or the limit, has no room for the pages */
    AC_GUARD_ADDRESSES, /* no addresses are left to lay it at, or host memory to record them */
    AC_GUARD_ANSWERS
} ac_guard_answer_t;

#endif

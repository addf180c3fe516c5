/* Functions of supply/ for the hooks: pages (expand.h), and pending trims.  All functions are thread-safe and take
 * the allocator's lock. */
#ifndef AC_PAGES_H
#define AC_PAGES_H

#include "allocator/space/block.h"

/* Returns true if the arena's device has pages.  Asks it once. */
bool ac_expand_able(ac_arena_t *arena);

/* What the device refused, so that native segments serve instead; for a message to the user. */
typedef enum { AC_REFUSED_NOTHING, AC_REFUSED_ADDRESSES, AC_REFUSED_PAGES } ac_refused_t;
ac_refused_t ac_expand_refused(ac_allocator_t *allocator);

/* Others get to know memory of the process by its address.  With expandable_segments:auto native
 * segments serve from then on, for all devices: each allocator leaves its pages at its next growth,
 * or by ac_expand_leave. */
extern AC_HIDDEN _Atomic bool ac_expand_shared;

/* Leaves the pages if expandable_segments:auto has to.  Free pages then serve only requests that would fail, and go
 * back to the device.  Returns true if it left them now: the caller recalls the caches, and the free pages are a
 * pending trim.  Under the lock. */
bool ac_expand_leave(ac_allocator_t *allocator);

/* The context of the arena, which was dropped, has gone: give back what is left of its ranges. */
void ac_expand_bury(ac_arena_t *arena);

/* Called when a peer was added.  Lets it reach all pages.  NULL: the device has no allocator yet. */
void ac_expand_allow(ac_allocator_t *allocator);

/* A trim is pending if memory could not go back while the device worked.  `ac_trim_pending` is true while any
 * allocator may have one; `ac_trim_notify`, if not NULL, is called then, without a lock. */
extern AC_HIDDEN _Atomic bool ac_trim_pending;
extern AC_HIDDEN void (*ac_trim_notify)(void);

/* Bytes that went back to the driver so far, of all devices and of pinned memory, by any thread. */
extern AC_HIDDEN _Atomic uint64_t ac_given_back;

/* The outcome of a request for a guarded block (supply/guard.h). */
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

/* Functions of the driver that no table knows, handed out such that their first call is noticed.
 *
 * Newer runtimes look many functions up when they start that hardly any program calls.  To look one
 * up changes nothing.  What is handed out in its place is a thunk (watch.S): its first call says
 * that work may go unseen, before the driver is entered, and may wait for that as a lookup would;
 * each later one is a jump.  Arguments stay where they are, so that no prototype is needed.
 *
 * One function has one thunk: programs compare what lookups return. */
#ifndef AC_WATCH_H
#define AC_WATCH_H

#define AC_WATCHES 256 /* thunks */

#ifndef __ASSEMBLER__
#include "bind/objects.h"

/* What the name of an unknown function tells beside that it may give work to the device. */
enum {
    AC_UNKNOWN_CONTEXT = 1, /* it may make another context current */
    AC_UNKNOWN_GRAPH = 2    /* it may make, change or launch graphs, or capture */
};

/* What to hand out for the driver's function at `real`, which the lookup found under a name with
 * `traits`; NULL: there is no thunk left.  `real` must be a function, not data.  Any thread; no
 * lock. */
AC_EARLY void *ac_watch(void *real, unsigned traits);

/* An unknown function is about to be called, or was handed out as it is: work counts as unseen from
 * the return on (ac_streams_unseen). */
AC_EARLY void ac_unknown_function(unsigned traits);

#endif
#endif

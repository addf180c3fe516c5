/* Functions of the driver that no table has, with thunks that notice their first call.
 *
 * Newer runtimes look up many functions at their start that hardly any program calls.  A lookup
 * alone changes nothing: it returns a thunk (watch.S) in place of the function.  The thunk's first
 * call records that work may go unseen, before it enters the driver; it may wait for that.  Each
 * later call is a jump.  Arguments stay in their registers and on the stack, so a thunk needs no
 * prototype.
 *
 * One function has one thunk, because programs compare the results of lookups. */
#ifndef AC_WATCH_H
#define AC_WATCH_H

#define AC_WATCHES 256 /* thunks */

#ifndef __ASSEMBLER__
#include "bind/objects.h"

/* Traits of an unknown function, from its name.  Any unknown function may give work to the
 * device. */
enum {
    AC_UNKNOWN_CONTEXT = 1, /* it may make another context current */
    AC_UNKNOWN_GRAPH = 2    /* it may make, change or launch graphs, or capture */
};

/* Returns the thunk for the driver's function at `real`, found by a name with `traits`; NULL: there
 * is no thunk left.  `real` must be a function, not data.  Any thread; no lock. */
AC_EARLY void *ac_watch(void *real, unsigned traits);

/* Records that the program calls or gets an unknown function without a thunk.  Work counts as
 * unseen from the return on (ac_streams_unseen). */
AC_EARLY void ac_unknown_function(unsigned traits);

#endif
#endif

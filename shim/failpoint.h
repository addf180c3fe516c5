/* Failpoints (failpoints.def): how the tests make the shim wrong in one place at a time.
 *
 * In the product AC_FAILPOINT is the constant false and leaves no code.  The library of the tests
 * is built from the same sources with AC_FAILPOINTS and brings `ac_failpoint`, the number of the
 * chosen fault or 0, which is set before anything else happens.
 *
 * One row of cuda_functions.def can be spoilt as well (tests/contract/rows): where that would be
 * done stands AC_ROW_FAILPOINT(symbol, way).
 *   long       the call is passed on and nothing else done, where it goes the long way
 *   short      the same where it goes the short way
 *   elsewhere  another stream is marked than the one that the work goes to
 *   blind      the memory that the call names is not looked at
 *   once       the driver's call is not made again when it was out of memory
 *   deaf       the result of the driver's call does not tell of a broken context
 *   unseen     a body of its own is without a record of its thread, and does the call only
 *
 * Where two threads meet without a lock, AC_WINDOW(name) names the moment of the one at which it
 * matters what the other one does.  In the product it is nothing; in the library of the tests it
 * calls `ac_window`, where a test has set that, which does the other thread's part
 * (tests/contract/windows).  Locks may be held: a test does there what another thread could do
 * just then. */
#ifndef AC_FAILPOINT_H
#define AC_FAILPOINT_H

enum {
#define FAILPOINT(number, name, text) AC_FAILPOINT_##name = (number),
#include "failpoints.def"
#undef FAILPOINT
    AC_FAILPOINT_NONE = 0
};

#ifdef AC_FAILPOINTS
#include "lock.h"

extern int ac_failpoint;
extern void (*ac_window)(const char *name);
int ac_row_failpoint(const char *symbol, const char *way);
/* The other thread holds none of this one's locks. */
static inline void ac_window_reached(const char *name) {
    uint32_t held = ac_ranks_swap(0);
    ac_window(name);
    ac_ranks_swap(held);
}
#define AC_WINDOW(name)               (ac_window ? ac_window_reached(#name) : (void)0)
#define AC_FAILPOINT(name)            (ac_failpoint == AC_FAILPOINT_##name)
#define AC_ROW_FAILPOINT(symbol, way) ac_row_failpoint(#symbol, #way)
#else
#define AC_WINDOW(name)               ((void)0)
#define AC_FAILPOINT(name)            (AC_FAILPOINT_##name == AC_FAILPOINT_NONE)
#define AC_ROW_FAILPOINT(symbol, way) 0
#endif

#endif

/* Failpoints (failpoints.def): the tests use them to break the library in one place at a time.
 *
 * In the product, AC_FAILPOINT is the constant false and leaves no code. The library of the tests
 * is built from the same sources with AC_FAILPOINTS. It defines `ac_failpoint`, the number of the
 * chosen fault or 0, which is set before anything else happens.
 *
 * A test can also break one row of cuda_functions.def (tests/contract/rows).
 * AC_ROW_FAILPOINT(symbol, way) marks a place in the code that can make the fault `way`:
 *   long       The hook's long path passes the call on and does nothing else.
 *   short      The hook's short path passes the call on and does nothing else.
 *   elsewhere  The hook marks another stream than the one that gets the work.
 *   blind      The hook ignores the memory that the call names.
 *   once       The hook does not repeat a driver call that was out of memory.
 *   deaf       The hook does not learn of a broken context from the driver's result.
 *   unseen     A hook with its own body gets no record of its thread, and only makes the call.
 *
 * AC_WINDOW(name) marks a race between two threads without a lock. It stands at the moment of one
 * thread at which an action of the other thread matters. In the product it is nothing. In the
 * library of the tests it calls `ac_window`, if a test has set it. This function plays the part
 * of the other thread (tests/contract/windows). Locks may be held. The test does there any action
 * that another thread could take at that moment. */
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
/* The test plays another thread, which holds none of this thread's locks. */
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

/* What one thread does in a window of another one: the rows of shim/failpoints.def that are
 * WINDOWs.
 *
 * Each row has a test, window_<name>, which is right as the library is and fails with the row's
 * fault.  The test does the other thread's part where AC_WINDOW (shim/failpoint.h) or the
 * device's functions call it, so that every run is the same. */
#ifndef WINDOWS_H
#define WINDOWS_H

#include <stdbool.h>

#define FAILPOINT(number, name, text)
#define WINDOW(number, name, text) void window_##name(void);
#include "failpoints.def"
#undef WINDOW
#undef FAILPOINT

/* At the next passage of the window, once.  Without the fault it has to come to that. */
void at_window(const char *window, void (*part)(void));

/* The window is not to be reached: `why` it would be wrong. */
void never_at_window(const char *window, const char *why);

/* Another thread does its part as far as it gets by itself; `waits` (NULL: nothing) tells that it
 * goes on only after what the caller does next.  Then it is waited for. */
void other_thread(void (*part)(void), bool (*waits)(void));
void other_thread_ends(void);

#endif

/* Parts that one thread does in a window of another: the rows of shim/failpoints.def that are
 * WINDOWs.
 *
 * Each row has a test, window_<name>, which passes with the correct library and fails with the
 * row's fault. AC_WINDOW (shim/failpoint.h) or the device's functions call the other thread's
 * part in the test, so every run is the same. */
#ifndef WINDOWS_H
#define WINDOWS_H

#include <stdbool.h>

#define FAILPOINT(number, name, text)
#define WINDOW(number, name, text) void window_##name(void);
#include "failpoints.def"
#undef WINDOW
#undef FAILPOINT

/* Calls `part` at the next passage of the window, once. Without the fault the test must reach
 * the window. */
void at_window(const char *window, void (*part)(void));

/* Fails the test if the window is reached; `why` is the reason. */
void never_at_window(const char *window, const char *why);

/* Starts another thread that does `part`. Returns when the thread has ended, or when `waits`
 * (NULL: never) returns true: then the thread waits for the caller's next step. */
void other_thread(void (*part)(void), bool (*waits)(void));
void other_thread_ends(void);

#endif

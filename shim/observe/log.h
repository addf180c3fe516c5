/* Messages for the user, each one line on stderr.  The code uses neither stdio nor malloc, so that it is safe in
 * any hook.  A line starts with "accelcache: ".  Messages of level `warning` and worse also go to the live
 * page and so into the dump.  Messages above ac_log_level are not printed. */
#ifndef AC_LOG_H
#define AC_LOG_H

#include <stdatomic.h>

typedef enum {
    AC_LOG_NONE,
    AC_LOG_ERROR,
    AC_LOG_WARNING,
    AC_LOG_INFO,
    AC_LOG_DEBUG
} ac_log_level_t;

/* The level up to which messages are printed.  Activation sets it from the configuration; the default is
 * AC_LOG_WARNING.  Any thread. */
extern _Atomic int ac_log_level;

/* Stores the identity of stderr; called from the library's constructor.  A later line is written only if stderr is
 * still the same, or is clearly meant for messages.  A program that closed stderr may have got its number
 * for another file. */
void ac_log_start(void);

/* Formats one line (printf subset of vsnprintf) and writes it to stderr with a single write(2).  Keeps errno.
 * Thread-safe. */
void ac_log(ac_log_level_t level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Calls ac_log, at most once per process and call site. */
#define ac_log_once(level, ...)                                                                  \
    do {                                                                                         \
        static _Atomic int said;                                                                 \
        if (!atomic_exchange(&said, 1))                                                          \
            ac_log(level, __VA_ARGS__);                                                          \
    } while (0)

#endif

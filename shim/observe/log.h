/* Messages for the user: one line on stderr, said once, without stdio and without malloc, so
 * that it is safe in any hook.  A line starts with "accelcache: ".  Level `warning` and worse
 * also go to the live page and so into the dump.  Nothing is printed while `level` is below. */
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

/* Set by activation from the configuration; default AC_LOG_WARNING. Any thread. */
extern _Atomic int ac_log_level;

/* Remember what stderr is now; from the library's constructor.  A line is written later only if
 * stderr is still that, or is plainly meant for messages: a program that closed it may have got
 * the same number for a file of its own. */
void ac_log_start(void);

/* Format (printf subset of vsnprintf) and write one line with a single write(2) to stderr,
 * errno preserved.  Thread-safe. */
void ac_log(ac_log_level_t level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same, at most once per process and call site. */
#define ac_log_once(level, ...)                                                                  \
    do {                                                                                         \
        static _Atomic int said;                                                                 \
        if (!atomic_exchange(&said, 1))                                                          \
            ac_log(level, __VA_ARGS__);                                                          \
    } while (0)

#endif

/* Lines on stderr; see log.h.  Hooks call it on any thread, while the program may hold locks or use errno.  So
 * the code does not allocate, takes no lock and uses no stdio streams. */
#include "observe/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "observe/filter.h"
#include "observe/live.h"
#include "observe/raw.h"
#include "observe/start.h"
#include "observe/write.h"

AC_START_DATA _Atomic int ac_log_level = AC_LOG_WARNING;

AC_START_DATA static struct {
    bool noted, open;
    dev_t device;
    ino_t inode;
} first_stderr;

AC_START void ac_log_start(void) {
    struct stat st;
    int saved = errno;
    first_stderr.open = ac_raw_fstat(STDERR_FILENO, &st) == 0;
    first_stderr.device = first_stderr.open ? st.st_dev : 0;
    first_stderr.inode = first_stderr.open ? st.st_ino : 0;
    first_stderr.noted = true;
    errno = saved;
}

/* Returns true if stderr is the one from the start, or is clearly a log: a terminal, or a file opened for appending.
 * Any other file with number 2 may contain the program's data. */
static bool stderr_is_for_messages(void) {
    struct stat st;
    if (!first_stderr.noted)
        return true;
    if (ac_raw_fstat(STDERR_FILENO, &st) != 0)
        return false;
    if (first_stderr.open && st.st_dev == first_stderr.device && st.st_ino == first_stderr.inode)
        return true;
    int flags = ac_raw_fcntl(STDERR_FILENO, F_GETFL, 0);
    return ac_raw_is_terminal(STDERR_FILENO) ||
           (S_ISREG(st.st_mode) && flags >= 0 && (flags & O_APPEND) &&
            (flags & O_ACCMODE) == O_WRONLY);
}

/* Replaces control characters (C0, DEL, and C1 in UTF-8).  Names of files and programs may contain any bytes, and must
 * not end the line or control the terminal. */
static void mask_controls(char *text, int length) {
    for (int i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i], next = (unsigned char)text[i + 1];
        if (c == '\n' || c == '\t')
            text[i] = ' ';
        else if (c < 0x20 || c == 0x7f)
            text[i] = '?';
        else if (c == 0xc2 && next >= 0x80 && next < 0xa0)
            text[i] = text[i + 1] = '?';
    }
}

void ac_log(ac_log_level_t level, const char *format, ...) {
    static const char prefix[] = "accelcache: ";
    enum { PREFIX = sizeof prefix - 1, LINE = 1024 };
    bool print = level != AC_LOG_NONE &&
                 (int)level <= atomic_load_explicit(&ac_log_level, memory_order_relaxed);
    bool keep = level == AC_LOG_ERROR || level == AC_LOG_WARNING;
    if (!print && !keep)
        return;

    int saved = errno;
    char line[LINE];
    memcpy(line, prefix, PREFIX);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line + PREFIX, LINE - PREFIX - 1, format, args);
    va_end(args);
    if (n >= 0) {
        if (n > LINE - PREFIX - 2)
            n = LINE - PREFIX - 2; /* cut; the last byte is the newline's */
        mask_controls(line + PREFIX, n);
        line[PREFIX + n] = '\0';
        if (keep)
            ac_live_warn(line + PREFIX);
        line[PREFIX + n] = '\n';
        if (print && !ac_filter_now() && stderr_is_for_messages())
            ac_write_all(STDERR_FILENO, line, (size_t)PREFIX + (size_t)n + 1);
    }
    errno = saved;
}

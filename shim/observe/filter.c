/* See filter.h. */
#include "observe/filter.h"

#include <stdatomic.h>
#include <string.h>

#include "observe/raw.h"
#include "observe/write.h"

static _Atomic int status = -1;        /* the descriptor */
static _Atomic int thread_status = -1; /* of ac_filter_thread_start */
static int mode, filters;              /* as they were at first use */
/* Filters for all threads: installations in progress, and filters since first use that allow the calls of the
 * library's thread. */
static _Atomic int installing, harmless;

/* File position of the descriptor between two checks, far behind the end of the file.  A program that closed
 * all descriptors may have its own file or pipe under the number.  A read would change the file's position,
 * and would empty the pipe or block.  No other descriptor has this position. */
enum { MARK = 0x61636366 };

static bool is_at_mark(int fd) {
    return fd >= 0 && ac_raw_call(SYS_lseek, fd, 0, SEEK_CUR, 0) == MARK;
}

static bool go_to(int fd, long place) {
    return ac_raw_call(SYS_lseek, fd, place, SEEK_SET, 0) == place;
}

/* The file as a stream of bytes.  Any number of supplementary groups may precede the wanted line. */
typedef struct {
    int fd;
    long offset; /* of the next read; -1: use the position of the descriptor */
    char data[1024];
    ssize_t length, at;
} text_t;

static int next(text_t *text) {
    if (text->at == text->length) {
        long size = sizeof text->data, data = AC_RAW_POINTER(text->data);
        text->length = text->offset < 0
                           ? ac_raw_call(SYS_read, text->fd, data, size, 0)
                           : ac_raw_call(SYS_pread64, text->fd, data, size, text->offset);
        text->at = 0;
        if (text->length <= 0)
            return -1;
        if (text->offset >= 0)
            text->offset += text->length;
    }
    return (unsigned char)text->data[text->at++];
}

static int number(text_t *text) {
    int n = 0, c = next(text);
    while (c == ' ' || c == '\t')
        c = next(text);
    for (; c >= '0' && c <= '9'; c = next(text))
        n = n < 1000000 ? n * 10 + (c - '0') : n;
    return n;
}

/* Reads the line "Seccomp:" and, from Linux 5.9 on, the line "Seccomp_filters:" after it.  Returns false if
 * this is not a status file any more, or if the kernel has no filters. */
static bool look(text_t *text, int *mode_p, int *filters_p) {
    static const char label[] = "\nSeccomp";
    size_t matched = 0;
    bool found = false;
    *filters_p = 0;
    for (int c; (c = next(text)) >= 0;) {
        matched = c == label[matched] ? matched + 1 : c == label[0];
        if (matched < sizeof label - 1)
            continue;
        matched = 0;
        c = next(text);
        if (c == ':') {
            *mode_p = number(text);
            found = true;
            matched = 1; /* the end of the line was read */
        } else if (c == '_' && found) {
            while (c >= 0 && c != ':')
                c = next(text);
            *filters_p = number(text);
            return true;
        }
    }
    return found;
}

/* Returns true if the number of new filters is not `known`.  A kernel that does not count filters shows only the
 * mode.  With it the result is true if the mode changed or `known` is not 0. */
static bool changed(text_t *text, int known) {
    int mode_now, filters_now;
    text->length = text->at = 0;
    return look(text, &mode_now, &filters_now) &&
           ((!known && mode_now != mode) || filters_now != filters + known);
}

static int open_status(const char *file) {
    int fd = ac_raw_open(file, O_RDONLY | O_CLOEXEC, 0);
    return fd < 0 ? -1 : ac_move_up(fd);
}

void ac_filter_start(void) {
    int fd = open_status("/proc/self/status");
    text_t text = {.fd = fd, .offset = 0};
    if (fd >= 0 && look(&text, &mode, &filters) && go_to(fd, MARK)) {
        atomic_store(&harmless, 0); /* earlier filters are in `filters` */
        atomic_store(&status, fd);
    } else if (fd >= 0) {
        ac_raw_close(fd);
    }
}

void ac_filter_thread_start(void) {
    int fd = open_status("/proc/thread-self/status");
    int last = atomic_exchange(&thread_status, fd >= 0 && go_to(fd, MARK) ? fd : -1);
    if (is_at_mark(last))
        ac_raw_close(last);
}

bool ac_filter_at_exit(void) {
    text_t text = {.fd = atomic_load(&status), .offset = -1};
    if (!is_at_mark(text.fd) || !go_to(text.fd, 0))
        return false;
    bool filtered = changed(&text, 0);
    go_to(text.fd, MARK); /* a child made without fork handlers shares the file position */
    return filtered;
}

static bool is_filtered(int fd, int known) {
    text_t text = {.fd = fd, .offset = 0};
    return is_at_mark(fd) && changed(&text, known);
}

bool ac_filter_now(void) {
    return is_filtered(atomic_load(&status), 0);
}

void ac_filter_install_begin(void) {
    atomic_fetch_add(&installing, 1);
}

void ac_filter_install_end(bool allows) {
    atomic_fetch_add(&harmless, allows);
    atomic_fetch_sub(&installing, 1);
}

/* The kernel shows a new filter before its installer calls ac_filter_install_end.  So the check waits for
 * installations in progress, and then looks again. */
bool ac_filter_thread_now(void) {
    enum { TURNS = 100000000 };
    int fd = atomic_load(&thread_status);
    if (!is_at_mark(fd))
        return ac_filter_now();
    if (!is_filtered(fd, atomic_load(&harmless)))
        return false;
    for (int turn = 0; turn < TURNS && atomic_load(&installing); turn++)
        atomic_signal_fence(memory_order_seq_cst);
    return is_filtered(fd, atomic_load(&harmless));
}

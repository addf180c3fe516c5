/* See own_thread.h. */
#include "process/own_thread.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "observe/filter.h"
#include "observe/raw.h"
#include "observe/start.h"

AC_START_DATA static _Atomic bool main_watched, main_ended;
static _Atomic int running;
static sigset_t program_mask; /* signal mask of a program thread that started a thread here */

/* Returns true if every other thread has ended or belongs to the library. Also returns true if
 * this cannot be known, without /proc or behind a filter that may kill the process for opening
 * it. The end of the process is worth more than a dump on request. */
bool ac_own_thread_alone(void) {
    char text[1024];
    if (ac_filter_now())
        return true;
    int fd = ac_raw_open("/proc/self/stat", O_RDONLY | O_CLOEXEC, 0);
    ssize_t length = fd < 0 ? -1 : ac_raw_read(fd, text, sizeof text - 1);
    if (fd >= 0)
        ac_raw_close(fd);
    else if (errno == EMFILE || errno == ENFILE)
        return false;
    if (length <= 0)
        return true;
    text[length] = '\0';
    const char *at = strrchr(text, ')'); /* field 2 is the program's name in parentheses */
    if (!at || at[1] != ' ')
        return true;
    char main_state = at[2];
    for (int field = 2; field < 20 && at; field++)
        at = strchr(at + 1, ' ');
    return main_state == 'Z' && (!at || strtol(at, NULL, 10) <= 1 + atomic_load(&running));
}

enum { SOON_NS = 5000000, LATER_NS = 500000000 };

int64_t ac_own_thread_look_ns(int64_t last, bool quiet) {
    if (!atomic_load(&main_ended))
        return atomic_load(&main_watched) ? 0 : LATER_NS;
    if (!last)
        return SOON_NS;
    return quiet && last < LATER_NS ? last * 2 : last;
}

int ac_own_thread_start(void *(*run)(void *)) {
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, mask;
    sigfillset(&all);
    /* The new thread inherits this mask, so the program's signals do not go to it. */
    pthread_sigmask(SIG_SETMASK, &all, &mask);
    program_mask = mask;
    atomic_fetch_add(&running, 1);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 1 << 20); /* exit handlers may run on it */
    int error = pthread_create(&thread, &attributes, run, NULL);
    pthread_attr_destroy(&attributes);
    if (error)
        atomic_fetch_sub(&running, 1);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    return error;
}

void *ac_own_thread_end(void) {
    atomic_fetch_sub(&running, 1);
    /* The C library exits the process when the last thread ends. Exit handlers must find the
     * program's signal mask. */
    pthread_sigmask(SIG_SETMASK, &program_mask, NULL);
    return NULL;
}

AC_START void ac_own_thread_main_watched(void) {
    atomic_store(&main_watched, true);
}

void ac_own_thread_main_ended(void) {
    atomic_store(&main_ended, true);
}

bool ac_own_thread_main_has_ended(void) {
    return atomic_load(&main_ended);
}

void ac_own_thread_fork_child(void) {
    atomic_store(&running, 0);
}

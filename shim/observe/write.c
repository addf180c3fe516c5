/* See write.h. */
#include "observe/write.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

static const int held_signals[] = {SIGPIPE, SIGXFSZ, SIGTTOU};
enum { HELD = sizeof held_signals / sizeof *held_signals };

void ac_signals_hold(ac_signal_hold_t *hold) {
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < HELD; i++)
        sigaddset(&set, held_signals[i]);
    sigpending(&hold->pending);
    pthread_sigmask(SIG_BLOCK, &set, &hold->mask);
}

void ac_signals_release(const ac_signal_hold_t *hold) {
    sigset_t now, ours;
    sigpending(&now);
    sigemptyset(&ours);
    int count = 0;
    for (int i = 0; i < HELD; i++) {
        int number = held_signals[i];
        if (sigismember(&now, number) == 1 && sigismember(&hold->pending, number) == 0) {
            sigaddset(&ours, number);
            count++;
        }
    }
    struct timespec at_once = {0, 0};
    while (count-- > 0)
        sigtimedwait(&ours, NULL, &at_once);
    pthread_sigmask(SIG_SETMASK, &hold->mask, NULL);
}

int ac_open_above(const char *name, int flags, mode_t mode) {
    int held[STDERR_FILENO + 1], count = 0;
    for (int fd = 0; fd <= STDERR_FILENO; fd++) {
        /* O_PATH: reading and writing fail with EBADF, just as on a closed number. */
        if (fcntl(fd, F_GETFD) < 0 && (held[count] = open("/", O_PATH | O_CLOEXEC)) >= 0)
            count++;
    }
    int fd = open(name, flags, mode);
    int saved = errno;
    while (count > 0)
        close(held[--count]);
    errno = saved;
    return fd;
}

int ac_write_all(int fd, const char *data, size_t length) {
    ac_signal_hold_t hold;
    int failure = 0;
    ac_signals_hold(&hold);
    while (length > 0 && failure == 0) {
        ssize_t n = write(fd, data, length);
        if (n > 0) {
            data += n;
            length -= (size_t)n;
        } else if (n == 0) {
            failure = EIO;
        } else if (errno != EINTR) {
            failure = errno;
        }
    }
    ac_signals_release(&hold);
    return failure;
}

/* See write.h. */
#include "observe/write.h"

#include "observe/raw.h"

#define BIT(number) ((uint64_t)1 << ((number)-1))

void ac_signals_hold(ac_signal_hold_t *hold) {
    ac_raw_signals_t held = {BIT(SIGPIPE) | BIT(SIGXFSZ) | BIT(SIGTTOU)};
    hold->pending = ac_raw_pending();
    hold->mask = ac_raw_mask(SIG_BLOCK, held);
}

void ac_signals_release(const ac_signal_hold_t *hold) {
    ac_raw_signals_t held = {BIT(SIGPIPE) | BIT(SIGXFSZ) | BIT(SIGTTOU)};
    ac_raw_signals_t ours = {ac_raw_pending().bits & held.bits & ~hold->pending.bits};
    for (uint64_t left = ours.bits; left; left &= left - 1)
        ac_raw_take_signal(ours);
    ac_raw_mask(SIG_SETMASK, hold->mask);
}

void ac_low_hold(int held[AC_LOW]) {
    int saved = errno;
    for (int fd = 0; fd < AC_LOW; fd++)
        /* O_PATH: reading and writing fail with EBADF, just as on a closed number. */
        held[fd] =
            ac_raw_fcntl(fd, F_GETFD, 0) < 0 ? ac_raw_open("/", O_PATH | O_CLOEXEC, 0) : -1;
    errno = saved;
}

void ac_low_release(const int held[AC_LOW]) {
    int saved = errno;
    for (int i = 0; i < AC_LOW; i++)
        if (held[i] >= 0)
            ac_raw_close(held[i]);
    errno = saved;
}

int ac_open_above(const char *name, int flags, mode_t mode) {
    int held[AC_LOW];
    ac_low_hold(held);
    int fd = ac_raw_open(name, flags, mode);
    ac_low_release(held);
    return fd;
}

int ac_move_up(int fd) {
    for (int least = 960; least > 16; least /= 2) {
        int moved = ac_raw_fcntl(fd, F_DUPFD_CLOEXEC, least);
        if (moved < 0)
            continue;
        ac_raw_close(fd);
        return moved;
    }
    ac_raw_close(fd);
    return -1;
}

int ac_write_all(int fd, const char *data, size_t length) {
    ac_signal_hold_t hold;
    int failure = 0;
    ac_signals_hold(&hold);
    while (length > 0 && failure == 0) {
        ssize_t n = ac_raw_write(fd, data, length);
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

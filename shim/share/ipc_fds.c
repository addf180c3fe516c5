/* See ipc_fds.h. */
#include "share/ipc_fds.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "observe/raw.h"

enum { FDS = 1024, NAP_NS = 100000, NAPS = 10000 };

static _Atomic int stretches, forks;

/* `number` is the descriptor + 1, and comes last: 0 an empty place, -1 one that is being filled.
 * Descriptor n is at place n % FDS, or at the first empty one behind it. */
static struct {
    _Atomic int number;
    dev_t device;
    ino_t inode;
} place[FDS];

static void nap(void) {
    struct timespec time = {.tv_nsec = NAP_NS};
    ac_raw_call(SYS_ppoll, 0, 0, AC_RAW_POINTER(&time), 0);
}

void ac_fds_enter(void) {
    for (int naps = 0; naps < NAPS; naps++) {
        atomic_fetch_add(&stretches, 1);
        if (!atomic_load(&forks))
            return;
        atomic_fetch_sub(&stretches, 1);
        nap();
    }
    atomic_fetch_add(&stretches, 1);
}

void ac_fds_leave(void) {
    atomic_fetch_sub(&stretches, 1);
}

/* Returns the file's number in the kernel; every socket has its own. */
static bool look(int fd, struct stat *st) {
    int saved = errno;
    bool open = ac_raw_fstat(fd, st) == 0;
    errno = saved;
    return open;
}

bool ac_fds_add(int fd) {
    struct stat st;
    bool open = look(fd, &st);
    for (int n = 0; open && n < FDS; n++) {
        int empty = 0, i = (fd + n) % FDS;
        if (!atomic_compare_exchange_strong(&place[i].number, &empty, -1))
            continue;
        place[i].device = st.st_dev;
        place[i].inode = st.st_ino;
        atomic_store(&place[i].number, fd + 1);
        return true;
    }
    ac_raw_close(fd);
    return false;
}

static bool is_at(int i, int fd) {
    struct stat st;
    return look(fd, &st) && st.st_dev == place[i].device && st.st_ino == place[i].inode;
}

/* -1: there is none. */
static int place_of(int fd) {
    for (int n = 0; fd >= 0 && n < FDS; n++)
        if (atomic_load(&place[(fd + n) % FDS].number) == fd + 1)
            return (fd + n) % FDS;
    return -1;
}

bool ac_fds_has(int fd) {
    int i = place_of(fd);
    return i >= 0 && is_at(i, fd);
}

unsigned ac_fds_room(int fd) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > INT_MAX)
        limit.rlim_cur = INT_MAX;
    int room = ((int)limit.rlim_cur - fd) / 4;
    return room > 1 ? (unsigned)room : 1;
}

/* A place is claimed before its number can be another descriptor's. */
static void close_at(int i, int fd) {
    int number = fd + 1;
    if (!atomic_compare_exchange_strong(&place[i].number, &number, -1))
        return;
    if (is_at(i, fd))
        ac_raw_close(fd);
    atomic_store(&place[i].number, 0);
}

void ac_fds_close(int fd) {
    int saved = errno;
    ac_fds_enter();
    int i = place_of(fd);
    if (i >= 0)
        close_at(i, fd);
    ac_fds_leave();
    errno = saved;
}

void ac_fds_fork_prepare(void) {
    atomic_fetch_add(&forks, 1);
    for (int naps = 0; naps < NAPS && atomic_load(&stretches); naps++)
        nap();
}

void ac_fds_fork_parent(void) {
    atomic_fetch_sub(&forks, 1);
}

void ac_fds_fork_child(void) {
    for (int i = 0; i < FDS; i++) {
        int number = atomic_load(&place[i].number);
        if (number > 0)
            close_at(i, number - 1);
        if (number) /* other pages of the table stay untouched */
            atomic_store(&place[i].number, 0);
    }
    atomic_store(&stretches, 0);
    atomic_store(&forks, 0);
}

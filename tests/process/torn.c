/* Stands behind the library in LD_PRELOAD and replaces what asks the kernel, as libfaketime does
 * with clocks and files.  Once its destructor has run, a call ends the process: what such
 * libraries need is gone then.  With TORN_CLOCK in the environment time stands still. */
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static int torn;

__attribute__((destructor)) static void tear(void) {
    torn = 1;
}

static void need(const char *name) {
    if (!torn)
        return;
    syscall(SYS_write, STDERR_FILENO, name, strlen(name));
    syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
}

#define REPLACE(type, name, params, ...)                                                         \
    type name params;                                                                            \
    type name params {                                                                           \
        need(#name "\n");                                                                        \
        return (type)syscall(__VA_ARGS__);                                                       \
    }

int clock_gettime(clockid_t clock, struct timespec *now) {
    need("clock_gettime\n");
    if (!getenv("TORN_CLOCK"))
        return (int)syscall(SYS_clock_gettime, clock, now);
    *now = (struct timespec){1000000000, 0};
    return 0;
}

REPLACE(int, nanosleep, (const struct timespec *time, struct timespec *left), SYS_nanosleep, time,
        left)
REPLACE(pid_t, getpid, (void), SYS_getpid)
REPLACE(pid_t, gettid, (void), SYS_gettid)
REPLACE(uid_t, geteuid, (void), SYS_geteuid)
REPLACE(int, close, (int fd), SYS_close, fd)
REPLACE(ssize_t, read, (int fd, void *data, size_t size), SYS_read, fd, data, size)
REPLACE(ssize_t, write, (int fd, const void *data, size_t size), SYS_write, fd, data, size)
REPLACE(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at), SYS_pwrite64, fd,
        data, size, at)
REPLACE(int, stat, (const char *path, struct stat *st), SYS_newfstatat, AT_FDCWD, path, st, 0)
REPLACE(int, lstat, (const char *path, struct stat *st), SYS_newfstatat, AT_FDCWD, path, st,
        AT_SYMLINK_NOFOLLOW)
REPLACE(int, fstat, (int fd, struct stat *st), SYS_newfstatat, fd, "", st, AT_EMPTY_PATH)
REPLACE(int, access, (const char *path, int mode), SYS_faccessat, AT_FDCWD, path, mode)
REPLACE(int, unlink, (const char *path), SYS_unlinkat, AT_FDCWD, path, 0)
REPLACE(int, rename, (const char *from, const char *to), SYS_renameat, AT_FDCWD, from, AT_FDCWD,
        to)
REPLACE(ssize_t, readlink, (const char *path, char *text, size_t size), SYS_readlinkat, AT_FDCWD,
        path, text, size)
REPLACE(int, sigpending, (sigset_t * set), SYS_rt_sigpending, set, 8)
REPLACE(int, sigtimedwait, (const sigset_t *set, siginfo_t *info, const struct timespec *time),
        SYS_rt_sigtimedwait, set, info, time, 8)
REPLACE(int, pthread_sigmask, (int how, const sigset_t *set, sigset_t *old), SYS_rt_sigprocmask,
        how, set, old, 8)
REPLACE(int, ftruncate, (int fd, off_t size), SYS_ftruncate, fd, size)

int isatty(int fd) {
    char settings[256];
    need("isatty\n");
    return syscall(SYS_ioctl, fd, 0x5401, settings) == 0;
}

/* The word behind the flags is there or not; the kernel looks at it only where it is. */
int open(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    unsigned mode = va_arg(more, unsigned);
    va_end(more);
    need("open\n");
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int fcntl(int fd, int command, ...) {
    va_list more;
    va_start(more, command);
    long word = va_arg(more, long);
    va_end(more);
    need("fcntl\n");
    return (int)syscall(SYS_fcntl, fd, command, word);
}

/* System calls without the C library, for code that runs at the end of the process or writes the library's
 * files.
 *
 * The exit handler of the library runs after the destructors of every other library.  A later library in
 * LD_PRELOAD may replace open, lstat, getpid, clock_gettime and similar functions (libfaketime does).  Its
 * replacements may use data that its destructor has already released.  So the exit handler calls no function
 * of the C library that makes a system call.  It calls functions that only access memory (memcpy, snprintf,
 * strerror), and malloc.  A replacement of malloc has to work until the end, because the C library itself
 * and static destructors use it there.
 *
 * Each function returns the result of the C function of its name and sets errno.  All are async-signal-safe
 * and no cancellation points. */
#ifndef AC_RAW_H
#define AC_RAW_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* Makes a system call.  Returns -errno on failure. */
static inline long ac_raw_call(long number, long a, long b, long c, long d) {
#if defined(__x86_64__)
    long result;
    register long fourth __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long call __asm__("x8") = number;
    register long first __asm__("x0") = a;
    register long second __asm__("x1") = b;
    register long third __asm__("x2") = c;
    register long fourth __asm__("x3") = d;
    __asm__ volatile("svc 0"
                     : "+r"(first)
                     : "r"(call), "r"(second), "r"(third), "r"(fourth)
                     : "memory");
    return first;
#else
    long result = syscall(number, a, b, c, d);
    return result < 0 ? -errno : result;
#endif
}

static inline long ac_raw_answer(long result) {
    if (result >= 0)
        return result;
    errno = (int)-result;
    return -1;
}

#define AC_RAW_POINTER(p) ((long)(uintptr_t)(p))

static inline pid_t ac_raw_getpid(void) {
    return (pid_t)ac_raw_call(SYS_getpid, 0, 0, 0, 0);
}

/* glibc has had gettid only since a version after 2.28. */
static inline pid_t ac_raw_gettid(void) {
    return (pid_t)ac_raw_call(SYS_gettid, 0, 0, 0, 0);
}

static inline uid_t ac_raw_geteuid(void) {
    return (uid_t)ac_raw_call(SYS_geteuid, 0, 0, 0, 0);
}

static inline int ac_raw_open(const char *path, int flags, mode_t mode) {
    return (int)ac_raw_answer(
        ac_raw_call(SYS_openat, AT_FDCWD, AC_RAW_POINTER(path), flags, (long)mode));
}

static inline int ac_raw_close(int fd) {
    return (int)ac_raw_answer(ac_raw_call(SYS_close, fd, 0, 0, 0));
}

static inline ssize_t ac_raw_read(int fd, void *data, size_t size) {
    return ac_raw_answer(ac_raw_call(SYS_read, fd, AC_RAW_POINTER(data), (long)size, 0));
}

static inline ssize_t ac_raw_write(int fd, const void *data, size_t size) {
    return ac_raw_answer(ac_raw_call(SYS_write, fd, AC_RAW_POINTER(data), (long)size, 0));
}

static inline ssize_t ac_raw_pwrite(int fd, const void *data, size_t size, uint64_t offset) {
    return ac_raw_answer(
        ac_raw_call(SYS_pwrite64, fd, AC_RAW_POINTER(data), (long)size, (long)offset));
}

static inline int ac_raw_fcntl(int fd, int command, long argument) {
    return (int)ac_raw_answer(ac_raw_call(SYS_fcntl, fd, command, argument, 0));
}

/* stat, lstat (AT_SYMLINK_NOFOLLOW) and fstat ("" and AT_EMPTY_PATH). */
static inline int ac_raw_stat(int folder, const char *path, struct stat *st, int flags) {
#if defined(__x86_64__) || defined(__aarch64__) /* their kernels fill the C library's structure  \
                                                 */
    return (int)ac_raw_answer(
        ac_raw_call(SYS_newfstatat, folder, AC_RAW_POINTER(path), AC_RAW_POINTER(st), flags));
#else
    return fstatat(folder, path, st, flags);
#endif
}

static inline int ac_raw_lstat(const char *path, struct stat *st) {
    return ac_raw_stat(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW);
}

static inline int ac_raw_fstat(int fd, struct stat *st) {
    return ac_raw_stat(fd, "", st, AT_EMPTY_PATH);
}

static inline ssize_t ac_raw_readlink(const char *path, char *text, size_t size) {
    return ac_raw_answer(ac_raw_call(SYS_readlinkat, AT_FDCWD, AC_RAW_POINTER(path),
                                     AC_RAW_POINTER(text), (long)size));
}

static inline int ac_raw_access(const char *path, int mode) {
    return (int)ac_raw_answer(
        ac_raw_call(SYS_faccessat, AT_FDCWD, AC_RAW_POINTER(path), mode, 0));
}

static inline int ac_raw_unlink(const char *path) {
    return (int)ac_raw_answer(ac_raw_call(SYS_unlinkat, AT_FDCWD, AC_RAW_POINTER(path), 0, 0));
}

static inline int ac_raw_rmdir(const char *path) {
    return (int)ac_raw_answer(
        ac_raw_call(SYS_unlinkat, AT_FDCWD, AC_RAW_POINTER(path), AT_REMOVEDIR, 0));
}

static inline int ac_raw_rename(const char *from, const char *to) {
#if defined(SYS_renameat)
    return (int)ac_raw_answer(
        ac_raw_call(SYS_renameat, AT_FDCWD, AC_RAW_POINTER(from), AT_FDCWD, AC_RAW_POINTER(to)));
#else
    return rename(from, to);
#endif
}

/* Returns the length with the NUL.  The text does not begin with a slash if the folder cannot be reached from the
 * root. */
static inline long ac_raw_getcwd(char *text, size_t size) {
    return ac_raw_answer(ac_raw_call(SYS_getcwd, AC_RAW_POINTER(text), (long)size, 0, 0));
}

static inline bool ac_raw_is_terminal(int fd) {
    enum { GET = 0x5401, SIZE = 256 }; /* TCGETS */
    char settings[SIZE];
    return ac_raw_call(SYS_ioctl, fd, GET, AC_RAW_POINTER(settings), 0) == 0;
}

/* ---- time ---- */

/* The clock function of the vDSO, which activation sets if it finds it.  NULL: the code makes the system call, which
 * takes several times as long. */
typedef int ac_raw_clock_fn(clockid_t clock, struct timespec *now);
extern _Atomic(ac_raw_clock_fn *) ac_raw_clock;

static inline struct timespec ac_raw_time(clockid_t clock) {
    struct timespec now = {0, 0};
    ac_raw_clock_fn *function = atomic_load_explicit(&ac_raw_clock, memory_order_relaxed);
    if (!function || function(clock, &now) != 0)
        ac_raw_call(SYS_clock_gettime, clock, AC_RAW_POINTER(&now), 0, 0);
    return now;
}

static inline int64_t ac_raw_ns(clockid_t clock) {
    struct timespec now = ac_raw_time(clock);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- signals: sets as the kernel has them, a bit for each ---- */

typedef struct {
    uint64_t bits;
} ac_raw_signals_t;

static inline ac_raw_signals_t ac_raw_pending(void) {
    ac_raw_signals_t set = {0};
    ac_raw_call(SYS_rt_sigpending, AC_RAW_POINTER(&set), sizeof set, 0, 0);
    return set;
}

static inline ac_raw_signals_t ac_raw_mask(int how, ac_raw_signals_t set) {
    ac_raw_signals_t old = {0};
    ac_raw_call(SYS_rt_sigprocmask, how, AC_RAW_POINTER(&set), AC_RAW_POINTER(&old), sizeof set);
    return old;
}

/* Takes one pending signal of the set, if there is one. */
static inline void ac_raw_take_signal(ac_raw_signals_t set) {
    struct timespec at_once = {0, 0};
    ac_raw_call(SYS_rt_sigtimedwait, AC_RAW_POINTER(&set), 0, AC_RAW_POINTER(&at_once),
                sizeof set);
}

#endif

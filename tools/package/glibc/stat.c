/* stat and its variants for programs that run with glibc before 2.33.  There, they were inline functions
 * around __xstat.  These are the system calls themselves, which fill the same struct as the C library on
 * both kinds of machine. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if !defined(__x86_64__) && !defined(__aarch64__)
#error "stat.c: is struct stat here the one of the kernel?"
#endif

int fstatat(int folder, const char *restrict path, struct stat *restrict result, int flags) {
    return (int)syscall(SYS_newfstatat, folder, path, result, flags);
}

int stat(const char *restrict path, struct stat *restrict result) {
    return fstatat(AT_FDCWD, path, result, 0);
}

int lstat(const char *restrict path, struct stat *restrict result) {
    return fstatat(AT_FDCWD, path, result, AT_SYMLINK_NOFOLLOW);
}

int fstat(int fd, struct stat *result) {
    return (int)syscall(SYS_fstat, fd, result);
}

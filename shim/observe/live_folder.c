/* The folders of live pages, and the check whether a page's process still runs; see live.h and live_file.h.
 *
 * Another user may have put files into a folder, and another process of this user may change them at any
 * time.  So the code checks each opened file by fstat before it uses the file, and no open waits.  Only
 * opendir allocates.  The code uses no stdio streams and takes no locks. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "observe/live_file.h"
#include "observe/raw.h"

static bool is_folder(const char *path) {
    struct stat st;
    int saved = errno;
    bool there = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    errno = saved;
    return there;
}

const char *ac_live_dir_missing(void) {
    const char *dir = secure_getenv("ACCEL_LIVE_DIR");
    return dir && *dir && !is_folder(dir) ? dir : NULL;
}

const char *ac_live_dir(void) {
    const char *dir = secure_getenv("ACCEL_LIVE_DIR");
    return dir && *dir && is_folder(dir) ? dir : AC_LIVE_DIR;
}

uint64_t ac_live_space(void) {
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
}

bool ac_live_parse(const char *file, uint64_t *space, int *pid) {
    char *end;
    if (*file < '0' || *file > '9')
        return false;
    *space = strtoull(file, &end, 10);
    if (*end != '-' || end[1] < '1' || end[1] > '9')
        return false;
    long number = strtol(end + 1, &end, 10);
    *pid = (int)number;
    return !*end && number <= INT32_MAX;
}

int ac_live_home_open(const char *home, unsigned user) {
    char path[512];
    struct stat st;
    int n = snprintf(path, sizeof path, "%s/%s", ac_live_dir(), home);
    if (n < 0 || (size_t)n >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && (fstat(fd, &st) != 0 || st.st_uid != user || (st.st_mode & 022))) {
        close(fd);
        errno = EPERM;
        return -1;
    }
    return fd;
}

int ac_live_file_open(int home, const char *file, unsigned user, struct stat *st) {
    /* The check before the open is needed because an open may change the state of a device. */
    if (fstatat(home, file, st, AT_SYMLINK_NOFOLLOW) != 0)
        return -1;
    int fd = -1;
    bool regular = S_ISREG(st->st_mode) && st->st_uid == user;
    if (regular) {
        fd = openat(home, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0)
            return -1;
        regular = fstat(fd, st) == 0 && S_ISREG(st->st_mode) && st->st_uid == user;
    }
    if (regular)
        return fd;
    if (fd >= 0)
        close(fd);
    errno = EPERM;
    return -1;
}

/* ---- does its process run ---- */

bool ac_live_proc_is_ours(void) {
    char text[32];
    ssize_t n = readlink("/proc/self", text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    return strtol(text, NULL, 10) == getpid();
}

/* Reads the start time, in clock ticks since boot, and the state letter of a process from /proc/<pid>/stat.
 * Returns false if the process does not exist or /proc is of another namespace. */
static bool read_identity(int pid, uint64_t *start_ticks, char *state) {
    char name[32], text[1024];
    snprintf(name, sizeof name, "/proc/%d/stat", pid);
    int fd = ac_live_proc_is_ours() ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    /* Field 2 is the program's name in parentheses.  The name may itself contain parentheses. */
    const char *at = strrchr(text, ')');
    if (!at || at[1] != ' ' || !at[2])
        return false;
    *state = at[2];
    at++;
    for (int field = 3; field <= 22; field++) {
        at = strchr(at, ' ');
        if (!at)
            return false;
        at++;
    }
    *start_ticks = strtoull(at, NULL, 10);
    return true;
}

static bool started_after(uint64_t start_ticks, uint64_t opened_ns) {
    return start_ticks * (1000000000u / (uint64_t)sysconf(_SC_CLK_TCK)) > opened_ns;
}

bool ac_process_runs(int pid, uint64_t opened_ns) {
    uint64_t start_ticks;
    char state;
    return read_identity(pid, &start_ticks, &state) && !started_after(start_ticks, opened_ns) &&
           state != 'Z' && state != 'X';
}

bool ac_process_stopped(int pid) {
    uint64_t start_ticks;
    char state;
    return read_identity(pid, &start_ticks, &state) && (state == 'T' || state == 't');
}

typedef enum { HELD, FREE, UNKNOWN } hold_t;

/* Finds out whether a process of any pid namespace has the file mapped or open for writing.  Only the page's own
 * process does that.  The kernel grants a read lease if no process does, and only to the owner or root.  If
 * a process opens the file for writing during the lease, the lease holder gets a signal.  It is SIGURG,
 * because programs ignore that by default and expect it to come without a cause. */
static hold_t look_for_holder(int fd) {
    if (fcntl(fd, F_SETSIG, SIGURG) != 0)
        return UNKNOWN;
    if (fcntl(fd, F_SETLEASE, F_RDLCK) != 0)
        return errno == EAGAIN ? HELD : UNKNOWN;
    fcntl(fd, F_SETLEASE, F_UNLCK);
    return FREE;
}

/* A fork child that never ran a fork handler also holds its parent's page.  So in the caller's own namespace the
 * pid must exist, too.  The state and start time from /proc count only if the lease gave no answer, because
 * they may mislead.  A process looks like a zombie when only its main thread has ended.  The start time may
 * be of another clock (a time namespace, a library that fakes time). */
bool ac_live_gone(int fd, bool here, int pid, uint64_t opened_ns) {
    hold_t hold = look_for_holder(fd);
    uint64_t start_ticks;
    char state;
    if (hold == FREE || !here)
        return hold == FREE;
    if (kill(pid, 0) != 0 && errno == ESRCH)
        return true;
    return hold == UNKNOWN && read_identity(pid, &start_ticks, &state) &&
           (state == 'Z' || state == 'X' || (opened_ns && started_after(start_ticks, opened_ns)));
}

/* ---- the folder that this process has its page in ---- */

/* Counts the entries by reading the folder; stops after `most` + 1. */
static int count_entries(int fd, int most) {
    struct entry { /* the kernel's */
        uint64_t inode;
        int64_t offset;
        uint16_t bytes;
        unsigned char type;
        char name[];
    };
    _Alignas(struct entry) char entries[2048];
    int count = 0;
    for (long length = 1; length > 0 && count <= most;) {
        const struct entry *entry;
        length = ac_raw_call(SYS_getdents64, fd, AC_RAW_POINTER(entries), sizeof entries, 0);
        for (long at = 0; at < length && count <= most; at += entry->bytes) {
            entry = (const struct entry *)(const void *)(entries + at);
            count += entry->name[0] != '.';
        }
    }
    return count;
}

/* Counts the files of the folder, at most `most` + 1.  The size of a tmpfs folder is 20 bytes per entry, including
 * `.` and `..`.  So the code reads a tmpfs folder only if it has many entries. */
int ac_live_count(int most) {
    enum { TMPFS = 0x01021994, ENTRY = 20 };
    struct statfs system;
    struct stat st;
    int fd = ac_raw_open(ac_live_file.home, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0)
        return 0;
    int count;
    if (ac_raw_call(SYS_fstatfs, fd, AC_RAW_POINTER(&system), 0, 0) == 0 &&
        system.f_type == TMPFS && ac_raw_fstat(fd, &st) == 0 &&
        st.st_size <= ((off_t)most + 2) * ENTRY)
        count = (int)(st.st_size / ENTRY) - 2;
    else
        count = count_entries(fd, most);
    ac_raw_close(fd);
    return count;
}

enum { AT_ONCE = 32 };

typedef struct {
    int count, kept; /* files seen; entries of `oldest`, which is sorted */
    struct {
        uint64_t space;
        int pid;
        struct timespec time;
    } oldest[AT_ONCE];
} pages_t;

static bool earlier(struct timespec a, struct timespec b) {
    return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}

static void see_page(pages_t *pages, int home, const char *file) {
    struct stat st;
    uint64_t space;
    int pid;
    if (!ac_live_parse(file, &space, &pid) || fstatat(home, file, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return;
    pages->count++;
    int at = pages->kept;
    while (at > 0 && earlier(st.st_mtim, pages->oldest[at - 1].time))
        at--;
    if (at == AT_ONCE)
        return;
    if (pages->kept < AT_ONCE)
        pages->kept++;
    memmove(&pages->oldest[at + 1], &pages->oldest[at],
            (size_t)(pages->kept - at - 1) * sizeof pages->oldest[0]);
    pages->oldest[at].space = space;
    pages->oldest[at].pid = pid;
    pages->oldest[at].time = st.st_mtim;
}

bool ac_live_file_remove(int home, const char *file) {
    static const char *const beside[] = {"ipc", "sock", "rows"};
    char name[sizeof ac_live_file.name + sizeof ".sock"];
    for (unsigned i = 0; i < sizeof beside / sizeof *beside; i++) {
        int n = snprintf(name, sizeof name, "%s.%s", file, beside[i]);
        if (n > 0 && (size_t)n < sizeof name)
            unlinkat(home, name, 0);
    }
    return unlinkat(home, file, 0) == 0;
}

static bool remove_dead(int home, uint64_t space, int pid, uint64_t own_space) {
    char file[64];
    struct stat st;
    snprintf(file, sizeof file, "%llu-%d", (unsigned long long)space, pid);
    int fd = ac_live_file_open(home, file, geteuid(), &st);
    if (fd < 0)
        return false;
    uint64_t opened_ns = 0;
    if (pread(fd, &opened_ns, sizeof opened_ns, offsetof(ac_live_t, opened_ns)) !=
        (ssize_t)sizeof opened_ns)
        opened_ns = 0;
    bool gone = ac_live_gone(fd, space && space == own_space, pid, opened_ns);
    close(fd);
    return gone && ac_live_file_remove(home, file);
}

/* Without this function, programs that always end by _exit would fill the folder over time.  Workers of Python's
 * multiprocessing do so. */
void ac_live_tidy(void) {
    enum { MOST_SEEN = 4096 }; /* limits the work: the folder may have any number of files */
    pages_t pages = {.count = 0};
    if (ac_live_count(AC_LIVE_MOST_DEAD) <= AC_LIVE_MOST_DEAD)
        return;
    DIR *dir = opendir(ac_live_file.home);
    if (!dir)
        return;
    const struct dirent *entry;
    while (pages.count < MOST_SEEN && (entry = readdir(dir)))
        see_page(&pages, dirfd(dir), entry->d_name);
    for (int i = 0; i < pages.kept && pages.count > AC_LIVE_MOST_DEAD; i++)
        if (remove_dead(dirfd(dir), pages.oldest[i].space, pages.oldest[i].pid, ac_live->space))
            pages.count--;
    closedir(dir);
}

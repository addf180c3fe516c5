/* Creation of the shared live page: its file, its first memory, and the process fields; see live.h.
 *
 * Unused parts of the file are holes, and the page stays private there.  The reason is code that walks over the
 * library's data (a garbage collector, a leak checker).  On a full file system, an access to a mapped hole would
 * raise a signal.  Rows and devices are mapped when they are taken (ac_live_back).
 * Memory is allocated by MADV_POPULATE_WRITE, which fails in cases in which an access would raise a signal.
 * On a kernel without it the file has no holes.
 *
 * The code allocates nothing, uses no stdio streams and takes no locks. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "observe/live_file.h"
#include "observe/start.h"
#include "observe/write.h"

/* ---- process fields ---- */

/* Reads up to `size` bytes of a file.  Returns their number, 0 if the file cannot be opened. */
static size_t read_file(const char *name, char *data, size_t size) {
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    size_t length = 0;
    while (length < size) {
        ssize_t n = read(fd, data + length, size - length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        length += (size_t)n;
    }
    close(fd);
    return length;
}

static void fill_rank(char *rank, size_t size) {
    static const char *const variables[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
                                            "SLURM_PROCID", "RANK"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *value = secure_getenv(variables[i]);
        if (!value || !*value)
            continue;
        if (value[strspn(value, "0123456789")] == '\0' && strlen(value) < size)
            memcpy(rank, value, strlen(value) + 1);
        return;
    }
}

/* The program's arguments, cut to the room in the page. */
AC_START_DATA static const char *arguments;
AC_START_DATA static size_t argument_bytes;

/* Stores the arguments only if they still lie one after the other, as the kernel puts them.  A program may have
 * changed the pointers before the library was opened. */
AC_START void ac_live_arguments(int argc, char **argv) {
    enum { ROOM = sizeof((ac_live_t *)NULL)->argv - 2 };
    const char *at = argc > 0 && argv ? argv[0] : NULL;
    for (int i = 0; i < argc && at && at - argv[0] < ROOM; i++) {
        if (argv[i] != at)
            return;
        at += strlen(at) + 1;
    }
    if (!at)
        return;
    arguments = argv[0];
    argument_bytes = at - argv[0] < ROOM ? (size_t)(at - argv[0]) : ROOM;
}

static void fill_process(ac_live_t *page, uint64_t space) {
    struct timespec now;
    page->pid = (int32_t)getpid();
    page->ppid = (int32_t)getppid();
    page->space = space;
    clock_gettime(CLOCK_BOOTTIME, &now);
    page->opened_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    clock_gettime(CLOCK_REALTIME, &now);
    page->start_time_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    if (gethostname(page->host, sizeof page->host - 1) != 0)
        page->host[0] = '\0';
    const char *exe = (const char *)getauxval(AT_EXECFN);
    size_t n = exe ? strnlen(exe, sizeof page->exe - 1) : 0;
    if (n)
        memcpy(page->exe, exe, n);
    page->exe[n] = '\0';
    if (arguments)
        memcpy(page->argv, arguments, argument_bytes);
    else
        argument_bytes = read_file("/proc/self/cmdline", page->argv, sizeof page->argv - 2);
    memset(page->argv + argument_bytes, 0, sizeof page->argv - argument_bytes);
    fill_rank(page->rank, sizeof page->rank);
}

/* Copies the hook names; leaves out names that do not fit. */
static void fill_names(ac_live_t *page, const char *names, size_t bytes, unsigned count) {
    size_t used = 0;
    page->hook_count = 0;
    while (page->hook_count < count && page->hook_count < AC_LIVE_HOOKS) {
        const char *end = used < bytes ? memchr(names + used, '\0', bytes - used) : NULL;
        if (!end || (size_t)(end + 1 - names) > AC_LIVE_NAMES)
            break;
        used = (size_t)(end + 1 - names);
        page->hook_count++;
    }
    memcpy(page->hook_names, names, used);
}

static void fill(ac_live_t *page, uint64_t space, const char *names, size_t bytes,
                 unsigned count) {
    fill_process(page, space);
    fill_names(page, names, bytes, count);
    page->version = ac_live_version();
    page->size = sizeof *page;
    page->state = AC_LIVE_RUNNING;
    __atomic_store_n(&page->magic, AC_LIVE_MAGIC, __ATOMIC_RELEASE); /* a reader may be waiting */
}

/* ---- the file ---- */

AC_START_DATA bool ac_live_strayed;

/* Opens the user's folder at `path`.  Returns -1 and errno on failure; EEXIST if the name belongs to something
 * else. */
static int open_home(const char *path) {
    struct stat st;
    int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        if (errno == ENOTDIR || errno == ELOOP) /* of the name, or of the folder above it */
            errno = EEXIST;
        return -1;
    }
    if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && !(st.st_mode & 022)) {
        if ((st.st_mode & 0700) != 0700) /* made under a strict umask */
            chmod(path, 0700);
        return fd;
    }
    close(fd);
    errno = EEXIST;
    return -1;
}

/* Makes a folder with a name that no other user can guess.  The next process does not search for it, because other
 * users could make a search of DIR take any time. */
static int make_stray_home(ac_live_file_t *file) {
    size_t length = strlen(file->home);
    if (length + sizeof ".XXXXXX" > sizeof file->home)
        return ENAMETOOLONG;
    memcpy(file->home + length, ".XXXXXX", sizeof ".XXXXXX");
    if (!mkdtemp(file->home))
        return errno;
    ac_live_strayed = true;
    return 0;
}

int ac_live_home_make(const char *path) {
    int fd = open_home(path);
    if (fd < 0 && errno == ENOENT) {
        if (mkdir(path, 0700) != 0 && errno != EEXIST)
            return errno;
        fd = open_home(path);
    }
    if (fd < 0)
        return errno;
    close(fd);
    return 0;
}

/* Finds or makes the folder of this user. */
static int enter_home(ac_live_file_t *file) {
    int failure = ac_live_home_make(file->home);
    return failure == EEXIST ? make_stray_home(file) : failure;
}

/* Removes an old file with the name of this process's page.  It belongs to an ended process that had this pid, or to
 * this process before an exec.  If the pid namespace is unknown, the file may be of a living process of another
 * namespace. */
static int remove_stale(const char *name, uint64_t space) {
    struct stat st;
    int fd = ac_live_file_open(AT_FDCWD, name, geteuid(), &st);
    if (fd < 0)
        return errno == ENOENT ? 0 : errno == EPERM ? EEXIST : errno;
    bool gone = space || ac_live_gone(fd, false, 0, 0);
    close(fd);
    return !gone ? EEXIST : ac_live_file_remove(AT_FDCWD, name) || errno == ENOENT ? 0 : errno;
}

/* Creates the file of the page.  It tries several times, because an empty folder may be removed at any moment (for
 * example by ac_live_remove). */
static int create_exclusively(ac_live_file_t *file, uint64_t space, int *fd) {
    enum { ATTEMPTS = 8 };
    char home[sizeof file->home];
    int failure = EEXIST;
    memcpy(home, file->home, sizeof home);
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        memcpy(file->home, home, sizeof home);
        failure = enter_home(file);
        if (failure == ENOENT && attempt < ATTEMPTS - 1)
            continue;
        if (failure)
            return failure;
        int n = snprintf(file->name, sizeof file->name, "%s/%llu-%d", file->home,
                         (unsigned long long)space, (int)getpid());
        if (n < 0 || (size_t)n >= sizeof file->name)
            return ENAMETOOLONG;
        *fd = ac_open_above(file->name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0400);
        if (*fd >= 0)
            return 0;
        failure = errno;
        if (failure != ENOENT && failure != EEXIST)
            break;
        if (failure == EEXIST && (failure = remove_stale(file->name, space)))
            break;
    }
    return failure ? failure : EEXIST;
}

static int reserve_all(int fd) {
    int failure;
    do
        failure = posix_fallocate(fd, 0, AC_LIVE_BYTES);
    while (failure == EINTR);
    return failure;
}

static void *map_file(int fd, void *place, size_t bytes) {
    return mmap(place, bytes, PROT_READ | PROT_WRITE, place ? MAP_SHARED | MAP_FIXED : MAP_SHARED,
                fd, 0);
}

static size_t whole_pages(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

/* Shares a page without earlier contents: maps the first members in place and allocates their memory. */
static int share_fresh(int fd) {
    size_t ready = whole_pages(offsetof(ac_live_t, row[AC_LIVE_ROWS_READY]));
    char *whole = map_file(fd, NULL, AC_LIVE_BYTES);
    if (whole == MAP_FAILED)
        return errno;
    int failure = map_file(fd, ac_live_storage, ready) == MAP_FAILED ? errno : 0;
    if (!failure && madvise(ac_live_storage, ready, MADV_POPULATE_WRITE) == 0) {
        atomic_store(&ac_live_whole, whole);
        return 0;
    }
    if (!failure)
        failure = reserve_all(fd);
    if (!failure && map_file(fd, ac_live_storage, AC_LIVE_BYTES) == MAP_FAILED)
        failure = errno;
    if (failure) /* restore the private page */
        mmap(ac_live_storage, ready, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0);
    munmap(whole, AC_LIVE_BYTES);
    return failure;
}

/* Copies earlier counts and warnings to the shared page. */
static void carry_over(ac_live_t *to, const ac_live_t *from) {
    to->warning_count = __atomic_load_n(&from->warning_count, __ATOMIC_RELAXED);
    memcpy(to->warning, from->warning, sizeof to->warning);
    for (int i = 0; i < AC_LIVE_ROWS; i++) {
        to->row_owner[i] = __atomic_load_n(&from->row_owner[i], __ATOMIC_ACQUIRE);
        if (ac_live_has_row(to, i))
            to->row[i] = from->row[i];
    }
    to->rows_beside = __atomic_load_n(&from->rows_beside, __ATOMIC_RELAXED);
    memcpy(to->total_memory, from->total_memory, sizeof to->total_memory);
    to->devices = __atomic_load_n(&from->devices, __ATOMIC_ACQUIRE);
    for (unsigned i = 0; i < AC_LIVE_DEVICES; i++)
        if (to->devices >> i & 1)
            *ac_live_device_at(to, i) = *ac_live_device_at((ac_live_t *)(uintptr_t)from, i);
}

/* Shares a page with earlier contents: copies them to a file without holes and moves its mapping into place. */
static int share_used(int fd) {
    int failure = reserve_all(fd);
    if (failure)
        return failure;
    void *page = map_file(fd, NULL, AC_LIVE_BYTES);
    if (page == MAP_FAILED)
        return errno;
    carry_over(page, ac_live);
    if (mremap(page, AC_LIVE_BYTES, AC_LIVE_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED,
               ac_live_storage) == MAP_FAILED) {
        failure = errno;
        munmap(page, AC_LIVE_BYTES);
        return failure;
    }
    char *whole = atomic_exchange(&ac_live_whole, NULL);
    if (whole)
        munmap(whole, AC_LIVE_BYTES);
    return 0;
}

static int share(int fd) {
    if (ftruncate(fd, AC_LIVE_BYTES) != 0)
        return errno;
    return atomic_load(&ac_live_used) ? share_used(fd) : share_fresh(fd);
}

/* Removes the folder with random characters, if this process made one.  Returns `failure`. */
static int give_up(const ac_live_file_t *file, int failure) {
    if (ac_live_strayed)
        rmdir(file->home);
    ac_live_strayed = false;
    return failure;
}

static int open_page(uint64_t space) {
    struct stat st;
    ac_live_file_t file;
    int fd, failure;
    if ((uintptr_t)ac_live_storage % (uintptr_t)sysconf(_SC_PAGESIZE) != 0 ||
        AC_LIVE_BYTES % (size_t)sysconf(_SC_PAGESIZE) != 0)
        return EINVAL;
    int n = snprintf(file.home, sizeof file.home, "%s/accelcache-%u", ac_live_dir(),
                     (unsigned)geteuid());
    if (n < 0 || (size_t)n >= sizeof file.home)
        return ENAMETOOLONG;
    ac_live_strayed = false;
    failure = create_exclusively(&file, space, &fd);
    if (failure)
        return give_up(&file, failure);
    failure = fstat(fd, &st) == 0 ? share(fd) : errno;
    if (!failure && !(st.st_mode & 0400))
        fchmod(fd, 0400);
    close(fd);
    if (failure) {
        unlink(file.name);
        return give_up(&file, failure);
    }
    file.device = st.st_dev;
    file.inode = st.st_ino;
    ac_live_file = file;
    return 0;
}

int ac_live_open(const char *conf, const char *hook_names, size_t bytes, unsigned hook_count) {
    /* Beyond a file size limit, the growth of a file causes a signal in addition to the error. */
    ac_signal_hold_t hold;
    uint64_t space = ac_live_space();
    ac_signals_hold(&hold);
    int failure = open_page(space);
    ac_signals_release(&hold);
    fill(ac_live, space, hook_names, bytes, hook_count);
    atomic_store(&ac_live_used, true);
    ac_live_set_conf(conf);
    atomic_store(&ac_live_common, &ac_live->row[0]);
    ac_live_gather();
    return failure;
}

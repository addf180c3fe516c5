/* Sharing the live page: its file, what of it has memory from the start, the process fields; see
 * live.h.
 *
 * The shared page is filled at an address of its own and then moved over the private one, so that
 * nobody ever sees it half filled.  Memory is had by asking the kernel to write to the mapping
 * (MADV_POPULATE_WRITE), which fails where a touch would raise a signal; a kernel that does not
 * know how gets a file without holes instead.
 *
 * No allocation, no stdio streams, no locks. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "observe/live_file.h"
#include "observe/write.h"

/* ---- process fields ---- */

const char *ac_live_dir(void) {
    const char *dir = secure_getenv("ACCEL_LIVE_DIR");
    return dir && *dir ? dir : AC_LIVE_DIR;
}

int ac_live_file_name(int pid, char *path, size_t size) {
    int n = snprintf(path, size, "%s/accelcache-%u-%d", ac_live_dir(), (unsigned)geteuid(), pid);
    return n < 0 || (size_t)n >= size ? ENAMETOOLONG : 0;
}

/* At most `size` bytes; returns how many, 0 on any failure. */
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

static void fill_process(ac_live_t *page) {
    struct timespec now;
    page->pid = (int32_t)getpid();
    page->ppid = (int32_t)getppid();
    clock_gettime(CLOCK_BOOTTIME, &now);
    page->opened_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    clock_gettime(CLOCK_REALTIME, &now);
    page->start_time_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    if (gethostname(page->host, sizeof page->host - 1) != 0)
        page->host[0] = '\0';
    ssize_t n = readlink("/proc/self/exe", page->exe, sizeof page->exe - 1);
    page->exe[n > 0 ? n : 0] = '\0';
    size_t length = read_file("/proc/self/cmdline", page->argv, sizeof page->argv - 2);
    memset(page->argv + length, 0, sizeof page->argv - length);
    fill_rank(page->rank, sizeof page->rank);
}

/* Names that do not fit are left out. */
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

static void fill(ac_live_t *page, const char *names, size_t bytes, unsigned count) {
    fill_process(page);
    fill_names(page, names, bytes, count);
    page->version = AC_LIVE_VERSION;
    page->size = sizeof *page;
    page->state = AC_LIVE_RUNNING;
    page->magic = AC_LIVE_MAGIC;
}

/* ---- the file ---- */

/* A file of this name that is in the way belongs to a process whose pid was reused, or to this
 * process before it called exec: nobody else has this pid.  Remove it if it is plainly ours. */
static int remove_stale(const char *name) {
    struct stat st;
    if (lstat(name, &st) != 0)
        return errno == ENOENT ? 0 : errno;
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
        return EEXIST;
    return unlink(name) == 0 || errno == ENOENT ? 0 : errno;
}

static int create_exclusively(const char *name, int *fd) {
    for (int attempt = 0; attempt < 3; attempt++) {
        *fd = ac_open_above(name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (*fd >= 0)
            return 0;
        if (errno != EEXIST)
            return errno;
        int failure = remove_stale(name);
        if (failure)
            return failure;
    }
    return EEXIST;
}

/* With memory for what is used at once: all before the rows, and the first two of these. */
static int map_file(int fd, ac_live_t **page, bool *sparse) {
    if (ftruncate(fd, AC_LIVE_BYTES) != 0)
        return errno;
    void *at = mmap(NULL, AC_LIVE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return errno;
    int failure = 0;
    *sparse = ac_live_back(at, offsetof(ac_live_t, row[2]));
    if (!*sparse) {
        do
            failure = posix_fallocate(fd, 0, AC_LIVE_BYTES);
        while (failure == EINTR);
    }
    if (failure)
        munmap(at, AC_LIVE_BYTES);
    else
        *page = at;
    return failure;
}

/* What was counted and said before.  False: no memory for it. */
static bool carry_over(ac_live_t *to, const ac_live_t *from, bool sparse) {
    bool rows = false;
    to->warning_count = __atomic_load_n(&from->warning_count, __ATOMIC_RELAXED);
    if (to->warning_count)
        memcpy(to->warning, from->warning, sizeof to->warning);
    for (int i = 1; i < AC_LIVE_ROWS; i++) {
        to->row_owner[i] = __atomic_load_n(&from->row_owner[i], __ATOMIC_ACQUIRE);
        if (to->row_owner[i] == AC_LIVE_FRESH)
            continue;
        if (sparse && !ac_live_back(&to->row[i], sizeof to->row[i]))
            return false;
        to->row[i] = from->row[i];
        rows = true;
    }
    if (rows)
        to->row[0] = from->row[0];
    to->devices = __atomic_load_n(&from->devices, __ATOMIC_ACQUIRE);
    for (unsigned i = 0; i < AC_LIVE_DEVICES; i++) {
        if (!(to->devices >> i & 1))
            continue;
        if (sparse && !ac_live_back(&to->device[i], sizeof to->device[i]))
            return false;
        to->device[i] = from->device[i];
        to->total_memory[i] = from->total_memory[i];
    }
    return true;
}

static int share(int fd, ac_live_t **shared, bool *sparse) {
    ac_live_t *page = NULL;
    int failure = map_file(fd, &page, sparse);
    if (failure)
        return failure;
    if (!carry_over(page, ac_live, *sparse)) {
        munmap(page, AC_LIVE_BYTES);
        return ENOSPC;
    }
    *shared = page;
    return 0;
}

/* A page that can be moved to the place of the private one; *name and *st are its file's. */
static int open_page(ac_live_t **page, bool *sparse, ac_live_file_t *file) {
    struct stat st;
    int fd, failure;
    if ((uintptr_t)ac_live_storage % (uintptr_t)sysconf(_SC_PAGESIZE) != 0 ||
        AC_LIVE_BYTES % (size_t)sysconf(_SC_PAGESIZE) != 0)
        return EINVAL;
    failure = ac_live_file_name(getpid(), file->name, sizeof file->name);
    if (failure)
        return failure;
    failure = create_exclusively(file->name, &fd);
    if (failure)
        return failure;
    failure = fstat(fd, &st) == 0 ? share(fd, page, sparse) : errno;
    close(fd);
    file->device = st.st_dev;
    file->inode = st.st_ino;
    if (failure)
        unlink(file->name);
    return failure;
}

static int put_in_place(ac_live_t *page, bool sparse, const ac_live_file_t *file) {
    if (mremap(page, AC_LIVE_BYTES, AC_LIVE_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED,
               ac_live_storage) == MAP_FAILED) {
        int failure = errno;
        munmap(page, AC_LIVE_BYTES);
        unlink(file->name);
        return failure;
    }
    atomic_store(&ac_live_sparse, sparse);
    ac_live_file = *file;
    return 0;
}

int ac_live_open(const char *conf, const char *hook_names, size_t bytes, unsigned hook_count) {
    ac_live_t *page = NULL;
    ac_live_file_t file;
    bool sparse = false;
    /* A file size limit answers the growth of a file with a signal as well as with an error. */
    ac_signal_hold_t hold;
    ac_signals_hold(&hold);
    int failure = open_page(&page, &sparse, &file);
    if (!failure) {
        fill(page, hook_names, bytes, hook_count);
        failure = put_in_place(page, sparse, &file);
    }
    ac_signals_release(&hold);
    if (failure)
        fill(ac_live, hook_names, bytes, hook_count);
    ac_live_set_conf(conf);
    atomic_store(&ac_live_common, &ac_live->row[0]);
    ac_live_gather();
    return failure;
}

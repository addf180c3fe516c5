/* The live page of this process: opening, closing, fork, counter rows, warnings; see live.h.
 *
 * The page has one address for the whole life of the process: private zero memory at first, and
 * then the shared file mapped over it in place.  Threads may keep pointers to their rows across
 * ac_live_open and across fork, and no hook ever asks whether the page is there.
 *
 * No allocation, no stdio streams, no locks; shared words are touched by atomic builtins. */
#include "observe/live.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "observe/live_file.h"
#include "observe/write.h"

/* A file can be mapped over the page only where it fills whole pages of the machine by itself.
 * Larger alignments than the linker's page size are not kept by older dynamic linkers. */
#if defined(__aarch64__) || defined(__powerpc64__)
enum { ALIGNMENT = 65536 };
#else
enum { ALIGNMENT = 4096 };
#endif

static union {
    _Alignas(ALIGNMENT) ac_live_t page;
    char whole_pages[(sizeof(ac_live_t) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT];
} storage;

ac_live_t *ac_live = &storage.page;

static ac_live_row_t beside;
_Atomic(ac_live_row_t *) ac_live_common = &beside;

void ac_live_gather(void) {
    for (unsigned i = 0; i < AC_LIVE_COUNTERS; i++) {
        uint64_t n = __atomic_load_n(&beside.counter[i], __ATOMIC_RELAXED);
        if (n && (n = __atomic_exchange_n(&beside.counter[i], 0, __ATOMIC_RELAXED)))
            __atomic_fetch_add(&ac_live->row[0].counter[i], n, __ATOMIC_RELAXED);
    }
}

/* The page's file while it is mapped; an empty name otherwise. */
static struct {
    char name[512];
    dev_t device;
    ino_t inode;
} file;

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

bool ac_process_identity(int pid, uint64_t *start_ticks, char *state) {
    char name[32] = "/proc/self/stat", text[1024];
    if (pid != 0)
        snprintf(name, sizeof name, "/proc/%d/stat", pid);
    size_t length = read_file(name, text, sizeof text - 1);
    text[length] = '\0';
    /* Field 2 is the program's name in parentheses and may hold anything, parentheses as well. */
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
    char state;
    struct timespec now;
    page->pid = (int32_t)getpid();
    page->ppid = (int32_t)getppid();
    ac_process_identity(0, &page->start_ticks, &state);
    clock_gettime(CLOCK_REALTIME, &now);
    page->start_time_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    if (gethostname(page->host, sizeof page->host - 1) != 0)
        page->host[0] = '\0';
    ssize_t n = readlink("/proc/self/exe", page->exe, sizeof page->exe - 1);
    page->exe[n > 0 ? n : 0] = '\0';
    memset(page->argv, 0, sizeof page->argv);
    size_t length = read_file("/proc/self/cmdline", page->argv, sizeof page->argv - 2);
    memset(page->argv + length, 0, sizeof page->argv - length);
    fill_rank(page->rank, sizeof page->rank);
}

void ac_live_set_conf(const char *conf) {
    size_t n = conf ? strnlen(conf, AC_LIVE_CONF - 1) : 0;
    uint32_t odd = __atomic_load_n(&ac_live->conf_turn, __ATOMIC_RELAXED) | 1;
    __atomic_store_n(&ac_live->conf_turn, odd, __ATOMIC_RELAXED);
    /* Each byte brings the odd turn along: who sees one of them sees that as well. */
    for (size_t i = 0; i < AC_LIVE_CONF; i++)
        __atomic_store_n(&ac_live->conf[i], i < n ? conf[i] : '\0', __ATOMIC_RELEASE);
    __atomic_store_n(&ac_live->conf_turn, odd + 1, __ATOMIC_RELEASE);
}

void ac_live_conf(const ac_live_t *page, char conf[AC_LIVE_CONF]) {
    enum { TRIES = 1000 };
    for (int i = 0; i < TRIES; i++) {
        uint32_t turn = __atomic_load_n(&page->conf_turn, __ATOMIC_ACQUIRE);
        for (size_t at = 0; at < AC_LIVE_CONF; at++)
            conf[at] = __atomic_load_n(&page->conf[at], __ATOMIC_ACQUIRE);
        if (!(turn & 1) && __atomic_load_n(&page->conf_turn, __ATOMIC_RELAXED) == turn)
            return;
        sched_yield();
    }
    conf[AC_LIVE_CONF - 1] = '\0';
}

/* ---- opening ---- */

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

static int write_page(int fd) {
    const char *data = storage.whole_pages;
    size_t done = 0;
    while (done < sizeof storage) {
        ssize_t n = pwrite(fd, data + done, sizeof storage - done, (off_t)done);
        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            return n == 0 ? ENOSPC : errno;
    }
    return 0;
}

/* Reserve, copy, map.  Without the reservation a full file system would answer the first write
 * to a page of the mapping with SIGBUS, long after this returned. */
static int share_storage(int fd) {
    int failure;
    do
        failure = posix_fallocate(fd, 0, sizeof storage);
    while (failure == EINTR);
    if (failure == 0)
        failure = write_page(fd);
    if (failure == 0 && mmap(&storage, sizeof storage, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
        failure = errno;
    return failure;
}

static int open_page(const char *conf, const char *const *hook_names, unsigned hook_count) {
    ac_live_t *page = ac_live;
    fill_process(page);
    ac_live_set_conf(conf);
    page->hook_count = hook_count < AC_LIVE_HOOKS ? hook_count : AC_LIVE_HOOKS;
    for (unsigned i = 0; i < page->hook_count; i++) {
        size_t n = strnlen(hook_names[i], AC_LIVE_NAME - 1);
        memcpy(page->hook_name[i], hook_names[i], n);
        page->hook_name[i][n] = '\0';
    }
    page->magic = AC_LIVE_MAGIC;
    page->version = AC_LIVE_VERSION;
    page->size = sizeof *page;
    page->state = AC_LIVE_RUNNING;

    if ((uintptr_t)page % (uintptr_t)sysconf(_SC_PAGESIZE) != 0 ||
        sizeof storage % (size_t)sysconf(_SC_PAGESIZE) != 0)
        return EINVAL;
    char name[sizeof file.name];
    int fd, failure = ac_live_file_name(page->pid, name, sizeof name);
    if (failure)
        return failure;
    /* A file size limit answers fallocate with a signal as well as with an error. */
    ac_signal_hold_t hold;
    ac_signals_hold(&hold);
    failure = create_exclusively(name, &fd);
    if (failure == 0) {
        struct stat st;
        failure = fstat(fd, &st) == 0 ? share_storage(fd) : errno;
        if (failure) {
            unlink(name);
        } else {
            memcpy(file.name, name, sizeof name);
            file.device = st.st_dev;
            file.inode = st.st_ino;
        }
        close(fd);
    }
    ac_signals_release(&hold);
    return failure;
}

int ac_live_open(const char *conf, const char *const *hook_names, unsigned hook_count) {
    int failure = open_page(conf, hook_names, hook_count);
    atomic_store(&ac_live_common, &ac_live->row[0]);
    ac_live_gather();
    return failure;
}

void ac_live_close(void) {
    struct stat st;
    if (!file.name[0] || ac_live->pid != (int32_t)getpid())
        return;
    ac_live->state = AC_LIVE_EXITED;
    /* Containers that share the folder may have the same pid twice: remove our own file only. */
    if (lstat(file.name, &st) == 0 && st.st_dev == file.device && st.st_ino == file.inode)
        unlink(file.name);
    file.name[0] = '\0';
}

void ac_live_fork_child(void) {
    /* The thread that called fork goes on to use its row, so the rows' owners are kept; those of
     * the threads that do not exist here are lost, and row 0 serves in their place. */
    uint32_t owner[AC_LIVE_ROWS];
    memset(&beside, 0, sizeof beside);
    memcpy(owner, ac_live->row_owner, sizeof owner);
    if (mmap(&storage, sizeof storage, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0) == MAP_FAILED &&
        !file.name[0])
        memset(&storage, 0, sizeof storage); /* private anyway, merely not fit for mmap */
    for (int i = 0; i < AC_LIVE_ROWS; i++) {
        if (owner[i])
            ac_live->row_owner[i] = owner[i];
    }
    file.name[0] = '\0';
}

/* ---- counter rows ---- */

ac_live_row_t *ac_live_row_take(bool *shared) {
    ac_live_t *page = ac_live;
    for (int i = 1; i < AC_LIVE_ROWS; i++) {
        uint32_t nobody = 0;
        if (__atomic_load_n(&page->row_owner[i], __ATOMIC_RELAXED) == 0 &&
            __atomic_compare_exchange_n(&page->row_owner[i], &nobody, 1, false, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED)) {
            *shared = false;
            return &page->row[i];
        }
    }
    *shared = true;
    return &page->row[0];
}

void ac_live_row_return(ac_live_row_t *row) {
    ac_live_t *page = ac_live;
    if (row == &page->row[0])
        return;
    for (unsigned i = 0; i < AC_LIVE_COUNTERS; i++) {
        uint64_t n = row->counter[i];
        if (n == 0)
            continue;
        __atomic_store_n(&row->counter[i], 0, __ATOMIC_RELAXED);
        __atomic_fetch_add(&page->row[0].counter[i], n, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&page->row_owner[row - page->row], 0, __ATOMIC_RELEASE);
}

void ac_live_caches(const ac_live_t *page, unsigned device, ac_cache_sum_t *sum) {
    memset(sum, 0, sizeof *sum);
    for (int i = 1; i < AC_LIVE_ROWS; i++)
        for (int k = 0; k < AC_LIVE_CACHES; k++) {
            const ac_cache_books_t *books = &page->row[i].cache[k];
            if (__atomic_load_n(&books->device, __ATOMIC_RELAXED) == device + 1)
                ac_cache_books_add((ac_cache_books_t *)(uintptr_t)books, false, sum);
        }
}

/* Calls of the runtime that may be served without it. */
static uint64_t runtime_calls(const ac_live_t *page) {
    static const char *const functions[] = {"cudaMalloc", "cudaFree"}; /* and what begins so */
    uint64_t sum = 0;
    for (unsigned hook = 0; hook < page->hook_count && hook < AC_LIVE_HOOKS; hook++)
        for (int i = 0; i < 2; i++)
            if (strncmp(page->hook_name[hook], functions[i], strlen(functions[i])) == 0)
                sum += ac_live_sum(page, AC_COUNT_HOOKS + hook);
    return sum;
}

uint64_t ac_live_sum(const ac_live_t *page, unsigned counter) {
    uint64_t sum = 0;
    if (counter == AC_COUNT_fast_hits) /* not counted one by one: a hit counts the call only */
        return runtime_calls(page) - ac_live_sum(page, AC_COUNT_runtime_forwarded);
    for (int i = 0; i < AC_LIVE_ROWS; i++)
        sum += __atomic_load_n(&page->row[i].counter[counter], __ATOMIC_RELAXED);
    return sum;
}

/* ---- warnings ---- */

void ac_live_warn(const char *text) {
    ac_live_t *page = ac_live;
    size_t n = strnlen(text, AC_LIVE_TEXT - 1);
    if (n == 0)
        return;
    uint32_t count = __atomic_load_n(&page->warning_count, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < count && i < AC_LIVE_WARNINGS; i++) {
        /* The first byte is written last: until then the rest is another thread's. */
        const char *kept = page->warning[i];
        if (__atomic_load_n(kept, __ATOMIC_ACQUIRE) == text[0] &&
            strncmp(kept + 1, text + 1, n - 1) == 0 && kept[n] == '\0')
            return;
    }
    /* Two threads may pass the search with the same text at once: the dump drops the second. */
    uint32_t slot = __atomic_fetch_add(&page->warning_count, 1, __ATOMIC_RELAXED);
    if (slot < AC_LIVE_WARNINGS) {
        memcpy(page->warning[slot] + 1, text + 1, n - 1);
        __atomic_store_n(&page->warning[slot][0], text[0], __ATOMIC_RELEASE);
    }
}

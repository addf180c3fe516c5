/* The live page of this process: counter rows, devices, configuration, warnings, closing, fork;
 * see live.h.  live_open.c shares the page.
 *
 * The page has one address for the whole life of the process.  It is private zero memory at first.  Then the
 * shared file is mapped over it in place.  So threads may keep pointers to their rows across ac_live_open and
 * fork, and no hook has to check whether the page exists.
 *
 * The code allocates nothing, uses no stdio streams and takes no locks.  It accesses shared words by atomic
 * builtins. */
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

#include "failpoint.h"
#include "observe/filter.h"
#include "observe/live_file.h"
#include "observe/live_rows.h"
#include "observe/raw.h"
#include "observe/start.h"
#include "observe/write.h"

ac_live_t *ac_live = (ac_live_t *)(void *)ac_live_storage;
ac_live_file_t ac_live_file;
AC_START_DATA _Atomic(char *) ac_live_whole;
AC_START_DATA _Atomic bool ac_live_used;

static ac_live_row_t beside;
_Atomic(ac_live_row_t *) ac_live_common = &beside;

AC_START_DATA _Atomic bool ac_live_added;

void ac_live_gather(void) {
    if (!atomic_load(&ac_live_added))
        return;
    for (unsigned i = 0; i < AC_LIVE_COUNTERS; i++) {
        uint64_t n = __atomic_load_n(&beside.counter[i], __ATOMIC_RELAXED);
        if (n && (n = __atomic_exchange_n(&beside.counter[i], 0, __ATOMIC_RELAXED)))
            __atomic_fetch_add(&ac_live->row[0].counter[i], n, __ATOMIC_RELAXED);
    }
}

/* Maps a part of the file over the page, while other threads may already use that part.  With an old length of 0
 * mremap makes a second mapping of shared memory.  If that is not supported (valgrind), the file is opened
 * again.  Its mode allows that only to root; for other users the function returns false. */
static bool map_again(char *whole, size_t first, size_t bytes) {
    struct stat st;
    void *place = ac_live_storage + first;
    if (mremap(whole + first, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place) != MAP_FAILED)
        return true;
    int fd = ac_open_above(ac_live_file.name,
                           O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
    if (fd < 0)
        return false;
    bool done = fstat(fd, &st) == 0 && st.st_dev == ac_live_file.device &&
                st.st_ino == ac_live_file.inode &&
                mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                     (off_t)first) != MAP_FAILED;
    close(fd);
    return done;
}

bool ac_live_back(const void *at, size_t size) {
    char *whole = atomic_load(&ac_live_whole);
    if (!whole)
        return true;
    if (ac_filter_now()) /* a program's sandbox need not allow madvise and mremap */
        return false;
    int saved = errno;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t offset = (uintptr_t)at - (uintptr_t)ac_live_storage;
    uintptr_t first = offset & ~(page - 1), end = (offset + size + page - 1) & ~(page - 1);
    bool done = madvise(whole + first, end - first, MADV_POPULATE_WRITE) == 0 &&
                map_again(whole, first, end - first);
    errno = saved;
    return done;
}

/* Private device entries, made if the page has no memory for an entry. */
static _Atomic(ac_live_device_t *) device_beside[AC_LIVE_DEVICES];
AC_START_DATA static _Atomic bool any_beside; /* stored after the first of them */

static ac_live_device_t *find_beside(unsigned device) {
    return atomic_load(&any_beside) ? atomic_load(&device_beside[device]) : NULL;
}

/* ---- the configuration ---- */

void ac_live_set_conf(const char *conf) {
    size_t n = conf ? strnlen(conf, AC_LIVE_CONF - 1) : 0;
    size_t old = strnlen(ac_live->conf, AC_LIVE_CONF);
    uint32_t odd = __atomic_load_n(&ac_live->conf_turn, __ATOMIC_RELAXED) | 1;
    __atomic_store_n(&ac_live->conf_turn, odd, __ATOMIC_RELAXED);
    /* Release order of each byte: a reader that sees a new byte also sees the odd turn. */
    for (size_t i = 0; i < n || i < old; i++)
        __atomic_store_n(&ac_live->conf[i], i < n ? conf[i] : '\0', __ATOMIC_RELEASE);
    __atomic_store_n(&ac_live->conf_turn, odd + 1, __ATOMIC_RELEASE);
}

bool ac_live_conf(const ac_live_t *page, char conf[AC_LIVE_CONF]) {
    enum { TRIES = 1000, QUICK = 100, PAUSE_NS = 20000 };
    for (int i = 0; i < TRIES; i++) {
        uint32_t turn = __atomic_load_n(&page->conf_turn, __ATOMIC_ACQUIRE);
        size_t at = 0;
        do
            conf[at] = __atomic_load_n(&page->conf[at], __ATOMIC_ACQUIRE);
        while (conf[at] && ++at < AC_LIVE_CONF);
        if (!(turn & 1) && __atomic_load_n(&page->conf_turn, __ATOMIC_RELAXED) == turn)
            return true;
        /* The writer may have lost its processor: give it more than a moment. */
        if (i < QUICK)
            sched_yield();
        else
            nanosleep(&(struct timespec){0, PAUSE_NS}, NULL);
    }
    conf[AC_LIVE_CONF - 1] = '\0';
    return false;
}

/* ---- closing ---- */

void ac_live_close(void) {
    struct stat st;
    if (!ac_live_file.name[0] || ac_live->pid != (int32_t)ac_raw_getpid())
        return;
    char name[sizeof ac_live_file.name];
    memcpy(name, ac_live_file.name, sizeof name);
    ac_live->state = AC_LIVE_EXITED;
    __atomic_store_n(&ac_live_file.name[0], '\0', __ATOMIC_SEQ_CST);
    /* If the pid namespace is unknown, another process may have reused the name. */
    bool there = ac_raw_lstat(name, &st) == 0;
    bool other = there && (st.st_dev != ac_live_file.device || st.st_ino != ac_live_file.inode);
    if (there && !other)
        ac_raw_unlink(name);
    if (!other)
        ac_live_more_close(name);
    if (ac_live_strayed) /* the next process makes another one */
        ac_raw_rmdir(ac_live_file.home);
}

void ac_live_fork_child(void) {
    ac_live_more_fork_child();
    /* The owners of rows are kept, because the thread that called fork still uses its row.  Rows of threads
     * that do not exist in the child are never reused; row 0 serves instead. */
    uint32_t owner[AC_LIVE_ROWS];
    memset(&beside, 0, sizeof beside);
    memcpy(owner, ac_live->row_owner, sizeof owner);
    if (mmap(ac_live_storage, AC_LIVE_BYTES, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0) == MAP_FAILED &&
        !ac_live_file.name[0])
        memset(ac_live_storage, 0, AC_LIVE_BYTES); /* private anyway, merely not fit for mmap */
    char *whole = atomic_exchange(&ac_live_whole, NULL);
    if (whole)
        munmap(whole, AC_LIVE_BYTES);
    for (unsigned i = 0; i < AC_LIVE_DEVICES; i++)
        atomic_store(&device_beside[i], NULL);
    for (int i = 0; i < AC_LIVE_ROWS; i++) {
        if (owner[i])
            ac_live->row_owner[i] = owner[i];
    }
    ac_live_file.name[0] = '\0';
}

/* ---- counter rows ---- */

/* Returns true if the row has memory.  Allocates memory for a row that no thread ever had; two threads may do so at
 * once. */
static bool row_is_there(ac_live_t *page, int i, uint32_t owner) {
    return i < AC_LIVE_ROWS_READY || owner == AC_LIVE_RETURNED ||
           ac_live_back(&page->row[i], sizeof page->row[i]);
}

/* Returns the next row of the rows that follow a copied page (ac_live_read). */
static const ac_live_row_t *copied_after(const ac_live_t *page, const ac_live_row_t *row) {
    const ac_live_row_t *behind = (const ac_live_row_t *)(const void *)(page + 1);
    size_t next = row ? (size_t)(row - behind) + 1 : 0;
    return next < page->rows_more ? &behind[next] : NULL;
}

/* Returns the next row that may be read, after `row` or the first one for NULL; NULL at the end.  It includes rows
 * outside of the page. */
static const ac_live_row_t *next_row(const ac_live_t *page, const ac_live_row_t *row) {
    const ac_live_row_t *end = page->row + AC_LIVE_ROWS;
    bool inside = !row || (row >= page->row && row < end);
    if (inside) {
        row = row ? row + 1 : page->row; /* threads take rows in order: all rows after a fresh one are fresh */
        if (row < end && ac_live_has_row(page, (int)(row - page->row)))
            return row;
        row = NULL;
    }
    return page == ac_live ? ac_live_more_next(row) : copied_after(page, row);
}

ac_live_row_t *ac_live_row_take(bool *shared) {
    ac_live_t *page = ac_live;
    ac_live_row_t *more;
    bool full = false;
    atomic_store_explicit(&ac_live_used, true, memory_order_relaxed);
    for (int i = 1; i < AC_LIVE_ROWS; i++) {
        uint32_t owner = __atomic_load_n(&page->row_owner[i], __ATOMIC_RELAXED);
        if (owner == AC_LIVE_TAKEN || (full && owner == AC_LIVE_FRESH))
            continue;
        if (!row_is_there(page, i, owner)) {
            full = true; /* do not try each further row */
            continue;
        }
        if (__atomic_compare_exchange_n(&page->row_owner[i], &owner, AC_LIVE_TAKEN, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
            *shared = false;
            return &page->row[i];
        }
    }
    more = full ? NULL : ac_live_more_take();
    *shared = !more;
    return more ? more : &page->row[0];
}

/* Makes the row available to other threads. */
static void give_row(ac_live_row_t *row) {
    ac_live_t *page = ac_live;
    if (row > page->row && row < page->row + AC_LIVE_ROWS)
        __atomic_store_n(&page->row_owner[row - page->row], AC_LIVE_RETURNED, __ATOMIC_RELEASE);
    else
        ac_live_more_return(row);
}

void ac_live_row_return(ac_live_row_t *row) {
    ac_live_t *page = ac_live;
    if (row == &page->row[0])
        return;
    if (AC_FAILPOINT(row_returned_early))
        give_row(row);
    AC_WINDOW(row_returns);
    for (unsigned i = 0; i < AC_LIVE_COUNTERS; i++) {
        uint64_t n = row->counter[i];
        if (n == 0)
            continue;
        __atomic_store_n(&row->counter[i], 0, __ATOMIC_RELAXED);
        __atomic_fetch_add(&page->row[0].counter[i], n, __ATOMIC_RELAXED);
    }
    give_row(row);
}

const char *ac_live_hook_next(const ac_live_t *page, const char *name) {
    const char *end = page->hook_names + AC_LIVE_NAMES;
    const char *next = name ? name + strlen(name) + 1 : page->hook_names;
    return next < end && *next && memchr(next, '\0', (size_t)(end - next)) ? next : NULL;
}

void ac_live_caches(const ac_live_t *page, unsigned device, ac_cache_sum_t *sum) {
    memset(sum, 0, sizeof *sum);
    for (const ac_live_row_t *row = NULL; (row = next_row(page, row));)
        for (int k = 0; k < AC_LIVE_CACHES; k++) {
            const ac_cache_tally_t *tally = &row->cache[k];
            if (__atomic_load_n(&tally->device, __ATOMIC_RELAXED) == device + 1)
                ac_cache_tally_add((ac_cache_tally_t *)(uintptr_t)tally, false, sum);
        }
}

void ac_live_modules(const ac_live_t *page, unsigned device, ac_modules_t *modules) {
    for (const ac_live_row_t *row = NULL; (row = next_row(page, row));)
        for (int k = 0; k < AC_LIVE_CACHES; k++) {
            const ac_cache_tally_t *tally = &row->cache[k];
            if (__atomic_load_n(&tally->device, __ATOMIC_RELAXED) == device + 1)
                ac_cache_tally_modules(tally, modules);
        }
}

bool ac_live_module(const char *name, unsigned *number) {
    enum { SPINS = 1000 };
    size_t length = strlen(name);
    const char *kept = name + (length < AC_LIVE_MODULE ? 0 : length - (AC_LIVE_MODULE - 1));
    for (unsigned i = 1; i < AC_MODULES; i++) {
        uint32_t *state = &ac_live->module_state[i];
        uint32_t seen = __atomic_load_n(state, __ATOMIC_ACQUIRE);
        if (seen == AC_LIVE_NAMELESS &&
            __atomic_compare_exchange_n(state, &seen, AC_LIVE_NAMING, false, __ATOMIC_ACQUIRE,
                                        __ATOMIC_ACQUIRE)) {
            strcpy(ac_live->module[i], kept);
            __atomic_store_n(state, AC_LIVE_NAMED, __ATOMIC_RELEASE);
            seen = AC_LIVE_NAMED;
        }
        for (int spins = 0; seen == AC_LIVE_NAMING && spins < SPINS; spins++)
            seen = __atomic_load_n(state, __ATOMIC_ACQUIRE);
        if (seen != AC_LIVE_NAMED)
            return false;
        *number = i;
        if (strcmp(ac_live->module[i], kept) == 0)
            return true;
    }
    *number = AC_MODULE_UNKNOWN;
    return true;
}

/* Returns the number of calls to runtime functions that the library may serve without the runtime. */
static uint64_t runtime_calls(const ac_live_t *page) {
    static const char *const functions[] = {"cudaMalloc", "cudaFree"}; /* and what begins so */
    uint64_t sum = 0;
    const char *name = ac_live_hook_next(page, NULL);
    for (unsigned hook = 0; name; hook++, name = ac_live_hook_next(page, name))
        for (int i = 0; i < 2; i++)
            if (strncmp(name, functions[i], strlen(functions[i])) == 0)
                sum += ac_live_sum(page, AC_COUNT_HOOKS + hook);
    return sum;
}

uint64_t ac_live_sum(const ac_live_t *page, unsigned counter) {
    uint64_t sum = 0;
    if (counter == AC_COUNT_fast_hits) /* derived, because a hit counts only the call */
        return runtime_calls(page) - ac_live_sum(page, AC_COUNT_runtime_forwarded);
    for (const ac_live_row_t *row = NULL; (row = next_row(page, row));)
        sum += __atomic_load_n(&row->counter[counter], __ATOMIC_RELAXED);
    return sum;
}

/* ---- devices ---- */

static bool has_device(const ac_live_t *page, unsigned device) {
    return __atomic_load_n(&page->devices, __ATOMIC_ACQUIRE) >> device & 1;
}

static ac_live_device_t *take_beside(unsigned device) {
    ac_live_device_t *other = NULL;
    ac_live_device_t *entry =
        mmap(NULL, sizeof *entry, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (entry == MAP_FAILED)
        return NULL;
    if (atomic_compare_exchange_strong(&device_beside[device], &other, entry)) {
        atomic_store(&any_beside, true);
        return entry;
    }
    munmap(entry, sizeof *entry);
    return other;
}

ac_live_device_t *ac_live_device_take(unsigned device, bool *private_p) {
    ac_live_device_t *entry = find_beside(device);
    *private_p = entry;
    if (entry)
        return entry;
    atomic_store_explicit(&ac_live_used, true, memory_order_relaxed);
    entry = ac_live_device_at(ac_live, device);
    if (device == 0 || has_device(ac_live, device) || ac_live_back(entry, sizeof *entry))
        return entry;
    *private_p = true;
    return take_beside(device);
}

void ac_live_device_publish(unsigned device) {
    if (!find_beside(device))
        __atomic_fetch_or(&ac_live->devices, (uint64_t)1 << device, __ATOMIC_RELEASE);
}

const ac_live_device_t *ac_live_device(const ac_live_t *page, unsigned device) {
    if (has_device(page, device))
        return ac_live_device_at((ac_live_t *)(uintptr_t)page, device);
    return page == ac_live ? find_beside(device) : NULL;
}

/* ---- warnings ---- */

void ac_live_warn(const char *text) {
    ac_live_t *page = ac_live;
    size_t n = strnlen(text, AC_LIVE_TEXT - 1);
    if (n == 0)
        return;
    atomic_store_explicit(&ac_live_used, true, memory_order_relaxed);
    uint32_t count = __atomic_load_n(&page->warning_count, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < count && i < AC_LIVE_WARNINGS; i++) {
        /* The first byte is written last.  Until then another thread writes the rest. */
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

/* Counter rows for threads that find no row in the page (live.h).  They lie in the file FILE.rows next to the
 * page, which is made for the first of these threads.  If the file cannot be made, rows are in private memory.
 *
 * The file has holes like the page.  It is mapped whole for the life of the process, and a row gets memory
 * before its first use.  The owners of rows are not in the file: readers add up all rows that were ever used. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "observe/filter.h"
#include "observe/live_file.h"
#include "observe/live_rows.h"
#include "observe/raw.h"
#include "observe/start.h"
#include "observe/write.h"

enum { FILE_BYTES = AC_LIVE_MORE * sizeof(ac_live_row_t) };

static _Atomic(ac_live_row_t *) rows;         /* the file's; NULL: there is none */
static _Atomic uint32_t owners[AC_LIVE_MORE]; /* ac_live_owner_t */
static char rows_name[sizeof ac_live_file.name + sizeof ".rows"];
static _Atomic unsigned stage;   /* of the file */
enum { NOT_BEGUN, BEGUN, DONE }; /* BEGUN: a thread makes it; DONE: it exists, or cannot be made */

/* Rows in private memory.  They are never unmapped. */
typedef struct more_rows {
    ac_live_row_t row;
    _Atomic uint32_t owner; /* ac_live_owner_t */
    struct more_rows *next;
} more_rows_t;
static _Atomic(more_rows_t *) private_rows;

/* ------------------------------------------------------------------ the file */

/* Returns true if the page is shared and not closed. */
static bool is_shared(void) {
    return __atomic_load_n(&ac_live_file.name[0], __ATOMIC_SEQ_CST);
}

static ac_live_row_t *map_file(void) {
    void *memory = MAP_FAILED;
    int fd = ac_open_above(rows_name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0400);
    if (fd < 0)
        return NULL;
    if (ftruncate(fd, FILE_BYTES) == 0 && fchmod(fd, 0400) == 0) /* whatever the umask is */
        memory = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory != MAP_FAILED && is_shared())
        return memory;
    ac_raw_unlink(
        rows_name); /* also if the page was closed before this file existed */
    if (memory != MAP_FAILED)
        munmap(memory, FILE_BYTES);
    return NULL;
}

/* Makes the file, once.  Signals are held, because a file size limit causes a signal in addition to the error.
 * Other threads wait a short time for the file, because thread pools start many threads at once. */
static void make_file(void) {
    enum { SPINS = 100, PAUSE_NS = 100000 }; /* 10 ms at most */
    ac_signal_hold_t hold;
    unsigned seen = NOT_BEGUN;
    int saved = errno;
    if (!is_shared() || ac_filter_now())
        return;
    if (atomic_compare_exchange_strong(&stage, &seen, BEGUN)) {
        snprintf(rows_name, sizeof rows_name, "%s.rows", ac_live_file.name);
        if (rows_name[0] != '.') { /* closed meanwhile */
            ac_signals_hold(&hold);
            atomic_store(&rows, map_file());
            ac_signals_release(&hold);
        }
        atomic_store(&stage, DONE);
    }
    for (int spins = 0; atomic_load(&stage) == BEGUN && spins < SPINS; spins++)
        nanosleep(&(struct timespec){0, PAUSE_NS}, NULL);
    errno = saved;
}

/* Allocates memory for a row that no thread ever had; two threads may do so at once. */
static bool back(ac_live_row_t *row) {
    int saved = errno;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)row & ~(page - 1), end = (uintptr_t)(row + 1);
    bool done = !ac_filter_now() && madvise((void *)first, (end - first + page - 1) & ~(page - 1),
                                            MADV_POPULATE_WRITE) == 0;
    errno = saved;
    return done;
}

static void note_used(uint32_t count) {
    uint32_t *most = &ac_live->rows_more, was = __atomic_load_n(most, __ATOMIC_RELAXED);
    while (was < count && !__atomic_compare_exchange_n(most, &was, count, false, __ATOMIC_RELEASE,
                                                       __ATOMIC_RELAXED))
        continue;
}

static ac_live_row_t *take_of_file(void) {
    if (atomic_load(&stage) != DONE)
        make_file();
    ac_live_row_t *file = atomic_load(&rows);
    for (uint32_t i = 0; file && i < AC_LIVE_MORE; i++) {
        uint32_t owner = atomic_load_explicit(&owners[i], memory_order_relaxed);
        if (owner == AC_LIVE_TAKEN)
            continue;
        if (owner == AC_LIVE_FRESH && !back(&file[i]))
            return NULL;
        if (atomic_compare_exchange_strong(&owners[i], &owner, AC_LIVE_TAKEN)) {
            note_used(i + 1);
            return &file[i];
        }
    }
    return NULL;
}

/* ------------------------------------------------------------------ for live.c */

ac_live_row_t *ac_live_more_take(void) {
    ac_live_row_t *row = take_of_file();
    if (row)
        return row;
    for (more_rows_t *more = atomic_load(&private_rows); more; more = more->next) {
        uint32_t owner = AC_LIVE_RETURNED;
        if (atomic_compare_exchange_strong(&more->owner, &owner, AC_LIVE_TAKEN)) {
            __atomic_fetch_add(&ac_live->rows_beside, 1, __ATOMIC_RELAXED);
            return &more->row;
        }
    }
    int kept = errno;
    more_rows_t *more =
        mmap(NULL, sizeof *more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    errno = kept;
    if (more == MAP_FAILED)
        return NULL;
    atomic_store(&more->owner, AC_LIVE_TAKEN);
    __atomic_fetch_add(&ac_live->rows_beside, 1, __ATOMIC_RELAXED);
    more->next = atomic_load(&private_rows);
    while (!atomic_compare_exchange_weak(&private_rows, &more->next, more))
        continue;
    return &more->row;
}

static bool is_of_file(const ac_live_row_t *row, const ac_live_row_t *file) {
    return file && row >= file && row < file + AC_LIVE_MORE;
}

void ac_live_more_return(ac_live_row_t *row) {
    const ac_live_row_t *file = atomic_load(&rows);
    if (is_of_file(row, file)) {
        atomic_store_explicit(&owners[row - file], AC_LIVE_RETURNED, memory_order_release);
        return;
    }
    __atomic_fetch_sub(&ac_live->rows_beside, 1, __ATOMIC_RELAXED);
    atomic_store(&((more_rows_t *)(void *)row)->owner, AC_LIVE_RETURNED);
}

const ac_live_row_t *ac_live_more_next(const ac_live_row_t *row) {
    const ac_live_row_t *file = atomic_load(&rows);
    const more_rows_t *more = NULL;
    if (!row || is_of_file(row, file)) {
        size_t used = __atomic_load_n(&ac_live->rows_more, __ATOMIC_ACQUIRE);
        size_t next = row ? (size_t)(row - file) + 1 : 0;
        if (file && next < used)
            return &file[next];
        more = atomic_load(&private_rows);
    } else {
        more = ((const more_rows_t *)(const void *)row)->next; /* `row` is its first member */
    }
    return more ? &more->row : NULL;
}

void ac_live_more_close(const char *page) {
    char name[sizeof rows_name];
    snprintf(name, sizeof name, "%s.rows", page);
    if (atomic_load(&stage) != NOT_BEGUN)
        ac_raw_unlink(name);
}

/* Used rows of the file become private zero memory, because the child's thread may own one of them.  Unused rows
 * become inaccessible.  Further threads of the child get rows in private memory. */
void ac_live_more_fork_child(void) {
    ac_live_row_t *file = atomic_load(&rows);
    for (more_rows_t *more = atomic_load(&private_rows); more; more = more->next)
        memset(&more->row, 0, sizeof more->row);
    if (!file)
        return;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t used = (ac_live->rows_more * sizeof *file + page - 1) & ~(page - 1);
    if (used)
        mmap(file, used, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0);
    if (used <
        FILE_BYTES) /* PROT_NONE takes no memory: strict overcommit might refuse this amount */
        mmap((char *)file + used, FILE_BYTES - used, PROT_NONE,
             MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0);
}

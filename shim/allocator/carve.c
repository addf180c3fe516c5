/* A piece of mapped memory at a time, cut from front to end, and for tables from the end
 * (carve.h). */
#include "allocator/carve.h"
#include "lock.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/* Pieces grow: a small program touches few pages, a large one makes few system calls. */
enum { FIRST = 128 << 10, LAST = 1 << 20, MOST = 64 << 10, AT_ONCE = 20 << 10, PAGE = 4 << 10 };
_Static_assert(MOST + PAGE <= FIRST, "a piece has no room for the largest table");

/* Beyond MANY bytes records come from pieces of huge pages, if the kernel has them.  A program with very
 * many records looks at them here and there; on small pages each look would also miss the processor's
 * table of pages.  Tables stay on small pages: most of a table is never touched. */
enum { MANY = 6 << 20, HUGE_PAGE = 2 << 20, HUGE_PIECE = 4 << 20 };

static ac_mutex_t lock = AC_MUTEX(LEAF);
static char *at; /* of the piece: records come from here on, tables from the end */
static size_t left, next = FIRST;
static char *huge_at; /* of the piece of huge pages */
static size_t huge_left, cut_so_far;

/* There are `bytes` left. */
static bool have(size_t bytes) {
    if (left >= bytes)
        return true;
    void *piece = mmap(NULL, next, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (piece == MAP_FAILED)
        return false;
    if (next == FIRST) { /* of which every program uses about so much: fewer faults */
        int kept = errno;
        madvise(piece, AT_ONCE, MADV_POPULATE_WRITE);
        errno = kept; /* older kernels do not know how */
    }
    at = piece;
    left = next;
    next = next < LAST ? 2 * next : LAST;
    return true;
}

/* Maps memory as `have` does, and gives back the parts before and behind the huge pages. */
static bool have_huge(size_t bytes) {
    if (huge_left >= bytes || cut_so_far < MANY)
        return huge_left >= bytes;
    int kept = errno;
    char *piece = mmap(NULL, HUGE_PIECE + HUGE_PAGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (piece == MAP_FAILED) {
        errno = kept; /* small pages may serve */
        return false;
    }
    size_t before = -(uintptr_t)piece & (HUGE_PAGE - 1);
    if (before)
        munmap(piece, before);
    munmap(piece + before + HUGE_PIECE, HUGE_PAGE - before);
    huge_at = piece + before;
    huge_left = HUGE_PIECE;
    madvise(huge_at, huge_left, MADV_HUGEPAGE);
    errno = kept; /* kernels may be built without */
    return true;
}

static void *cut_from(char **from, size_t *has, size_t bytes) {
    void *memory = *from;
    *from += bytes;
    *has -= bytes;
    cut_so_far += bytes;
    return memory;
}

static void *cut(size_t bytes) {
    if (have_huge(bytes))
        return cut_from(&huge_at, &huge_left, bytes);
    return have(bytes) ? cut_from(&at, &left, bytes) : NULL;
}

static void *cut_table(size_t bytes) {
    if (!have(bytes + PAGE))
        return NULL;
    left = (((uintptr_t)at + left - bytes) & ~(uintptr_t)(PAGE - 1)) - (uintptr_t)at;
    return at + left;
}

static void *carve(size_t bytes, void *cutting(size_t)) {
    bytes = (bytes + AC_CARVE_ALIGN - 1) & ~(size_t)(AC_CARVE_ALIGN - 1);
    if (bytes > MOST)
        return NULL;
    ac_lock(&lock);
    void *memory = cutting(bytes);
    ac_unlock(&lock);
    return memory;
}

void *ac_carve(size_t bytes) {
    return carve(bytes, cut);
}

void *ac_carve_table(size_t bytes) {
    return carve(bytes, cut_table);
}

void ac_carve_fork_child(void) {
    lock = (ac_mutex_t)AC_MUTEX(LEAF);
    left = huge_left = 0;
}

/* A piece of mapped memory at a time, cut from front to end (carve.h). */
#include "allocator/carve.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/* Pieces grow: a small program touches few pages, a large one makes few system calls. */
enum { FIRST = 64 << 10, LAST = 1 << 20, AT_ONCE = 32 << 10 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *at;
static size_t left, next = FIRST;

static void *cut(size_t bytes) {
    if (left < bytes) {
        void *piece =
            mmap(NULL, next, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (piece == MAP_FAILED)
            return NULL;
        if (next == FIRST) { /* of which every program uses about so much: fewer faults */
            int kept = errno;
            madvise(piece, AT_ONCE, MADV_POPULATE_WRITE);
            errno = kept; /* older kernels do not know how */
        }
        at = piece;
        left = next;
        next = next < LAST ? 2 * next : LAST;
    }
    void *memory = at;
    at += bytes;
    left -= bytes;
    return memory;
}

void *ac_carve(size_t bytes) {
    bytes = (bytes + AC_CARVE_ALIGN - 1) & ~(size_t)(AC_CARVE_ALIGN - 1);
    if (bytes > FIRST)
        return NULL;
    pthread_mutex_lock(&lock);
    void *memory = cut(bytes);
    pthread_mutex_unlock(&lock);
    return memory;
}

void ac_carve_fork_child(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    left = 0;
}

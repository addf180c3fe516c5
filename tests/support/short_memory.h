/* Tells if a test can make host memory short by RLIMIT_AS. Sanitizers need the address
 * space themselves. Emulators of other machines accept the limit and do not enforce it. */
#ifndef SHORT_MEMORY_H
#define SHORT_MEMORY_H

#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>

static inline bool memory_can_be_short(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return false;
#else
    struct rlimit all, none;
    getrlimit(RLIMIT_AS, &all);
    none = all;
    none.rlim_cur = 4096;
    setrlimit(RLIMIT_AS, &none);
    void *more = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    setrlimit(RLIMIT_AS, &all);
    if (more != MAP_FAILED)
        munmap(more, 4096);
    return more == MAP_FAILED;
#endif
}

#endif

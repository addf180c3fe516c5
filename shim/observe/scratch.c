/* See scratch.h. */
#include "observe/scratch.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>

static _Atomic(void *) spare;

void *ac_scratch_take(void) {
    void *scratch = atomic_exchange(&spare, NULL);
    if (scratch)
        return scratch;
    int kept = errno;
    scratch = mmap(NULL, AC_SCRATCH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    errno = kept;
    return scratch == MAP_FAILED ? NULL : scratch;
}

void ac_scratch_give(void *scratch) {
    void *other = scratch ? atomic_exchange(&spare, scratch) : NULL;
    int kept = errno;
    if (other)
        munmap(other, AC_SCRATCH);
    errno = kept;
}

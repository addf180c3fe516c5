/* The order of locks, verified (lock.h).  Empty in the product. */
#include "lock.h"

#ifdef AC_CHECKED

#include <stdio.h>
#include <unistd.h>

_Thread_local uint32_t ac_ranks_held;

static void broken(const char *what, ac_rank_t rank) {
    char text[128];
    int length = snprintf(text, sizeof text, "accelcache: lock order: %s rank %d, held are %#x\n",
                          what, (int)rank, (unsigned)ac_ranks_held);
    if (write(STDERR_FILENO, text, (size_t)length) >= 0)
        __builtin_trap();
    __builtin_trap();
}

void ac_rank_check(ac_rank_t rank) {
    if (ac_ranks_held >> rank)
        broken("takes a lock of", rank);
}

void ac_rank_check_alone(ac_rank_t rank) {
    if ((ac_ranks_held & ~(UINT32_C(1) << AC_RANK_GATE)) != UINT32_C(1) << rank)
        broken("waits with a lock of", rank);
}

void ac_rank_held(ac_rank_t rank, bool held) {
    uint32_t bit = UINT32_C(1) << rank;
    if (held == ((ac_ranks_held & bit) != 0))
        broken(held ? "has twice a lock of" : "releases without holding it a lock of", rank);
    ac_ranks_held ^= bit;
}

#endif

/* The asymmetric barrier of barrier.h. */
#include "allocator/order/barrier.h"

#include "failpoint.h"

#if AC_BARRIER_TSAN

_Atomic bool ac_barrier_kernel;
_Atomic unsigned ac_barrier_word;

void ac_barrier_setup(void) {
}

bool ac_barrier_heavy(void) {
    AC_WINDOW(barrier_heavy);
    atomic_fetch_add(&ac_barrier_word, 1);
    return true;
}

#else

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

_Atomic bool ac_barrier_kernel;

#ifdef __NR_membarrier

/* Of linux/membarrier.h, whose older versions lack the last two. */
enum { QUERY = 0, PRIVATE_EXPEDITED = 1 << 3, REGISTER_PRIVATE_EXPEDITED = 1 << 4 };

static int membarrier(int command) {
    return (int)syscall(__NR_membarrier, command, 0, 0);
}

/* Whether a process that has one thread registers, which is free then. */
extern char __libc_single_threaded __attribute__((weak));
static bool is_single_threaded(void) {
    return &__libc_single_threaded && __libc_single_threaded;
}

void ac_barrier_setup(void) {
    static _Atomic bool asked;
    int kept = errno;
    if (atomic_load(&ac_barrier_kernel) || atomic_exchange(&asked, true))
        return;
    int commands = membarrier(QUERY);
    int needed = PRIVATE_EXPEDITED | REGISTER_PRIVATE_EXPEDITED;
    bool served = commands >= 0 && (commands & needed) == needed;
    if (served && is_single_threaded())
        served = membarrier(REGISTER_PRIVATE_EXPEDITED) == 0;
    if (served)
        atomic_store(&ac_barrier_kernel, true);
    errno = kept;
}

bool ac_barrier_heavy(void) {
    AC_WINDOW(barrier_heavy);
    /* First, also before the look at the answer (barrier.h). */
    atomic_thread_fence(memory_order_seq_cst);
    if (!atomic_load(&ac_barrier_kernel))
        return true;
    int kept = errno;
    bool done = membarrier(PRIVATE_EXPEDITED) == 0;
    if (!done && errno == EPERM) /* not registered yet, in this process */
        done = membarrier(REGISTER_PRIVATE_EXPEDITED) == 0 && membarrier(PRIVATE_EXPEDITED) == 0;
    errno = kept;
    return done;
}

#else

void ac_barrier_setup(void) {
}

bool ac_barrier_heavy(void) {
    AC_WINDOW(barrier_heavy);
    atomic_thread_fence(memory_order_seq_cst);
    return true;
}

#endif
#endif

/* Preloaded after the library: from fork_locks on, counts the locks that the library takes.  In
 * a fork child any of them may be held for ever, by a thread that the child does not have. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

unsigned fork_locks(void);
int pthread_mutex_lock(pthread_mutex_t *mutex);
int pthread_rwlock_rdlock(pthread_rwlock_t *lock);
int pthread_rwlock_wrlock(pthread_rwlock_t *lock);

static _Thread_local int watching, busy;
static _Thread_local unsigned taken;

/* How many were taken since it was asked before, from now on by this thread. */
unsigned fork_locks(void) {
    unsigned count = taken;
    watching = 1;
    taken = 0;
    return count;
}

static void look(const void *caller) {
    Dl_info info;
    if (!watching || busy)
        return;
    busy = 1;
    if (dladdr(caller, &info) && info.dli_fname && strstr(info.dli_fname, "libaccelcache"))
        taken++;
    busy = 0;
}

#define WATCHED(symbol, type)                                                                    \
    int symbol(type *lock) {                                                                     \
        static union {                                                                           \
            void *address;                                                                       \
            int (*call)(type *);                                                                 \
        } next;                                                                                  \
        if (!next.address)                                                                       \
            next.address = dlsym(RTLD_NEXT, #symbol);                                            \
        look(__builtin_return_address(0));                                                       \
        return next.call(lock);                                                                  \
    }
WATCHED(pthread_mutex_lock, pthread_mutex_t)
WATCHED(pthread_rwlock_rdlock, pthread_rwlock_t)
WATCHED(pthread_rwlock_wrlock, pthread_rwlock_t)

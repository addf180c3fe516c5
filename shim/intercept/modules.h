/* The modules of the process that ask for memory: objects of the loader, by a small number each
 * (AC_MODULES of observe/stats.h), whose names stand in the live page.
 *
 * The module of a request is the one that the return address of the call lies in.  For a call of
 * the runtime that is the runtime's caller, whichever driver function serves it: the runtime's
 * hooks note it in the thread's record.  A runtime that is linked into a module is part of that.
 *
 * A number belongs to a name for the life of the process: an object that is loaded again has the
 * one from before, and one that lies where another was has its own.  Not known (number 0): code
 * of no object, as a compiler makes it at run time, and of objects beyond the last number.  Of a
 * tail call the caller's caller is known (runtimes.h).
 *
 * Any thread, where it holds no lock of ours: the loader's list lock while a new page of code is
 * looked at, which dlopen does not hold while constructors run.  No allocation. */
#ifndef AC_MODULE_NUMBERS_H
#define AC_MODULE_NUMBERS_H

#include "intercept/process.h"
#include "intercept/thread.h"

/* The number of the module that code at `caller` is part of. */
unsigned ac_module_of(const void *caller);

/* The same for a request that `thread` makes by a call from there, or that a call of the runtime
 * makes for its own caller. */
static inline unsigned ac_module_asking(ac_thread_t *thread, const void *caller) {
    if (thread->asks_for)
        return thread->asks_for;
    uint64_t key = ac_fast_key(caller, ac_generation_now());
    if (thread->module_key != key) {
        thread->module = (uint8_t)ac_module_of(caller);
        thread->module_key = key;
    }
    return thread->module;
}

/* A call of the runtime, from `caller`, in which requests are that module's.  `thread` is NULL
 * where the thread has no record yet: then the block is told afterwards. */
typedef struct {
    ac_thread_t *thread;
    const void *caller, *from_before;
    uint8_t before;
} ac_asking_t;

static inline ac_asking_t ac_asking_begin(ac_thread_t *thread, const void *caller) {
    ac_asking_t asking = {.thread = thread, .caller = caller};
    if (!thread)
        return asking;
    asking.before = thread->asks_for;
    asking.from_before = thread->asks_from;
    if (atomic_load(&ac_state) == AC_STATE_ACTIVE) { /* no lock of the loader in a fork child */
        thread->asks_for = (uint8_t)ac_module_asking(thread, caller);
        thread->asks_from = thread->asks_from ? thread->asks_from : caller;
        thread->fast[AC_FAST_DRIVER_MALLOC].key = 0; /* the runtime's own code is not who asks */
    }
    return asking;
}

/* `pointer`: what the call allocated, NULL: nothing. */
void ac_asking_end(const ac_asking_t *asking, const void *pointer);

#endif

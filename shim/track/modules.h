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
 * Any thread, where it holds no lock of ours: the loader's list lock while code of another segment is
 * looked at, which dlopen does not hold while constructors run.  No allocation. */
#ifndef AC_MODULE_NUMBERS_H
#define AC_MODULE_NUMBERS_H

#include "process/process.h"
#include "track/thread.h"

/* Returns the segment of code that `caller` lies in, with the number of its module; its generation is 0.  It holds
 * until the next dlopen: only that can put other code at an address. */
ac_code_t ac_module_code(const void *caller);

/* Returns the number of the module that code at `caller` is part of. */
static inline unsigned ac_module_of(const void *caller) {
    return ac_module_code(caller).module;
}

/* Returns the module of a request that `thread` makes by a call from `caller`, or that a call of the runtime
 * makes for its own caller. */
static inline unsigned ac_module_asking(ac_thread_t *thread, const void *caller) {
    if (thread->asks_for)
        return thread->asks_for;
    uint64_t generation = ac_generation_now();
    if (thread->code.generation != generation || !ac_code_holds(&thread->code, caller)) {
        thread->code = ac_module_code(caller);
        thread->code.generation = generation;
    }
    return thread->code.module;
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
        thread->fast[AC_FAST_DRIVER_MALLOC].code.generation = 0; /* the runtime's own code is not who asks */
    }
    return asking;
}

/* `pointer`: what the call allocated, NULL: nothing. */
void ac_asking_end(const ac_asking_t *asking, const void *pointer);

#endif

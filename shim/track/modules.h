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

#include <stdbool.h>
#include <stdint.h>

/* Code that asks for memory: a segment of a loaded object, or the page of code that no object has. */
typedef struct {
    uintptr_t start, bytes;
    uint64_t generation; /* ac_generation when it was looked at; 0: nothing */
    uint8_t module;      /* that it is part of (modules.h) */
} ac_code_t;

static inline bool ac_code_holds(const ac_code_t *code, const void *caller) {
    return (uintptr_t)caller - code->start < code->bytes;
}

/* Returns the segment of code that `caller` lies in, with the number of its module; its generation is 0.  It holds
 * until the next dlopen: only that can put other code at an address. */
ac_code_t ac_module_code(const void *caller);

/* Returns the number of the module that code at `caller` is part of. */
static inline unsigned ac_module_of(const void *caller) {
    return ac_module_code(caller).module;
}

#endif

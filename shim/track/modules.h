/* The modules of the process that ask for memory.  A module is an object of the loader.  It has a
 * small number (AC_MODULES of observe/stats.h), and its name is in the live page.
 *
 * The module of a request is the one that contains the return address of the call.  A call of the
 * runtime counts for the runtime's caller, whichever driver function serves it: the runtime's hooks
 * note it in the thread's record.  A runtime that is linked into a module is part of that module.
 *
 * A number belongs to a name for the life of the process.  An object that is loaded again gets its
 * former number.  An object at the address of a former one gets a number of its own.  Number 0 means
 * unknown: code of no object, which a compiler made at run time, and objects beyond the last number.
 * For a tail call, the library sees the caller's caller (runtimes.h).
 *
 * Called by any thread that holds no lock of the library.  For code of another segment the functions
 * take the loader's list lock.  While constructors run, dlopen does not hold that lock.  No
 * allocation. */
#ifndef AC_MODULE_NUMBERS_H
#define AC_MODULE_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

/* Code that asks for memory: a segment of a loaded object, or the page of code that no object has. */
typedef struct {
    uintptr_t start, bytes;
    uint64_t generation; /* ac_generation at the look-up; 0: nothing */
    uint8_t module;      /* module that the code is part of (modules.h) */
} ac_code_t;

static inline bool ac_code_holds(const ac_code_t *code, const void *caller) {
    return (uintptr_t)caller - code->start < code->bytes;
}

/* Returns the segment of code around `caller`, with the number of its module; its generation is 0.
 * The result is valid until the next dlopen: only that can put other code at an address. */
ac_code_t ac_module_code(const void *caller);

/* Returns the number of the module that code at `caller` is part of. */
static inline unsigned ac_module_of(const void *caller) {
    return ac_module_code(caller).module;
}

#endif

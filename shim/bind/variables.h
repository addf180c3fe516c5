/* Variables of the program that have names of ours.
 *
 * Some libraries find the driver's functions at run time and keep them in exported variables of the
 * same names: `CUresult (*cuInit)(unsigned)`.  The loader binds all references to the first definition
 * in its scope: a function of this library.  The program would write into the function's code.
 *
 * This file looks for words that hold the address of one of our exports.  If the loader finds a
 * variable without us, the word is set to the variable's address.  An executable may have a copy of the
 * variable, which began with the bytes of our function.  While it still holds them it is copied again.
 *
 * The words are entries of the global offset table, and words of data.  The loader binds both before the
 * object's constructors run.  A constructor that reads its variable before it calls dlopen, dlsym or
 * cuGetProcAddress reads too early.
 *
 * Any thread, at any time, also before constructors ran.  The code takes the loader's lock only if the
 * program has a variable with a name of ours. */
#ifndef AC_VARIABLES_H
#define AC_VARIABLES_H

#include "bind/objects.h"

/* Called by the constructor.  Looks for a few usual names, and at all objects if one has a variable. */
AC_EARLY void ac_variables_start(void);

/* Called before a lookup goes on for the code at `caller`.  Looks at the caller's object, the first time at all
 * objects.  Until the next dlopen a repeated call costs a search in a table. */
AC_EARLY void ac_variables_before(const void *caller);

/* Called before a dlopen, for the call after it. */
typedef struct {
    uint64_t count; /* of objects that the process has loaded */
    bool alone;     /* no other dlopen has still to look */
} ac_loads_t;
AC_EARLY ac_loads_t ac_variables_opening(void);
/* Looks at the objects that the dlopen loaded.  `handle`: its answer; `known`: the loader's own, and not one of another
 * library's dlopen.  Leaves no error for dlerror(), unless there is no handle.  Returns true if an object may have
 * been loaded. */
AC_EARLY bool ac_variables_opened(void *handle, bool known, ac_loads_t before);

/* Set before a dlopen that does not return to the hook: objects that it loads are not examined yet. */
extern _Atomic bool ac_variables_overdue;
/* Called before dlsym(handle, name) while ac_variables_overdue is set.  Looks at the objects behind the handle, or at
 * the one that has the name. */
AC_EARLY void ac_variables_catch_up(void *handle, const char *name);

#endif

/* Variables of the program that have names of ours.
 *
 * Some libraries find the driver's functions at run time and keep them in exported variables of the
 * same names: `CUresult (*cuInit)(unsigned)`.  The loader binds all that uses such a variable to the
 * first definition in its scope, which is this library's function, and the program would write into
 * its code.  So words that hold the address of an export of ours are set to what the loader finds
 * without us, if that is a variable.  A copy that an executable has of such a variable began with the
 * bytes of our function; while it still holds them it is made again.
 *
 * The words are entries of the global offset table, and words of data: the loader binds both before
 * the object's constructors run.  What a constructor reads of its variable before it calls dlopen,
 * dlsym or cuGetProcAddress is read too early.
 *
 * Any thread, at any time, also before constructors ran and while the loader's lock is held.  The
 * loader's lock is taken only where there is such a variable, or where the caller needs it anyway. */
#ifndef AC_VARIABLES_H
#define AC_VARIABLES_H

#include "intercept/objects.h"

/* From the constructor: looks for a few usual names, and at all objects if one has a variable. */
AC_EARLY void ac_variables_start(void);

/* Before a lookup of the code at `caller` goes on: looks at its object, and at all objects the first
 * time.  Costs a search in a table until the next dlopen. */
AC_EARLY void ac_variables_before(const void *caller);

/* How many objects were loaded so far.  After a dlopen that began at `loads` and returned `handle`: looks
 * at what it loaded.  Leaves no error for dlerror(). */
AC_EARLY uint64_t ac_variables_loads(void);
AC_EARLY void ac_variables_opened(void *handle, uint64_t loads);

/* The same where the hook is not called after a dlopen: `postpone` before it, and from then on `overdue` before
 * each dlsym. */
AC_EARLY void ac_variables_postpone(void);
AC_EARLY void ac_variables_overdue(void *handle, const char *name);
extern _Atomic uint64_t ac_variables_looked; /* 0: none is overdue */

#endif

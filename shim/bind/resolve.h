/* The resolver: finds the real functions, and decides which lookups answer with a hook.
 *
 * resolve.c  the real functions, the tables from address and from name to hook
 * lookup.c   the answers: dlsym, dlopen, cuGetProcAddress, cudaGetDriverEntryPoint
 * dlsym.S    the entries of dlsym, dlopen and dlmopen, which must keep their caller
 * watch.c, watch.S  functions that no table has, noticed when they are called
 * objects.c  the loaded objects and their symbols
 * variables.c  variables of the program that have names of ours, examined before lookups and after dlopen
 * runtimes.c the choice among several CUDA runtimes for a call
 *
 * Principles.  The real lookup comes first, with the caller's handle.  Its answer is replaced
 * only if it is the address of a hooked function in the real libcuda.  The resolver therefore invents no
 * answer and catches no function that only has the same name.  The answer is the one that the process
 * would get without this library, after that replacement.  The resolver returns the outcome of its
 * last call into the loader, so that dlerror() describes that call.
 *
 * dlsym(handle, name), first row that applies ("ours": exported by this library; "next": what
 * dlsym(RTLD_NEXT, name) answers from this library; "jump": the real dlsym runs in place of
 * ours, with the caller's registers and return address):
 *
 *   1  name is not in the hook table, or is dlsym or dlopen      jump
 *   2  any answer, asked for by libcuda itself or by libucm*     never replaced by a hook
 *   handle of an object
 *   3  answer not ours                    the answer, replaced by address
 *   4  handle is this library's own       the answer
 *   5  ours, there is a next              the next, replaced by address
 *   6  ours, libcuda is behind the handle (asked by a name that we do not export)
 *                                         the function in libcuda, replaced by address
 *   7  ours, otherwise                    NULL
 *   RTLD_DEFAULT
 *   8  answer not ours                    the answer, replaced by address
 *   9  ours, there is a next              the next, replaced by address
 *  10  ours, the caller or what it needs holds a definition  (a plugin opened RTLD_LOCAL)
 *                                         that definition, replaced by address
 *  11  ours, otherwise                    NULL
 *   RTLD_NEXT, by the first object loaded after the caller's that defines the name
 *  12  it is this library                 the next, replaced by address; NULL without a next
 *  13  it is libcuda, and libcuda is in the global scope or behind the caller's object
 *                                         the function in libcuda, replaced by address
 *  14  none, but the caller or what it needs holds the function in libcuda
 *                                         that function, replaced by address
 *  15  anything else                      jump (a case of libcuda that is not certain to be
 *                                         in the caller's scope counts as an unknown way in)
 *
 * A lookup of a function that no table has returns a thunk (watch.h).  From the thunk's first call on,
 * work counts as unseen (ac_streams_unseen).  Work counts as unseen from the lookup on if the answer
 * cannot be a thunk: for data, RTLD_NEXT, a caller of row 2, and when all thunks are used.  A private
 * table that no list has (harmless.def) has the same effect.  For two functions, which change the
 * current context, the lookup returns a function of ours that calls them (lookup.c).
 *
 * Functions of the runtime (cudaMalloc, ...) are not replaced if they are found in libcudart, since
 * they call the driver and reach its hooks.  Rows 5, 9 and 12 keep our own export if the next one is
 * in libcudart.
 *
 * The rules do not know one scope: the caller is a dependency of a plugin, and finds libcuda only
 * through the plugin's other dependencies.  Row 11 then returns NULL. */
#ifndef AC_RESOLVE_H
#define AC_RESOLVE_H

#include "bind/hooks.h"
#include "bind/objects.h"

typedef struct {
    void *value; /* the answer; for dlopen the mode to use */
    void *jump;  /* the function to jump to; NULL: return the answer */
} ac_route_t;

typedef void *ac_dlsym_fn(void *handle, const char *name);
typedef void *ac_dlopen_fn(const char *file, int mode);
typedef void *ac_dlmopen_fn(long space, const char *file, int mode);

enum { AC_HOOK_NONE = -1 };

/* Returns true if `found` is the function of NVIDIA's management library that the hook stands for.  If no real
 * function is known yet, `found` becomes it. */
bool ac_nvml_takes(int hook, void *found);

typedef enum { AC_KIND_DRIVER, AC_KIND_RUNTIME, AC_KIND_LOADER, AC_KIND_NVML } ac_hook_kind_t;
extern const unsigned char ac_hook_kinds[AC_HOOK_COUNT];

/* Return dlsym, dlopen and dlmopen: libc's (_real_), and the ones that the process would use without this
 * library (_next_): another preload's or libc's.  NULL if they cannot be found; the library then replaces
 * nothing. */
AC_EARLY ac_dlsym_fn *ac_real_dlsym(void);
AC_EARLY ac_dlopen_fn *ac_real_dlopen(void);
AC_EARLY ac_dlmopen_fn *ac_real_dlmopen(void);
AC_EARLY ac_dlsym_fn *ac_next_dlsym(void);
AC_EARLY ac_dlopen_fn *ac_next_dlopen(void);
AC_EARLY ac_dlmopen_fn *ac_next_dlmopen(void);

/* Returns true if `address` lies in this library. */
AC_EARLY bool ac_is_ours(const void *address);
/* Returns true if `object` is this library. */
AC_EARLY bool ac_is_ourselves(const ac_object_t *object);
/* Returns the symbol table of this library. */
AC_EARLY ac_symbols_t ac_own_symbols(void);

/* Returns the loader's handle of a loaded object, and keeps the object loaded by one more reference.
 * Returns NULL if the loader gives none. */
AC_EARLY struct link_map *ac_object_pin(const ac_object_t *object);

/* Returns the real libcuda, and keeps it loaded from the first time it was seen; NULL while there is none. */
AC_EARLY struct link_map *ac_driver_find(void);

/* Returns true if the real libcuda is loaded before this library.  Calls of the program and of other libraries
 * then reach libcuda and not the hooks. */
AC_EARLY bool ac_driver_is_before(void);

/* Opens the driver if none is loaded and a program or a library was linked against this one.  A linker with
 * --as-needed leaves the driver out if this library exports all that they call of it.  The function also
 * searches their RUNPATH, which a dlopen from this library would not see. */
void ac_driver_open(void);

/* Returns true if the real libcuda has `symbol` as a function. */
AC_EARLY bool ac_resolve_is_function(const char *symbol);

/* Returns this library's exported function for `hook`. */
AC_EARLY void *ac_hook_function(int hook);
/* Returns the index of the hook of this exact name; AC_HOOK_NONE if there is none.  Hooks of the C
 * library's functions are not found. */
AC_EARLY int ac_hook_by_name(const char *name);
/* Returns the index of the driver hook with its real function at `address`.  Several symbols may
 * share an address; then `likely` is preferred (AC_HOOK_NONE: no preference). */
AC_EARLY int ac_hook_by_address(const void *address, int likely);

/* A row of cuda_functions.def.  `name`: the name that a program gives to cuGetProcAddress. */
typedef struct {
    uint16_t symbol, name; /* see ac_function_symbol, ac_function_name */
    uint16_t since;
    bool per_thread;
} ac_function_t;
extern const ac_function_t ac_functions[];
AC_EARLY const char *ac_function_symbol(int row);
AC_EARLY const char *ac_function_name(int row);
/* Returns the next row of `name` after row `previous` (-1: the first), -1 if there is none. */
AC_EARLY int ac_function_next(const char *name, int previous);
/* Return the row of this exact symbol (-1: the table has none), and the hook of a row (AC_HOOK_NONE: none). */
AC_EARLY int ac_function_by_symbol(const char *symbol);
AC_EARLY int ac_function_hook(int row);
/* The newest CUDA version with all its functions in the table.  The table has some functions of newer
 * versions, but these versions may have variants that it lacks. */
enum { AC_FUNCTIONS_WHOLE = 13000 };

/* Id of the process that tried to open a CUDA driver, whether or not it was found; 0: none. */
extern _Atomic int ac_driver_wanted;

#endif

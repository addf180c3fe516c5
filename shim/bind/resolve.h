/* The resolver: which function is the real one, and which lookups answer with a hook.
 *
 * resolve.c  the real functions, the tables from address and from name to hook
 * lookup.c   the answers: dlsym, dlopen, cuGetProcAddress, cudaGetDriverEntryPoint
 * dlsym.S    the entries of dlsym, dlopen and dlmopen, which must keep their caller
 * watch.c, watch.S  functions that no table has, noticed when they are called
 * objects.c  what is loaded and what it defines
 * variables.c  variables of the program that have names of ours, looked at before lookups and after dlopen
 * runtimes.c which of several CUDA runtimes a call is for
 *
 * Principles.  The real lookup comes first, with the caller's handle.  Its answer is replaced
 * only if it is the address of a hooked function in the real libcuda, so nothing is invented
 * and no namesake is caught.  The answer is the one that the process would get without this
 * library, seen through that replacement.  The last call into the loader is the one whose
 * outcome is returned, so that dlerror() speaks of it.
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
 * Functions that no table has are answered with a thunk (watch.h): from the first call on work
 * counts as unseen (ac_streams_unseen).  It does so from the lookup on where the answer stays as it
 * is: data, RTLD_NEXT, a caller of row 2, a pool of thunks that is used up; and private tables
 * that no list has (harmless.def).  Two functions, which change the current context, are answered
 * with a function of ours that calls them (lookup.c).
 *
 * Functions of the runtime (cudaMalloc, ...) are not replaced: found in libcudart they stay,
 * they arrive at the driver level by themselves; rows 5, 9 and 12 keep our own export where
 * the next one is in libcudart.
 *
 * What these rules cannot know: the scope of a caller that is a dependency of a plugin and
 * finds libcuda only through the plugin's other dependencies (row 11 then says NULL). */
#ifndef AC_RESOLVE_H
#define AC_RESOLVE_H

#include "bind/hooks.h"
#include "bind/objects.h"

typedef struct {
    void *value; /* the answer; for dlopen the mode to use */
    void *jump;  /* the function to continue in, NULL: return the answer */
} ac_route_t;

typedef void *ac_dlsym_fn(void *handle, const char *name);
typedef void *ac_dlopen_fn(const char *file, int mode);
typedef void *ac_dlmopen_fn(long space, const char *file, int mode);

enum { AC_HOOK_NONE = -1 };

/* Whether `found` is the function of NVIDIA's management library that the hook stands for: the real one from now
 * on, if none is known yet. */
bool ac_nvml_takes(int hook, void *found);

typedef enum { AC_KIND_DRIVER, AC_KIND_RUNTIME, AC_KIND_LOADER, AC_KIND_NVML } ac_hook_kind_t;
extern const unsigned char ac_hook_kinds[AC_HOOK_COUNT];

/* libc's dlsym, dlopen and dlmopen; NULL if they cannot be found, and then we do nothing.  The `next`
 * ones are those that the process would use without us: another preload's, or libc's. */
AC_EARLY ac_dlsym_fn *ac_real_dlsym(void);
AC_EARLY ac_dlopen_fn *ac_real_dlopen(void);
AC_EARLY ac_dlmopen_fn *ac_real_dlmopen(void);
AC_EARLY ac_dlsym_fn *ac_next_dlsym(void);
AC_EARLY ac_dlopen_fn *ac_next_dlopen(void);
AC_EARLY ac_dlmopen_fn *ac_next_dlmopen(void);

/* Whether `address` lies in this library. */
AC_EARLY bool ac_is_ours(const void *address);
/* Whether `object` is this library. */
AC_EARLY bool ac_is_ourselves(const ac_object_t *object);
/* This library's exports. */
AC_EARLY ac_symbols_t ac_own_symbols(void);

/* The loader's handle of a loaded object, counted once more so that it stays; NULL if it cannot
 * be had. */
AC_EARLY struct link_map *ac_object_pin(const ac_object_t *object);

/* The real libcuda, kept loaded from the first time it was seen; NULL while there is none. */
AC_EARLY struct link_map *ac_driver_find(void);

/* Whether the real libcuda is loaded and stands before this library, so that calls of the program and of other
 * libraries reach it and not us. */
AC_EARLY bool ac_driver_is_before(void);

/* Opens the driver if none is loaded and a program or a library was linked against this one: a linker that
 * is told --as-needed leaves the driver out if this library exports all that they call of it.  Looks where
 * they look: a dlopen from here would not see their RUNPATH. */
void ac_driver_open(void);

/* Whether the real libcuda has `symbol` as a function. */
AC_EARLY bool ac_resolve_is_function(const char *symbol);

/* Our exported function for `hook`. */
AC_EARLY void *ac_hook_function(int hook);
/* Index of the driver or runtime hook of this exact name, AC_HOOK_NONE otherwise. */
AC_EARLY int ac_hook_by_name(const char *name);
/* Index of the driver hook whose real function is at `address`.  Several symbols may share an
 * address; `likely` (or AC_HOOK_NONE) is preferred then. */
AC_EARLY int ac_hook_by_address(const void *address, int likely);

/* Rows of cuda_functions.def, by the name that cuGetProcAddress is asked for. */
typedef struct {
    uint16_t symbol, name; /* see ac_function_symbol, ac_function_name */
    uint16_t since;
    bool per_thread;
} ac_function_t;
extern const ac_function_t ac_functions[];
AC_EARLY const char *ac_function_symbol(int row);
AC_EARLY const char *ac_function_name(int row);
/* The next row of `name` after row `previous` (-1: the first), -1 if there is none. */
AC_EARLY int ac_function_next(const char *name, int previous);
/* The row of this exact symbol, -1 if the table has none, and the hook of a row, if any. */
AC_EARLY int ac_function_by_symbol(const char *symbol);
AC_EARLY int ac_function_hook(int row);
/* The newest version whose functions are all rows: newer ones may have variants that are unknown
 * here, although some of them are rows as well. */
enum { AC_FUNCTIONS_WHOLE = 13000 };

/* The process (by id) whose program asked dlopen for a CUDA driver, found or not; 0: none. */
extern _Atomic int ac_driver_wanted;

#endif

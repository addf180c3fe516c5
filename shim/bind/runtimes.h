/* The CUDA runtimes of the process.
 *
 * There may be several.  Plugins opened RTLD_LOCAL may have a libcudart each, of different versions,
 * and the exports of this library come before all of them.  A call goes on to the runtime that
 * the calling code would have reached without this library; the return address determines it.  Only
 * that runtime has the caller's state: the last error, or a device chosen but not yet current.
 *
 * A caller's runtime is remembered by the page of its code (callers.h).
 *
 * The caller behind a tail call is not known: a function of a plugin, called from elsewhere, that ends
 * in `return cudaMalloc(...)`.  The call then counts as one of that function's caller.  With a single
 * runtime in the process this makes no difference.
 *
 * Any thread, at any time.  The functions take no lock of ours and allocate nothing.  They take the
 * loader's list lock when they examine a new caller. */
#ifndef AC_RUNTIMES_H
#define AC_RUNTIMES_H

#include "bind/hooks.h"

typedef struct ac_runtime ac_runtime_t;

/* Returns the runtime that code at `caller` (a return address) is bound to; NULL: no libcudart is
 * loaded.  One libcudart has one pointer, and stays loaded. */
ac_runtime_t *ac_runtime_of(const void *caller);

/* Returns the real function behind a runtime hook, as a caller of `runtime` would reach it; NULL: there
 * is none.  If another preload library stands between, the function is that library's. */
void *ac_runtime_get(const ac_runtime_t *runtime, ac_hook_t hook);

/* Returns true if a hit may be served without a call of the runtime; false if another preloaded library has
 * functions for memory behind ours, since it has to see each call. */
bool ac_runtime_may_be_skipped(const ac_runtime_t *runtime);

/* The real function of ac_runtime_get, with its type. */
#define AC_REAL_RUNTIME(runtime, symbol)                                                         \
    (__extension__(symbol##_fn *) ac_runtime_get(runtime, AC_HOOK_##symbol))

/* Forgets which caller has which runtime.  The dlopen hook calls it before the object is loaded. */
void ac_runtime_forget(void);

#endif

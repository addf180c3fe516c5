/* The CUDA runtimes of the process.
 *
 * There may be several: plugins opened RTLD_LOCAL carry a libcudart each, of different versions,
 * and the exports of this library stand before all of them.  A call goes on to the runtime that
 * the calling code would have reached without us, which its return address tells: the last error,
 * a device chosen but not yet made current, and what else a runtime keeps belong to that one.
 *
 * A caller's runtime is remembered by the page of its code (callers.h).
 *
 * Not known: the caller behind a tail call (a function of a plugin that ends in `return
 * cudaMalloc(...)`, called from elsewhere).  Such a call is taken for one of its caller's caller;
 * with a single runtime in the process that makes no difference.
 *
 * Any thread, at any time.  No lock and no allocation of ours; the loader's list lock while a
 * new caller is looked at. */
#ifndef AC_RUNTIMES_H
#define AC_RUNTIMES_H

#include "bind/hooks.h"

typedef struct ac_runtime ac_runtime_t;

/* The runtime that code at `caller` (a return address) is bound to.  NULL: no libcudart is
 * loaded.  The same libcudart is always the same pointer, and stays loaded. */
ac_runtime_t *ac_runtime_of(const void *caller);

/* The real function behind a runtime hook as a caller of `runtime` would reach it, which is
 * another preload library's where that stands between; NULL: there is none. */
void *ac_runtime_get(const ac_runtime_t *runtime, ac_hook_t hook);

/* Whether a hit may be served without a call of the runtime.  Not if another preloaded library has functions for
 * memory behind ours: it has to see each call. */
bool ac_runtime_may_be_skipped(const ac_runtime_t *runtime);

/* The same with its type. */
#define AC_REAL_RUNTIME(runtime, symbol)                                                         \
    (__extension__(symbol##_fn *) ac_runtime_get(runtime, AC_HOOK_##symbol))

/* From the dlopen hook, before the object is loaded: forget which caller has which runtime. */
void ac_runtime_forget(void);

#endif

/* The choice of the CUDA runtime for a call (runtimes.h). */
#include "bind/runtimes.h"

#include <dlfcn.h>

#include "bind/callers.h"
#include "bind/resolve.h"
#include "allocator/order/generation.h"

enum {
#define HOOK_RUNTIME(symbol, params) RUNTIME_##symbol,
#include "bind/hooks.def"
    FUNCTIONS,
    FIRST = AC_HOOK_cudaMalloc
};
#define HOOK_RUNTIME(symbol, params)                                                             \
    _Static_assert((int)AC_HOOK_##symbol == (int)FIRST + (int)RUNTIME_##symbol,                  \
                   "the runtime's rows of hooks.def stand together, cudaMalloc first");
#include "bind/hooks.def"

struct ac_runtime {
    _Atomic(struct link_map *) map; /* set first: a thread that sees it may fill the rest */
    _Atomic(void *) functions[FUNCTIONS];
    _Atomic bool shadowed; /* another library's functions stand before its own */
    _Atomic bool ready;
};

enum { RUNTIMES = 15 };
static ac_runtime_t runtimes[RUNTIMES];

/* For each caller, the number of its runtime plus one; 0: none. */
static ac_callers_t callers;
_Static_assert(RUNTIMES < 1 << AC_CALLERS_BITS, "callers have no room for a runtime's number");

AC_EARLY void ac_runtime_forget(void) {
    ac_callers_forget();
    ac_generation_grow(); /* threads also remember callers */
}

/* ---------------------------------------------------------------- the runtimes */

AC_EARLY static void *function_of(const ac_object_t *runtime, const char *symbol) {
    ac_dlsym_fn *real = ac_real_dlsym();
    void *next = real ? real(RTLD_NEXT, symbol) : NULL;
    if (next && !ac_is_ours(next)) {
        ac_object_t object = ac_object_of(next);
        if (!ac_object_is_cudart(&object)) {
            ac_object_pin(&object);
            return next;
        }
    }
    return ac_object_symbol(runtime, symbol);
}

/* Returns the record of this libcudart; NULL if it cannot be kept loaded or there are too
 * many. */
AC_EARLY static ac_runtime_t *record_of(const ac_object_t *object) {
    struct link_map *map = NULL;
    for (unsigned i = 0; i < RUNTIMES; i++) {
        ac_runtime_t *runtime = &runtimes[i];
        struct link_map *seen = atomic_load_explicit(&runtime->map, memory_order_acquire);
        if (!seen) {
            if (!map && !(map = ac_object_pin(object)))
                return NULL;
            if (atomic_compare_exchange_strong(&runtime->map, &seen, map))
                seen = map;
        }
        if (seen->l_ld != object->dynamic)
            continue;
        if (!atomic_load_explicit(&runtime->ready, memory_order_acquire)) {
            for (int hook = 0; hook < FUNCTIONS; hook++) {
                const char *name = ac_hook_name(FIRST + hook);
                void *function = function_of(object, name);
                atomic_store_explicit(&runtime->functions[hook], function, memory_order_relaxed);
                if (FIRST + hook < (int)AC_HOOK_cudaSetDevice &&
                    function != ac_object_symbol(object, name))
                    atomic_store_explicit(&runtime->shadowed, true, memory_order_relaxed);
            }
            atomic_store_explicit(&runtime->ready, true, memory_order_release);
        }
        return runtime;
    }
    return NULL;
}

AC_EARLY static const ac_object_t *one_of(const ac_object_t *loaded, unsigned count,
                                          const void *function) {
    if (!function || ac_is_ours(function))
        return NULL;
    ac_object_t object = ac_object_of(function);
    for (unsigned i = 0; i < count; i++)
        if (loaded[i].dynamic == object.dynamic)
            return &loaded[i];
    return NULL;
}

/* Returns the runtime, of several, that code at `caller` in `holder` is bound to.  The runtime
 * that the code was linked with comes first: references carry the version of their libcudart, so
 * a libcudart of another version does not resolve them, even from the global scope.  The loader's
 * order comes next: global scope, then local scope. */
AC_EARLY static const ac_object_t *choose(const ac_object_t *loaded, unsigned count,
                                          const ac_object_t *holder, const void *caller) {
    for (unsigned i = 0; i < count; i++)
        if (loaded[i].dynamic == holder->dynamic)
            return &loaded[i];
    const char *needed;
    for (unsigned n = 0; (needed = ac_object_needed(holder, n)); n++)
        for (unsigned i = 0; i < count; i++)
            if (ac_text_same(ac_text_basename(needed), ac_object_soname(&loaded[i])))
                return &loaded[i];
    ac_dlsym_fn *real = ac_real_dlsym();
    const char *symbol = ac_hook_name(FIRST);
    const ac_object_t *found = one_of(loaded, count, real ? real(RTLD_NEXT, symbol) : NULL);
    Dl_info info;
    struct link_map *map = NULL;
    if (!found && real && dladdr1(caller, &info, (void **)&map, RTLD_DL_LINKMAP) && map)
        found = one_of(loaded, count, real(map, symbol));
    if (!found)
        found = one_of(loaded, count, ac_real_get(AC_HOOK_cudaMalloc));
    return found ? found : &loaded[0];
}

AC_EARLY static ac_runtime_t *look_up(const void *caller, uint64_t word) {
    ac_object_t loaded[RUNTIMES], holder;
    ac_runtime_t *runtime = NULL;
    unsigned count = ac_object_survey(caller, &holder, loaded, RUNTIMES);
    void *fallback =
        ac_real_get(AC_HOOK_cudaMalloc); /* does not change when other runtimes are loaded */
    if (count)
        runtime = record_of(count > 1 ? choose(loaded, count, &holder, caller) : &loaded[0]);
    if (runtime || fallback)
        ac_callers_remember(&callers, word, runtime ? (unsigned)(runtime - runtimes) + 1 : 0);
    return runtime;
}

AC_EARLY ac_runtime_t *ac_runtime_of(const void *caller) {
    uint64_t word = ac_callers_word(caller);
    unsigned index;
    if (ac_callers_find(&callers, word, &index))
        return index ? &runtimes[index - 1] : NULL;
    return look_up(caller, word);
}

AC_EARLY bool ac_runtime_may_be_skipped(const ac_runtime_t *runtime) {
    return runtime && !atomic_load_explicit(&runtime->shadowed, memory_order_relaxed);
}

AC_EARLY void *ac_runtime_get(const ac_runtime_t *runtime, ac_hook_t hook) {
    if (!runtime)
        return ac_real_get(hook);
    return atomic_load_explicit(&runtime->functions[hook - FIRST], memory_order_relaxed);
}

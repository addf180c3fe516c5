/* The answers to lookups: dlsym and dlopen (entered through dlsym.S), cuGetProcAddress and
 * cudaGetDriverEntryPoint.  The rules and their numbers stand in resolve.h.
 *
 * Any thread of any process may call these functions, also before constructors ran and while the
 * loader's lock is held.  They take no lock and allocate nothing.  A lookup starts nothing. */
#include <dlfcn.h>
#include <unistd.h>

#include "allocator/retired/streams.h"
#include "bind/resolve.h"
#include "bind/runtimes.h"
#include "wiring.h"
#include "bind/variables.h"
#include "bind/watch.h"
#include "observe/live.h"
#include "failpoint.h"

static const char *const harmless[] = {
#define HARMLESS_FUNCTION(name) #name,
#define HARMLESS_TABLE(name, first, last)
#include "bind/harmless.def"
};

static const struct {
    uint64_t first, last;
} harmless_tables[] = {
#define HARMLESS_FUNCTION(name)
#define HARMLESS_TABLE(name, first, last) {(first), (last)},
#include "bind/harmless.def"
};

/* Objects with lookups that never return a hook.  UCX's memory hooks patch the code of each function
 * that their lookup returns.  They have to patch the driver and not this library: then they see the
 * segments come and go, as their caches need. */
static const char *const exempt_objects[] = {"libucm"};

/* Symbols of every libcuda that this library does not export.  If a lookup by a handle finds the
 * driver's, the driver is in reach of that handle. */
static const char *const witnesses[] = {"cuDeviceComputeCapability", "cuDriverGetVersion"};

/* Returns true if `symbol` is one of `harmless`, with or without a suffix ("_v2", "_ptsz"). */
AC_EARLY static bool is_harmless(const char *symbol) {
    for (unsigned i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++) {
        const char *rest = symbol;
        for (const char *c = harmless[i]; *c && *rest == *c; c++)
            rest++;
        if (ac_text_starts(symbol, harmless[i]) && (!*rest || *rest == '_'))
            return true;
    }
    return false;
}

AC_EARLY static bool is_exempt(const void *caller) {
    ac_object_t object = ac_object_of(caller);
    struct link_map *driver = ac_driver_find();
    if (!object.dynamic)
        return false;
    if (driver && object.dynamic == driver->l_ld)
        return true;
    const char *name = ac_text_basename(object.path ? object.path : "");
    for (unsigned i = 0; i < sizeof(exempt_objects) / sizeof(exempt_objects[0]); i++)
        if (ac_text_starts(name, exempt_objects[i]))
            return true;
    return false;
}

AC_EARLY static bool names_graph(const char *name) {
    if (ac_text_starts(name, "cuGraph"))
        return !ac_text_starts(name, "cuGraphics");
    for (; *name; name++)
        if (ac_text_starts(name, "Capture"))
            return true;
    return false;
}

AC_EARLY static bool names_context(const char *name) {
    for (; *name; name++)
        if (ac_text_starts(name, "Ctx"))
            return true;
    return false;
}

/* Returns the traits of an unknown function, from its name: whether it may concern contexts or graphs. */
AC_EARLY static unsigned traits_of(const char *name) {
    return (names_context(name) ? AC_UNKNOWN_CONTEXT : 0) |
           (names_graph(name) ? AC_UNKNOWN_GRAPH : 0);
}

AC_EARLY static void *substituted(int hook, void *found, const void *caller) {
    void *ours = ac_hook_function(hook);
    if (!ours || is_exempt(caller))
        return found;
    ac_count_early(AC_COUNT_lookups_substituted);
    return ours;
}

/* ---------------------------------------------------------------- functions in no table
 *
 * Two of the driver's functions for graphics make a new context current in the calling thread.
 * Every runtime asks for them at its start, and hardly any program calls them, so the lookup must cost
 * nothing.  It returns a function of this library, which calls the driver's and then makes the thread
 * forget its current context. */

#define MAKERS(MAKER)                                                                            \
    MAKER(cuGLCtxCreate_v2, cuGLCtxCreate,                                                       \
          (CUcontext * context, unsigned flags, CUdevice device), (context, flags, device))      \
    MAKER(cuGLCtxCreate, cuGLCtxCreate, (CUcontext * context, unsigned flags, CUdevice device),  \
          (context, flags, device))                                                              \
    MAKER(cuVDPAUCtxCreate_v2, cuVDPAUCtxCreate,                                                 \
          (CUcontext * context, unsigned flags, CUdevice device, uint32_t vdpau, void *lookup),  \
          (context, flags, device, vdpau, lookup))                                               \
    MAKER(cuVDPAUCtxCreate, cuVDPAUCtxCreate,                                                    \
          (CUcontext * context, unsigned flags, CUdevice device, uint32_t vdpau, void *lookup),  \
          (context, flags, device, vdpau, lookup))

#define MAKER(symbol, query, params, args)                                                       \
    static _Atomic(void *) real_##symbol;                                                        \
    static CUresult make_##symbol params {                                                       \
        CUresult(*real) params = __extension__(CUresult(*) params) atomic_load(&real_##symbol);  \
        CUresult result = real args;                                                             \
        ac_tell_context_unknown();                                                                    \
        return result;                                                                           \
    }
MAKERS(MAKER)
#undef MAKER

static const struct {
    const char *symbol, *name;
    void (*ours)(void);
    _Atomic(void *) *real;
} makers[] = {
#define MAKER(symbol, query, params, args)                                                       \
    {#symbol, #query, (void (*)(void))make_##symbol, &real_##symbol},
    MAKERS(MAKER)
#undef MAKER
};
enum { MAKER_COUNT = sizeof(makers) / sizeof(makers[0]) };

/* Returns the row of `found`, which the driver has under `name`; -1 if it has none.  `familiar`: the
 * function is not newer than the tables, so its parameters are known. */
AC_EARLY static int maker_of(const char *name, bool familiar, const void *found) {
    for (int exact = 1; exact >= 0; exact--) /* the address is more certain than the name */
        for (unsigned i = 0; i < MAKER_COUNT; i++)
            if (exact ? ac_resolve_driver(makers[i].symbol) == found
                      : familiar && (ac_text_same(makers[i].name, name) ||
                                     ac_text_same(makers[i].symbol, name)))
                return (int)i;
    return -1;
}

/* Returns the answer to a lookup of the function `found`, which no table has. */
AC_EARLY static void *unlisted(const char *name, bool familiar, void *found, const void *caller) {
    bool exempt = is_exempt(caller);
    int maker = is_harmless(name) ? -1 : maker_of(name, familiar, found);
    if (is_harmless(name) || (maker >= 0 && exempt))
        return found;
    if (maker >= 0) {
        atomic_store(makers[maker].real, found);
        return __extension__(void *) makers[maker].ours;
    }
    void *thunk = exempt ? NULL : ac_watch(found, traits_of(name));
    if (!thunk)
        ac_unknown_function(traits_of(name));
    return thunk ? thunk : found;
}

/* ---------------------------------------------------------------- dlsym */

typedef struct {
    ac_dlsym_fn *real;
    const char *name;
    int hook;
    const void *caller;
} query_t;

AC_EARLY static ac_route_t answer(void *value) {
    return (ac_route_t){.value = value};
}

AC_EARLY static ac_route_t jump(void) {
    ac_dlsym_fn *next = ac_next_dlsym();
    return (ac_route_t){.jump = __extension__(void *) next};
}

/* Answers NULL, with a dlerror() that the name is not defined.  Only for a name that this lookup is
 * known not to find. */
AC_EARLY static ac_route_t missing(const query_t *query) {
    return answer(query->real(RTLD_NEXT, query->name));
}

/* Answers by the rule "replaced by address" (resolve.h). */
AC_EARLY static ac_route_t settle(const query_t *query, void *found) {
    if (ac_hook_kinds[query->hook] == AC_KIND_NVML)
        return answer(ac_nvml_takes(query->hook, found)
                          ? substituted(query->hook, found, query->caller)
                          : found);
    int hook = ac_hook_by_address(found, query->hook);
    return answer(hook >= 0 ? substituted(hook, found, query->caller) : found);
}

/* Answers by the rule "the next, replaced by address": the plain answer was our own export. */
AC_EARLY static ac_route_t settle_next(const query_t *query, void *next) {
    if (ac_hook_kinds[query->hook] == AC_KIND_RUNTIME) {
        ac_object_t object = ac_object_of(next);
        if (ac_object_is_cudart(&object))
            return answer(substituted(query->hook, next, query->caller));
    }
    return settle(query, next);
}

/* Returns true if a lookup by `handle` reaches the real libcuda. */
AC_EARLY static bool driver_behind(const query_t *query, void *handle) {
    for (unsigned i = 0; i < sizeof(witnesses) / sizeof(witnesses[0]); i++) {
        void *expected = ac_resolve_driver(witnesses[i]);
        if (expected && query->real(handle, witnesses[i]) == expected)
            return true;
    }
    return false;
}

AC_EARLY static struct link_map *map_of(const void *address) {
    Dl_info info;
    struct link_map *map = NULL;
    return dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) ? map : NULL;
}

AC_EARLY static void *driver_function(int hook) {
    return ac_hook_kinds[hook] == AC_KIND_DRIVER ? ac_real_get(hook) : NULL;
}

AC_EARLY static ac_route_t route_handle(const query_t *query, void *handle) {
    void *found = query->real(handle, query->name);
    if (!found || !ac_is_ours(found))
        return found ? settle(query, found) : answer(NULL);
    struct link_map *map = handle; /* in glibc a handle is a link_map; the lookup above accepted this one */
    if (ac_is_ours(map->l_ld))
        return answer(found);
    void *next = query->real(RTLD_NEXT, query->name);
    if (next && !ac_is_ours(next))
        return settle_next(query, next);
    void *function = driver_function(query->hook);
    if (function && driver_behind(query, handle))
        return settle(query, function);
    return missing(query);
}

AC_EARLY static ac_route_t route_default(const query_t *query) {
    void *found = query->real(RTLD_DEFAULT, query->name);
    if (!found || !ac_is_ours(found))
        return found ? settle(query, found) : jump();
    void *next = query->real(RTLD_NEXT, query->name);
    if (next && !ac_is_ours(next))
        return settle_next(query, next);
    struct link_map *map = map_of(query->caller);
    found = map ? query->real(map, query->name) : NULL;
    if (found && !ac_is_ours(found))
        return settle(query, found);
    void *function = found ? driver_function(query->hook) : NULL;
    if (function && driver_behind(query, map))
        return settle(query, function);
    return missing(query);
}

AC_EARLY static ac_route_t route_next(const query_t *query) {
    ac_object_t object = ac_object_after(query->caller, query->name);
    if (ac_is_ourselves(&object)) {
        void *next = query->real(RTLD_NEXT, query->name);
        return next && !ac_is_ours(next) ? settle_next(query, next) : answer(NULL);
    }
    void *function = driver_function(query->hook);
    if (!function)
        return jump();
    struct link_map *map = map_of(query->caller), *driver = ac_driver_find();
    if (object.dynamic == driver->l_ld) {
        if (driver_behind(query, RTLD_NEXT) || (map && driver_behind(query, map)))
            return settle(query, function);
        ac_unknown_function(traits_of(query->name));
    } else if (!object.dynamic && map && query->real(map, query->name) == function) {
        return settle(query, function);
    }
    return jump();
}

/* Answers a lookup of a driver's function that no table has.  If only the real dlsym can answer, the
 * result is unknown, and the driver's function counts as handed out. */
AC_EARLY static ac_route_t route_unlisted(void *handle, const char *name, const void *caller) {
    void *function = ac_resolve_driver(name);
    ac_dlsym_fn *real = ac_real_dlsym();
    if (!function || is_harmless(name))
        return jump();
    void *found = handle != RTLD_NEXT && real ? real(handle, name) : NULL;
    if (found == function && ac_resolve_is_function(name)) {
        void *ours = unlisted(name, true, function, caller);
        return ours == function ? jump() : answer(ours);
    }
    if (!found && handle != RTLD_NEXT && handle != RTLD_DEFAULT)
        return jump(); /* not in there */
    if (maker_of(name, true, function) >= 0)
        ac_current_goes_unseen();
    else
        ac_unknown_function(traits_of(name));
    return jump();
}

enum { UNLISTED = AC_HOOK_NONE - 1 };

/* Returns the hook of the name; UNLISTED if it looks like a driver's function that no table has.  All
 * looked-up names pass through here, so names of other libraries leave early.  Names of ours start with
 * "cu" and a capital letter, with "cuda" or with "nvml". */
AC_EARLY static int hook_of(const char *name) {
    if (name && name[0] == 'n' && ac_text_starts(name, "nvmlDeviceGetMemoryInfo"))
        return ac_hook_by_name(name);
    if (!name || name[0] != 'c' || name[1] != 'u')
        return AC_HOOK_NONE;
    if (name[2] >= 'A' && name[2] <= 'Z') {
        int row = ac_function_by_symbol(name);
        if (row >= 0)
            return ac_function_hook(row);
        return UNLISTED;
    }
    return name[2] == 'd' && name[3] == 'a' ? ac_hook_by_name(name) : AC_HOOK_NONE;
}

AC_EARLY __attribute__((visibility("hidden"))) ac_route_t
ac_dlsym_route(void *handle, const char *name, const void *caller) {
    ac_count_early(AC_COUNT_HOOKS + AC_HOOK_dlsym);
    if (__builtin_expect(atomic_load_explicit(&ac_variables_overdue, memory_order_relaxed), 0))
        ac_variables_catch_up(handle, name);
    int hook = hook_of(name);
    if (hook != AC_HOOK_NONE)
        ac_variables_before(caller);
    if (hook < 0)
        return hook == UNLISTED ? route_unlisted(handle, name, caller) : jump();
    query_t query = {.real = ac_real_dlsym(), .name = name, .hook = hook, .caller = caller};
    if (!query.real)
        return jump();
    ac_count_early(AC_COUNT_lookups);
    ac_driver_find(); /* first: it may call the loader, and dlerror() describes the last call */
    if (handle == RTLD_NEXT)
        return route_next(&query);
    return handle == RTLD_DEFAULT ? route_default(&query) : route_handle(&query, handle);
}

/* ---------------------------------------------------------------- dlopen */

/* The function that opens objects in the program's own namespace: dlmopen if `spaced`, else dlopen. */
typedef struct {
    bool spaced;
    ac_dlopen_fn *next;
    ac_dlmopen_fn *next_spaced;
} opener_t;

AC_EARLY static void *open_by(const opener_t *opener, const char *file, int mode) {
    return opener->spaced ? opener->next_spaced(LM_ID_BASE, file, mode) : opener->next(file, mode);
}

/* Removes RTLD_DEEPBIND: it would put a plugin's own libraries before this one for all code of the plugin.
 * The real function runs in place of ours only if it has to know the caller.  Otherwise this function calls
 * it and then examines the loaded objects.  `known`: the real function is the C library's. */
AC_EARLY static ac_route_t open_route(const opener_t *opener, bool known, const char *file, int mode,
                                      const void *caller) {
    if (file && ac_text_starts(ac_text_basename(file), "libcuda.so"))
        atomic_store_explicit(&ac_driver_wanted, (int)getpid(), memory_order_relaxed);
    if (file && (mode & RTLD_DEEPBIND) && ac_ask_strips_deepbind()) {
        mode &= ~RTLD_DEEPBIND;
        ac_count_early(AC_COUNT_deepbind_stripped);
    }
    ac_variables_before(caller);
    ac_runtime_forget();
    if (ac_object_searches_alone(caller, file)) {
        atomic_store(&ac_variables_overdue, true);
        return (ac_route_t){.value = (void *)(intptr_t)mode,
                            .jump = opener->spaced ? __extension__(void *) opener->next_spaced
                                                   : __extension__(void *) opener->next};
    }
    ac_loads_t loads = ac_variables_opening();
    void *handle = open_by(opener, file, mode);
    if (ac_variables_opened(handle, known, loads))
        ac_runtime_forget(); /* during the load other threads may have remembered code that has gone since */
    return answer(handle);
}

AC_EARLY __attribute__((visibility("hidden"))) ac_route_t
ac_dlopen_route(const char *file, int mode, const void *caller) {
    ac_count_early(AC_COUNT_HOOKS + AC_HOOK_dlopen);
    const opener_t opener = {.next = ac_next_dlopen()};
    bool known = opener.next == ac_real_dlopen(); /* first: dlerror() has to describe the dlopen */
    return opener.next ? open_route(&opener, known, file, mode, caller) : answer(NULL);
}

/* Routes a dlmopen.  The real function runs for other namespaces, which do not see this library. */
AC_EARLY __attribute__((visibility("hidden"))) ac_route_t
ac_dlmopen_route(Lmid_t space, const char *file, int mode, const void *caller) {
    ac_count_early(AC_COUNT_HOOKS + AC_HOOK_dlmopen);
    const opener_t opener = {.spaced = true, .next_spaced = ac_next_dlmopen()};
    bool known = opener.next_spaced == ac_real_dlmopen();
    if (!opener.next_spaced)
        return answer(NULL);
    if (space == LM_ID_BASE)
        return open_route(&opener, known, file, mode, caller);
    return (ac_route_t){.value = (void *)(intptr_t)mode,
                        .jump = __extension__(void *) opener.next_spaced};
}

/* ---------------------------------------------------------------- cuGetProcAddress */

/* Returns the row that answers (name, version, flags); -1 if there is none.  In the per-thread mode a
 * row of that mode wins over any other.  Among equals the newest that fits wins. */
static int function_row(const char *name, int version, cuuint64_t flags) {
    bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    int best = -1;
    for (int row = ac_function_next(name, -1); row >= 0; row = ac_function_next(name, row)) {
        const ac_function_t *function = &ac_functions[row];
        if (function->since > version || (function->per_thread && !per_thread))
            continue;
        if (best < 0 || function->per_thread > ac_functions[best].per_thread ||
            (function->per_thread == ac_functions[best].per_thread &&
             function->since > ac_functions[best].since))
            best = row;
    }
    return best;
}

/* Returns true if a table has `found` under this name. */
static bool is_listed(const char *name, const void *found) {
    for (int any = ac_function_next(name, -1); any >= 0; any = ac_function_next(name, any))
        if (ac_resolve_driver(ac_function_symbol(any)) == found)
            return true;
    return false;
}

/* Returns the answer to the program if the driver answered `found`.  The address decides.  If no exported
 * symbol has the address, the row decides, but only for versions that the table knows: a newer driver's
 * newer variant may have another signature. */
static void *versioned_answer(const char *name, int version, cuuint64_t flags, void *found,
                              const void *caller) {
    if (ac_is_ours(found))
        return found;
    int row = function_row(name, version, flags);
    int likely = row >= 0 ? ac_function_hook(row) : AC_HOOK_NONE;
    int hook = ac_hook_by_address(found, likely);
    if (hook >= 0)
        return substituted(hook, found, caller);
    if (is_listed(name, found))
        return found;
    if (row >= 0 && version <= AC_FUNCTIONS_WHOLE) {
        if (likely < 0)
            return found;
        void *none = NULL;
        atomic_compare_exchange_strong(&ac_real_slots[likely], &none, found);
        return substituted(likely, found, caller);
    }
    return name[0] ? unlisted(name, version <= AC_FUNCTIONS_WHOLE, found, caller) : found;
}

/* Returns the answer to the program if the driver answered `found` and the runtime chose the version.
 * Only the address decides.  A name without a hook in any version stays harmless. */
static void *unversioned_answer(const char *name, void *found, const void *caller) {
    if (ac_is_ours(found) || !name[0])
        return found;
    int hook = ac_hook_by_address(found, AC_HOOK_NONE);
    if (hook >= 0)
        return substituted(hook, found, caller);
    if (is_listed(name, found))
        return found;
    int row = ac_function_next(name, -1);
    bool hooked = row < 0;
    for (; row >= 0 && !hooked; row = ac_function_next(name, row))
        hooked = ac_function_hook(row) >= 0;
    return hooked ? unlisted(name, false, found, caller) : found;
}

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
    ac_count_early(AC_COUNT_HOOKS + AC_HOOK_cuGetProcAddress_v2);
    ac_count_early(AC_COUNT_lookups);
    ac_driver_open();
    ac_variables_before(__builtin_return_address(0));
    cuGetProcAddress_v2_fn *real = AC_REAL(cuGetProcAddress_v2);
    if (!real)
        return CUDA_ERROR_NOT_FOUND;
    CUresult result = real(name, function, version, flags, status);
    if (result == CUDA_SUCCESS && name && function && *function)
        *function =
            versioned_answer(name, version, flags, *function, __builtin_return_address(0));
    return result;
}

CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags) {
    ac_count_early(AC_COUNT_HOOKS + AC_HOOK_cuGetProcAddress);
    ac_count_early(AC_COUNT_lookups);
    ac_driver_open();
    ac_variables_before(__builtin_return_address(0));
    cuGetProcAddress_fn *real = AC_REAL(cuGetProcAddress);
    if (!real)
        return CUDA_ERROR_NOT_FOUND;
    CUresult result = real(name, function, version, flags);
    if (result == CUDA_SUCCESS && name && function && *function)
        *function =
            versioned_answer(name, version, flags, *function, __builtin_return_address(0));
    return result;
}

/* ---------------------------------------------------------------- cuGetExportTable
 *
 * Private tables of functions.  They belong to the driver, and the library never changes them.  The
 * runtime asks for several at its start.  A program that gets an unknown table may do anything. */

AC_EARLY static uint64_t half(const unsigned char *bytes) {
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value = value << 8 | bytes[i];
    return value;
}

AC_EARLY static bool is_harmless_table(const CUuuid *id) {
    const unsigned char *bytes = (const unsigned char *)id->bytes;
    for (unsigned i = 0; i < sizeof harmless_tables / sizeof *harmless_tables; i++)
        if (harmless_tables[i].first == half(bytes) && harmless_tables[i].last == half(bytes + 8))
            return true;
    return AC_FAILPOINT(unknown_table_harmless);
}

CUresult cuGetExportTable(const void **table, const CUuuid *id) {
    ac_count_early(AC_COUNT_HOOKS + AC_HOOK_cuGetExportTable);
    cuGetExportTable_fn *real = AC_REAL(cuGetExportTable);
    if (!real)
        return CUDA_ERROR_NOT_FOUND;
    CUresult result = real(table, id);
    if (result == CUDA_SUCCESS && id && !is_harmless_table(id)) {
        ac_count_early(AC_COUNT_unknown_tables);
        ac_current_goes_unseen();
        atomic_store_explicit(&ac_graph_unseen, true, memory_order_relaxed);
        ac_streams_unseen();
    }
    return result;
}

/* ---------------------------------------------------------------- cudaGetDriverEntryPoint
 *
 * The runtime asks the driver, by the function that our lookups returned, so the answer is usually a
 * hook already.  A runtime of CUDA 11 takes three arguments and ignores the fourth. */

static ac_runtime_error_t entry_point(ac_hook_t hook, const char *name, void **function,
                                      unsigned long long flags, unsigned *status,
                                      const void *caller) {
    ac_count_early(AC_COUNT_HOOKS + hook);
    ac_variables_before(caller);
    cudaGetDriverEntryPoint_fn *real =
        __extension__(cudaGetDriverEntryPoint_fn *) ac_runtime_get(ac_runtime_of(caller), hook);
    if (!real)
        return AC_RUNTIME_MISSING;
    ac_runtime_error_t result = real(name, function, flags, status);
    if (!result && name && function && *function && ac_driver_find())
        *function = unversioned_answer(name, *function, caller);
    return result;
}

static ac_runtime_error_t entry_point_by_version(ac_hook_t hook, const char *name,
                                                 void **function, unsigned version,
                                                 unsigned long long flags, unsigned *status,
                                                 bool per_thread, const void *caller) {
    ac_count_early(AC_COUNT_HOOKS + hook);
    ac_variables_before(caller);
    cudaGetDriverEntryPointByVersion_fn *real =
        __extension__(cudaGetDriverEntryPointByVersion_fn *)
            ac_runtime_get(ac_runtime_of(caller), hook);
    if (!real)
        return AC_RUNTIME_MISSING;
    ac_runtime_error_t result = real(name, function, version, flags, status);
    if (!result && name && function && *function && ac_driver_find()) {
        if (per_thread && !flags)
            flags = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
        *function = versioned_answer(name, (int)version, flags, *function, caller);
    }
    return result;
}

ac_runtime_error_t cudaGetDriverEntryPoint(const char *name, void **function,
                                           unsigned long long flags, unsigned *status) {
    return entry_point(AC_HOOK_cudaGetDriverEntryPoint, name, function, flags, status,
                       __builtin_return_address(0));
}

ac_runtime_error_t cudaGetDriverEntryPoint_ptsz(const char *name, void **function,
                                                unsigned long long flags, unsigned *status) {
    return entry_point(AC_HOOK_cudaGetDriverEntryPoint_ptsz, name, function, flags, status,
                       __builtin_return_address(0));
}

ac_runtime_error_t cudaGetDriverEntryPointByVersion(const char *name, void **function,
                                                    unsigned version, unsigned long long flags,
                                                    unsigned *status) {
    return entry_point_by_version(AC_HOOK_cudaGetDriverEntryPointByVersion, name, function,
                                  version, flags, status, false, __builtin_return_address(0));
}

ac_runtime_error_t cudaGetDriverEntryPointByVersion_ptsz(const char *name, void **function,
                                                         unsigned version,
                                                         unsigned long long flags,
                                                         unsigned *status) {
    return entry_point_by_version(AC_HOOK_cudaGetDriverEntryPointByVersion_ptsz, name, function,
                                  version, flags, status, true, __builtin_return_address(0));
}

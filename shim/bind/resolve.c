/* The real functions and the tables of the resolver: see resolve.h.
 *
 * Every hook uses this code, and dlsym, also before constructors ran.  It takes no lock and allocates
 * nothing: all tables are static, and the first thread that needs a table fills it.  Two threads that
 * fill the same table at once write the same entries in the same order, so both get the same table.
 * A table is used only after one of them has finished it. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include "bind/resolve.h"
#include "observe/live.h"
#include "observe/scratch.h"
#include "allocator/order/generation.h"

/* Tables of names are offsets into one text.  Pointers would have to be relocated at the start of every
 * process that loads the library. */
typedef struct {
#define HOOK_LOADER(symbol)          char symbol[sizeof #symbol];
#define HOOK_RUNTIME(symbol, params) char symbol[sizeof #symbol];
#define HOOK_NVML(symbol, params)    char symbol[sizeof #symbol];
#define HOOK_DRIVER(symbol)          char symbol[sizeof #symbol];
#include "bind/hooks.def"
} hook_texts_t;

static const hook_texts_t hook_texts = {
#define HOOK_LOADER(symbol)          #symbol,
#define HOOK_RUNTIME(symbol, params) #symbol,
#define HOOK_NVML(symbol, params)    #symbol,
#define HOOK_DRIVER(symbol)          #symbol,
#include "bind/hooks.def"
};

static const uint16_t hook_text_at[AC_HOOK_COUNT] = {
#define HOOK_LOADER(symbol)          offsetof(hook_texts_t, symbol),
#define HOOK_RUNTIME(symbol, params) offsetof(hook_texts_t, symbol),
#define HOOK_NVML(symbol, params)    offsetof(hook_texts_t, symbol),
#define HOOK_DRIVER(symbol)          offsetof(hook_texts_t, symbol),
#include "bind/hooks.def"
};
_Static_assert(sizeof hook_texts <= UINT16_MAX, "offsets of names are too short");
_Static_assert(sizeof hook_texts <= AC_LIVE_NAMES, "the live page has too little room for names");

AC_EARLY const char *ac_hook_name(int hook) {
    return (const char *)&hook_texts + hook_text_at[hook];
}

const char *ac_hook_names(size_t *bytes) {
    *bytes = sizeof hook_texts;
    return (const char *)&hook_texts;
}

const unsigned char ac_hook_kinds[AC_HOOK_COUNT] = {
#define HOOK_LOADER(symbol)          AC_KIND_LOADER,
#define HOOK_RUNTIME(symbol, params) AC_KIND_RUNTIME,
#define HOOK_NVML(symbol, params)    AC_KIND_NVML,
#define HOOK_DRIVER(symbol)          AC_KIND_DRIVER,
#include "bind/hooks.def"
};

typedef struct {
#define CU_FN(symbol, name, since, mode, params, args)                                           \
    char symbol[sizeof #symbol];                                                                 \
    char name_of_##symbol[sizeof #name];
#include "device/cuda_functions.def"
#undef CU_FN
} function_texts_t;

static const function_texts_t function_texts = {
#define CU_FN(symbol, name, since, mode, params, args) #symbol, #name,
#include "device/cuda_functions.def"
#undef CU_FN
};
_Static_assert(sizeof function_texts <= UINT16_MAX, "offsets of names are too short");

const ac_function_t ac_functions[] = {
#define LEGACY false
#define PTDS   true
#define CU_FN(symbol, name, since, mode, params, args)                                           \
    {offsetof(function_texts_t, symbol), offsetof(function_texts_t, name_of_##symbol), since,    \
     mode},
#include "device/cuda_functions.def"
#undef CU_FN
#undef LEGACY
#undef PTDS
};

enum {
    FUNCTION_COUNT = sizeof(ac_functions) / sizeof(ac_functions[0]),
    HOOK_SLOTS = 1024, /* powers of two, at least twice the entries */
    FUNCTION_SLOTS = 2048
};

AC_EARLY const char *ac_function_symbol(int row) {
    return (const char *)&function_texts + ac_functions[row].symbol;
}

AC_EARLY const char *ac_function_name(int row) {
    return (const char *)&function_texts + ac_functions[row].name;
}

_Static_assert(HOOK_SLOTS >= 2 * AC_HOOK_COUNT, "hook tables too small");
_Static_assert(FUNCTION_SLOTS >= 2 * FUNCTION_COUNT, "function tables too small");
_Static_assert((int)AC_HOOK_COUNT <= (int)AC_LIVE_HOOKS, "the live page has too few counters");

_Atomic(void *) ac_real_slots[AC_HOOK_COUNT];
AC_START_DATA _Atomic int ac_driver_wanted;
_Atomic bool ac_current_unseen;

AC_EARLY void ac_current_goes_unseen(void) {
    atomic_store(&ac_current_unseen, true);
    ac_generation_grow();
}
_Atomic bool ac_graph_unseen;

AC_EARLY void ac_count_early(unsigned counter) {
    ac_live_row_t *common = atomic_load_explicit(&ac_live_common, memory_order_acquire);
    __atomic_fetch_add(&common->counter[counter], 1, __ATOMIC_RELAXED);
    atomic_store_explicit(&ac_live_added, true, memory_order_relaxed);
}

/* ---------------------------------------------------------------- tables
 *
 * Hash tables with open addressing.  An entry is a row number plus one; 0: empty.  Entries are never
 * removed. */

typedef _Atomic uint16_t slot_t;

static slot_t hooks_by_name[HOOK_SLOTS];
static slot_t hooks_by_address[HOOK_SLOTS];
static slot_t functions_by_name[FUNCTION_SLOTS];
static slot_t functions_by_symbol[FUNCTION_SLOTS];
static _Atomic bool hook_names_ready, functions_ready;

static void *_Atomic hook_functions[AC_HOOK_COUNT];
static _Atomic int16_t function_hooks[FUNCTION_COUNT];

/* Uses only shifts and additions: names are short, and every dlsym call pays for this. */
AC_EARLY static uint32_t text_hash(const char *text) {
    uint32_t hash = 5381;
    for (; *text; text++)
        hash = (hash << 5) + hash + (unsigned char)*text;
    return hash ^ hash >> 15;
}

AC_EARLY static uint32_t address_hash(const void *address) {
    return (uint32_t)(((uintptr_t)address >> 4) * 0x9e3779b97f4a7c15ull >> 40);
}

AC_EARLY static void slot_insert(slot_t *table, uint32_t size, uint32_t hash, unsigned row) {
    for (uint32_t i = hash & (size - 1);; i = (i + 1) & (size - 1)) {
        uint16_t seen = atomic_load_explicit(&table[i], memory_order_acquire);
        if (!seen &&
            atomic_compare_exchange_strong_explicit(&table[i], &seen, (uint16_t)(row + 1),
                                                    memory_order_release, memory_order_acquire))
            return;
        if (seen == row + 1)
            return;
    }
}

/* Returns the row at probe position *i of a chain, and moves on; -1 at the end of the chain. */
AC_EARLY static int slot_next(slot_t *table, uint32_t size, uint32_t *i) {
    int row = atomic_load_explicit(&table[*i & (size - 1)], memory_order_acquire) - 1;
    ++*i;
    return row;
}

/* ---------------------------------------------------------------- ourselves */

/* The linker's marks of this library's first and last byte. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));
extern ElfW(Dyn) _DYNAMIC[] __attribute__((visibility("hidden")));

AC_EARLY bool ac_is_ours(const void *address) {
    return (uintptr_t)address - (uintptr_t)__ehdr_start <
           (uintptr_t)_end - (uintptr_t)__ehdr_start;
}

AC_EARLY bool ac_is_ourselves(const ac_object_t *object) {
    return object->dynamic == _DYNAMIC;
}

AC_EARLY ac_symbols_t ac_own_symbols(void) {
    ac_object_t self = {.base = (uintptr_t)__ehdr_start, .dynamic = _DYNAMIC};
    return ac_object_symbols(&self);
}

/* Reads this library's own symbol table.  &symbol would be the loader's choice for the name: the
 * function of another preload if that comes first. */
AC_EARLY static void hook_names_fill(void) {
    ac_symbols_t symbols = ac_own_symbols();
    for (int hook = 0; hook < AC_HOOK_COUNT; hook++) {
        if (ac_hook_kinds[hook] == AC_KIND_LOADER)
            continue; /* a lookup by name does not replace these */
        const char *name = ac_hook_name(hook);
        atomic_store_explicit(&hook_functions[hook], ac_symbols_find(&symbols, name),
                              memory_order_relaxed);
        slot_insert(hooks_by_name, HOOK_SLOTS, text_hash(name), (unsigned)hook);
    }
    atomic_store_explicit(&hook_names_ready, true, memory_order_release);
}

AC_EARLY int ac_hook_by_name(const char *name) {
    if (!atomic_load_explicit(&hook_names_ready, memory_order_acquire))
        hook_names_fill();
    int hook;
    for (uint32_t i = text_hash(name); (hook = slot_next(hooks_by_name, HOOK_SLOTS, &i)) >= 0;)
        if (ac_text_same(ac_hook_name(hook), name))
            return hook;
    return AC_HOOK_NONE;
}

AC_EARLY void *ac_hook_function(int hook) {
    if (!atomic_load_explicit(&hook_names_ready, memory_order_acquire))
        hook_names_fill();
    return atomic_load_explicit(&hook_functions[hook], memory_order_relaxed);
}

/* ---------------------------------------------------------------- cuda_functions.def */

AC_EARLY static void functions_fill(void) {
    for (int row = 0; row < FUNCTION_COUNT; row++) {
        const char *symbol = ac_function_symbol(row), *name = ac_function_name(row);
        atomic_store_explicit(&function_hooks[row], (int16_t)ac_hook_by_name(symbol),
                              memory_order_relaxed);
        slot_insert(functions_by_name, FUNCTION_SLOTS, text_hash(name), (unsigned)row);
        slot_insert(functions_by_symbol, FUNCTION_SLOTS, text_hash(symbol), (unsigned)row);
    }
    atomic_store_explicit(&functions_ready, true, memory_order_release);
}

AC_EARLY int ac_function_next(const char *name, int previous) {
    if (!atomic_load_explicit(&functions_ready, memory_order_acquire))
        functions_fill();
    bool passed = previous < 0;
    int row;
    for (uint32_t i = text_hash(name);
         (row = slot_next(functions_by_name, FUNCTION_SLOTS, &i)) >= 0;) {
        if (passed && ac_text_same(ac_function_name(row), name))
            return row;
        if (row == previous)
            passed = true;
    }
    return -1;
}

AC_EARLY int ac_function_by_symbol(const char *symbol) {
    if (!atomic_load_explicit(&functions_ready, memory_order_acquire))
        functions_fill();
    int row;
    for (uint32_t i = text_hash(symbol);
         (row = slot_next(functions_by_symbol, FUNCTION_SLOTS, &i)) >= 0;)
        if (ac_text_same(ac_function_symbol(row), symbol))
            return row;
    return -1;
}

AC_EARLY int ac_function_hook(int row) {
    return atomic_load_explicit(&function_hooks[row], memory_order_relaxed);
}

/* ---------------------------------------------------------------- the loader's functions */

/* Returns a function of libc (of libdl before glibc 2.34).  dlvsym finds it past any other preload,
 * because a preload's definitions carry no version.  The second way reads libc's own table. */
AC_EARLY static void *libc_function(const char *name) {
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    for (unsigned i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
        void *found = dlvsym(RTLD_NEXT, name, versions[i]);
        if (found && !ac_is_ours(found))
            return found;
    }
    static const char *const libraries[] = {"libc.so.6", "libdl.so.2"};
    for (unsigned i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++) {
        ac_object_t object = ac_object_by_soname(libraries[i]);
        void *found = object.dynamic ? ac_object_symbol(&object, name) : NULL;
        if (found)
            return found;
    }
    return NULL;
}

AC_EARLY static void *cached_libc(_Atomic(void *) *cache, const char *name) {
    void *found = atomic_load_explicit(cache, memory_order_acquire);
    if (!found) {
        found = libc_function(name);
        atomic_store_explicit(cache, found, memory_order_release);
    }
    return found;
}

AC_EARLY static void *cached_next(_Atomic(void *) *cache, const char *name) {
    void *found = atomic_load_explicit(cache, memory_order_acquire);
    if (!found) {
        ac_dlsym_fn *real = ac_real_dlsym();
        found = real ? real(RTLD_NEXT, name) : NULL;
        if (found && ac_is_ours(found))
            found = NULL;
        atomic_store_explicit(cache, found, memory_order_release);
    }
    return found;
}

/* Converts an address to a function pointer.  POSIX guarantees it; ISO C has no way to write it. */
#define AS_FUNCTION(type, address) (__extension__(type *)(address))

AC_EARLY ac_dlsym_fn *ac_real_dlsym(void) {
    AC_START_DATA static _Atomic(void *) cache;
    return AS_FUNCTION(ac_dlsym_fn, cached_libc(&cache, "dlsym"));
}

AC_EARLY ac_dlopen_fn *ac_real_dlopen(void) {
    AC_START_DATA static _Atomic(void *) cache;
    return AS_FUNCTION(ac_dlopen_fn, cached_libc(&cache, "dlopen"));
}

AC_EARLY ac_dlmopen_fn *ac_real_dlmopen(void) {
    AC_START_DATA static _Atomic(void *) cache;
    return AS_FUNCTION(ac_dlmopen_fn, cached_libc(&cache, "dlmopen"));
}

AC_EARLY ac_dlsym_fn *ac_next_dlsym(void) {
    AC_START_DATA static _Atomic(void *) cache;
    void *next = cached_next(&cache, "dlsym");
    return next ? AS_FUNCTION(ac_dlsym_fn, next) : ac_real_dlsym();
}

AC_EARLY ac_dlopen_fn *ac_next_dlopen(void) {
    AC_START_DATA static _Atomic(void *) cache;
    void *next = cached_next(&cache, "dlopen");
    return next ? AS_FUNCTION(ac_dlopen_fn, next) : ac_real_dlopen();
}

AC_EARLY ac_dlmopen_fn *ac_next_dlmopen(void) {
    AC_START_DATA static _Atomic(void *) cache;
    void *next = cached_next(&cache, "dlmopen");
    return next ? AS_FUNCTION(ac_dlmopen_fn, next) : ac_real_dlmopen();
}

/* Keeps the object loaded, because the caller keeps addresses in it.  It opens the path that the loader
 * has recorded, so that the loader searches no other place. */
AC_EARLY struct link_map *ac_object_pin(const ac_object_t *object) {
    ac_dlopen_fn *open = ac_real_dlopen();
    struct link_map *map = NULL;
    if (open && object->path && object->path[0])
        map = open(object->path, RTLD_NOLOAD | RTLD_LAZY);
    if (map && map->l_ld == object->dynamic)
        return map;
    Dl_info info;
    if (dladdr1(object->dynamic, &info, (void **)&map, RTLD_DL_LINKMAP) && map &&
        map->l_ld == object->dynamic)
        return map;
    return NULL;
}

/* ---------------------------------------------------------------- the driver */

AC_START_DATA static _Atomic(struct link_map *) driver_map;

/* Written by the first thread; read only after they are ready. */
AC_START_DATA static ac_symbols_t driver_symbols;
AC_START_DATA static _Atomic int driver_symbols_state;
enum { SYMBOLS_NONE, SYMBOLS_TAKEN, SYMBOLS_READY };

AC_EARLY static ac_symbols_t symbols_of_driver(const struct link_map *map) {
    if (atomic_load_explicit(&driver_symbols_state, memory_order_acquire) == SYMBOLS_READY)
        return driver_symbols;
    ac_object_t driver = {.base = map->l_addr, .dynamic = map->l_ld, .path = map->l_name};
    ac_symbols_t symbols = ac_object_symbols(&driver);
    int none = SYMBOLS_NONE;
    if (atomic_compare_exchange_strong(&driver_symbols_state, &none, SYMBOLS_TAKEN)) {
        driver_symbols = symbols;
        atomic_store_explicit(&driver_symbols_state, SYMBOLS_READY, memory_order_release);
    }
    return symbols;
}

/* Finds one function of the driver, when it is first called.  Only a lookup by address needs all of
 * them, and a program that is linked against the driver makes none. */
AC_EARLY static void *driver_slot_fill(const ac_symbols_t *driver, int hook) {
    void *real = ac_symbols_find(driver, ac_hook_name(hook));
    if (real)
        atomic_store_explicit(&ac_real_slots[hook], real, memory_order_release);
    return real;
}

static _Atomic bool addresses_ready;

AC_EARLY static void addresses_fill(const struct link_map *map) {
    ac_symbols_t driver = symbols_of_driver(map);
    for (int hook = 0; hook < AC_HOOK_COUNT; hook++) {
        void *real =
            ac_hook_kinds[hook] == AC_KIND_DRIVER ? driver_slot_fill(&driver, hook) : NULL;
        if (real)
            slot_insert(hooks_by_address, HOOK_SLOTS, address_hash(real), (unsigned)hook);
    }
    atomic_store_explicit(&addresses_ready, true, memory_order_release);
}

AC_EARLY struct link_map *ac_driver_find(void) {
    struct link_map *map = atomic_load_explicit(&driver_map, memory_order_acquire);
    if (map)
        return map;
    ac_object_t object = ac_object_by_soname("libcuda.so");
    if (!object.dynamic)
        return NULL;
    map = ac_object_pin(&object);
    if (!map)
        return NULL;
    atomic_store_explicit(&driver_map, map, memory_order_release);
    return map;
}

AC_EARLY bool ac_driver_is_before(void) {
    const struct link_map *map = ac_driver_find();
    return map && ac_object_defining("cuInit").dynamic == map->l_ld;
}

/* Opens the driver in the first folder that has it, of the folders that the loader searches for the
 * libraries that `object` needs. */
static void open_driver_of(const ac_object_t *object, ac_dlopen_fn *open) {
    enum { PATH = 4096 };
    struct link_map *map = ac_object_pin(object);
    char *path = ac_scratch_take();
    Dl_serinfo *folders = path ? (void *)(path + PATH) : NULL;
    if (map && folders && dlinfo(map, RTLD_DI_SERINFOSIZE, folders) == 0 &&
        folders->dls_size <= AC_SCRATCH - PATH && dlinfo(map, RTLD_DI_SERINFO, folders) == 0)
        for (unsigned i = 0; i < folders->dls_cnt && !ac_driver_find(); i++) {
            int n = snprintf(path, PATH, "%s/libcuda.so.1", folders->dls_serpath[i].dls_name);
            if (n < PATH && *path == '/')
                open(path, RTLD_NOW | RTLD_GLOBAL);
        }
    ac_scratch_give(path);
}

void ac_driver_open(void) {
    ac_dlopen_fn *open = ac_next_dlopen();
    for (unsigned i = 0; open && !ac_driver_find(); i++) {
        ac_object_t object = ac_object_needing("libaccelcache.so", i);
        if (!object.dynamic)
            return;
        atomic_store_explicit(&ac_driver_wanted, (int)getpid(), memory_order_relaxed);
        if (i == 0)
            open("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL); /* also searches ld.so.cache */
        open_driver_of(&object, open);
    }
}

AC_EARLY void *ac_resolve_driver(const char *symbol) {
    struct link_map *map = ac_driver_find();
    if (!map)
        return NULL;
    ac_symbols_t driver = symbols_of_driver(map);
    return ac_symbols_find(&driver, symbol);
}

AC_EARLY bool ac_resolve_is_function(const char *symbol) {
    struct link_map *map = ac_driver_find();
    if (!map)
        return false;
    ac_symbols_t driver = symbols_of_driver(map);
    return ac_symbols_is_function(&driver, symbol);
}

AC_EARLY int ac_hook_by_address(const void *address, int likely) {
    const struct link_map *map = atomic_load_explicit(&driver_map, memory_order_acquire);
    if (!address || !map)
        return AC_HOOK_NONE;
    if (likely >= 0 && ac_hook_kinds[likely] == AC_KIND_DRIVER && ac_real_get(likely) == address)
        return likely;
    if (!atomic_load_explicit(&addresses_ready, memory_order_acquire))
        addresses_fill(map);
    int hook;
    for (uint32_t i = address_hash(address);
         (hook = slot_next(hooks_by_address, HOOK_SLOTS, &i)) >= 0;)
        if (atomic_load_explicit(&ac_real_slots[hook], memory_order_acquire) == address)
            return hook;
    return AC_HOOK_NONE;
}

AC_EARLY void *ac_resolve_substitute(void *address) {
    ac_driver_find();
    int hook = ac_hook_by_address(address, AC_HOOK_NONE);
    return hook >= 0 ? ac_hook_function(hook) : NULL;
}

/* ---------------------------------------------------------------- the real functions */

/* Returns the definition that the loader finds behind this library, and keeps its object loaded; NULL:
 * there is none. */
AC_EARLY static void *definition_behind(const char *symbol) {
    ac_dlsym_fn *real = ac_real_dlsym();
    void *found = real ? real(RTLD_NEXT, symbol) : NULL;
    if (!found || ac_is_ours(found))
        return NULL;
    ac_object_t object = ac_object_of(found);
    ac_object_pin(&object);
    return found;
}

/* Returns the function that a call would reach without this library.  If the program's own scope has no
 * runtime, it is one of the newest runtime that was opened with RTLD_LOCAL.  Serves callers with an
 * unknown runtime; runtimes.c finds the runtime of a caller. */
AC_EARLY static void *runtime_find(const char *symbol) {
    void *found = definition_behind(symbol);
    if (found)
        return found;
    static const char *const sonames[] = {"libcudart.so.13", "libcudart.so.12",
                                          "libcudart.so.11.0"};
    for (unsigned i = 0; i < sizeof(sonames) / sizeof(sonames[0]); i++) {
        ac_object_t object = ac_object_by_soname(sonames[i]);
        found = object.dynamic ? ac_object_symbol(&object, symbol) : NULL;
        if (found && ac_object_pin(&object))
            return found;
    }
    return NULL;
}

AC_EARLY static void *nvml_find(const char *symbol) {
    void *found = definition_behind(symbol);
    if (found)
        return found;
    ac_object_t object = ac_object_by_soname("libnvidia-ml.so");
    found = object.dynamic ? ac_object_symbol(&object, symbol) : NULL;
    return found && ac_object_pin(&object) ? found : NULL;
}

/* The functions of a second copy of NVML are not replaced: its device handles are its own. */
AC_EARLY bool ac_nvml_takes(int hook, void *found) {
    ac_object_t object = ac_object_of(found);
    void *known = atomic_load_explicit(&ac_real_slots[hook], memory_order_acquire);
    if (known || !ac_text_starts(ac_object_soname(&object), "libnvidia-ml.so"))
        return known == found;
    return ac_object_pin(&object) &&
           (atomic_compare_exchange_strong(&ac_real_slots[hook], &known, found) ||
            known == found);
}

AC_EARLY void *ac_real_find(ac_hook_t hook) {
    void *real = NULL;
    const struct link_map *map;
    ac_symbols_t driver;
    switch ((ac_hook_kind_t)ac_hook_kinds[hook]) {
    case AC_KIND_DRIVER:
        map = ac_driver_find();
        if (!map)
            return NULL;
        driver = symbols_of_driver(map);
        real = driver_slot_fill(&driver, hook);
        /* The driver may not export it; then cuGetProcAddress may have returned it before. */
        return real ? real : atomic_load_explicit(&ac_real_slots[hook], memory_order_acquire);
    case AC_KIND_RUNTIME:
        real = runtime_find(ac_hook_name(hook));
        break;
    case AC_KIND_NVML:
        real = nvml_find(ac_hook_name(hook));
        break;
    case AC_KIND_LOADER:
        real = hook == AC_HOOK_dlopen ? __extension__(void *) ac_next_dlopen()
                                      : __extension__(void *) ac_next_dlsym();
        break;
    }
    if (real)
        atomic_store_explicit(&ac_real_slots[hook], real, memory_order_release);
    return real;
}

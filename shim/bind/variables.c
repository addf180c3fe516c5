/* See variables.h. */
#include "bind/variables.h"

#include <dlfcn.h>
#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include "bind/callers.h"
#include "bind/resolve.h"
#include "observe/raw.h"

#if defined(__x86_64__)
enum { ENTRY = R_X86_64_GLOB_DAT, WORD = R_X86_64_64, COPY = R_X86_64_COPY };
#elif defined(__aarch64__)
enum { ENTRY = R_AARCH64_GLOB_DAT, WORD = R_AARCH64_ABS64, COPY = R_AARCH64_COPY };
#endif

enum { ROOM = 16, TURNS = 10000 };

/* A word that holds the address of an export of ours, or a copy of what lies there. */
typedef struct {
    ac_object_t object;
    const ElfW(Sym) * symbol; /* of the object's table */
    const char *name;
    uintptr_t at;
    ElfW(Sxword) addend;
    size_t copied;  /* bytes of a copy; 0: a word */
    int protection; /* of its page */
} place_t;

typedef struct {
    ac_symbols_t ours;
    /* The objects to search: the object of `caller`; or `root` with the libraries that were loaded for it; or
     * the objects with numbers in [first, end). */
    const void *caller;
    const ElfW(Dyn) * root;
    unsigned first, end;
    unsigned number;     /* of the next object */
    bool reached;        /* the root was */
    unsigned skip, seen; /* places that stay as they are */
    unsigned count;
    place_t place[ROOM];
} search_t;

/* ---------------------------------------------------------------- places of an object */

/* Returns the protection of the page at `at`.  The loader makes whole pages read-only after relocation. */
AC_EARLY static int protection_at(const struct dl_phdr_info *info, uintptr_t at) {
    uintptr_t page = getauxval(AT_PAGESZ);
    int protection = PROT_READ | PROT_WRITE;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + header->p_vaddr, end = begin + header->p_memsz;
        if (header->p_type == PT_LOAD && at - begin < header->p_memsz)
            protection = (header->p_flags & PF_R ? PROT_READ : 0) |
                         (header->p_flags & PF_W ? PROT_WRITE : 0) |
                         (header->p_flags & PF_X ? PROT_EXEC : 0);
        if (header->p_type == PT_GNU_RELRO && at >= (begin & -page) && at < (end & -page))
            return PROT_READ;
    }
    return protection;
}

AC_EARLY static bool same_bytes(uintptr_t a, uintptr_t b, size_t count) {
    const unsigned char *left = (const void *)a, *right = (const void *)b;
    while (count && *left == *right) {
        left++;
        right++;
        count--;
    }
    return !count;
}

/* Returns true if the relocation made a place, and puts it into *place. */
AC_EARLY static bool is_place(const search_t *search, const ac_symbols_t *tables,
                              const ElfW(Rela) * entry, place_t *place) {
    unsigned type = ELF64_R_TYPE(entry->r_info);
    uintptr_t at = tables->base + entry->r_offset;
    bool word = (type == ENTRY || type == WORD) && at % sizeof(uintptr_t) == 0;
    if ((!word && type != COPY) || (word && !ac_is_ours(*(void *const *)at)))
        return false;
    const ElfW(Sym) *symbol = &tables->symbols[ELF64_R_SYM(entry->r_info)];
    const char *name = tables->strings + symbol->st_name;
    const ElfW(Sym) *ours = ac_symbols_entry(&search->ours, name);
    if (!ours)
        return false;
    uintptr_t address = search->ours.base + ours->st_value;
    size_t copied = symbol->st_size < ours->st_size ? symbol->st_size : ours->st_size;
    *place = (place_t){.symbol = symbol,
                       .name = name,
                       .at = at,
                       .addend = entry->r_addend,
                       .copied = word ? 0 : copied};
    return word ? *(const uintptr_t *)at == address + (uintptr_t)entry->r_addend
                : copied && same_bytes(at, address, copied);
}

/* Adds the object's places to the search.  Relative relocations come first and have no symbol. */
AC_EARLY static void look_at(search_t *search, const struct dl_phdr_info *info,
                             const ac_object_t *object) {
    ac_symbols_t tables = ac_object_symbols(object);
    uintptr_t start = 0;
    size_t bytes = 0, relative = 0;
    for (const ElfW(Dyn) *entry = object->dynamic; entry && entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_RELA)
            start = entry->d_un.d_ptr;
        else if (entry->d_tag == DT_RELASZ)
            bytes = entry->d_un.d_val;
        else if (entry->d_tag == DT_RELACOUNT)
            relative = entry->d_un.d_val;
    }
    if (!start || !tables.symbols || !tables.strings || ac_is_ourselves(object))
        return;
    const ElfW(Rela) *entry = (const void *)(start < object->base ? object->base + start : start);
    for (size_t i = relative; i < bytes / sizeof *entry && search->count < ROOM; i++) {
        place_t *place = &search->place[search->count];
        if (!is_place(search, &tables, &entry[i], place) || search->seen++ < search->skip)
            continue;
        place->object = *object;
        place->protection = protection_at(info, place->at);
        search->count++;
    }
}

/* Returns true if the search covers the object.  A load appends to the loader's list: the opened object, then the
 * objects that it needs.  Another thread may close any object except these and the caller's. */
AC_EARLY static bool is_wanted(search_t *search, const struct dl_phdr_info *info,
                               const ac_object_t *object) {
    unsigned number = search->number++;
    if (search->caller)
        return ac_object_holds(info, (uintptr_t)search->caller);
    if (!search->root)
        return number >= search->first && number < search->end;
    if (!search->reached)
        return search->reached = object->dynamic == search->root;
    return ac_object_is_needed(object, search->root);
}

AC_EARLY static int search_step(struct dl_phdr_info *info, size_t size, void *argument) {
    (void)size;
    search_t *search = argument;
    ac_object_t object = ac_object_from(info);
    bool wanted = is_wanted(search, info, &object);
    if (wanted)
        look_at(search, info, &object);
    return search->count == ROOM || (wanted ? search->caller != NULL : search->reached);
}

/* ---------------------------------------------------------------- what belongs there */

AC_EARLY static bool is_data(const ElfW(Sym) * symbol) {
    return symbol && symbol->st_shndx != SHN_UNDEF &&
           ELF64_ST_TYPE(symbol->st_info) == STT_OBJECT;
}

AC_EARLY static int data_step(struct dl_phdr_info *info, size_t size, void *argument) {
    (void)size;
    const char *const *names = argument;
    ac_object_t object = ac_object_from(info);
    ac_symbols_t tables = ac_object_symbols(&object);
    for (; *names; names++)
        if (is_data(ac_symbols_entry(&tables, *names)))
            return 1;
    return 0;
}

/* Returns true if a loaded object has a variable with one of the names.  NULL ends them. */
AC_EARLY static bool have_data(const char *const *names) {
    return ac_object_each(data_step, (void *)(uintptr_t)names);
}

/* Searches as the loader would without us: the global scope first, then the opened object, or the place's own, with
 * the libraries that it needs. */
AC_EARLY static void *next_definition(const place_t *place, void *opened) {
    ac_dlsym_fn *real = ac_real_dlsym();
    void *found = real ? real(RTLD_NEXT, place->name) : NULL;
    if ((found && !ac_is_ours(found)) || place->copied || !real)
        return found;
    Dl_info info;
    struct link_map *map = opened;
    if (map || dladdr1(place->object.dynamic, &info, (void **)&map, RTLD_DL_LINKMAP))
        found = map ? real(map, place->name) : NULL;
    return found;
}

/* Returns the variable that the place should refer to, and its size in *bytes; NULL: none. */
AC_EARLY static void *variable_of(const place_t *place, void *opened, size_t *bytes) {
    const char *const names[] = {place->name, NULL};
    if (!have_data(names))
        return NULL;
    void *found = next_definition(place, opened);
    if (found && !ac_is_ours(found)) {
        ac_object_t object = ac_object_of(found);
        ac_symbols_t tables = ac_object_symbols(&object);
        const ElfW(Sym) *symbol = ac_symbols_entry(&tables, place->name);
        if (!is_data(symbol) || (uintptr_t)found != object.base + symbol->st_value)
            return NULL;
        *bytes = symbol->st_size;
        return found;
    }
    if (place->copied || !is_data(place->symbol))
        return NULL;
    *bytes = place->symbol->st_size; /* of an old version */
    return (void *)(place->object.base + place->symbol->st_value);
}

/* ---------------------------------------------------------------- writing */

/* Only one thread at a time makes a read-only page writable.  A fork may leave this set in the child, so the wait
 * for it ends. */
AC_START_DATA static _Atomic bool writing;

AC_EARLY static void set_place(const place_t *place, const void *variable, size_t bytes) {
    uintptr_t page = getauxval(AT_PAGESZ);
    uintptr_t begin = place->at & -page;
    size_t size = place->copied ? bytes < place->symbol->st_size ? bytes : place->symbol->st_size
                                : sizeof(uintptr_t);
    size_t length = ((place->at + size + page - 1) & -page) - begin;
    bool closed = !(place->protection & PROT_WRITE);
    for (int turn = 0; closed && atomic_exchange(&writing, true) && turn < TURNS; turn++)
        sched_yield();
    if (!closed || !ac_raw_call(SYS_mprotect, (long)begin, (long)length,
                                place->protection | PROT_WRITE, 0)) {
        if (!place->copied)
            *(volatile uintptr_t *)place->at = (uintptr_t)variable + (uintptr_t)place->addend;
        for (size_t i = 0; place->copied && i < size; i++)
            ((volatile unsigned char *)place->at)[i] = ((const unsigned char *)variable)[i];
        if (closed)
            ac_raw_call(SYS_mprotect, (long)begin, (long)length, place->protection, 0);
    }
    if (closed)
        atomic_store(&writing, false);
}

/* Corrects the places that a search finds, in the scope of `opened`.  NULL: each in the scope of its own object. */
AC_EARLY static void look(search_t *search, struct link_map *opened) {
    search->ours = ac_own_symbols();
    search->skip = 0;
    do {
        search->number = search->seen = search->count = 0;
        search->reached = false;
        ac_object_each(search_step, search);
        for (unsigned i = 0; i < search->count; i++) {
            size_t bytes;
            const void *variable = variable_of(&search->place[i], opened, &bytes);
            if (variable)
                set_place(&search->place[i], variable, bytes);
            else
                search->skip++;
        }
    } while (search->count == ROOM);
}

AC_EARLY static void look_at_objects(unsigned first, unsigned end) {
    search_t search = {.first = first, .end = end};
    look(&search, NULL);
}

AC_EARLY static void look_at_caller(const void *caller) {
    search_t search = {.caller = caller};
    look(&search, NULL);
}

AC_EARLY static void look_at_opened(struct link_map *opened) {
    search_t search = {.root = opened->l_ld};
    look(&search, opened);
}

/* ---------------------------------------------------------------- when */

typedef struct {
    uint64_t loads;
    unsigned objects;
} loaded_t;

AC_EARLY static int loaded_step(struct dl_phdr_info *info, size_t size, void *argument) {
    (void)size;
    loaded_t *loaded = argument;
    loaded->loads = info->dlpi_adds;
    loaded->objects++;
    return 0;
}

AC_EARLY static loaded_t loaded_now(void) {
    loaded_t loaded = {0, 0};
    ac_object_each(loaded_step, &loaded);
    return loaded;
}

/* Returns the number of the first object loaded since.  New objects are last in the list.  The count of loads
 * includes other namespaces, so the result may be too small. */
AC_EARLY static unsigned first_since(const loaded_t *now, uint64_t loads) {
    uint64_t count = now->loads - loads;
    return count < now->objects ? now->objects - (unsigned)count : 0;
}

/* Number of objects that the program began with.  They are never closed. */
static _Atomic unsigned at_start;

AC_EARLY void ac_variables_start(void) {
    static const char *const usual[] = {"cuInit", "cuMemAlloc_v2", "cuMemFree_v2", "cudaMalloc",
                                        NULL};
    atomic_store(&at_start, loaded_now().objects);
    if (have_data(usual))
        look_at_objects(0, UINT_MAX);
}

AC_EARLY void ac_variables_before(const void *caller) {
    static _Atomic bool all;
    static ac_callers_t callers;
    uint64_t word = ac_callers_word(caller);
    unsigned looked, first_ones = atomic_load(&at_start);
    if (ac_callers_find(&callers, word, &looked))
        return;
    if (!atomic_exchange(&all, true))
        look_at_objects(0, first_ones ? first_ones : UINT_MAX);
    look_at_caller(caller);
    ac_callers_remember(&callers, word, 1);
}

/* Calls of dlopen that have not looked yet.  A child may inherit some that never end, and looks more often then. */
static _Atomic unsigned opening;

AC_EARLY ac_loads_t ac_variables_opening(void) {
    bool alone = !atomic_fetch_add(&opening, 1);
    return (ac_loads_t){loaded_now().loads, alone};
}

AC_EARLY bool ac_variables_opened(void *handle, bool known, ac_loads_t before) {
    loaded_t now = loaded_now();
    bool loaded = now.loads != before.count || !before.alone;
    if (handle && loaded && known)
        look_at_opened(handle);
    else if (handle && loaded)
        look_at_objects(first_since(&now, before.count), UINT_MAX);
    if (handle && loaded)
        dlerror();
    atomic_fetch_sub(&opening, 1);
    return handle && loaded;
}

_Atomic bool ac_variables_overdue;

/* The real lookup waits for the dlopen of other threads, so the object that it finds is relocated. */
AC_EARLY void ac_variables_catch_up(void *handle, const char *name) {
    static _Atomic uint64_t last;
    bool named = handle != RTLD_DEFAULT && handle != RTLD_NEXT;
    uint64_t word = (uint64_t)(uintptr_t)handle ^ (uint64_t)ac_callers_now() << 48;
    ac_dlsym_fn *real = ac_real_dlsym();
    if (!real || (named && atomic_load(&last) == word))
        return;
    void *found = real(named ? handle : RTLD_DEFAULT, name);
    Dl_info info;
    struct link_map *map = handle;
    if (found && (named || (dladdr1(found, &info, (void **)&map, RTLD_DL_LINKMAP) && map)))
        look_at_opened(map);
    if (found && named)
        atomic_store(&last, word);
}

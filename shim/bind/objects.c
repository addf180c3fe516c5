/* The loader's objects and their symbol tables: see objects.h. */
#include "bind/objects.h"

#include <string.h>

#include "bind/loader_gate.h"

AC_EARLY bool ac_text_same(const char *a, const char *b) {
    while (*a && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

AC_EARLY bool ac_text_starts(const char *text, const char *prefix) {
    while (*prefix && *text == *prefix) {
        text++;
        prefix++;
    }
    return !*prefix;
}

AC_EARLY const char *ac_text_basename(const char *path) {
    const char *name = path;
    for (; *path; path++)
        if (*path == '/')
            name = path + 1;
    return name;
}

/* Returns the address for a value of a dynamic section.  glibc relocates the pointers of most sections
 * in place.  It does not relocate the vDSO's and read-only ones: a value below the base is an
 * offset. */
AC_EARLY static const void *table_at(uintptr_t base, uintptr_t value) {
    return (const void *)(value < base ? base + value : value);
}

AC_EARLY ac_symbols_t ac_object_symbols(const ac_object_t *object) {
    ac_symbols_t tables = {.base = object->base};
    uintptr_t soname = 0;
    for (const ElfW(Dyn) *entry = object->dynamic; entry && entry->d_tag != DT_NULL; entry++) {
        const void *at = table_at(object->base, entry->d_un.d_ptr);
        if (entry->d_tag == DT_SYMTAB)
            tables.symbols = at;
        else if (entry->d_tag == DT_STRTAB)
            tables.strings = at;
        else if (entry->d_tag == DT_GNU_HASH)
            tables.gnu_hash = at;
        else if (entry->d_tag == DT_HASH)
            tables.hash = at;
        else if (entry->d_tag == DT_VERSYM)
            tables.versions = at;
        else if (entry->d_tag == DT_SONAME)
            soname = entry->d_un.d_val;
    }
    if (soname && tables.strings)
        tables.soname = tables.strings + soname;
    return tables;
}

/* Returns symbol `index` if it is a definition of `name`, else NULL. */
AC_EARLY static const ElfW(Sym) *
    symbol_if(const ac_symbols_t *tables, uint32_t index, const char *name) {
    const ElfW(Sym) *symbol = &tables->symbols[index];
    unsigned type = ELF64_ST_TYPE(symbol->st_info);
    if (symbol->st_shndx == SHN_UNDEF || !symbol->st_value ||
        (type != STT_FUNC && type != STT_OBJECT && type != STT_NOTYPE))
        return NULL;
    if (tables->versions && (tables->versions[index] & 0x8000))
        return NULL; /* an old version, kept for programs linked against it */
    if (!ac_text_same(tables->strings + symbol->st_name, name))
        return NULL;
    return symbol;
}

AC_EARLY static const ElfW(Sym) * find_by_gnu_hash(const ac_symbols_t *tables, const char *name) {
    uint32_t hash = 5381;
    for (const char *c = name; *c; c++)
        hash = hash * 33 + (unsigned char)*c;
    const uint32_t *header = tables->gnu_hash;
    uint32_t bucket_count = header[0], first = header[1], words = header[2], shift = header[3];
    if (!bucket_count || !words)
        return NULL;
    const ElfW(Addr) *bloom = (const void *)(header + 4);
    const uint32_t *buckets = (const void *)(bloom + words);
    const uint32_t *chain = buckets + bucket_count;
    enum { BITS = 8 * sizeof(ElfW(Addr)) };
    ElfW(Addr) word = bloom[(hash / BITS) % words];
    if (!(word >> (hash % BITS) & word >> ((hash >> shift) % BITS) & 1))
        return NULL;
    uint32_t index = buckets[hash % bucket_count];
    if (index < first)
        return NULL;
    for (;; index++) {
        uint32_t entry = chain[index - first];
        if ((entry | 1) == (hash | 1)) {
            const ElfW(Sym) *symbol = symbol_if(tables, index, name);
            if (symbol)
                return symbol;
        }
        if (entry & 1)
            return NULL;
    }
}

AC_EARLY static const ElfW(Sym) * find_by_hash(const ac_symbols_t *tables, const char *name) {
    uint32_t hash = 0;
    for (const char *c = name; *c; c++) {
        hash = (hash << 4) + (unsigned char)*c;
        uint32_t high = hash & 0xf0000000u;
        hash ^= high >> 24;
        hash &= ~high;
    }
    const uint32_t *buckets = tables->hash + 2, *chain = buckets + tables->hash[0];
    if (!tables->hash[0])
        return NULL;
    for (uint32_t index = buckets[hash % tables->hash[0]]; index; index = chain[index]) {
        const ElfW(Sym) *symbol = symbol_if(tables, index, name);
        if (symbol)
            return symbol;
    }
    return NULL;
}

AC_EARLY const ElfW(Sym) * ac_symbols_entry(const ac_symbols_t *tables, const char *name) {
    if (!tables->symbols || !tables->strings)
        return NULL;
    if (tables->gnu_hash)
        return find_by_gnu_hash(tables, name);
    return tables->hash ? find_by_hash(tables, name) : NULL;
}

AC_EARLY void *ac_symbols_find(const ac_symbols_t *tables, const char *symbol) {
    const ElfW(Sym) *entry = ac_symbols_entry(tables, symbol);
    return entry ? (void *)(tables->base + entry->st_value) : NULL;
}

AC_EARLY bool ac_symbols_is_function(const ac_symbols_t *tables, const char *symbol) {
    const ElfW(Sym) *entry = ac_symbols_entry(tables, symbol);
    return entry && ELF64_ST_TYPE(entry->st_info) == STT_FUNC;
}

AC_EARLY void *ac_object_symbol(const ac_object_t *object, const char *symbol) {
    ac_symbols_t tables = ac_object_symbols(object);
    return ac_symbols_find(&tables, symbol);
}

AC_EARLY const char *ac_object_soname(const ac_object_t *object) {
    ac_symbols_t tables = ac_object_symbols(object);
    return tables.soname ? tables.soname : "";
}

AC_EARLY const char *ac_object_needed(const ac_object_t *object, unsigned index) {
    const char *strings = ac_object_symbols(object).strings;
    for (const ElfW(Dyn) *entry = object->dynamic; strings && entry && entry->d_tag != DT_NULL;
         entry++)
        if (entry->d_tag == DT_NEEDED && !index--)
            return strings + entry->d_un.d_val;
    return NULL;
}

AC_EARLY bool ac_object_is_cudart(const ac_object_t *object) {
    return ac_object_symbol(object, "__cudaRegisterFatBinary");
}

/* ---------------------------------------------------------------- walking the objects */

AC_EARLY int ac_object_each(int (*step)(struct dl_phdr_info *, size_t, void *), void *argument) {
    int place = ac_loader_enter();
    int answer = dl_iterate_phdr(step, argument);
    ac_loader_leave(place);
    return answer;
}

typedef struct {
    uintptr_t address;  /* wanted: the object that holds it; 0: do not care */
    const char *symbol; /* wanted: an object after that one which defines it */
    const char *soname; /* wanted: an object with a soname that starts with this */
    const char *needed; /* wanted: an object that needs a library of this prefix, after `skip` others */
    unsigned skip;
    bool passed;        /* the object of `address` was seen */
    ac_object_t found;
} walk_t;

AC_EARLY bool ac_object_holds(const struct dl_phdr_info *info, uintptr_t address) {
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type == PT_LOAD &&
            address - (info->dlpi_addr + header->p_vaddr) < header->p_memsz)
            return true;
    }
    return false;
}

AC_EARLY ac_object_t ac_object_from(const struct dl_phdr_info *info) {
    ac_object_t object = {.base = info->dlpi_addr, .path = info->dlpi_name};
    for (unsigned i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            object.dynamic = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    return object;
}

AC_EARLY static bool needs(const ac_object_t *object, const char *prefix) {
    const char *name;
    for (unsigned i = 0; (name = ac_object_needed(object, i)); i++)
        if (ac_text_starts(name, prefix))
            return true;
    return false;
}

AC_EARLY static int walk_step(struct dl_phdr_info *info, size_t size, void *argument) {
    (void)size;
    walk_t *walk = argument;
    ac_object_t object = ac_object_from(info);
    if (walk->soname) {
        if (!ac_text_starts(ac_object_soname(&object), walk->soname))
            return 0;
    } else if (walk->needed) {
        if (!needs(&object, walk->needed) || walk->skip-- > 0)
            return 0;
    } else if (!walk->passed) {
        walk->passed = ac_object_holds(info, walk->address);
        if (!walk->passed || walk->symbol)
            return 0;
    } else if (!ac_object_symbol(&object, walk->symbol)) {
        return 0;
    }
    walk->found = object;
    return 1;
}

AC_EARLY ac_object_t ac_object_of(const void *address) {
    walk_t walk = {.address = (uintptr_t)address};
    ac_object_each(walk_step, &walk);
    return walk.found;
}

AC_EARLY ac_object_t ac_object_by_soname(const char *prefix) {
    walk_t walk = {.soname = prefix};
    ac_object_each(walk_step, &walk);
    return walk.found;
}

AC_EARLY ac_object_t ac_object_needing(const char *prefix, unsigned index) {
    walk_t walk = {.needed = prefix, .skip = index};
    ac_object_each(walk_step, &walk);
    return walk.found;
}

typedef struct {
    const ac_object_t *object;
    const ElfW(Dyn) * from;
    const char *soname, *file;
    bool reached, needed;
} needed_t;

AC_EARLY static int needed_step(struct dl_phdr_info *info, size_t size, void *argument) {
    (void)size;
    needed_t *walk = argument;
    ac_object_t object = ac_object_from(info);
    const char *name;
    walk->reached |= object.dynamic == walk->from;
    for (unsigned i = 0; walk->reached && (name = ac_object_needed(&object, i)); i++) {
        name = ac_text_basename(name);
        walk->needed |= ac_text_same(name, walk->soname) || ac_text_same(name, walk->file);
    }
    return walk->needed || object.dynamic == walk->object->dynamic;
}

AC_EARLY bool ac_object_is_needed(const ac_object_t *object, const ElfW(Dyn) * from) {
    needed_t walk = {object, from, ac_object_soname(object),
                     ac_text_basename(object->path ? object->path : ""), false, false};
    ac_object_each(needed_step, &walk);
    return walk.needed;
}

AC_EARLY ac_object_t ac_object_defining(const char *symbol) {
    walk_t walk = {.symbol = symbol, .passed = true};
    ac_object_each(walk_step, &walk);
    return walk.found;
}

AC_EARLY ac_object_t ac_object_after(const void *address, const char *symbol) {
    walk_t walk = {.address = (uintptr_t)address, .symbol = symbol};
    ac_object_each(walk_step, &walk);
    return walk.found;
}

typedef struct {
    uintptr_t address;
    ac_object_t *holder, *runtimes;
    unsigned room, count;
} survey_t;

AC_EARLY static int survey_step(struct dl_phdr_info *info, size_t size, void *argument) {
    (void)size;
    survey_t *survey = argument;
    ac_object_t object = ac_object_from(info);
    if (ac_object_holds(info, survey->address))
        *survey->holder = object;
    if (survey->count < survey->room && ac_object_is_cudart(&object))
        survey->runtimes[survey->count++] = object;
    return 0;
}

AC_EARLY unsigned ac_object_survey(const void *address, ac_object_t *holder,
                                   ac_object_t *runtimes, unsigned room) {
    survey_t survey = {(uintptr_t)address, holder, runtimes, room, 0};
    *holder = (ac_object_t){.dynamic = NULL};
    ac_object_each(survey_step, &survey);
    return survey.count;
}

typedef struct {
    uintptr_t caller;
    bool plain;  /* the file is a name without a folder: the loader searches for it */
    bool passed; /* the executable was seen; its DT_RPATH counts for all objects */
    bool held, alone;
} paths_t;

/* DT_RUNPATH counts for its own object only.  DT_RPATH without DT_RUNPATH also counts for all objects
 * that the object loads. */
AC_EARLY static int paths_step(struct dl_phdr_info *info, size_t size, void *argument) {
    (void)size;
    paths_t *paths = argument;
    ac_object_t object = ac_object_from(info);
    bool rpath = false, runpath = false;
    for (const ElfW(Dyn) *entry = object.dynamic; entry && entry->d_tag != DT_NULL; entry++) {
        rpath |= entry->d_tag == DT_RPATH;
        runpath |= entry->d_tag == DT_RUNPATH;
    }
    bool holder = ac_object_holds(info, paths->caller);
    paths->held |= holder;
    paths->alone |= (rpath && !runpath && paths->passed) || (holder && runpath && paths->plain);
    paths->passed = true;
    return 0;
}

AC_EARLY bool ac_object_searches_alone(const void *caller, const char *file) {
    bool slash = !file, origin = false;
    for (const char *c = file; c && *c; c++) {
        slash |= *c == '/';
        origin |= *c == '$';
    }
    paths_t paths = {.caller = (uintptr_t)caller, .plain = !slash};
    ac_object_each(paths_step, &paths);
    return paths.alone || origin || !paths.held;
}

/* ---------------------------------------------------------------- build IDs */

typedef struct {
    const ElfW(Dyn) * dynamic; /* of the object */
    char *id;
} build_id_t;

/* Finds the build ID among the notes in [at, at + size).  Returns false if there is none. */
static bool find_note(const char *at, size_t size, size_t align, char *id) {
    static const char digits[] = "0123456789abcdef";
    ElfW(Nhdr) note;
    for (; size >= sizeof note; at += note.n_descsz, size -= note.n_descsz) {
        memcpy(&note, at, sizeof note);
        size_t name = (sizeof note + (size_t)note.n_namesz + align - 1) & ~(align - 1);
        size_t length = note.n_descsz;
        note.n_descsz = (ElfW(Word))((length + align - 1) & ~(align - 1));
        if (name > size || size - name < length)
            return false;
        const unsigned char *byte = (const void *)(at + name);
        bool found = note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
                     !memcmp(at + sizeof note, "GNU", 4);
        for (size_t i = 0; found && i < length && 2 * i + 2 < AC_BUILD_ID; i++) {
            id[2 * i] = digits[byte[i] >> 4];
            id[2 * i + 1] = digits[byte[i] & 15];
            id[2 * i + 2] = '\0';
        }
        if (found || note.n_descsz > size - name)
            return found;
        at += name;
        size -= name;
    }
    return false;
}

/* Returns true if one loaded segment contains the whole part.  Linker scripts may leave notes
 * outside. */
static bool is_loaded(const struct dl_phdr_info *info, const ElfW(Phdr) * part) {
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        ElfW(Addr) offset = part->p_vaddr - header->p_vaddr;
        if (header->p_type == PT_LOAD && header->p_flags & PF_R &&
            part->p_memsz <= header->p_memsz && offset <= header->p_memsz - part->p_memsz)
            return true;
    }
    return false;
}

static int build_id_step(struct dl_phdr_info *info, size_t size, void *argument) {
    const build_id_t *wanted = argument;
    (void)size;
    if (ac_object_from(info).dynamic != wanted->dynamic)
        return 0;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type == PT_NOTE && is_loaded(info, header) &&
            find_note((const char *)(info->dlpi_addr + header->p_vaddr), header->p_memsz,
                      header->p_align == 8 ? 8 : 4, wanted->id))
            break;
    }
    return 1;
}

void ac_object_build_id(const ac_object_t *object, char id[AC_BUILD_ID]) {
    build_id_t wanted = {object->dynamic, id};
    *id = '\0';
    ac_object_each(build_id_step, &wanted);
}

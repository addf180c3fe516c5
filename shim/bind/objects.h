/* What is loaded and what it defines: the resolver's own view of the process.
 *
 * Reading the symbol tables ourselves, rather than asking the loader, allocates nothing,
 * leaves dlerror() alone and can answer questions that dlsym cannot, such as "which object
 * after that one defines this name".  Everything here sees the main namespace only.
 *
 * Any thread, at any time, also before constructors ran.  No lock of ours; dl_iterate_phdr
 * holds the loader's list lock while it runs, and a fork of another thread is waited for
 * (loader_gate.h). */
#ifndef AC_OBJECTS_H
#define AC_OBJECTS_H

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observe/start.h"

/* Code that runs inside dlsym may run before a sanitizer's runtime is up, whose first act is
 * to call dlsym: it must not be instrumented. */
#if defined(__clang__) && __clang_major__ >= 14
#define AC_EARLY                                                                                 \
    AC_START __attribute__((no_sanitize("address", "thread", "undefined"),                       \
                            disable_sanitizer_instrumentation))
#else
#define AC_EARLY AC_START __attribute__((no_sanitize("address", "thread", "undefined")))
#endif

typedef struct {
    uintptr_t base;            /* what the object's addresses are relative to */
    const ElfW(Dyn) * dynamic; /* identifies the object; NULL: none */
    const char *path;          /* as the loader names it, valid while the object is loaded */
} ac_object_t;

/* The parts of an object's dynamic section that a lookup needs; all zero for no object. */
typedef struct {
    uintptr_t base;
    const ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t *gnu_hash;
    const uint32_t *hash;
    const ElfW(Half) * versions;
    const char *soname;
} ac_symbols_t;

/* String helpers that no sanitizer intercepts. */
AC_EARLY bool ac_text_same(const char *a, const char *b);
AC_EARLY bool ac_text_starts(const char *text, const char *prefix);
AC_EARLY const char *ac_text_basename(const char *path);

/* Address of the function or variable `symbol` that the object itself defines, its default
 * version where there are several; NULL if there is none, or if only a resolver function
 * (IFUNC) would know it. */
AC_EARLY void *ac_object_symbol(const ac_object_t *object, const char *symbol);

/* The same in two steps, for many lookups in one object. */
AC_EARLY ac_symbols_t ac_object_symbols(const ac_object_t *object);
AC_EARLY void *ac_symbols_find(const ac_symbols_t *symbols, const char *symbol);

/* Its entry in the table; NULL as above. */
AC_EARLY const ElfW(Sym) * ac_symbols_entry(const ac_symbols_t *symbols, const char *symbol);

/* Whether the object says of it that it is a function. */
AC_EARLY bool ac_symbols_is_function(const ac_symbols_t *symbols, const char *symbol);

/* Its DT_SONAME, "" if it has none. */
AC_EARLY const char *ac_object_soname(const ac_object_t *object);

/* Its DT_NEEDED entry number `index` as it is written there, NULL past the last one. */
AC_EARLY const char *ac_object_needed(const ac_object_t *object, unsigned index);

/* Whether it is a CUDA runtime.  Its name does not tell: wheels rename it. */
AC_EARLY bool ac_object_is_cudart(const ac_object_t *object);

/* Its build ID in hexadecimal digits, the first of one that is too long; "": it has none. */
enum { AC_BUILD_ID = 41 };
void ac_object_build_id(const ac_object_t *object, char id[AC_BUILD_ID]);

/* Calls `step` for each object in load order, until it returns other than 0, which is the answer.  What it is told
 * of an object, and whether the object has an address. */
AC_EARLY int ac_object_each(int (*step)(struct dl_phdr_info *, size_t, void *), void *argument);
AC_EARLY ac_object_t ac_object_from(const struct dl_phdr_info *info);
AC_EARLY bool ac_object_holds(const struct dl_phdr_info *info, uintptr_t address);

/* The object that `address` lies in. */
AC_EARLY ac_object_t ac_object_of(const void *address);

/* The first object, in load order, whose DT_SONAME starts with `prefix`. */
AC_EARLY ac_object_t ac_object_by_soname(const char *prefix);

/* Number `index`, in load order, of the objects that were linked against a library whose name starts with
 * `prefix`. */
AC_EARLY ac_object_t ac_object_needing(const char *prefix, unsigned index);

/* Whether the object of the dynamic section `from`, or one that follows it in load order, needs `object`. */
AC_EARLY bool ac_object_is_needed(const ac_object_t *object, const ElfW(Dyn) * from);

/* The first object, in load order, that defines `symbol`. */
AC_EARLY ac_object_t ac_object_defining(const char *symbol);

/* The first object loaded after the one of `address` that defines `symbol`. */
AC_EARLY ac_object_t ac_object_after(const void *address, const char *symbol);

/* Whether dlopen(file) may find another file when the code at `caller` asks than when this library does. */
AC_EARLY bool ac_object_searches_alone(const void *caller, const char *file);

/* The object of `address` and the first `room` CUDA runtimes in load order, in one walk; answers
 * how many of those were found. */
AC_EARLY unsigned ac_object_survey(const void *address, ac_object_t *holder,
                                   ac_object_t *runtimes, unsigned room);

#endif

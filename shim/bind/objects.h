/* The loaded objects and their symbols: the resolver's own view of the process.
 *
 * This code reads the symbol tables itself and does not ask the loader.  It allocates nothing and
 * leaves dlerror() alone.  It also answers questions that dlsym cannot answer, for example which
 * object after a given one defines a name.  All functions see the main namespace only.
 *
 * Any thread, at any time, also before constructors ran.  The functions take no lock of ours.
 * dl_iterate_phdr holds the loader's list lock while it runs.  Before that the calling thread waits
 * for a fork of another thread (loader_gate.h). */
#ifndef AC_OBJECTS_H
#define AC_OBJECTS_H

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observe/start.h"

/* Marks code that runs inside dlsym.  A sanitizer must not instrument it: it may run before the
 * sanitizer's runtime is ready, since that runtime first calls dlsym. */
#if defined(__clang__) && __clang_major__ >= 14
#define AC_EARLY                                                                                 \
    AC_START __attribute__((no_sanitize("address", "thread", "undefined"),                       \
                            disable_sanitizer_instrumentation))
#else
#define AC_EARLY AC_START __attribute__((no_sanitize("address", "thread", "undefined")))
#endif

typedef struct {
    uintptr_t base;            /* load address: the object's addresses are offsets from it */
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

/* Returns the address of the function or variable `symbol` that the object itself defines: the
 * default version if there are several.  Returns NULL if there is none, or if only a resolver
 * function (IFUNC) would know it. */
AC_EARLY void *ac_object_symbol(const ac_object_t *object, const char *symbol);

/* Split ac_object_symbol into two steps, for many lookups in one object. */
AC_EARLY ac_symbols_t ac_object_symbols(const ac_object_t *object);
AC_EARLY void *ac_symbols_find(const ac_symbols_t *symbols, const char *symbol);

/* Returns the entry of `symbol` in the object's table; NULL if ac_symbols_find has no answer. */
AC_EARLY const ElfW(Sym) * ac_symbols_entry(const ac_symbols_t *symbols, const char *symbol);

/* Returns true if the object's table has `symbol` as a function. */
AC_EARLY bool ac_symbols_is_function(const ac_symbols_t *symbols, const char *symbol);

/* Returns the object's DT_SONAME, "" if it has none. */
AC_EARLY const char *ac_object_soname(const ac_object_t *object);

/* Returns the object's DT_NEEDED entry number `index` as it is written there; NULL past the last one. */
AC_EARLY const char *ac_object_needed(const ac_object_t *object, unsigned index);

/* Returns true if the object is a CUDA runtime.  The name is no proof, since Python wheels rename it. */
AC_EARLY bool ac_object_is_cudart(const ac_object_t *object);

/* Sets `id` to the object's build ID in hexadecimal digits, cut off if it is too long; "" if there is none. */
enum { AC_BUILD_ID = 41 };
void ac_object_build_id(const ac_object_t *object, char id[AC_BUILD_ID]);

/* Calls `step` for each object in load order until it returns a value other than 0, and returns that value. */
AC_EARLY int ac_object_each(int (*step)(struct dl_phdr_info *, size_t, void *), void *argument);

/* For a `step`: return the object, and whether a loaded segment of it contains the address. */
AC_EARLY ac_object_t ac_object_from(const struct dl_phdr_info *info);
AC_EARLY bool ac_object_holds(const struct dl_phdr_info *info, uintptr_t address);

/* Returns the object that contains `address`. */
AC_EARLY ac_object_t ac_object_of(const void *address);

/* Returns the first object, in load order, with a DT_SONAME that starts with `prefix`. */
AC_EARLY ac_object_t ac_object_by_soname(const char *prefix);

/* Returns number `index`, in load order, of the objects that need a library with a name that starts with
 * `prefix`. */
AC_EARLY ac_object_t ac_object_needing(const char *prefix, unsigned index);

/* Returns true if `object` is needed by the object with the dynamic section `from`, or by one that comes after
 * that and before `object` in load order. */
AC_EARLY bool ac_object_is_needed(const ac_object_t *object, const ElfW(Dyn) * from);

/* Returns the first object, in load order, that defines `symbol`. */
AC_EARLY ac_object_t ac_object_defining(const char *symbol);

/* Returns the first object that defines `symbol` and comes after the object of `address` in load order. */
AC_EARLY ac_object_t ac_object_after(const void *address, const char *symbol);

/* Returns true if dlopen(file) by the code at `caller` may find another file than dlopen(file) by this library. */
AC_EARLY bool ac_object_searches_alone(const void *caller, const char *file);

/* Finds the object of `address`, and the first `room` CUDA runtimes in load order, in one walk.  Returns
 * the number of runtimes found. */
AC_EARLY unsigned ac_object_survey(const void *address, ac_object_t *holder,
                                   ac_object_t *runtimes, unsigned room);

#endif

/* A cache from the code that calls to a small number, one for each page of code.
 *
 * Entries are valid until the next dlopen: only a dlopen can put other code at an address.
 *
 * Any thread, at any time, also before constructors ran; no lock, no allocation. */
#ifndef AC_CALLERS_H
#define AC_CALLERS_H

#include <stdbool.h>
#include <stdint.h>

#include "bind/objects.h"

/* Numbers are less than 1 << AC_CALLERS_BITS. */
enum { AC_CALLERS_SETS = 64, AC_CALLERS_WAYS = 8, AC_CALLERS_BITS = 10 };

/* A set-associative cache of words.  A word has the page of the code, the count of dlopen calls,
 * and the number.  Threads read and write a word whole, so it is never torn.  A lost entry costs
 * one more lookup.  Zero at first. */
typedef struct {
    _Alignas(64) _Atomic uint64_t known[AC_CALLERS_SETS][AC_CALLERS_WAYS];
} ac_callers_t;

/* Returns the word of code at `caller`, without a number; 0: the address is too high for a word.
 * Call it before the code is examined: a dlopen after that makes the new entry outdated. */
AC_EARLY uint64_t ac_callers_word(const void *caller);

/* Returns true if the cache has the word, and sets *number. */
AC_EARLY bool ac_callers_find(ac_callers_t *callers, uint64_t word, unsigned *number);

/* Stores the number with the word.  Does nothing if the word is 0. */
AC_EARLY void ac_callers_remember(ac_callers_t *callers, uint64_t word, unsigned number);

/* Returns how often dlopen was called. */
AC_EARLY uint32_t ac_callers_now(void);

/* Makes all entries of all caches outdated.  The dlopen hook calls it before the object is
 * loaded. */
AC_EARLY void ac_callers_forget(void);

#endif

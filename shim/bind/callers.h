/* What is remembered of the code that calls: a small number for each page of code.
 *
 * It holds until the next dlopen: only that can put other code at an address.
 *
 * Any thread, at any time, also before constructors ran; no lock, no allocation. */
#ifndef AC_CALLERS_H
#define AC_CALLERS_H

#include <stdbool.h>
#include <stdint.h>

#include "bind/objects.h"

/* A number that is remembered is less than 1 << AC_CALLERS_BITS. */
enum { AC_CALLERS_SETS = 64, AC_CALLERS_WAYS = 8, AC_CALLERS_BITS = 10 };

/* A set-associative cache of words: page of the code, how often dlopen was called, the number.  A
 * word is read and written whole, so it is never torn; an entry that gets lost is looked up again.
 * Zero at first. */
typedef struct {
    _Alignas(64) _Atomic uint64_t known[AC_CALLERS_SETS][AC_CALLERS_WAYS];
} ac_callers_t;

/* What the entry of code at `caller` begins with.  Taken before the code is looked at: a dlopen
 * meanwhile makes the new entry outdated. */
AC_EARLY uint64_t ac_callers_word(const void *caller);

/* The number that is remembered with the word.  False: none. */
AC_EARLY bool ac_callers_find(ac_callers_t *callers, uint64_t word, unsigned *number);

/* Remember it; nothing for a word of an address that is too high for one. */
AC_EARLY void ac_callers_remember(ac_callers_t *callers, uint64_t word, unsigned number);

/* How often dlopen was called. */
AC_EARLY uint32_t ac_callers_now(void);

/* All that is remembered anywhere is outdated: from the dlopen hook, before the object is
 * loaded. */
AC_EARLY void ac_callers_forget(void);

#endif

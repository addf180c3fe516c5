/* The cache of numbers for pages of code (callers.h). */
#include "bind/callers.h"

#include <stdatomic.h>

enum { OPENED_BITS = 18, PAGE_BITS = 12 };

static _Atomic uint32_t opened = 1;

AC_EARLY void ac_callers_forget(void) {
    atomic_fetch_add_explicit(&opened, 1, memory_order_acq_rel);
}

AC_EARLY uint32_t ac_callers_now(void) {
    return atomic_load_explicit(&opened, memory_order_acquire);
}

AC_EARLY uint64_t ac_callers_word(const void *caller) {
    uint32_t generation = ac_callers_now();
    uint64_t page = (uint64_t)(uintptr_t)caller >> PAGE_BITS;
    if (page >> (64 - AC_CALLERS_BITS - OPENED_BITS))
        return 0;
    return page << (AC_CALLERS_BITS + OPENED_BITS) |
           (uint64_t)(generation & ((1u << OPENED_BITS) - 1)) << AC_CALLERS_BITS;
}

AC_EARLY static _Atomic uint64_t *set_of(ac_callers_t *callers, uint64_t word) {
    uint64_t page = word >> (AC_CALLERS_BITS + OPENED_BITS);
    return callers->known[(page * 0x9e3779b97f4a7c15ull) >> 58];
}
_Static_assert(AC_CALLERS_SETS == 1 << (64 - 58), "the hash of a page names a set");

AC_EARLY bool ac_callers_find(ac_callers_t *callers, uint64_t word, unsigned *number) {
    _Atomic uint64_t *set = set_of(callers, word);
    for (unsigned way = 0; word && way < AC_CALLERS_WAYS; way++) {
        uint64_t entry = atomic_load_explicit(&set[way], memory_order_acquire);
        if (entry >> AC_CALLERS_BITS == word >> AC_CALLERS_BITS) {
            *number = entry & ((1u << AC_CALLERS_BITS) - 1);
            return true;
        }
    }
    return false;
}

AC_EARLY void ac_callers_remember(ac_callers_t *callers, uint64_t word, unsigned number) {
    _Atomic uint64_t *set = set_of(callers, word);
    uint64_t generation = word << (64 - AC_CALLERS_BITS - OPENED_BITS);
    unsigned victim = (unsigned)(word >> (AC_CALLERS_BITS + OPENED_BITS)) % AC_CALLERS_WAYS;
    if (!word)
        return;
    for (unsigned way = 0; way < AC_CALLERS_WAYS; way++) {
        uint64_t old = atomic_load_explicit(&set[way], memory_order_relaxed) >> AC_CALLERS_BITS;
        if (old << (64 - OPENED_BITS) != generation || old == word >> AC_CALLERS_BITS) {
            victim = way; /* empty, outdated, or this very page */
            break;
        }
    }
    atomic_store_explicit(&set[victim], word | number, memory_order_release);
}

/* See watch.h. */
#include "bind/watch.h"

#include <stdatomic.h>

#include "allocator/retired/streams.h"
#include "bind/resolve.h"
#include "wiring.h"
#include "observe/live.h"

/* The AC_WATCHES thunks, of equal size, and the code of a first call (watch.S). */
extern const char ac_watch_thunks[] AC_HIDDEN;
extern const char ac_watch_first[] AC_HIDDEN;
#if defined(__x86_64__)
enum { THUNK_BYTES = 16 };
#else
enum { THUNK_BYTES = 32 };
#endif

/* The targets of the thunks. */
extern AC_HIDDEN _Atomic(void *) ac_watch_to[AC_WATCHES];
_Atomic(void *) ac_watch_to[AC_WATCHES];

/* Functions with thunks.  Entries are taken in order and never given back. */
static struct {
    _Atomic(void *) real;
    _Atomic unsigned traits;
    _Atomic bool counted; /* a thread is in its first call, or was */
} watched[AC_WATCHES];

AC_EARLY static void tell_traits(unsigned traits) {
    if (traits & AC_UNKNOWN_CONTEXT)
        ac_current_goes_unseen();
    if (traits & AC_UNKNOWN_GRAPH)
        atomic_store_explicit(&ac_graph_unseen, true, memory_order_relaxed);
}

AC_EARLY static void tell(unsigned traits, bool counted) {
    if (!counted)
        ac_count_early(AC_COUNT_unknown_functions);
    tell_traits(traits);
    ac_streams_unseen();
}

AC_EARLY void ac_unknown_function(unsigned traits) {
    tell(traits, false);
}

void *ac_watch_called(unsigned n) AC_HIDDEN;
void *ac_watch_called(unsigned n) {
    void *real = atomic_load(&watched[n].real);
    if (ac_ask_refused())
        return real;
    unsigned traits = atomic_load(&watched[n].traits);
    /* A second thread also waits here until it is recorded that work goes unseen. */
    tell(traits, atomic_exchange(&watched[n].counted, true));
    atomic_store(&ac_watch_to[n], real);
    unsigned later = atomic_load(&watched[n].traits); /* another name was found meanwhile */
    if (later != traits)
        tell_traits(later);
    return real;
}

AC_EARLY void *ac_watch(void *real, unsigned traits) {
    for (unsigned n = 0; n < AC_WATCHES; n++) {
        void *seen = NULL, *none = NULL;
        if (!atomic_compare_exchange_strong(&watched[n].real, &seen, real) && seen != real)
            continue;
        atomic_fetch_or(&watched[n].traits, traits);
        if (!atomic_compare_exchange_strong(&ac_watch_to[n], &none, (void *)ac_watch_first) &&
            none == real)
            tell_traits(traits); /* the program has called it by another name */
        return (void *)(ac_watch_thunks + n * THUNK_BYTES);
    }
    return NULL;
}

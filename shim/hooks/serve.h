/* The policy for all requests for memory. */
#ifndef AC_SERVE_H
#define AC_SERVE_H

#include "hooks/body.h"
#include "hooks/guard.h"

/* Outcome of a request for memory. */
typedef enum {
    AC_SERVED,            /* *address is set */
    AC_SERVED_LIMIT,      /* a limit that the user set forbids it: out of memory */
    AC_SERVED_BY_NOTHING, /* no memory of ours could avoid the failure: ask the driver once */
    AC_SERVED_TOO_LARGE,  /* larger than the device: ask the driver once; it may still serve it */
    AC_SERVED_BY_DRIVER   /* ask the driver, with AC_RETRY */
} ac_served_t;

/* Serves `bytes` (> 0) from the cache of the context, for a module (modules.h).  `from`: the
 * stream and the pool that the request names; NULL: a plain request.  `caller`: the code that
 * called the hook. */
ac_served_t ac_serve(ac_thread_t *thread, ac_context_t *context, unsigned module,
                     const void *caller, const ac_from_t *from, uint64_t bytes,
                     uint64_t *address);

/* Counts an out-of-memory event: the driver refused this thread's AC_SERVED_TOO_LARGE request. */
void ac_serve_refused(ac_thread_t *thread, uint64_t bytes);

/* Makes `call` of the driver for a request of `bytes` that was not served, and sets `result`. */
#define AC_ASK_DRIVER(served, result, bytes, call)                                               \
    do {                                                                                         \
        if ((served) == AC_SERVED_BY_NOTHING || (served) == AC_SERVED_TOO_LARGE)                 \
            (result) = (call);                                                                   \
        else                                                                                     \
            AC_RETRY(result, AC_NEED(bytes), call);                                              \
        if ((served) == AC_SERVED_TOO_LARGE && (result) == CUDA_ERROR_OUT_OF_MEMORY)             \
            ac_serve_refused(thread, bytes);                                                     \
    } while (0)

#endif

/* What every hook body begins and ends with. */
#ifndef AC_BODY_H
#define AC_BODY_H

#include "intercept/context.h"
#include "intercept/hooks.h"
#include "intercept/process.h"

/* `real`: the driver's function; return what it returns when there is none.  `thread`: the
 * record of the calling thread, NULL while the shim is not active.  Counts the call. */
#define AC_BODY(symbol)                                                                          \
    symbol##_fn *real = AC_REAL(symbol);                                                         \
    ac_thread_t *thread = ac_is_active() ? ac_thread_get() : NULL;                               \
    ac_count(thread, AC_COUNT_HOOKS + AC_HOOK_##symbol);                                         \
    if (!real)                                                                                   \
    return CUDA_ERROR_NOT_FOUND

/* The real call; when it was out of memory, tried again after what is idle was given back, and
 * once more after pending work was waited for. */
#define AC_RETRY(result, call)                                                                   \
    do {                                                                                         \
        (result) = (call);                                                                       \
        for (int wait = 0; wait < 2 && (result) == CUDA_ERROR_OUT_OF_MEMORY && thread; wait++)   \
            if (ac_trim_for_driver(thread, wait))                                                \
                (result) = (call);                                                               \
    } while (0)

/* Give idle memory back because a driver call was out of memory, with `wait` after waiting for
 * pending work; false if there was none. */
bool ac_trim_for_driver(ac_thread_t *thread, bool wait);

/* Whether `address` lies in a segment of ours, and this process may say so (a fork child may not:
 * another thread of its parent may have held the locks). */
static inline bool ac_owned(uint64_t address) {
    int state = atomic_load_explicit(&ac_state, memory_order_acquire);
    return (state == AC_STATE_ACTIVE || state == AC_STATE_EXITING) && ac_block_arena(address);
}

/* A submission in the making: see submit_hooks.c. */
typedef struct {
    ac_context_t *context;
    CUstream stream;
    bool marked; /* the stream, for the fences */
} ac_submit_t;

/* Before work goes to `stream` (`per_thread`: what handle 0 means).  False: nothing to keep. */
bool ac_submit_begin(ac_submit_t *submit, ac_thread_t *thread, CUstream stream, bool per_thread);

/* The call names device memory itself: does it belong to the submitting context? */
void ac_submit_reach(const ac_submit_t *submit, uint64_t address);

/* Does a launch with this configuration keep to the order of its stream? */
void ac_submit_order(const ac_submit_t *submit, const CUlaunchConfig *config);

/* The submitting call returned `result`. */
void ac_submit_end(const ac_submit_t *submit, ac_thread_t *thread, CUresult result);

#endif

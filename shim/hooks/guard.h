/* The key `guard`: one request in N gets pages of its own (allocator/space/guard_place.h).
 *
 * With the key set, no request takes the shortest way to the thread's cache (ac_thread_is_apart).  One
 * subtraction counts the request first; then it takes that way unless it is the one to guard.  Frees
 * do not change, since a hit never takes a guarded block.  The guarded request differs between threads
 * and between runs; it is one in N on average.  The key does not guard private pools of the C API,
 * pinned memory, and requests that the driver serves. */
#ifndef AC_GUARD_KEY_H
#define AC_GUARD_KEY_H

#include "track/context.h"

/* The stream and the memory pool that a request names; the pool by its number (mempools.h). */
typedef struct {
    ac_stream_t stream;
    unsigned mempool;
} ac_from_t;

/* Returns true if the thread's next request has to reach ac_serve, which decides whether to guard it.
 * A hook asks this before it looks for memory elsewhere. */
static inline bool ac_guard_next(const ac_thread_t *thread) {
    return __builtin_expect(ac_is_guarding(), 0) && thread->guard_left <= 1;
}

/* Counts a request that was served without a guard and without ac_serve. */
static inline void ac_guard_passed(ac_thread_t *thread) {
    if (__builtin_expect(ac_is_guarding(), 0) && thread->guard_left)
        thread->guard_left--;
}

/* Returns true if a request may go to the thread's cache while requests are counted, and counts it.
 * Recorded requests and the one to guard may not.  If the cache does not serve the request, the next
 * place counts it again: ac_guard_missed takes this count back. */
static inline bool ac_guard_counts(ac_thread_t *thread) {
    if (!ac_is_guarding() || thread->guard_left <= 1 || ac_thread_records(thread))
        return false;
    thread->guard_left--;
    return true;
}

/* Returns true if a request may go to the thread's cache: by ac_guard_counts if the key is set, else
 * if the thread's calls are not recorded. */
static inline bool ac_guard_passes(ac_thread_t *thread) {
    return ac_is_guarding() ? ac_guard_counts(thread) : !ac_thread_records(thread);
}

static inline void ac_guard_missed(ac_thread_t *thread) {
    if (__builtin_expect(ac_is_guarding(), 0) && thread->guard_left)
        thread->guard_left++;
}

/* Serves a request with the parameters of ac_serve from a guarded block, if it is the one to guard.
 * False: the request is served like any other. */
bool ac_guard_serve_this(ac_thread_t *thread, const ac_context_t *context, unsigned module,
                         const ac_from_t *from, uint64_t bytes, uint64_t *address);
static inline bool ac_guard_serve(ac_thread_t *thread, const ac_context_t *context,
                                  unsigned module, const ac_from_t *from, uint64_t bytes,
                                  uint64_t *address) {
    return __builtin_expect(ac_is_guarding(), 0) &&
           ac_guard_serve_this(thread, context, module, from, bytes, address);
}

/* Records that code at `caller` is about to free memory of ours; `thread` may be NULL. */
void ac_guard_freeing_this(const ac_thread_t *thread, uint64_t address, const void *caller);
static inline void ac_guard_freed_by(const ac_thread_t *thread, uint64_t address,
                                     const void *caller) {
    if (__builtin_expect(ac_is_guarding(), 0))
        ac_guard_freeing_this(thread, address, caller);
}

/* Called before the first allocator is created. */
void ac_guard_setup(void);

#endif

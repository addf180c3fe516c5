/* The key `guard`: one request in N gets pages of its own (allocator/space/guard_place.h).
 *
 * With the key set no request takes the shortest way to the thread's cache (ac_thread_is_apart): it is
 * counted before, by one subtraction, and then goes that way unless it is the one.  Frees are as ever,
 * since a hit never takes a guarded block.  Which request it is differs from thread to thread and from
 * run to run, one in N on average.  Private pools of the C API, pinned memory and what is
 * left to the driver are not guarded. */
#ifndef AC_GUARD_KEY_H
#define AC_GUARD_KEY_H

#include "track/context.h"

/* A request that names a stream, and the memory pool by its number (mempools.h). */
typedef struct {
    ac_stream_t stream;
    unsigned mempool;
} ac_from_t;

/* Whether the next request of the thread is to be guarded: of those that ask this before they look
 * elsewhere, the first that comes to ac_serve is. */
static inline bool ac_guard_next(const ac_thread_t *thread) {
    return __builtin_expect(ac_is_guarding(), 0) && thread->guard_left <= 1;
}

/* A request was served without a guard, and without ac_serve. */
static inline void ac_guard_passed(ac_thread_t *thread) {
    if (__builtin_expect(ac_is_guarding(), 0) && thread->guard_left)
        thread->guard_left--;
}

/* Whether a request that is counted and not recorded may go to the thread's cache: then it counts as
 * passed.  What the cache does not serve is counted where it goes next, so that ac_guard_missed takes
 * it back. */
static inline bool ac_guard_counts(ac_thread_t *thread) {
    if (!ac_is_guarding() || thread->guard_left <= 1 || ac_thread_records(thread))
        return false;
    thread->guard_left--;
    return true;
}

/* The same for one that is not counted if no request is. */
static inline bool ac_guard_passes(ac_thread_t *thread) {
    return ac_is_guarding() ? ac_guard_counts(thread) : !ac_thread_records(thread);
}

static inline void ac_guard_missed(ac_thread_t *thread) {
    if (__builtin_expect(ac_is_guarding(), 0) && thread->guard_left)
        thread->guard_left++;
}

/* A request, as of ac_serve.  False: it is served as any other. */
bool ac_guard_serve_this(ac_thread_t *thread, const ac_context_t *context, unsigned module,
                         const ac_from_t *from, uint64_t bytes, uint64_t *address);
static inline bool ac_guard_serve(ac_thread_t *thread, const ac_context_t *context,
                                  unsigned module, const ac_from_t *from, uint64_t bytes,
                                  uint64_t *address) {
    return __builtin_expect(ac_is_guarding(), 0) &&
           ac_guard_serve_this(thread, context, module, from, bytes, address);
}

/* Code at `caller` is about to free memory of ours; `thread` may be NULL. */
void ac_guard_freeing_this(const ac_thread_t *thread, uint64_t address, const void *caller);
static inline void ac_guard_freed_by(const ac_thread_t *thread, uint64_t address,
                                     const void *caller) {
    if (__builtin_expect(ac_is_guarding(), 0))
        ac_guard_freeing_this(thread, address, caller);
}

/* Before any allocator is made. */
void ac_guard_setup(void);

#endif

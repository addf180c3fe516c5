/* Observers: functions that the program, or a part of the library above the hooks, registered for
 * events.  The thread that causes an event calls them, without a lock, and never from inside another
 * observer. */
#ifndef AC_OBSERVERS_H
#define AC_OBSERVERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/allocator.h"
#include "device/cuda_abi.h"
#include "track/thread.h"

/* Called before a stream is destroyed; NULL: there is no observer. */
extern AC_HIDDEN void (*_Atomic ac_stream_gone_observer)(CUstream stream);
void ac_observe_stream_gone(CUstream stream);

/* Called when the thread with this number (ac_thread_t) ends; NULL: there is no observer. */
extern AC_HIDDEN void (*_Atomic ac_thread_gone_observer)(uint64_t number);
void ac_observe_thread_gone(uint64_t number);

/* Returns true if the address is in a private pool, where no driver call frees memory.  NULL: there
 * is no observer.  Called if a free misses the thread's cache, which never takes memory of private
 * pools (ac_block_keep_apart). */
extern AC_HIDDEN bool (*_Atomic ac_private_observer)(uint64_t address);
static inline bool ac_is_private(uint64_t address) {
    bool (*observer)(uint64_t) = atomic_load_explicit(&ac_private_observer, memory_order_acquire);
    return __builtin_expect(observer != NULL, 0) && observer(address);
}

/* Called after the primary context of a device ended, and its memory with it; NULL: there is no
 * observer. */
extern AC_HIDDEN void (*_Atomic ac_primary_gone_observer)(CUdevice device);
struct ac_context;
void ac_observe_context_gone(const struct ac_context *context);

/* Frees memory that could not be freed when the program freed it; NULL: there is no observer.  Called
 * when idle memory goes back.  Returns true if the driver got some. */
extern AC_HIDDEN bool (*_Atomic ac_late_observer)(void);
static inline bool ac_observe_late(void) {
    bool (*observer)(void) = atomic_load_explicit(&ac_late_observer, memory_order_acquire);
    return observer && observer();
}

/* Another source of memory for a request of the thread (ac_thread_t.rescue).  The allocator asks it
 * once, before the request waits for work.  If the source serves the request, the hook answers that
 * memory is short.  It then counts and reports nothing. */
typedef struct ac_rescue {
    bool (*serve)(struct ac_rescue *rescue);
    bool asked, served;
} ac_rescue_t;
bool ac_rescue_ask(ac_rescue_t *rescue);
void ac_rescue_begin(void); /* requests may have one from now on */

static inline bool ac_is_rescued(const ac_thread_t *thread) {
    return thread->rescue && thread->rescue->served;
}

/* Functions of the program, each with its argument: at most AC_OBSERVERS of a kind. */
enum { AC_OBSERVERS = 8 };
typedef enum {
    AC_OBSERVE_OOM,
    AC_OBSERVE_FREE,
    AC_OBSERVE_TRACE,
    AC_OBSERVE_CONTEXT, /* one at most */
    AC_OBSERVE_KINDS
} ac_observe_t;

typedef void ac_observer_fn(void); /* the real type depends on the kind */

/* Return false if the table is full, or if there is no matching observer. */
bool ac_observer_add(ac_observe_t kind, ac_observer_fn *function, void *arg);
bool ac_observer_remove(ac_observe_t kind, ac_observer_fn *function, void *arg);

/* Replaces all observers of the kind by this one; by none if `function` is NULL. */
void ac_observer_set(ac_observe_t kind, ac_observer_fn *function, void *arg);

/* Number of observers of each kind. */
extern AC_HIDDEN _Atomic unsigned ac_observers[AC_OBSERVE_KINDS];
static inline bool ac_observed(ac_observe_t kind) {
    return __builtin_expect(atomic_load_explicit(&ac_observers[kind], memory_order_relaxed), 0);
}

/* Calls `call` for each observer of the kind.  Does nothing while the thread runs an observer. */
void ac_observers_call(ac_observe_t kind,
                       void (*call)(ac_observer_fn *function, void *arg, void *of), void *of);

/* Called after a request of `bytes` on the device failed. */
typedef void ac_oom_observer_fn(int device, size_t bytes, size_t limit, size_t available,
                                void *arg);
void ac_observe_oom(int device, ac_allocator_t *allocator, uint64_t bytes);

/* Called if free memory of the device does not serve a request.  Returns true if the program freed
 * some. */
typedef int ac_free_observer_fn(int device, void *arg);
bool ac_observe_shortage(int device);

#endif

/* What the program, or a part of the library above the hooks, asked to be told of.  Each call is made
 * by the thread whose call it is about, without a lock, and none from inside another one. */
#ifndef AC_OBSERVERS_H
#define AC_OBSERVERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/allocator.h"
#include "device/cuda_abi.h"
#include "track/thread.h"

/* A stream is about to be destroyed; NULL: there is no observer. */
extern AC_HIDDEN void (*_Atomic ac_stream_gone_observer)(CUstream stream);
void ac_observe_stream_gone(CUstream stream);

/* The thread of that number (ac_thread_t) is ending; NULL: there is no observer. */
extern AC_HIDDEN void (*_Atomic ac_thread_gone_observer)(uint64_t number);
void ac_observe_thread_gone(uint64_t number);

/* Whether the address is of a private pool, whose memory no call of the driver's frees; NULL: there is
 * none.  Asked where a free misses the thread's cache, which never takes such memory
 * (ac_block_keep_apart). */
extern AC_HIDDEN bool (*_Atomic ac_private_observer)(uint64_t address);
static inline bool ac_is_private(uint64_t address) {
    bool (*observer)(uint64_t) = atomic_load_explicit(&ac_private_observer, memory_order_acquire);
    return __builtin_expect(observer != NULL, 0) && observer(address);
}

/* The primary context of a device has ended, and its memory with it; NULL: there is no observer. */
extern AC_HIDDEN void (*_Atomic ac_primary_gone_observer)(CUdevice device);
struct ac_context;
void ac_observe_context_gone(const struct ac_context *context);

/* Free what could not be freed when the program did; NULL: there was none.  Called where idle memory goes
 * back.  True: the driver has got some. */
extern AC_HIDDEN bool (*_Atomic ac_late_observer)(void);
static inline bool ac_observe_late(void) {
    bool (*observer)(void) = atomic_load_explicit(&ac_late_observer, memory_order_acquire);
    return observer && observer();
}

/* Another source of memory for a request of the thread (ac_thread_t.rescue).  The allocator asks it once,
 * before the request waits for work.  If it serves the request, the hook answers that memory is short, and
 * counts and reports nothing. */
typedef struct ac_rescue {
    bool (*serve)(struct ac_rescue *rescue);
    bool asked, served;
} ac_rescue_t;
bool ac_rescue_ask(ac_rescue_t *rescue);
void ac_rescue_begin(void); /* requests may have one from now on */

static inline bool ac_is_rescued(const ac_thread_t *thread) {
    return thread->rescue && thread->rescue->served;
}

/* Functions of the program, each with its argument: so many of a kind at the most. */
enum { AC_OBSERVERS = 8 };
typedef enum {
    AC_OBSERVE_OOM,
    AC_OBSERVE_FREE,
    AC_OBSERVE_TRACE,
    AC_OBSERVE_CONTEXT, /* one at most */
    AC_OBSERVE_KINDS
} ac_observe_t;

typedef void ac_observer_fn(void); /* of whatever type the kind has */

/* False: there is no place, or no such observer. */
bool ac_observer_add(ac_observe_t kind, ac_observer_fn *function, void *arg);
bool ac_observer_remove(ac_observe_t kind, ac_observer_fn *function, void *arg);

/* Replaces all observers of the kind by this one; by none if `function` is NULL. */
void ac_observer_set(ac_observe_t kind, ac_observer_fn *function, void *arg);

/* How many there are of each kind. */
extern AC_HIDDEN _Atomic unsigned ac_observers[AC_OBSERVE_KINDS];
static inline bool ac_observed(ac_observe_t kind) {
    return __builtin_expect(atomic_load_explicit(&ac_observers[kind], memory_order_relaxed), 0);
}

/* Call `call` for each one; nothing while the thread is in an observer. */
void ac_observers_call(ac_observe_t kind,
                       void (*call)(ac_observer_fn *function, void *arg, void *of), void *of);

/* A request of `bytes` on the device failed. */
typedef void ac_oom_observer_fn(int device, size_t bytes, size_t limit, size_t available,
                                void *arg);
void ac_observe_oom(int device, ac_allocator_t *allocator, uint64_t bytes);

/* Free memory of the device does not serve a request.  True: the program freed some. */
typedef int ac_free_observer_fn(int device, void *arg);
bool ac_observe_shortage(int device);

#endif

/* Contexts of the program: which one a call works on, and its arena.
 *
 * A record is found by handle and, where the driver has ids, checked by id; when a context goes,
 * its record is marked dead.  It may serve a later context of the device (CUDA wants no call of the
 * program under way in a context that is destroyed), so that a program that makes contexts in a loop
 * does not grow. */
#ifndef AC_CONTEXT_H
#define AC_CONTEXT_H

#include <stddef.h>

#include "allocator/allocator.h"
#include "allocator/retired/streams.h"
#include "device/cuda_device.h"
#include "track/devices.h"
#include "track/free_sync.h"
#include "track/thread.h"

typedef struct ac_context {
    ac_cuda_context_t cuda;
    ac_arena_t *arena;
    ac_timeline_t *timeline;
    ac_shown_t shown;
    unsigned slot; /* in the table of contexts */
    bool created;  /* by cuCtxCreate or from a green context: not a primary context */
    /* Both under the table's lock. */
    uint64_t end;    /* of a dead one: how many contexts had ended before */
    unsigned ending; /* threads between _ending and _ended: it serves no other context */
} ac_context_t;

/* The record of a timeline's context: a timeline is opened with the record's driver part. */
static inline ac_context_t *ac_context_of_timeline(const ac_timeline_t *timeline) {
    char *cuda = ac_fence_context(timeline);
    return (ac_context_t *)(void *)(cuda - offsetof(ac_context_t, cuda));
}

/* The calling thread's current context; NULL: none, or it cannot be served. */
ac_context_t *ac_context_current(ac_thread_t *thread);

/* The record of a context handle, made if needed; NULL when that fails. */
ac_context_t *ac_context_of(CUcontext handle);

/* The context that `stream` belongs to.  NULL: the driver does not tell, there is none current,
 * or it cannot be served.  Never a guess: what goes to such a stream goes unseen. */
ac_context_t *ac_context_of_stream(ac_thread_t *thread, CUstream stream);

/* Work was given, or is about to be, to a stream whose context is not known: ac_streams_unseen, and
 * a record for each context that fences have to cover. */
void ac_context_unseen(void);

/* The record of the device's primary context, if that is active; else NULL. */
ac_context_t *ac_context_primary(CUdevice device);

/* ac_context_of for one that cuCtxCreate just made: no reset of its device ends it. */
ac_context_t *ac_context_created(CUcontext handle);

/* Call `visit` for every live context that is served. */
void ac_context_each(void (*visit)(ac_context_t *context, void *arg), void *arg);

/* Contexts that the driver is about to end, by handle or as the primary one of a device: no call
 * of ours is inside them from the return of _ending until _ended says what came of it. */
enum { AC_ENDING = 8 };
typedef struct {
    unsigned count;
    ac_context_t *context[AC_ENDING];
} ac_ending_t;
ac_ending_t ac_context_ending(CUcontext handle);
ac_ending_t ac_context_primary_ending(CUdevice device, bool sure); /* `sure` that it ends */
ac_ending_t ac_context_primary_gone(CUdevice device);              /* it has ended already */
void ac_context_ended(const ac_ending_t *ending, bool destroyed);

/* Contexts between _ending and _ended.  Meanwhile the driver may have given addresses of theirs to
 * another owner: _owns waits until it is known whose `address` is (a second at the most), which was
 * found to be ours. */
extern AC_HIDDEN _Atomic int ac_contexts_ending;
bool ac_context_owns(uint64_t address);

/* The primary context of a device was retained, or reset, by any caller; is about to be released:
 * whether that may be the last time.  A release that fails was none: _retained again, but for
 * AC_LAST_UNSEEN. */
typedef enum { AC_LAST_NOT, AC_LAST_MAYBE, AC_LAST_SURE, AC_LAST_UNSEEN } ac_last_t;
void ac_context_retained(CUdevice device);
void ac_context_reset(CUdevice device);
ac_last_t ac_context_releasing(CUdevice device);

/* `view` is the handle of a green context: it stands for its device's primary context from now
 * on, until it is gone.  False: that cannot be kept.  _ending: one of the greens of `primary` is
 * about to go, and its streams with it. */
bool ac_context_green(CUcontext view);
void ac_context_green_ending(ac_context_t *primary);
void ac_context_green_gone(CUcontext view);

/* Whether that is a view of `primary`.  _any_green: whether there ever was a view of some context: a
 * default stream's handle may then stand for several streams of one primary context. */
bool ac_context_is_view(CUcontext view, CUcontext primary);
bool ac_context_any_green(void);

/* A stream handle is about to be destroyed: forget what it meant. */
void ac_context_stream_gone(CUstream stream);

/* A result that says whether the context is broken for good. */
void ac_context_note(ac_context_t *context, CUresult result);

/* The same for a call that works on the current context. `thread` may be NULL. */
void ac_context_note_current(ac_thread_t *thread, CUresult result);

/* Number of live contexts: with one, no memory can be reached from another. */
extern AC_HIDDEN _Atomic unsigned ac_context_live;
static inline unsigned ac_context_count(void) {
    return atomic_load_explicit(&ac_context_live, memory_order_relaxed);
}

/* Another context may reach the memory: see ac_fence_shared. */
void ac_context_cross(void);

/* Releases the pages of a context that has gone. */
void ac_context_bury(const ac_context_t *context);

/* Returns true if `address` lies in a segment of ours.  False in a fork child: another thread of its parent may
 * have held the locks. */
static inline bool ac_owned(uint64_t address) {
    int state = atomic_load_explicit(&ac_state, memory_order_acquire);
    if ((state != AC_STATE_ACTIVE && state != AC_STATE_EXITING) || !ac_block_arena(address))
        return false;
    return __builtin_expect(!atomic_load(&ac_contexts_ending), 1) || ac_context_owns(address);
}

#endif

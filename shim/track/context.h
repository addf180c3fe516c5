/* The program's contexts: finds the one that a call works on, and its arena.
 *
 * A record is found by its handle.  If the driver has context ids, the id is compared, too.  When a
 * context ends, its record is marked dead.  The record may then serve a later context of the same
 * device, so that a program that makes contexts in a loop does not grow.  This is safe because CUDA
 * forbids calls under way in a context that is destroyed. */
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
    bool created;  /* made by cuCtxCreate or from a green context: not a primary context */
    /* The table's lock protects both. */
    uint64_t end;    /* of a dead record: number of contexts that had ended before */
    unsigned ending; /* threads between _ending and _ended: the record serves no other context */
} ac_context_t;

/* Returns the record of a timeline's context.  A timeline is opened with the record's driver part. */
static inline ac_context_t *ac_context_of_timeline(const ac_timeline_t *timeline) {
    char *cuda = ac_fence_context(timeline);
    return (ac_context_t *)(void *)(cuda - offsetof(ac_context_t, cuda));
}

/* Returns the calling thread's current context; NULL: there is none, or it cannot be served. */
ac_context_t *ac_context_current(ac_thread_t *thread);

/* Returns the record of a context handle, made if needed; NULL if that fails. */
ac_context_t *ac_context_of(CUcontext handle);

/* Returns the context that `stream` belongs to.  NULL: the driver does not tell, no context is
 * current, or it cannot be served.  The result is never a guess: the library cannot see work on a
 * stream of an unknown context. */
ac_context_t *ac_context_of_stream(ac_thread_t *thread, CUstream stream);

/* Called before or after work goes to a stream of an unknown context.  Calls ac_streams_unseen and
 * makes a record for each context that fences have to cover. */
void ac_context_unseen(void);

/* Returns the record of the device's primary context if it is active; else NULL. */
ac_context_t *ac_context_primary(CUdevice device);

/* Like ac_context_of, for a context that cuCtxCreate just made: no reset of its device ends it. */
ac_context_t *ac_context_created(CUcontext handle);

/* Calls `visit` for every live context that is served. */
void ac_context_each(void (*visit)(ac_context_t *context, void *arg), void *arg);

/* Contexts that the driver is about to end, found by handle or as the primary context of a device.
 * From the return of _ending until _ended no call of the library is inside them.  `destroyed`: the
 * driver ended them. */
enum { AC_ENDING = 8 };
typedef struct {
    unsigned count;
    ac_context_t *context[AC_ENDING];
} ac_ending_t;
ac_ending_t ac_context_ending(CUcontext handle);
ac_ending_t ac_context_primary_ending(CUdevice device, bool sure); /* `sure`: it certainly ends */
ac_ending_t ac_context_primary_gone(CUdevice device);              /* it has ended already */
void ac_context_ended(const ac_ending_t *ending, bool destroyed);

/* Number of contexts between _ending and _ended.  Meanwhile the driver may have given their addresses
 * to another owner.  _owns is called for an `address` that was found in memory of the library.  It
 * waits, for at most one second, until the driver has answered.  Returns true if the address still
 * belongs to the library, or if there was no answer. */
extern AC_HIDDEN _Atomic int ac_contexts_ending;
bool ac_context_owns(uint64_t address);

/* Retains and releases of a device's primary context by any caller.  _retained and _reset are called
 * after the driver's call, _releasing before it: it tells if this release may be the last.  If the
 * release then fails, the caller calls _retained again, unless the answer was AC_LAST_UNSEEN. */
typedef enum { AC_LAST_NOT, AC_LAST_MAYBE, AC_LAST_SURE, AC_LAST_UNSEEN } ac_last_t;
void ac_context_retained(CUdevice device);
void ac_context_reset(CUdevice device);
ac_last_t ac_context_releasing(CUdevice device);

/* `view` is the handle of a green context: it stands for its device's primary context until
 * _green_gone.  Returns false if the library cannot follow that.  _ending: called before a green
 * context of `primary` ends, and its streams with it. */
bool ac_context_green(CUcontext view);
void ac_context_green_ending(ac_context_t *primary);
void ac_context_green_gone(CUcontext view);

/* Returns true if `view` is a view of `primary`.  _any_green returns true if any context ever had a
 * view: a default stream's handle may then stand for several streams of one primary context. */
bool ac_context_is_view(CUcontext view, CUcontext primary);
bool ac_context_any_green(void);

/* Called before a stream is destroyed: forgets the meaning of its handle. */
void ac_context_stream_gone(CUstream stream);

/* Marks the context as broken if the driver's `result` is a sticky error. */
void ac_context_note(ac_context_t *context, CUresult result);

/* Like ac_context_note, for the result of a call in the current context.  `thread` may be NULL. */
void ac_context_note_current(ac_thread_t *thread, CUresult result);

/* Number of live contexts.  With one context, no memory can be reached from another. */
extern AC_HIDDEN _Atomic unsigned ac_context_live;
static inline unsigned ac_context_count(void) {
    return atomic_load_explicit(&ac_context_live, memory_order_relaxed);
}

/* Called when another context may reach the memory: see ac_fence_shared. */
void ac_context_cross(void);

/* Releases the pages of a context that ended. */
void ac_context_bury(const ac_context_t *context);

/* Returns true if `address` lies in a segment of the library.  Returns false in a fork child: another
 * thread of the parent may have held the locks. */
static inline bool ac_owned(uint64_t address) {
    int state = atomic_load_explicit(&ac_state, memory_order_acquire);
    if ((state != AC_STATE_ACTIVE && state != AC_STATE_EXITING) || !ac_block_arena(address))
        return false;
    return __builtin_expect(!atomic_load(&ac_contexts_ending), 1) || ac_context_owns(address);
}

#endif

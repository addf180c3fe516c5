/* Records of requests and frees of device memory, with the keys `history` and `stacks`. They are events of
 * the device's history (observe/history.h), and the stack that asked for each block (observe/holding.h).
 *
 * While nothing is recorded, ac_recording is false. Otherwise hits leave the thread's short path and take the
 * path of a trace (thread.h), which records them. A thread calls these functions for its own calls, with no
 * lock held. */
#ifndef AC_RECORDING_H
#define AC_RECORDING_H

#include "track/context.h"
#include "track/modules.h"
#include "track/thread.h"
#include "observe/history.h"
#include "observe/holding.h"

/* Starts recording as the configuration says, at activation. */
void ac_recording_start(void);

/* Switches the history on or off while the process runs. */
void ac_recording_history(bool on);

/* Stops recording in a fork child. */
void ac_recording_fork_child(void);

/* Records that code at `caller` got a block of the cache. `stream` is the key of the stream, or 0. Returns
 * the number of the stack. */
uint32_t ac_record_alloc(ac_thread_t *thread, uint64_t address, uint64_t bytes, uint64_t stream,
                         const void *caller);

/* Notes that the current request found nothing in the cache. With stacks:sampled the request becomes a
 * sample. */
void ac_record_missed(ac_thread_t *thread);

/* Adds the code that asked for a block which was recorded without it. */
void ac_record_asked(uint64_t address, const void *caller);

/* Records a free that is about to be made. Returns the number of the stack. */
uint32_t ac_record_free(ac_thread_t *thread, uint64_t address, uint64_t stream,
                        const void *caller);

/* Records that the free of `address`, recorded before, was refused. */
void ac_record_refused(ac_thread_t *thread, uint64_t address);

/* Records a free of each block of a context, before the record of the context is dropped. */
void ac_record_context_gone(const ac_context_t *context);

/* Records an event of memory outside the cache. `kind` is a kind of the history for this memory only.
 * `caller` is the code that called the hook, unless the runtime called it. `device` is the device's ordinal.
 * AC_CURRENT_DEVICE means the device of the thread's context; without a context nothing is recorded. */
enum { AC_CURRENT_DEVICE = -1 };
void ac_record_event(ac_thread_t *thread, ac_event_kind_t kind, int device, uint64_t address,
                     uint64_t bytes, const void *caller);
static inline void ac_record_beside(ac_thread_t *thread, ac_event_kind_t kind, uint64_t address,
                                    uint64_t bytes, const void *caller) {
    if (ac_history_is_on() && thread)
        ac_record_event(thread, kind, AC_CURRENT_DEVICE, address, bytes, caller);
}

/* Records a failed request. `available` is the number of free bytes of the device, UINT64_MAX if it is not
 * known. Returns the number of the stack, 0 if nothing is recorded. */
uint32_t ac_record_oom(ac_thread_t *thread, int device, uint64_t bytes, uint64_t available,
                       const void *caller);

/* Returns the number of a stack: its first frame is `text` (may be NULL), with line 0. With stacks:all the
 * calling thread's frames follow. Returns 0 if there is neither. */
uint32_t ac_record_context(ac_thread_t *thread, const void *caller, const char *text);

/* Returns the text of a stack that ac_record_context made; NULL if it has none. */
const char *ac_record_text(uint32_t stack);

/* Records in the history that a dump listed all blocks of all devices. */
void ac_record_snapshot(void);

/* A call of the runtime by code at `caller`: requests inside it belong to the module of that code. `thread`
 * is NULL if the thread has no record yet. Then ac_asking_end names the code of the block afterwards. */
typedef struct {
    ac_thread_t *thread;
    const void *caller, *from_before;
    uint8_t before;
} ac_asking_t;

static inline ac_asking_t ac_asking_begin(ac_thread_t *thread, const void *caller) {
    ac_asking_t asking = {.thread = thread, .caller = caller};
    if (!thread)
        return asking;
    asking.before = thread->asks_for;
    asking.from_before = thread->asks_from;
    if (atomic_load(&ac_state) == AC_STATE_ACTIVE) { /* a fork child takes no lock of the loader */
        thread->asks_for = (uint8_t)ac_module_asking(thread, caller);
        thread->asks_from = thread->asks_from ? thread->asks_from : caller;
        thread->fast[AC_FAST_DRIVER_MALLOC].code.generation = 0; /* the runtime did not make the request */
    }
    return asking;
}

/* Ends the call. `pointer` is the memory that it allocated; NULL: none. */
void ac_asking_end(const ac_asking_t *asking, const void *pointer);

#endif

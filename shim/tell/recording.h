/* What is recorded of each request and each free of device memory here, with the keys `history` and
 * `stacks`: events of the device's history (observe/history.h), and which stack asked for which block
 * (observe/holding.h).
 *
 * While nothing is recorded ac_recording is false.  Otherwise hits go the way of a trace (thread.h):
 * past the thread's short path, so that they are seen.  Everything here is called by the thread whose
 * call it is, under no lock. */
#ifndef AC_RECORDING_H
#define AC_RECORDING_H

#include "track/context.h"
#include "track/modules.h"
#include "track/thread.h"
#include "observe/history.h"
#include "observe/holding.h"

/* By the configuration.  At activation. */
void ac_recording_start(void);

/* Switch the history on or off while the process runs. */
void ac_recording_history(bool on);

/* In a fork child nothing is recorded. */
void ac_recording_fork_child(void);

/* A block of ours was handed out to the code at `caller`; `stream`: key, or 0.  The number of the
 * stack. */
uint32_t ac_record_alloc(ac_thread_t *thread, uint64_t address, uint64_t bytes, uint64_t stream,
                         const void *caller);

/* The request that was just served found nothing in the cache: with stacks:sampled it is a sample. */
void ac_record_missed(ac_thread_t *thread);

/* Which code asked for the block was not known when it was recorded. */
void ac_record_asked(uint64_t address, const void *caller);

/* A free is about to be made, and was refused.  The number of the stack. */
uint32_t ac_record_free(ac_thread_t *thread, uint64_t address, uint64_t stream,
                        const void *caller);
void ac_record_refused(ac_thread_t *thread, uint64_t address);

/* A context is about to be forgotten, and its blocks with it: the history has a free of each. */
void ac_record_context_gone(const ac_context_t *context);

/* Memory that is not the cache's: `kind` is one of those that the history has for it, and for it alone.
 * `caller`: the code that called the hook, where that was not the runtime.  `device`: its ordinal;
 * AC_CURRENT_DEVICE: that of the thread's context, and nothing where there is none. */
enum { AC_CURRENT_DEVICE = -1 };
void ac_record_event(ac_thread_t *thread, ac_event_kind_t kind, int device, uint64_t address,
                     uint64_t bytes, const void *caller);
static inline void ac_record_beside(ac_thread_t *thread, ac_event_kind_t kind, uint64_t address,
                                    uint64_t bytes, const void *caller) {
    if (ac_history_is_on() && thread)
        ac_record_event(thread, kind, AC_CURRENT_DEVICE, address, bytes, caller);
}

/* A request failed; `available`: bytes of the device, UINT64_MAX: not known.  The number of the stack;
 * 0 where nothing is recorded. */
uint32_t ac_record_oom(ac_thread_t *thread, int device, uint64_t bytes, uint64_t available,
                       const void *caller);

/* The number of a stack: `text` (may be NULL) as its first frame, of line 0, then the calling thread's frames
 * with stacks:all.  0: there is neither.  _text: the text of such a stack; NULL: it has none. */
uint32_t ac_record_context(ac_thread_t *thread, const void *caller, const char *text);
const char *ac_record_text(uint32_t stack);

/* All blocks of all devices were written down. */
void ac_record_snapshot(void);

/* A call of the runtime, from `caller`, in which requests are that module's.  `thread` is NULL
 * where the thread has no record yet: then the block is told afterwards. */
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
    if (atomic_load(&ac_state) == AC_STATE_ACTIVE) { /* no lock of the loader in a fork child */
        thread->asks_for = (uint8_t)ac_module_asking(thread, caller);
        thread->asks_from = thread->asks_from ? thread->asks_from : caller;
        thread->fast[AC_FAST_DRIVER_MALLOC].code.generation = 0; /* the runtime's own code is not who asks */
    }
    return asking;
}

/* `pointer`: what the call allocated, NULL: nothing. */
void ac_asking_end(const ac_asking_t *asking, const void *pointer);

#endif

/* Between pinned.c and the hooks of pinned memory. */
#ifndef AC_PINNED_INT_H
#define AC_PINNED_INT_H

#include "intercept/body.h"
#include "intercept/pinned.h"
#include "intercept/recording.h"

/* The one pool of the process; its figures are those of the live page. */
extern AC_HIDDEN ac_host_t ac_pinned;

/* Bytes that may be kept now: 0 where nothing is, and where the host does not say what it has. */
uint64_t ac_pinned_limit(void);

/* What is idle since before `before` goes back to the driver, oldest first, until no more than
 * `limit` bytes are kept; none while anything captures.  Returns bytes. */
uint64_t ac_pinned_give_back(uint64_t before, uint64_t limit);

/* A request for `size` bytes fails for want of memory: give back what is idle; with `wait` after
 * waiting for pending work, where the host would have room then.  False: nothing went back. */
bool ac_pinned_make_room(ac_context_t *context, uint64_t size, bool wait);

/* A request of that kind (ac_host_key_t) in the context, which is the thread's current one, from what
 * is kept.  False: it has to be asked of the driver, or of the runtime. */
bool ac_pinned_hit(ac_thread_t *thread, ac_context_t *context, uint32_t kind, size_t bytes,
                   void **out);

/* The program's free of a block, where that is kept or goes to the driver without a question.
 * False: it is none that may be freed, and nothing has changed. */
bool ac_pinned_free_hit(ac_thread_t *thread, void *memory, const void *caller);

#endif

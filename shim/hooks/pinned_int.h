/* Hits of pinned memory, by the names of the driver and of the runtime. */
#ifndef AC_PINNED_INT_H
#define AC_PINNED_INT_H

#include "hooks/body.h"
#include "track/pinned.h"
#include "tell/recording.h"

/* A request of that kind (ac_host_key_t) in the context, which is the thread's current one, from what
 * is kept.  False: it has to be asked of the driver, or of the runtime. */
bool ac_pinned_hit(ac_thread_t *thread, ac_context_t *context, uint32_t kind, size_t bytes,
                   void **out);

/* The program's free of a block, where that is kept or goes to the driver without a question.
 * False: it is none that may be freed, and nothing has changed. */
bool ac_pinned_free_hit(ac_thread_t *thread, void *memory, const void *caller);

#endif

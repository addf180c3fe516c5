/* Hits of the cache of pinned memory, for the hooks of the driver and of the runtime. */
#ifndef AC_PINNED_INT_H
#define AC_PINNED_INT_H

#include "hooks/body.h"
#include "track/pinned.h"
#include "tell/recording.h"

/* Serves a request of that kind (ac_host_key_t) from the cache.  `context`: the thread's current one.
 * False: the caller has to ask the driver or the runtime. */
bool ac_pinned_hit(ac_thread_t *thread, ac_context_t *context, uint32_t kind, size_t bytes,
                   void **out);

/* Frees a block for the program: the cache keeps it, or it goes back to the driver.  False: the
 * address is not that of an allocated block, or the free failed; the block is not freed. */
bool ac_pinned_free_hit(ac_thread_t *thread, void *memory, const void *caller);

#endif

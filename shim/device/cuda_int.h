/* Shared by the files of the CUDA device: cuda_context.c, cuda_fence.c, cuda_streams.c, cuda_sync.c,
 * cuda_device.c. */
#ifndef AC_CUDA_INT_H
#define AC_CUDA_INT_H

#include "device/cuda_device.h"
#include "lock.h"

/* The capture gate (cuda_context.c). */
extern ac_rwlock_t ac_cuda_gate;

void ac_cuda_count_one(ac_cuda_event_t event);

static inline void ac_cuda_tell(const ac_cuda_context_t *context, ac_event_kind_t kind,
                                uint64_t address, uint64_t bytes) {
    ac_cuda_memory_fn observer =
        atomic_load_explicit(&ac_cuda_memory_observer, memory_order_acquire);
    if (__builtin_expect(observer != NULL, 0))
        observer(kind, context->device, address, bytes);
}

/* Notes that work escapes the events: only the next synchronisation covers it. */
void ac_cuda_lose(ac_cuda_context_t *context);

/* All that the streams had been given before the context's clock left `clock` is done. */
void ac_cuda_streams_synced(ac_cuda_context_t *context, uint64_t clock);

/* Spare events; the context is current.  NULL when the driver gives none. */
CUevent ac_cuda_event_take(ac_cuda_context_t *context);
void ac_cuda_event_return(ac_cuda_context_t *context, CUevent event);

/* A fence is an event; which context it belongs to has to be known when that died meanwhile and
 * its line serves another one. */
typedef struct ac_cuda_fence {
    ac_cuda_context_t *context;
    CUevent event; /* NULL: none yet */
    struct ac_cuda_fence *next;
} ac_cuda_fence_t;

/* A fence that is not in use, with an event or without; NULL: they ran out.  _give: it is free
 * for the next record, its event too.  Any thread, no lock held (cuda_fence.c). */
ac_cuda_fence_t *ac_cuda_fence_take(ac_cuda_context_t *context);
void ac_cuda_fence_give(ac_cuda_fence_t *fence);

/* The context is dead: the fence that it kept serves others, without its event. */
void ac_cuda_fence_drop(ac_cuda_context_t *context);

/* Records `event` behind all streams that had work; with `whole`, also behind the context's own event.
 * Pre: inside ac_cuda_enter and the gate. */
CUresult ac_cuda_streams_record(ac_cuda_context_t *context, CUevent event, bool whole);

/* Synchronises each stream that had work, by name. Pre: inside ac_cuda_enter. */
CUresult ac_cuda_streams_wait(ac_cuda_context_t *context);

/* Record a new fence by `how`, which runs with the context current and the gate held
 * (cuda_device.c).  AC_OK sets *out; AC_BUSY: a capture; AC_UNSUPPORTED: the driver would not, or
 * the fences ran out; AC_FAILED: the context is broken. */
typedef CUresult ac_record_fn(ac_cuda_context_t *context, CUevent event, uint64_t stream);
ac_status_t ac_cuda_record(ac_cuda_context_t *context, ac_record_fn *how, uint64_t stream,
                           void **out);

/* Ask until the fence has completed, or for `limit_ns` (cuda_device.c).  AC_OK, AC_BUSY,
 * AC_FAILED. */
ac_status_t ac_cuda_fence_poll(ac_cuda_fence_t *fence, uint64_t limit_ns);

/* synchronize of device.h (cuda_sync.c). */
ac_status_t ac_cuda_synchronize(void *context, uint64_t limit_ns);

/* stream_order and stream_touch of device.h (cuda_order.c). */
ac_status_t ac_cuda_stream_order(void *context, uint64_t from, uint64_t to);
ac_status_t ac_cuda_stream_touch(void *context, uint64_t stream);

/* Translates the driver's answer for the allocator; counts a sticky one (cuda_device.c). */
ac_status_t ac_cuda_status_of(CUresult result);

/* The operation `beside` of device.h (cuda_sync.c). */
bool ac_cuda_beside(void *context, void (*work)(void *arg), void *arg, uint64_t until);

/* Operations on pages of device.h (vmm.c). */
ac_status_t ac_cuda_range_support(void *context, ac_range_support_t *support);
ac_status_t ac_cuda_range_reserve(void *context, uint64_t bytes, uint64_t *address);
ac_status_t ac_cuda_range_release(void *context, uint64_t address, uint64_t bytes);
ac_status_t ac_cuda_page_create(void *context, uint64_t bytes, uint64_t *page);
ac_status_t ac_cuda_page_release(void *context, uint64_t page);
ac_status_t ac_cuda_page_map(void *context, uint64_t address, uint64_t bytes, uint64_t page);
ac_status_t ac_cuda_pages_allow(void *context, uint64_t address, uint64_t bytes);
ac_status_t ac_cuda_pages_unmap(void *context, uint64_t address, uint64_t bytes);

#endif

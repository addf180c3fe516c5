/* The open capture session (capture.h). */
#include "allocator/order/capture.h"

#include "allocator/order/generation.h"

_Atomic uint64_t ac_order_session;
static _Atomic uint64_t open_since; /* as if handed out when it began */

void ac_order_capture_begin(uint64_t session) {
    atomic_store(&open_since, ac_fence_stamp() + 1);
    atomic_store(&ac_order_session, session);
    ac_generation_grow(); /* frees that take the short way do not look */
    ac_fence_capture_opened();
}

void ac_order_capture_end(void) {
    atomic_store(&ac_order_session, 0);
    ac_fence_capture_closed();
}

/* Nothing older than that may be captured. */
static uint64_t since(uint64_t epoch) {
    uint64_t begin = atomic_load(&open_since);
    return epoch > begin ? epoch : begin;
}

uint64_t ac_order_captured(const ac_timeline_t *timeline, uint64_t epoch) {
    uint64_t session = atomic_load_explicit(&ac_order_session, memory_order_acquire);
    if (!session || ac_fence_untouched(timeline, since(epoch)))
        return 0;
    return ac_fence_spans() || timeline->ops->capturing(timeline->context, false) ? session : 0;
}

uint64_t ac_order_captured_anywhere(uint64_t epoch) {
    uint64_t session = atomic_load_explicit(&ac_order_session, memory_order_acquire);
    return session && !ac_fence_untouched_anywhere(since(epoch)) ? session : 0;
}

/* The records of fences (cuda_int.h). */
#include "device/cuda_int.h"

enum { FENCES = 4096 };
static ac_cuda_fence_t fences[FENCES];
static ac_cuda_fence_t *spare_fences;
static unsigned fences_made;
static ac_mutex_t fences_lock = AC_MUTEX(LEAF);

static ac_cuda_fence_t *fence_new(void) {
    ac_lock(&fences_lock);
    ac_cuda_fence_t *fence = spare_fences;
    if (fence)
        spare_fences = fence->next;
    else if (fences_made < FENCES)
        fence = &fences[fences_made++];
    ac_unlock(&fences_lock);
    return fence;
}

static void fence_return(ac_cuda_fence_t *fence) {
    atomic_fetch_sub(&fence->context->fences, 1);
    ac_lock(&fences_lock);
    fence->next = spare_fences;
    spare_fences = fence;
    ac_unlock(&fences_lock);
}

ac_cuda_fence_t *ac_cuda_fence_take(ac_cuda_context_t *context) {
    ac_cuda_fence_t *fence = NULL;
    if (atomic_load_explicit(&context->kept, memory_order_relaxed))
        fence = atomic_exchange(&context->kept, NULL);
    if (fence || !(fence = fence_new()))
        return fence;
    atomic_fetch_add(&context->fences, 1);
    fence->context = context;
    fence->event = NULL;
    return fence;
}

void ac_cuda_fence_drop(ac_cuda_context_t *context) {
    ac_cuda_fence_t *fence = atomic_exchange(&context->kept, NULL);
    if (fence)
        fence_return(fence);
}

/* Mostly a fence is released where another one was just recorded: it is kept for the next, which
 * then takes no lock. */
void ac_cuda_fence_give(ac_cuda_fence_t *fence) {
    ac_cuda_context_t *context = fence->context;
    ac_cuda_fence_t *none = NULL;
    if (fence->event && !atomic_load(&context->dead) &&
        atomic_compare_exchange_strong(&context->kept, &none, fence)) {
        if (atomic_load(&context->dead)) /* meanwhile: it may have been too late for the drop */
            ac_cuda_fence_drop(context);
        return;
    }
    ac_cuda_event_return(context, fence->event);
    fence_return(fence);
}

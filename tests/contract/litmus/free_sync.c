/* Freeing other memory waits for the device, as drivers do; a program may not rely on it.
 *
 * CUDA Driver API, "Memory Management", cuMemFree: no word of waiting.  The CUDA C++ Programming
 * Guide, "Stream Ordered Memory Allocator", motivates itself by the synchronisation of
 * cudaFree, and so does the simulated device (key free_sync). */
#include "litmus.h"

static void freed_other(litmus_t *t) {
    CUdeviceptr other;
    MUST(cuMemAlloc_v2(&other, 1 << 20));
    litmus_old(t, t->free_stream[0]);
    MUST(cuMemFree_v2(other));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

static void freed_nothing(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    MUST(cuMemFree_v2(0));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

static void allocated_other(litmus_t *t) {
    CUdeviceptr other;
    litmus_old(t, t->free_stream[0]);
    MUST(cuMemAlloc_v2(&other, 1 << 20));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
    MUST(cuMemFree_v2(other));
}

LITMUS_CASES({"other memory freed", freed_other, ORDERED}, {"nothing freed", freed_nothing, RACY},
             {"other memory allocated", allocated_other, RACY})

/* If the host reads a value that work wrote, all work before that work is over.
 *
 * CUDA C++ Programming Guide, "Page-Locked Host Memory", "Mapped Memory": the host may read what
 * a device writes there; CUDA Driver API, "Stream memory operations", cuStreamWriteValue32: the
 * write comes after all work before it in the stream, with a memory barrier. */
#include "litmus.h"

static volatile unsigned *flag(litmus_t *t) {
    *(volatile unsigned *)t->pinned = 0;
    return t->pinned;
}

static CUdeviceptr on_the_device(litmus_t *t) {
    CUdeviceptr there;
    MUST(cuMemHostGetDevicePointer_v2(&there, t->pinned, 0));
    return there;
}

static void then_new(litmus_t *t) {
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
    MUST(cuStreamSynchronize(t->free_stream[1]));
}

static void value_polled(litmus_t *t) {
    const volatile unsigned *at = flag(t);
    litmus_old(t, t->free_stream[0]);
    MUST(cuStreamWriteValue32_v2(t->free_stream[0], on_the_device(t), 5, 0));
    litmus_poll(t, at, 5);
    then_new(t);
}

static void value_not_polled(litmus_t *t) {
    do {
        flag(t);
        litmus_old(t, t->free_stream[0]);
        MUST(cuEventRecord(t->event[0], t->free_stream[0]));
        MUST(cuStreamWriteValue32_v2(t->free_stream[0], on_the_device(t), 5, 0));
        litmus_hand_over(t);
        litmus_new(t, t->free_stream[1]);
    } while (litmus_was_late(t, t->event[0]));
    MUST(cuStreamSynchronize(t->free_stream[1]));
}

static void kernel_behind_it(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    litmus_launch(t, 0, t->free_stream[0], on_the_device(t), 7, false, false);
}

static void kernel_polled(litmus_t *t) {
    const volatile unsigned *at = flag(t);
    kernel_behind_it(t);
    litmus_poll(t, at, 7);
    then_new(t);
}

static void kernel_not_polled(litmus_t *t) {
    flag(t);
    kernel_behind_it(t);
    then_new(t);
}

static void too_early_to_see(litmus_t *t) {
    const volatile unsigned *at = flag(t);
    kernel_behind_it(t);
    if (litmus_look(t, at)) /* a slow host: it was there */
        litmus_old(t, t->free_stream[0]);
    then_new(t);
}

/* A value written before the work proves nothing about the work. */
static void polled_too_early(litmus_t *t) {
    const volatile unsigned *at = flag(t);
    litmus_launch(t, 0, t->free_stream[0], on_the_device(t), 7, false, false);
    litmus_old(t, t->free_stream[0]);
    litmus_poll(t, at, 7);
    then_new(t);
}

LITMUS_CASES({"a value that is polled", value_polled, ORDERED},
             {"a value that is not polled", value_not_polled, RACY},
             {"a kernel's store that is polled", kernel_polled, ORDERED},
             {"a kernel's store that is not polled", kernel_not_polled, RACY},
             {"a look before there is anything", too_early_to_see, RACY},
             {"a store before the work", polled_too_early, RACY})

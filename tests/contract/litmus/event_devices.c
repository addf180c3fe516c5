/* An event of one device orders a stream of another.
 *
 * CUDA C++ Programming Guide, "Multi-Device System", "Stream and Event Behavior":
 * cuStreamWaitEvent succeeds although stream and event belong to different devices. */
#include "litmus.h"

static void new_there(litmus_t *t) {
    MUST(cuCtxSetCurrent(t->ctx[1]));
    litmus_launch(t, 1, t->there, t->memory, 2, false, false);
    MUST(cuCtxSetCurrent(t->ctx[0]));
}

static void waits(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    MUST(cuEventRecord(t->event[0], t->free_stream[0]));
    MUST(cuStreamWaitEvent(t->there, t->event[0], 0));
    litmus_hand_over(t);
    new_there(t);
}

static void does_not_wait(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    litmus_hand_over(t);
    new_there(t);
}

static void old_there(litmus_t *t) {
    MUST(cuCtxSetCurrent(t->ctx[1]));
    litmus_launch(t, 1, t->there, t->memory, 1, true, false);
    MUST(cuCtxSetCurrent(t->ctx[0]));
}

/* Synchronising one device says nothing about the other. */
static void wrong_device(litmus_t *t) {
    old_there(t);
    MUST(cuCtxSynchronize());
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
}

static void right_device(litmus_t *t) {
    old_there(t);
    MUST(cuCtxSetCurrent(t->ctx[1]));
    MUST(cuCtxSynchronize());
    MUST(cuCtxSetCurrent(t->ctx[0]));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
}

LITMUS_CASES({"waits", waits, ORDERED | TWO_DEVICES},
             {"does not wait", does_not_wait, RACY | TWO_DEVICES},
             {"the other device synchronised", wrong_device, RACY | TWO_DEVICES},
             {"the device synchronised", right_device, ORDERED | TWO_DEVICES})

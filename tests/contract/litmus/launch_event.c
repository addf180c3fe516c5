/* A launch may record an event of its own beginning: work before the kernel is over at that
 * event, the kernel itself is not.
 *
 * CUDA Driver API, "Data types used by CUDA driver", CUlaunchAttributeID:
 * CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT (triggers when all blocks have triggered it, which a
 * kernel may do at once, or have ended) and CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT (when all
 * blocks have begun). */
#include "litmus.h"

/* A launch in the first stream with an event of its beginning. */
static void launch(litmus_t *t, CUlaunchAttributeID id, CUdeviceptr to, bool slow) {
    unsigned value = 1, spins = slow ? 2000000 : 0;
    void *params[] = {&to, &value, &spins};
    CUlaunchAttribute attribute = {.id = id};
    attribute.value.programmaticEvent.event = t->event[0];
    attribute.value.programmaticEvent.triggerAtBlockStart =
        id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, t->free_stream[0], &attribute, 1};
    MUST(cuLaunchKernelEx(&config, t->store[0][slow], params, NULL));
}

static void then_wait(litmus_t *t) {
    MUST(cuStreamWaitEvent(t->free_stream[1], t->event[0], 0));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

static void then_synchronise(litmus_t *t) {
    MUST(cuEventSynchronize(t->event[0]));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

static void before_it(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    launch(t, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, t->other, false);
    then_wait(t);
}

static void itself(litmus_t *t) {
    launch(t, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, t->memory, true);
    then_wait(t);
}

static void before_its_launch(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    launch(t, CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT, t->other, false);
    then_wait(t);
}

static void itself_launched(litmus_t *t) {
    launch(t, CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT, t->memory, true);
    then_wait(t);
}

static void host_before_it(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    launch(t, CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT, t->other, false);
    then_synchronise(t);
}

static void host_itself(litmus_t *t) {
    launch(t, CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT, t->memory, true);
    then_synchronise(t);
}

/* Work behind the launch in its stream comes after all of it. */
static void behind_it(litmus_t *t) {
    launch(t, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, t->memory, true);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
}

LITMUS_CASES({"work before the trigger", before_it, ORDERED},
             {"the kernel that triggers", itself, RACY},
             {"work before the launch", before_its_launch, ORDERED},
             {"the kernel that is launched", itself_launched, RACY},
             {"the host waits, work before", host_before_it, ORDERED},
             {"the host waits, the kernel", host_itself, RACY},
             {"behind it in the stream", behind_it, ORDERED})

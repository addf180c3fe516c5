/* A programmatic launch may start while the kernel before it runs: not an edge.
 *
 * CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization". */
#include "litmus.h"

static void plain(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    litmus_hand_over(t);
    litmus_launch(t, 0, t->free_stream[0], t->memory, 2, false, false);
}

static void programmatic(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    litmus_hand_over(t);
    litmus_launch(t, 0, t->free_stream[0], t->memory, 2, false, true);
}

/* A programmatic launch follows all work that the kernel before it waited for. */
static void one_further(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    litmus_launch(t, 0, t->free_stream[0], t->other, 0, false, false);
    litmus_hand_over(t);
    litmus_launch(t, 0, t->free_stream[0], t->memory, 2, false, true);
}

static void two_in_a_row(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    litmus_launch(t, 0, t->free_stream[0], t->other, 0, false, true);
    litmus_hand_over(t);
    litmus_launch(t, 0, t->free_stream[0], t->memory, 2, false, true);
}

/* A plain launch behind it waits for both. */
static void plain_behind(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    litmus_launch(t, 0, t->free_stream[0], t->other, 0, false, true);
    litmus_hand_over(t);
    litmus_launch(t, 0, t->free_stream[0], t->memory, 2, false, false);
}

/* Only kernels overlap: behind a copy it is a plain launch. */
static void behind_a_fill(litmus_t *t) {
    MUST(cuMemsetD32Async(t->memory, 1, 4096, t->free_stream[0]));
    litmus_hand_over(t);
    litmus_launch(t, 0, t->free_stream[0], t->memory, 2, false, true);
}

LITMUS_CASES({"plain launch", plain, ORDERED}, {"programmatic launch", programmatic, RACY},
             {"one kernel in between", one_further, ORDERED},
             {"two programmatic launches", two_in_a_row, RACY},
             {"plain behind programmatic", plain_behind, ORDERED},
             {"behind a fill", behind_a_fill, ORDERED})

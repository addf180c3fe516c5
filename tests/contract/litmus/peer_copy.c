/* A copy between devices is work of its stream, on whichever device that is.
 *
 * CUDA C++ Programming Guide, "Multi-Device System", "Peer-to-Peer Memory Copy"; CUDA Driver API,
 * "Memory Management", cuMemcpyPeer: without a stream it is serialised with all pending and
 * future work of the contexts. */
#include "litmus.h"

static void copy(litmus_t *t, CUcontext current, CUstream stream) {
    MUST(cuCtxSetCurrent(current));
    MUST(cuMemcpyPeerAsync(t->peer, t->ctx[1], t->memory, t->ctx[0], 4096, stream));
    MUST(cuCtxSetCurrent(t->ctx[0]));
}

static void same_stream(litmus_t *t) {
    copy(t, t->ctx[0], t->free_stream[0]);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
}

static void other_stream(litmus_t *t) {
    copy(t, t->ctx[0], t->free_stream[0]);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

static void driven_from_there(litmus_t *t) {
    copy(t, t->ctx[1], t->there);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
}

/* The copy is work of the other device's context: synchronising this one is not enough. */
static void wrong_context(litmus_t *t) {
    copy(t, t->ctx[1], t->there);
    MUST(cuCtxSynchronize());
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
}

static void stream_synchronised(litmus_t *t) {
    copy(t, t->ctx[1], t->there);
    MUST(cuStreamSynchronize(t->there));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
}

static void without_a_stream(litmus_t *t) {
    litmus_old(t, t->free_stream[1]);
    MUST(cuMemcpyPeer(t->peer, t->ctx[1], t->memory, t->ctx[0], 4096));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
}

LITMUS_CASES({"without a stream", without_a_stream, ORDERED | TWO_DEVICES},
             {"in the stream", same_stream, ORDERED | TWO_DEVICES},
             {"in another stream", other_stream, RACY | TWO_DEVICES},
             {"in a stream of the other device", driven_from_there, RACY | TWO_DEVICES},
             {"this device synchronised", wrong_context, RACY | TWO_DEVICES},
             {"the copy's stream synchronised", stream_synchronised, ORDERED | TWO_DEVICES})

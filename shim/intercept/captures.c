/* The list of captures (captures.h). */
#include "intercept/captures.h"

#include <pthread.h>

#include "allocator/order/fence.h"
#include "device/cuda_device.h"
#include "intercept/graphs.h"
#include "intercept/process.h"
#include "lock.h"

enum { CAPTURES = 256 };

static ac_mutex_t lock = AC_MUTEX(LEAF);
static ac_capture_t list[CAPTURES];
static unsigned listed;
static unsigned unlisted; /* more than the list has room for: known by their number only */

/* Fences of now, for memory that is to go back beside the capture: none is recorded after it began. */
void ac_capture_begin(void) {
    ac_graphs_capture_began();
    if (ac_is_enabled()) /* else there is no memory that a fence would be for */
        ac_fence_close(NULL, true);
    ac_cuda_capture_begin();
}

static void enlist(const ac_capture_t *capture) {
    ac_lock(&lock);
    if (listed < CAPTURES)
        list[listed++] = *capture;
    else
        unlisted++;
    ac_unlock(&lock);
}

static void over(CUgraph graph) {
    ac_cuda_capture_ended();
    ac_graphs_capture_ended(graph ? AC_GRAPH(graph) : (ac_holder_t){AC_HOLDER_NONE, 0});
}

void ac_capture_began(const ac_capture_t *capture, bool began) {
    if (began)
        enlist(capture);
    ac_cuda_capture_began(began);
    if (!began)
        ac_graphs_capture_ended((ac_holder_t){AC_HOLDER_NONE, 0});
}

/* Streams have handles of their own but for the per-thread ones, of which each thread has one in
 * each context. */
static bool same(const ac_capture_t *a, const ac_capture_t *b) {
    return a->stream == b->stream && a->thread == b->thread &&
           (!a->thread || !a->context || !b->context || a->context == b->context);
}

bool ac_capture_ended(const ac_capture_t *capture, CUgraph graph) {
    unsigned i = 0;
    ac_lock(&lock);
    while (i < listed && !same(&list[i], capture))
        i++;
    bool found = i < listed;
    bool fresh = found && graph && !list[i].graph;
    if (found) {
        if (!graph)
            graph = list[i].graph; /* it has the nodes of a capture that failed, too */
        list[i] = list[--listed];
    } else if (unlisted) {
        found = true;
        unlisted--;
    }
    ac_unlock(&lock);
    if (fresh)
        ac_graphs_fresh(AC_GRAPH(graph));
    if (found)
        over(graph);
    return found;
}

/* End all of the context or the thread, whichever is given. */
static void end_matching(const struct ac_context *context, uint64_t thread) {
    for (bool found = true; found;) {
        CUgraph graph = NULL;
        found = false;
        ac_lock(&lock);
        for (unsigned i = listed; i-- > 0 && !found;) {
            found =
                (context && list[i].context == context) || (thread && list[i].thread == thread);
            if (found) {
                graph = list[i].graph;
                list[i] = list[--listed];
            }
        }
        ac_unlock(&lock);
        if (found)
            over(graph);
    }
}

/* The newest listed capture on the stream; a stream has one at a time. */
bool ac_capture_leaving(CUstream stream, ac_capture_t *taken) {
    bool found = false;
    if (!ac_cuda_is_capturing())
        return false;
    ac_lock(&lock);
    for (unsigned i = listed; i-- > 0 && !found;) {
        found = list[i].stream == stream;
        if (found) {
            *taken = list[i];
            list[i] = list[--listed];
        }
    }
    ac_unlock(&lock);
    return found;
}

void ac_capture_left(const ac_capture_t *taken, bool destroyed) {
    if (destroyed)
        over(taken->graph);
    else
        enlist(taken);
}

void ac_captures_context_gone(const struct ac_context *context) {
    if (ac_cuda_is_capturing())
        end_matching(context, 0);
}

void ac_captures_thread_gone(uint64_t thread) {
    if (ac_cuda_is_capturing())
        end_matching(NULL, thread);
}

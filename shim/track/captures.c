/* The list of captures (captures.h). */
#include "track/captures.h"

#include <pthread.h>

#include "device/driver.h"
#include "track/context.h"
#include "track/graphs.h"
#include "track/running.h"
#include "lock.h"

enum { CAPTURES = 256 };

static ac_mutex_t lock = AC_MUTEX(LEAF);

/* Captures, and joins of contexts to captures.  If the list is full, a capture or join is only
 * counted.  It then counts for every context. */
static ac_capture_t list[CAPTURES];
static unsigned listed, unlisted, unlisted_joins;

static ac_cuda_context_t *cuda_of(ac_context_t *context) {
    return context ? &context->cuda : NULL;
}

/* The context captures from its return on.  Records the fences that memory freed until now needs to
 * go back during the capture: after the capture began, no fence is recorded. */
static void open(ac_context_t *context) {
    ac_timeline_t *timeline = context ? context->timeline : NULL;
    ac_fence_capture_begin(timeline);
    if (ac_is_enabled()) /* else no memory needs a fence */
        ac_fence_close(timeline, !timeline || ac_fence_spans());
    ac_cuda_capture_begin(cuda_of(context));
}

static uint64_t id_of(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    bool known = ac_driver.cuStreamGetCaptureInfo_v2 &&
                 ac_driver.cuStreamGetCaptureInfo_v2(stream, &status, &id, NULL, NULL, NULL) ==
                     CUDA_SUCCESS &&
                 status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return known ? id : 0;
}

static bool has_any(void) {
    unsigned i = 0;
    while (i < listed && list[i].joined)
        i++;
    return i < listed || unlisted;
}

/* Called under the lock when the capture `id` is over.  Ends the joins to it.  If no capture is left,
 * ends all joins. */
static void end_joins(uint64_t id) {
    bool all = !has_any();
    for (unsigned i = listed; i-- > 0;) {
        if (!list[i].joined || !(all || (id && list[i].id == id)))
            continue;
        ac_cuda_capture_ended(cuda_of(list[i].context));
        list[i] = list[--listed];
    }
    for (; all && unlisted_joins; unlisted_joins--)
        ac_cuda_capture_ended(NULL);
}

/* --- captures --- */

void ac_capture_begin(const ac_capture_t *capture) {
    ac_graphs_capture_began();
    open(capture->context);
}

static void enlist(const ac_capture_t *capture) {
    ac_lock(&lock);
    if (listed < CAPTURES) {
        list[listed++] = *capture;
    } else {
        unlisted++;
        ac_cuda_capture_unplace(cuda_of(capture->context));
    }
    ac_unlock(&lock);
}

void ac_capture_began(ac_capture_t *capture, bool began) {
    if (began) {
        capture->id = id_of(capture->stream);
        enlist(capture);
    }
    ac_cuda_capture_began(cuda_of(capture->context), began);
    if (!began)
        ac_graphs_capture_ended((ac_holder_t){AC_HOLDER_NONE, 0});
    ac_fence_capture_began();
}

/* Each stream has a handle of its own, except per-thread streams: they share one handle.  Each thread
 * has a per-thread stream in each context. */
static bool same(const ac_capture_t *a, const ac_capture_t *b) {
    return !a->joined && a->stream == b->stream && a->thread == b->thread &&
           (!a->thread || !a->context || !b->context || a->context == b->context);
}

/* Removes an entry and returns it.  Called under the lock. */
static ac_capture_t delist(unsigned i) {
    ac_capture_t capture = list[i];
    list[i] = list[--listed];
    return capture;
}

static void over(const ac_capture_t *capture) {
    ac_lock(&lock);
    ac_cuda_capture_ended(cuda_of(capture->context));
    end_joins(capture->id);
    ac_unlock(&lock);
    ac_graphs_capture_ended(capture->graph ? AC_GRAPH(capture->graph)
                                           : (ac_holder_t){AC_HOLDER_NONE, 0});
}

bool ac_capture_ended(const ac_capture_t *capture, CUgraph graph) {
    ac_capture_t known = {.graph = NULL};
    unsigned i = 0;
    ac_lock(&lock);
    while (i < listed && !same(&list[i], capture))
        i++;
    bool found = i < listed;
    if (found)
        known = delist(i);
    bool any = found || unlisted;
    if (any && !found)
        unlisted--;
    ac_unlock(&lock);
    if (found && graph && !known.graph)
        ac_graphs_fresh(AC_GRAPH(graph));
    if (graph)
        known.graph = graph; /* the graph known before also has the nodes of a failed capture */
    if (any)
        over(&known);
    return any;
}

/* Ends all captures of the context or of the thread. */
static void end_matching(const struct ac_context *context, uint64_t thread) {
    for (bool found = true; found;) {
        ac_capture_t capture;
        found = false;
        ac_lock(&lock);
        for (unsigned i = listed; i-- > 0 && !found;) {
            bool joined = list[i].joined && context && list[i].context == context;
            if (joined)
                ac_cuda_capture_ended(cuda_of(delist(i).context));
            found = !joined && !list[i].joined &&
                    ((context && list[i].context == context) || (thread && list[i].thread == thread));
            if (found)
                capture = delist(i);
        }
        ac_unlock(&lock);
        if (found)
            over(&capture);
    }
}

/* Takes the newest listed capture on the stream; a stream has one at a time. */
bool ac_capture_leaving(CUstream stream, ac_capture_t *taken) {
    bool found = false;
    if (!ac_cuda_is_capturing(NULL))
        return false;
    ac_lock(&lock);
    for (unsigned i = listed; i-- > 0 && !found;) {
        found = !list[i].joined && list[i].stream == stream;
        if (found)
            *taken = delist(i);
    }
    ac_unlock(&lock);
    return found;
}

void ac_capture_left(const ac_capture_t *taken, bool destroyed) {
    if (destroyed)
        over(taken);
    else
        enlist(taken);
}

void ac_captures_context_gone(const struct ac_context *context) {
    if (ac_cuda_is_capturing(NULL))
        end_matching(context, 0);
}

void ac_captures_thread_gone(uint64_t thread) {
    if (ac_cuda_is_capturing(NULL))
        end_matching(NULL, thread);
}

/* --- streams that join one --- */

bool ac_capture_join_begin(ac_context_t *context) {
    if (!ac_cuda_is_capturing(NULL))
        return false;
    open(context);
    ac_cuda_capture_began(cuda_of(context), true); /* opens the gate: the wait may block */
    return true;
}

/* Returns true if the stream takes part in a capture now. */
static bool takes_part(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = ac_driver.cuStreamIsCapturing
                          ? ac_driver.cuStreamIsCapturing(stream, &status)
                          : CUDA_ERROR_NOT_FOUND;
    /* The legacy stream takes part in no capture.  The driver returns this error for it while its
     * context captures. */
    return result != CUDA_ERROR_STREAM_CAPTURE_IMPLICIT &&
           (result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE);
}

/* Returns true if the join is in the list.  Called under the lock. */
static bool is_known(const ac_capture_t *join) {
    for (unsigned i = 0; i < listed; i++)
        if (list[i].joined && list[i].context == join->context && list[i].id == join->id)
            return true;
    return false;
}

void ac_capture_join_end(ac_context_t *context, CUstream stream, bool waits) {
    ac_capture_t join = {.context = context, .joined = true};
    bool joined = waits && takes_part(stream);
    if (joined)
        join.id = id_of(stream);
    ac_lock(&lock);
    if (!joined || !has_any() || is_known(&join)) {
        ac_cuda_capture_ended(cuda_of(context));
    } else if (listed < CAPTURES) {
        list[listed++] = join;
    } else {
        unlisted_joins++;
        ac_cuda_capture_unplace(cuda_of(context));
    }
    ac_unlock(&lock);
    ac_fence_capture_began();
}

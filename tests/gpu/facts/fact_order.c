/* Facts 5, 10 and 11: the work that events cover, within a context and across contexts, and the
 * order in which kernels of a stream begin.
 *
 * An event covers a kernel if it never completes before the kernel.  A kernel has ended if its word
 * in gpu.words is set. */
#include "facts.h"

#include <pthread.h>
#include <time.h>

enum { ROUNDS = 3, RECORDS = 200, MORE_STREAMS = 32 };

static CUevent event(void) {
    CUevent made;
    MUST(cu.cuEventCreate(&made, CU_EVENT_DISABLE_TIMING));
    return made;
}

static CUstream nonblocking(void) {
    CUstream stream;
    MUST(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

/* ---------------------------------------------------------------- 5 */

/* Polls `covering` until it completes.  Returns 1 if the kernel that writes gpu.words[word] is then
 * over, 0 if not, -1 if the kernel was over before the first poll. */
static int outlives(CUevent covering, unsigned word) {
    bool was_running = false;
    for (;;) {
        bool running = gpu.words[word] == 0;
        CUresult result = cu.cuEventQuery(covering);
        if (result == CUDA_SUCCESS)
            return gpu.words[word] ? (was_running ? 1 : -1) : 0;
        if (result != CUDA_ERROR_NOT_READY)
            MUST(result);
        was_running |= running;
        gpu_pause();
    }
}

typedef CUresult record_t(CUevent event);

static CUresult record_primary(CUevent covering) {
    return cu.cuCtxRecordEvent(gpu.primary, covering);
}

static CUresult record_beside(CUevent covering) {
    return cu.cuCtxRecordEvent(gpu_beside()->context, covering);
}

/* Submits a slow kernel that writes gpu.words[word], to a stream of its choice. */
typedef CUresult submit_t(unsigned word);

static void covers(claim_t claim, submit_t *submit, record_t *record, CUevent covering) {
    int seen = -1;
    for (int i = 0; i < ROUNDS && seen != 0; i++) {
        unsigned word = GPU_WORDS_KEPT + (unsigned)i;
        gpu.words[word] = 0;
        CUresult launched = submit(word), result = launched ? launched : record(covering);
        if (result) {
            MUST(cu.cuCtxSynchronize());
            fact_skip(claim, "unknown: %s answered %s", launched ? "launching" : "recording",
                      gpu_error(result));
            return;
        }
        int now = outlives(covering, word);
        MUST(cu.cuCtxSynchronize());
        seen = now >= 0 ? now : seen;
    }
    if (seen < 0)
        fact_skip(claim, "unknown: the kernel was over before the event could be asked");
    else
        fact_answer(
            claim, seen,
            seen ? "The event was over with the kernel of 20 ms, not before, in each of %d "
                   "rounds."
                 : "The event was over while the kernel of 20 ms ran (%d rounds at most).",
            ROUNDS);
}

static CUstream streams[2];

static CUresult in_nonblocking(unsigned word) {
    return gpu_try(gpu.slow, streams[0], gpu_word(0), gpu_word(word));
}

static CUresult in_blocking(unsigned word) {
    return gpu_try(gpu.slow, streams[1], gpu_word(0), gpu_word(word));
}

static CUresult in_legacy(unsigned word) {
    return gpu_try(gpu.slow, CU_STREAM_LEGACY, gpu_word(0), gpu_word(word));
}

static CUresult in_per_thread(unsigned word) {
    return gpu_try(gpu.slow, CU_STREAM_PER_THREAD, gpu_word(0), gpu_word(word));
}

static void *elsewhere(void *word) {
    MUST(cu.cuCtxSetCurrent(gpu.primary));
    MUST(in_per_thread(*(unsigned *)word));
    return NULL;
}

static CUresult in_other_thread(unsigned word) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, elsewhere, &word))
        return CUDA_ERROR_OPERATING_SYSTEM;
    pthread_join(thread, NULL);
    return CUDA_SUCCESS;
}

static CUresult in_destroyed(unsigned word) {
    CUstream stream = nonblocking();
    gpu_launch(gpu.slow, stream, gpu_word(0), gpu_word(word));
    return cu.cuStreamDestroy_v2(stream);
}

static CUresult in_beside(unsigned word) {
    const gpu_beside_t *beside = gpu_beside();
    MUST(cu.cuCtxSetCurrent(beside->context));
    gpu_launch(beside->slow, beside->stream, gpu_word(0), gpu_word(word));
    return cu.cuCtxSetCurrent(gpu.primary);
}

/* Makes the event in the other context: an event belongs to its creation's current context. */
static void covers_beside(void) {
    MUST(cu.cuCtxSetCurrent(gpu_beside()->context));
    CUevent covering = event();
    MUST(cu.cuCtxSetCurrent(gpu.primary));
    covers(CLAIM_5_covers_user_context, in_beside, record_beside, covering);
    MUST(cu.cuEventDestroy_v2(covering));
}

static CUresult in_green(unsigned word) {
    return gpu_try(gpu.slow, gpu_green()->stream, gpu_word(0), gpu_word(word));
}

/* Sets the word after 30 ms.  covers_wait tests whether the context's event is pending while a
 * stream holds only a wait for this word, and no kernel runs.  A separate thread sets the word,
 * because recording itself might wait. */
static void *set_word(void *word) {
    struct timespec moment = {0, 30000000};
    nanosleep(&moment, NULL);
    *(volatile uint32_t *)word = 1;
    return NULL;
}

static void covers_wait(claim_t claim, unsigned word, CUresult queued, CUevent covering) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, set_word, (void *)(uintptr_t)&gpu.words[word])) {
        gpu.words[word] = 1;
        queued = CUDA_ERROR_OPERATING_SYSTEM;
    }
    CUresult recorded = queued ? queued : cu.cuCtxRecordEvent(gpu.primary, covering);
    CUresult seen = cu.cuEventQuery(covering);
    bool set = gpu.words[word];
    if (queued != CUDA_ERROR_OPERATING_SYSTEM)
        pthread_join(thread, NULL);
    MUST(cu.cuCtxSynchronize());
    if (recorded)
        fact_skip(claim, "unknown: %s answered %s", queued ? "the wait" : "recording",
                  gpu_error(recorded));
    else if (set)
        fact_skip(claim, "unknown: recording took too long");
    else
        fact_answer(claim, seen == CUDA_ERROR_NOT_READY,
                    "Before what the stream waits for happened the event answered %s.",
                    gpu_error(seen));
}

enum { AT_LEAST = 0 }; /* CU_STREAM_WAIT_VALUE_GEQ */

static void covers_wait_for_value(CUevent covering) {
    unsigned word = GPU_WORDS_KEPT;
    CUstream stream = nonblocking();
    if (!fact_needs(CLAIM_5_covers_wait_for_value, GPU_HAS(cuStreamWaitValue32_v2),
                    "cuStreamWaitValue32 of CUDA 11.7"))
        return;
    gpu.words[word] = 0;
    covers_wait(CLAIM_5_covers_wait_for_value, word,
                cu.cuStreamWaitValue32_v2(stream, gpu_word(word), 1, AT_LEAST), covering);
}

/* The other context's stream waits for a word and then records an event.  A stream of this context
 * waits for this event. */
static void covers_wait_for_event(CUevent covering) {
    const gpu_beside_t *beside = gpu_beside();
    unsigned word = GPU_WORDS_KEPT;
    CUstream stream = nonblocking();
    if (!fact_needs(CLAIM_5_covers_wait_for_event, beside && GPU_HAS(cuStreamWaitValue32_v2),
                    "a second context and cuStreamWaitValue32 of CUDA 11.7"))
        return;
    gpu.words[word] = 0;
    MUST(cu.cuCtxSetCurrent(beside->context));
    CUevent behind = event();
    CUresult queued = cu.cuStreamWaitValue32_v2(beside->stream, gpu_word(word), 1, AT_LEAST);
    MUST(cu.cuEventRecord(behind, beside->stream));
    MUST(cu.cuCtxSetCurrent(gpu.primary));
    queued = queued ? queued : cu.cuStreamWaitEvent(stream, behind, 0);
    covers_wait(CLAIM_5_covers_wait_for_event, word, queued, covering);
}

static CUresult record_once(void *arg) {
    return cu.cuCtxRecordEvent(gpu.primary, *(CUevent *)arg);
}

/* Tests that a kernel in another stream, launched after the record, ends while the recorded kernel
 * runs. */
static void holds_up_streams(void) {
    CUevent covering = event();
    CUstream other = nonblocking();
    unsigned word = GPU_WORDS_KEPT, next = word + 1;
    int early = 0;
    for (int i = 0; i < ROUNDS; i++) {
        gpu.words[word] = gpu.words[next] = 0;
        MUST(in_nonblocking(word));
        MUST(cu.cuCtxRecordEvent(gpu.primary, covering));
        gpu_launch(gpu.quick, other, gpu_word(0), gpu_word(next));
        MUST(cu.cuStreamSynchronize(other));
        early += gpu.words[word] == 0;
        MUST(cu.cuCtxSynchronize());
    }
    fact_answer(CLAIM_5_holds_up_streams, early == 0,
                "A quick kernel behind the record was over before the recorded one in %d of %d "
                "rounds.",
                early, ROUNDS);
}

static double cost_of_record(void) {
    CUevent covering = event();
    MUST(record_primary(covering));
    double before = gpu_clock();
    for (int i = 0; i < RECORDS; i++)
        MUST(record_primary(covering));
    double after = gpu_clock();
    MUST(cu.cuCtxSynchronize());
    MUST(cu.cuEventDestroy_v2(covering));
    return (after - before) * 1e6 / RECORDS;
}

void fact_5(void) {
    CUevent probe = event();
    CUresult there = GPU_HAS(cuCtxRecordEvent) ? cu.cuCtxRecordEvent(gpu.primary, probe)
                                               : CUDA_ERROR_NOT_FOUND;
    if (there) {
        for (claim_t claim = CLAIM_5_covers_nonblocking; claim <= CLAIM_5_ns_32_streams; claim++)
            fact_skip(claim, "not here: cuCtxRecordEvent (%s); fence:auto goes by streams",
                      gpu_error(there));
        return;
    }
    streams[0] = nonblocking();
    MUST(cu.cuStreamCreate(&streams[1], CU_STREAM_DEFAULT));
    fact_figure(CLAIM_5_ns_idle, cost_of_record(), "ns", "Mean of %d records, device idle.",
                RECORDS);
    covers(CLAIM_5_covers_nonblocking, in_nonblocking, record_primary, probe);
    covers(CLAIM_5_covers_blocking, in_blocking, record_primary, probe);
    covers(CLAIM_5_covers_legacy, in_legacy, record_primary, probe);
    covers(CLAIM_5_covers_per_thread, in_per_thread, record_primary, probe);
    covers(CLAIM_5_covers_other_threads, in_other_thread, record_primary, probe);
    covers(CLAIM_5_covers_destroyed, in_destroyed, record_primary, probe);
    if (fact_needs(CLAIM_5_covers_green, gpu_green(), "green contexts with streams"))
        covers(CLAIM_5_covers_green, in_green, record_primary, probe);
    if (fact_needs(CLAIM_5_covers_user_context, gpu_beside(), "a second context"))
        covers_beside();
    covers_wait_for_value(probe);
    covers_wait_for_event(probe);
    fact_waits(CLAIM_5_holds_up_host, streams[0], gpu.slow, NULL, record_once, &probe);
    holds_up_streams();
    for (int i = 0; i < MORE_STREAMS; i++)
        gpu_launch(gpu.quick, nonblocking(), gpu_word(0), gpu_word(1));
    MUST(cu.cuCtxSynchronize());
    fact_figure(CLAIM_5_ns_32_streams, cost_of_record(), "ns",
                "Mean of %d records, device idle, %d more streams that had work.", RECORDS,
                MORE_STREAMS);
}

/* ---------------------------------------------------------------- 10 */

/* Launches a slow kernel, records an event, and lets another context's or device's stream wait for
 * this event.  A quick kernel there must read the slow kernel's result. */
static void waits_across(claim_t claim, CUcontext second, CUstream stream, gpu_kernel_t quick) {
    CUstream first = nonblocking();
    CUevent behind = event();
    unsigned word = GPU_WORDS_KEPT, next = word + 1;
    int right = 0;
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < ROUNDS && !result; i++) {
        gpu.words[word] = gpu.words[next] = 0;
        gpu_launch(gpu.slow, first, gpu_word(0), gpu_word(word));
        MUST(cu.cuEventRecord(behind, first));
        MUST(cu.cuCtxSetCurrent(second));
        result = cu.cuStreamWaitEvent(stream, behind, 0);
        gpu_launch(quick, stream, gpu_word(word), gpu_word(next));
        MUST(cu.cuStreamSynchronize(stream));
        right += gpu.words[next] == 2;
        MUST(cu.cuCtxSetCurrent(gpu.primary));
        MUST(cu.cuCtxSynchronize());
    }
    fact_answer(claim, !result && right == ROUNDS,
                "Waiting answered %s; the second kernel read the first one's word in %d of %d "
                "rounds.",
                gpu_error(result), right, ROUNDS);
}

static void query_across(const gpu_beside_t *beside) {
    CUstream first = nonblocking();
    CUevent behind = event();
    gpu_launch(gpu.slow, first, gpu_word(0), gpu_word(1));
    MUST(cu.cuEventRecord(behind, first));
    MUST(cu.cuCtxSetCurrent(beside->context));
    CUresult early = cu.cuEventQuery(behind), wait = cu.cuEventSynchronize(behind);
    CUresult late = cu.cuEventQuery(behind);
    MUST(cu.cuCtxSetCurrent(gpu.primary));
    fact_answer(CLAIM_10_query_across_contexts,
                (early == CUDA_ERROR_NOT_READY || !early) && !wait && !late,
                "Query while the kernel ran: %s; synchronise: %s; query: %s.", gpu_error(early),
                gpu_error(wait), gpu_error(late));
}

static void covers_itself_only(void) {
    CUevent covering = event();
    unsigned word = GPU_WORDS_KEPT;
    gpu.words[word] = 0;
    MUST(in_beside(word));
    CUresult result = cu.cuCtxRecordEvent(gpu.primary, covering);
    while (!result && cu.cuEventQuery(covering) == CUDA_ERROR_NOT_READY)
        gpu_pause();
    bool running = gpu.words[word] == 0;
    MUST(cu.cuCtxSetCurrent(gpu_beside()->context));
    MUST(cu.cuCtxSynchronize());
    MUST(cu.cuCtxSetCurrent(gpu.primary));
    if (result)
        fact_skip(CLAIM_10_context_covers_itself_only, "recording answered %s",
                  gpu_error(result));
    else
        fact_answer(CLAIM_10_context_covers_itself_only, running,
                    "The event was over while the other context's kernel was %s.",
                    running ? "running" : "over, too");
}

static void across_devices(void) {
    CUdevice device;
    CUcontext context;
    CUstream stream;
    gpu_kernel_t quick, slow;
    if (!fact_needs(CLAIM_10_wait_across_devices, gpu.devices > 1, "a second device"))
        return;
    MUST(cu.cuDeviceGet(&device, 1));
    MUST(cu.cuDevicePrimaryCtxRetain(&context, device));
    MUST(cu.cuCtxSetCurrent(context));
    MUST(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    gpu_kernels(&quick, &slow);
    MUST(cu.cuCtxSetCurrent(gpu.primary));
    waits_across(CLAIM_10_wait_across_devices, context, stream, quick);
}

void fact_10(void) {
    const gpu_beside_t *beside = gpu_beside();
    if (fact_needs(CLAIM_10_wait_across_contexts, beside, "a second context"))
        waits_across(CLAIM_10_wait_across_contexts, beside->context, beside->stream,
                     beside->quick);
    if (fact_needs(CLAIM_10_query_across_contexts, beside, "a second context"))
        query_across(beside);
    if (fact_needs(CLAIM_10_context_covers_itself_only, beside && GPU_HAS(cuCtxRecordEvent),
                   "a second context and cuCtxRecordEvent"))
        covers_itself_only();
    across_devices();
}

/* ---------------------------------------------------------------- 11 */

/* A slow kernel writes `word`, and the stream's next kernel reads it when it begins.  Returns how
 * often the second kernel began early. */
static int begins_early(bool programmatic, CUresult *result) {
    CUstream stream = nonblocking();
    unsigned word = GPU_WORDS_KEPT, next = word + 1;
    int early = 0;
    *result = CUDA_SUCCESS;
    for (int i = 0; i < ROUNDS && !*result; i++) {
        gpu.words[word] = gpu.words[next] = 0;
        gpu_launch(gpu.slow, stream, gpu_word(0), gpu_word(word));
        if (programmatic)
            *result = gpu_launch_early(gpu.quick, stream, gpu_word(word), gpu_word(next));
        else
            gpu_launch(gpu.quick, stream, gpu_word(word), gpu_word(next));
        MUST(cu.cuStreamSynchronize(stream));
        early += gpu.words[next] == 1;
    }
    MUST(cu.cuStreamDestroy_v2(stream));
    return early;
}

static int plain_behind_programmatic(void) {
    CUstream stream = nonblocking();
    unsigned word = GPU_WORDS_KEPT, third = word + 2;
    int early = 0;
    for (int i = 0; i < ROUNDS; i++) {
        gpu.words[word] = gpu.words[third] = 0;
        gpu_launch(gpu.slow, stream, gpu_word(0), gpu_word(word));
        MUST(gpu_launch_early(gpu.quick, stream, gpu_word(0), gpu_word(word + 1)));
        gpu_launch(gpu.quick, stream, gpu_word(word), gpu_word(third));
        MUST(cu.cuStreamSynchronize(stream));
        early += gpu.words[third] == 1;
    }
    MUST(cu.cuStreamDestroy_v2(stream));
    return early;
}

/* Records an event after a slow kernel and a programmatic launch.  Returns how often the slow
 * kernel was over when the event completed. */
static int event_stands_for_both(void) {
    CUstream stream = nonblocking();
    CUevent behind = event();
    unsigned word = GPU_WORDS_KEPT, next = word + 1;
    int right = 0;
    for (int i = 0; i < ROUNDS; i++) {
        gpu.words[word] = gpu.words[next] = 0;
        gpu_launch(gpu.slow, stream, gpu_word(0), gpu_word(word));
        MUST(gpu_launch_early(gpu.quick, stream, gpu_word(0), gpu_word(next)));
        MUST(cu.cuEventRecord(behind, stream));
        CUresult result;
        while ((result = cu.cuEventQuery(behind)) == CUDA_ERROR_NOT_READY)
            gpu_pause();
        right += gpu.words[word] != 0;
        MUST(result);
        MUST(cu.cuStreamSynchronize(stream));
    }
    MUST(cu.cuStreamDestroy_v2(stream));
    return right;
}

void fact_11(void) {
    CUresult result;
    int early = begins_early(false, &result);
    fact_answer(CLAIM_11_plain_launch_waits, early == 0,
                "The second kernel began before the first one's end in %d of %d rounds.", early,
                ROUNDS);
    bool able = gpu.major >= 9 && GPU_HAS(cuLaunchKernelEx);
    const char *what = "compute capability 9.0 or later";
    if (fact_needs(CLAIM_11_plain_after_programmatic_waits, able, what)) {
        early = plain_behind_programmatic();
        fact_answer(CLAIM_11_plain_after_programmatic_waits, early == 0,
                    "The third kernel began before the first one's end in %d of %d rounds.",
                    early, ROUNDS);
    }
    if (fact_needs(CLAIM_11_event_stands_for_both, able, what)) {
        int right = event_stands_for_both();
        fact_answer(CLAIM_11_event_stands_for_both, right == ROUNDS,
                    "The kernel in front was over with the event in %d of %d rounds.", right,
                    ROUNDS);
    }
    if (!fact_needs(CLAIM_11_begins_early, able, what))
        return;
    early = begins_early(true, &result);
    if (gpu.simulated && !early && !result)
        fact_skip(CLAIM_11_begins_early,
                  "needs a GPU: the simulated device starts no kernel early");
    else
        fact_answer(CLAIM_11_begins_early, early > 0,
                    "It began before the first one's end in %d of %d rounds (launch: %s).", early,
                    ROUNDS, gpu_error(result));
}

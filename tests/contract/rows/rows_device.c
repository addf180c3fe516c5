/* Stand-ins for the bodies of the simulated driver (rows_device.h). The linker puts them in front
 * of the bodies (--wrap). They run with the simulator's lock held, as the bodies do. */
#include "rows_device.h"

#include <string.h>

#include "state.h"

#define EXPORT __attribute__((visibility("default")))

enum { WORKS = 4096 };
static uint64_t duration_ns = (uint64_t)1000 * 1000 * 1000 * 1000;

static sim_work_t *works[WORKS];
static unsigned work_count;
static const char *stood_in;
static CUresult failure;
static unsigned failures_left, asked;

/* Submits one work item. During a capture the item gets no position, so nothing waits for it. */
static CUresult submit(const char *symbol, CUstream handle, bool per_thread) {
    static const sim_work_ops_t ops = {.name = "row", .type = SIM_WORK_OTHER};
    CUstream stream;
    CUresult result = sim_stream_get(handle, per_thread, &stream);
    if (result)
        return result;
    sim_work_t *work = sim_work_new(&ops, stream->ctx, 0);
    if (!work || work_count == WORKS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    work->label = symbol;
    work->duration = duration_ns;
    return sim_enqueue(stream, work, &works[work_count++]);
}

/* Submits the first part of a launch on several devices, which is a launch on each stream. */
static CUresult submit_first(const char *symbol, const void *arguments) {
    if (strcmp(symbol, "cuLaunchCooperativeKernelMultiDevice") != 0)
        return CUDA_SUCCESS;
    const CUDA_LAUNCH_PARAMS *launches = arguments;
    return submit(symbol, launches[0].hStream, false);
}

/* Returns the result that the program gets in place of work. */
static CUresult refused(const char *symbol) {
    if (!stood_in || strcmp(stood_in, symbol) != 0)
        return CUDA_SUCCESS;
    asked++;
    if (!failures_left)
        return CUDA_SUCCESS;
    failures_left--;
    return failure;
}

/* Returns true if the stand-in answers with *result and does nothing. */
static bool stands_in(const char *symbol, CUresult *result) {
    bool mine = stood_in && !strcmp(stood_in, symbol);
    *result = refused(symbol);
    return *result ||
           (mine && strcmp(symbol, "cuEventCreate") != 0); /* it must work, because the library
                                                              needs events */
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define ROW_SUBMIT(symbol, args, stream, per_thread)                                             \
    CUresult result = refused(#symbol);                                                          \
    return result ? result : submit(#symbol, stream, per_thread);
#define ROW_BODY(symbol, args, stream, per_thread)                                               \
    CUresult result = refused(#symbol);                                                          \
    if (!result)                                                                                 \
        result = submit_first(#symbol, a);                                                       \
    return result ? result : submit(#symbol, stream, per_thread);
#define ROW_RETRY(symbol, args, stream, per_thread)                                              \
    CUresult result;                                                                             \
    return stands_in(#symbol, &result) ? result : __real_sim_do_##symbol args;
#define ROW(kind, symbol, params, args, stream, per_thread, addresses, many, holds, call)        \
    CUresult __real_sim_do_##symbol params;                                                      \
    CUresult __wrap_sim_do_##symbol params;                                                      \
    CUresult __wrap_sim_do_##symbol params {                                                     \
        ROW_##kind(symbol, args, stream, per_thread)                                             \
    }
#include "rows.inc"
#pragma GCC diagnostic pop

EXPORT void rows_last(uint64_t ns) {
    duration_ns = ns;
}

EXPORT unsigned rows_works(void) {
    return work_count;
}

EXPORT unsigned rows_pending(unsigned first) {
    unsigned pending = 0;
    sim_lock();
    for (unsigned i = first; i < work_count; i++)
        pending += works[i] && works[i]->state != SIM_DONE;
    sim_unlock();
    return pending;
}

EXPORT int rows_follow(unsigned first, unsigned before) {
    bool follow = true;
    sim_lock();
    sim_wait(works[before]);
    for (unsigned i = first; i < work_count; i++) {
        sim_wait(works[i]);
        follow = follow && works[i]->start >= works[before]->done;
    }
    sim_unlock();
    return follow;
}

EXPORT void rows_stand_in(const char *symbol, CUresult result, unsigned failures) {
    sim_lock();
    stood_in = symbol;
    failure = result;
    failures_left = failures;
    asked = 0;
    sim_unlock();
}

EXPORT unsigned rows_asked(void) {
    return asked;
}

/* Fact 9: calls that are allowed while a stream captures, and calls that break the capture.
 *
 * Each row of captures.def is one capture: the begin in a mode, one kernel, the call, the end.  In
 * the mode EXCHANGED the capture is global, and the thread exchanges its own mode for relaxed
 * around the call.  The library calls the driver in this way. */
#include "facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum { GLOBAL, THREAD_LOCAL, RELAXED, EXCHANGED, MODES } capture_mode_t;
static const char *const mode_names[] = {"GLOBAL", "THREAD_LOCAL", "RELAXED", "EXCHANGED"};

/* Objects for the calls, made before the capture. */
static struct {
    CUstream other;
    CUevent event; /* recorded and completed */
    CUdeviceptr block, range;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop;
    CUmemAccessDesc access;
    size_t page;
    bool pages;
} have;

static CUresult call_alloc(void) {
    CUdeviceptr memory;
    CUresult result = cu.cuMemAlloc_v2(&memory, MIB);
    if (!result) {
        cu.cuMemFree_v2(have.block);
        have.block = memory;
    }
    return result;
}

static CUresult call_free(void) {
    CUresult result = cu.cuMemFree_v2(have.block);
    if (!result && cu.cuMemAlloc_v2(&have.block, MIB))
        have.block = 0;
    return result;
}

static CUresult call_get_info(void) {
    size_t available, total;
    return cu.cuMemGetInfo_v2(&available, &total);
}

static CUresult call_event_create(void) {
    CUevent event;
    CUresult result = cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    return result ? result : cu.cuEventDestroy_v2(event);
}

static CUresult call_event_query(void) {
    return cu.cuEventQuery(have.event);
}

static CUresult call_event_synchronize(void) {
    return cu.cuEventSynchronize(have.event);
}

static CUresult call_record_other(void) {
    return cu.cuEventRecord(have.event, have.other);
}

static CUresult call_record_legacy(void) {
    return cu.cuEventRecord(have.event, CU_STREAM_LEGACY);
}

static CUresult call_record_context(void) {
    return GPU_HAS(cuCtxRecordEvent) ? cu.cuCtxRecordEvent(gpu.primary, have.event)
                                     : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult call_stream_query(void) {
    return cu.cuStreamQuery(have.other);
}

static CUresult call_stream_synchronize(void) {
    return cu.cuStreamSynchronize(have.other);
}

static CUresult call_context_synchronize(void) {
    return cu.cuCtxSynchronize();
}

static CUresult call_copy(void) {
    uint32_t value;
    return cu.cuMemcpyDtoH_v2(&value, have.block, sizeof value);
}

static CUresult call_fill(void) {
    return cu.cuMemsetD8_v2(have.block, 0, 4096);
}

static CUresult call_launch_other(void) {
    CUdeviceptr from = gpu_word(0), to = gpu_word(1);
    void *params[] = {&from, &to, &gpu.quick.clocks};
    return cu.cuLaunchKernel(gpu.quick.function, 1, 1, 1, 1, 1, 1, 0, have.other, params, NULL);
}

static CUresult call_launch_legacy(void) {
    CUdeviceptr from = gpu_word(0), to = gpu_word(1);
    void *params[] = {&from, &to, &gpu.quick.clocks};
    return cu.cuLaunchKernel(gpu.quick.function, 1, 1, 1, 1, 1, 1, 0, CU_STREAM_LEGACY, params,
                             NULL);
}

static CUresult call_host_alloc(void) {
    void *memory;
    CUresult result = cu.cuMemHostAlloc(&memory, 4096, 0);
    if (!result)
        cu.cuMemFreeHost(memory);
    return result;
}

static CUresult call_reserve(void) {
    CUdeviceptr range;
    CUresult result = cu.cuMemAddressReserve(&range, have.page, 0, 0, 0);
    return result ? result : cu.cuMemAddressFree(range, have.page);
}

static CUresult call_create(void) {
    CUmemGenericAllocationHandle handle;
    CUresult result = cu.cuMemCreate(&handle, have.page, &have.prop, 0);
    return result ? result : cu.cuMemRelease(handle);
}

static CUresult call_map(void) {
    CUresult result = cu.cuMemMap(have.range, have.page, 0, have.handle, 0);
    if (result)
        return result;
    result = cu.cuMemSetAccess(have.range, have.page, &have.access, 1);
    CUresult undone = cu.cuMemUnmap(have.range, have.page);
    return result ? result : undone;
}

/* A call to try.  ours: the library makes it during captures.  blocking: the capturing stream is a
 * blocking stream, so the legacy stream waits for it.  pages: needs virtual memory management. */
typedef struct {
    const char *name;
    CUresult (*call)(void);
    bool ours, blocking, pages;
} call_t;

static const call_t calls[] = {
    {"cuMemAlloc", call_alloc, true, false, false},
    {"cuMemFree", call_free, true, false, false},
    {"cuMemGetInfo", call_get_info, true, false, false},
    {"cuEventCreate and cuEventDestroy", call_event_create, true, false, false},
    {"cuMemAddressReserve and cuMemAddressFree", call_reserve, true, false, true},
    {"cuMemCreate and cuMemRelease", call_create, true, false, true},
    {"cuMemMap, cuMemSetAccess and cuMemUnmap", call_map, true, false, true},
    {"cuMemHostAlloc", call_host_alloc, false, false, false},
    {"cuEventQuery", call_event_query, false, false, false},
    {"cuEventSynchronize", call_event_synchronize, false, false, false},
    {"cuEventRecord, another stream", call_record_other, false, false, false},
    {"cuEventRecord, legacy stream", call_record_legacy, false, false, false},
    {"cuEventRecord, legacy stream, blocking capture", call_record_legacy, false, true, false},
    {"cuCtxRecordEvent", call_record_context, false, false, false},
    {"cuStreamQuery, another stream", call_stream_query, false, false, false},
    {"cuStreamSynchronize, another stream", call_stream_synchronize, false, false, false},
    {"cuCtxSynchronize", call_context_synchronize, false, false, false},
    {"cuMemcpyDtoH", call_copy, false, false, false},
    {"cuMemsetD8", call_fill, false, false, false},
    {"cuLaunchKernel, another stream", call_launch_other, false, false, false},
    {"cuLaunchKernel, legacy stream", call_launch_legacy, false, false, false},
    {"cuLaunchKernel, legacy stream, blocking capture", call_launch_legacy, false, true, false},
};
enum { CALLS = sizeof calls / sizeof *calls, TEXT = 1000 };

/* The assumed answers: CAPTURE("call", mode, answer, end of the capture). */
static const struct {
    const char *name;
    capture_mode_t mode;
    const char *answer, *end;
} assumed[] = {
#define CAPTURE(call, mode, answer, end) {call, mode, #answer, #end},
#include "captures.def"
#undef CAPTURE
};
enum { ASSUMED = sizeof assumed / sizeof *assumed };

static void prepare(void) {
    int supported = 0;
    MUST(cu.cuStreamCreate(&have.other, CU_STREAM_NON_BLOCKING));
    MUST(cu.cuEventCreate(&have.event, CU_EVENT_DISABLE_TIMING));
    MUST(cu.cuEventRecord(have.event, have.other));
    MUST(cu.cuMemAlloc_v2(&have.block, MIB));
    cu.cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                            gpu.device);
    have.pages = supported && GPU_HAS(cuMemCreate);
    if (have.pages) {
        have.prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        have.prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        have.prop.location.id = gpu.device;
        have.access.location = have.prop.location;
        have.access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        MUST(cu.cuMemGetAllocationGranularity(&have.page, &have.prop,
                                              CU_MEM_ALLOC_GRANULARITY_MINIMUM));
        MUST(cu.cuMemAddressReserve(&have.range, have.page, 0, 0, 0));
        MUST(cu.cuMemCreate(&have.handle, have.page, &have.prop, 0));
    }
    MUST(cu.cuCtxSynchronize());
}

/* Makes the call in one capture.  Waits for all work before it returns. */
static void one(const call_t *call, capture_mode_t mode, CUresult *answer, CUresult *end) {
    static const CUstreamCaptureMode modes[] = {
        CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_GLOBAL};
    CUstream stream;
    CUgraph graph = NULL;
    CUstreamCaptureMode own = CU_STREAM_CAPTURE_MODE_RELAXED;
    MUST(cu.cuStreamCreate(&stream, call->blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    MUST(cu.cuStreamBeginCapture_v2(stream, modes[mode]));
    gpu_launch(gpu.quick, stream, gpu_word(0), gpu_word(1));
    if (mode == EXCHANGED)
        MUST(cu.cuThreadExchangeStreamCaptureMode(&own));
    *answer = call->call();
    if (mode == EXCHANGED)
        MUST(cu.cuThreadExchangeStreamCaptureMode(&own));
    *end = cu.cuStreamEndCapture(stream, &graph);
    if (graph)
        cu.cuGraphDestroy(graph);
    MUST(cu.cuStreamDestroy_v2(stream));
    MUST(cu.cuEventRecord(have.event, have.other)); /* the call may have captured it */
    MUST(cu.cuCtxSynchronize());
}

static int row_of(const char *name, capture_mode_t mode) {
    for (int i = 0; i < ASSUMED; i++)
        if (!strcmp(assumed[i].name, name) && assumed[i].mode == mode)
            return i;
    return -1;
}

/* Counts and descriptions of the differing answers. */
typedef struct {
    int asked, wrong;
    char text[TEXT];
} found_t;

REPORT_PRINTF(2)
static void note(found_t *found, const char *format, ...) {
    size_t used = strlen(found->text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(found->text + used, sizeof found->text - used, format, arguments);
    va_end(arguments);
}

static void look(found_t *through, found_t *others, bool *breaks, FILE *rows) {
    for (int i = 0; i < CALLS; i++)
        for (capture_mode_t mode = 0; mode < MODES; mode++) {
            CUresult answer, end;
            char said[40], ended[40];
            if (calls[i].pages && !have.pages)
                continue;
            one(&calls[i], mode, &answer, &end);
            snprintf(said, sizeof said, "%s", gpu_error(answer));
            snprintf(ended, sizeof ended, "%s", gpu_error(end));
            fprintf(rows, "CAPTURE(\"%s\", %s, %s, %s)\n", calls[i].name, mode_names[mode], said,
                    ended);
            if (calls[i].call == call_record_context && mode == GLOBAL)
                *breaks = end != CUDA_SUCCESS;
            if (calls[i].ours && mode == EXCHANGED) {
                through->asked++;
                through->wrong += answer || end;
                if (answer || end)
                    note(through, " %s: %s, end of the capture %s;", calls[i].name, said, ended);
                continue;
            }
            int row = row_of(calls[i].name, mode);
            bool same = row >= 0 && !strcmp(said, assumed[row].answer) &&
                        !strcmp(ended, assumed[row].end);
            others->asked++;
            others->wrong += !same;
            if (!same)
                note(others, " %s, %s: %s, end %s, not %s, %s;", calls[i].name, mode_names[mode],
                     said, ended, row < 0 ? "?" : assumed[row].answer,
                     row < 0 ? "?" : assumed[row].end);
        }
}

/* Opens captures.def in QUALIFY_OUT for this driver's rows, or /dev/null without this variable. */
static FILE *rows_open(void) {
    const char *folder = getenv("QUALIFY_OUT");
    char path[1024] = "/dev/null";
    if (folder)
        snprintf(path, sizeof path, "%s/captures.def", folder);
    FILE *rows = fopen(path, "w");
    return rows ? rows : fopen("/dev/null", "w");
}

void fact_9(void) {
    found_t through = {0}, others = {0};
    bool breaks = false;
    if (!GPU_HAS(cuStreamBeginCapture_v2) || !GPU_HAS(cuThreadExchangeStreamCaptureMode)) {
        for (claim_t claim = CLAIM_9_relaxed_lets_through; claim <= CLAIM_9_context_record_breaks;
             claim++)
            fact_needs(claim, false, "stream capture");
        return;
    }
    prepare();
    FILE *rows = rows_open();
    look(&through, &others, &breaks, rows);
    fclose(rows);
    fact_answer(CLAIM_9_relaxed_lets_through, through.asked && !through.wrong,
                "%d of %d calls failed or broke the capture.%s", through.wrong, through.asked,
                through.text);
    fact_answer(
        CLAIM_9_refused_as_simulated, others.asked && !others.wrong,
        "%d of %d answers differ from captures.def (all of them: captures.def in the results).%s",
        others.wrong, others.asked, others.text);
    if (fact_needs(CLAIM_9_context_record_breaks, GPU_HAS(cuCtxRecordEvent), "cuCtxRecordEvent"))
        fact_answer(CLAIM_9_context_record_breaks, breaks, "The capture ended %s.",
                    breaks ? "with an error" : "well");
}

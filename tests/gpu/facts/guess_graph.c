/* Probes of captures, graphs with memory and virtual memory management. */
#include "guesses.h"

#include <pthread.h>
#include <string.h>

/* ---------------------------------------------------------------- captures */

static CUstream capturing(CUstreamCaptureMode mode) {
    CUstream stream = a_stream(CU_STREAM_NON_BLOCKING);
    MUST(cu.cuStreamBeginCapture_v2(stream, mode));
    gpu_launch(gpu.quick, stream, gpu_word(0), gpu_word(1));
    return stream;
}

static CUresult end(CUstream stream) {
    CUgraph graph = NULL;
    CUresult result = cu.cuStreamEndCapture(stream, &graph);
    if (graph)
        cu.cuGraphDestroy(graph);
    return result;
}

static void say_ended(CUresult result, CUstream stream) {
    say("%s, ", gpu_error(result));
    say("end of the capture %s", gpu_error(end(stream)));
}

void guess_capture_legacy(void) {
    CUresult result =
        cu.cuStreamBeginCapture_v2(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_RELAXED);
    say("%s", gpu_error(result));
    if (!result)
        end(CU_STREAM_LEGACY);
}

void guess_capture_twice(void) {
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    CUresult again = cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    say_ended(again, stream);
}

void guess_capture_none(void) {
    say("%s", gpu_error(end(a_stream(CU_STREAM_NON_BLOCKING))));
}

void guess_capture_no_graph(void) {
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    say("%s, then ", gpu_error(cu.cuStreamEndCapture(stream, NULL)));
    say("%s", gpu_error(end(stream)));
}

void guess_capture_old_event(void) {
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_RELAXED), other = a_stream(0);
    CUevent event = an_event();
    MUST(cu.cuEventRecord(event, stream));
    MUST(end(stream));
    say("%s", gpu_error(cu.cuStreamWaitEvent(other, event, 0)));
}

void guess_capture_unrecorded_event(void) {
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    say_ended(cu.cuStreamWaitEvent(stream, an_event(), 0), stream);
}

void guess_capture_legacy_waits(void) {
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    CUevent event = an_event();
    MUST(cu.cuEventRecord(event, stream));
    say_ended(cu.cuStreamWaitEvent(CU_STREAM_LEGACY, event, 0), stream);
}

/* May crash, so it runs in a process of its own. */
void guess_capture_destroyed_stream(void) {
    say("%s", gpu_error(cu.cuStreamDestroy_v2(capturing(CU_STREAM_CAPTURE_MODE_RELAXED))));
}

static bool has_ordered_memory(void) {
    int pools = 0;
    cu.cuDeviceGetAttribute(&pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, gpu.device);
    if (!pools || !GPU_HAS(cuMemAllocAsync))
        say("not here");
    return pools && GPU_HAS(cuMemAllocAsync);
}

void guess_capture_frees_others(void) {
    CUdeviceptr memory;
    if (!has_ordered_memory())
        return;
    MUST(cu.cuMemAllocAsync(&memory, KIB, NULL));
    MUST(cu.cuCtxSynchronize());
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    say_ended(cu.cuMemFreeAsync(memory, stream), stream);
}

/* Frees memory in relaxed mode, in a second thread during a capture.  Returns the result. */
static void *free_relaxed(void *memory) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    MUST(cu.cuCtxSetCurrent(gpu.primary));
    MUST(cu.cuThreadExchangeStreamCaptureMode(&mode));
    return (void *)(uintptr_t)cu.cuMemFree_v2(*(CUdeviceptr *)memory);
}

static void free_beside(CUstreamCaptureMode mode) {
    CUdeviceptr memory;
    pthread_t thread;
    void *result = NULL;
    MUST(cu.cuMemAlloc_v2(&memory, MIB));
    gpu_launch(gpu.slow, a_stream(CU_STREAM_NON_BLOCKING), gpu_word(0), gpu_word(1));
    CUstream stream = capturing(mode);
    if (!pthread_create(&thread, NULL, free_relaxed, &memory))
        pthread_join(thread, &result);
    say_ended((CUresult)(uintptr_t)result, stream);
}

void guess_capture_free_beside(void) {
    say("thread-local ");
    free_beside(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    say("; global ");
    free_beside(CU_STREAM_CAPTURE_MODE_GLOBAL);
}

void guess_record_external(void) {
    CUstream stream = a_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = an_event();
    say("record %s, ", gpu_error(cu.cuEventRecordWithFlags(event, stream, 1)));
    say("wait %s", gpu_error(cu.cuStreamWaitEvent(stream, event, 1)));
}

/* ---------------------------------------------------------------- graphs with memory */

/* Returns a graph that allocates memory, fills it and, if `frees`, frees it.  *filled is the fill's
 * result. */
static CUgraph with_memory(CUdeviceptr *memory, bool frees, CUresult *filled) {
    CUstream stream = a_stream(CU_STREAM_NON_BLOCKING);
    CUgraph graph = NULL;
    MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cu.cuMemAllocAsync(memory, MIB, stream));
    *filled = cu.cuMemsetD8Async(*memory, 1, MIB, stream);
    if (frees)
        MUST(cu.cuMemFreeAsync(*memory, stream));
    MUST(cu.cuStreamEndCapture(stream, &graph));
    return graph;
}

void guess_graph_fills_own(void) {
    CUdeviceptr memory;
    CUresult filled;
    if (!has_ordered_memory())
        return;
    MUST(cu.cuGraphDestroy(with_memory(&memory, true, &filled)));
    say("%s", gpu_error(filled));
}

/* May make the context unusable, so it runs in a process of its own. */
void guess_graph_memory_early(void) {
    CUdeviceptr memory;
    CUresult filled;
    if (!has_ordered_memory())
        return;
    with_memory(&memory, true, &filled);
    CUresult result = cu.cuMemsetD8Async(memory, 1, MIB, NULL);
    say("%s, then ", gpu_error(result));
    say("%s", gpu_error(cu.cuCtxSynchronize()));
}

void guess_graph_memory_cloned(void) {
    CUdeviceptr memory;
    CUresult filled;
    CUgraph clone = NULL;
    if (!has_ordered_memory())
        return;
    say("%s", gpu_error(cu.cuGraphClone(&clone, with_memory(&memory, true, &filled))));
}

void guess_graph_memory_twice(void) {
    CUdeviceptr memory;
    CUresult filled;
    CUgraphExec first = NULL, second = NULL;
    if (!has_ordered_memory())
        return;
    CUgraph graph = with_memory(&memory, true, &filled);
    MUST(cu.cuGraphInstantiateWithFlags(&first, graph, 0));
    say("%s", gpu_error(cu.cuGraphInstantiateWithFlags(&second, graph, 0)));
}

void guess_graph_memory_captured(void) {
    CUdeviceptr memory;
    CUresult filled;
    CUgraphExec exec = NULL;
    if (!has_ordered_memory())
        return;
    MUST(cu.cuGraphInstantiateWithFlags(&exec, with_memory(&memory, true, &filled), 0));
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    say_ended(cu.cuGraphLaunch(exec, stream), stream);
}

void guess_graph_memory_launched_again(void) {
    CUdeviceptr memory;
    CUresult filled;
    CUgraphExec exec = NULL;
    if (!has_ordered_memory())
        return;
    MUST(cu.cuGraphInstantiateWithFlags(&exec, with_memory(&memory, false, &filled), 0));
    MUST(cu.cuGraphLaunch(exec, NULL));
    say("%s, ", gpu_error(cu.cuGraphLaunch(exec, NULL)));
    MUST(cu.cuMemFreeAsync(memory, NULL));
    say("after a free %s", gpu_error(cu.cuGraphLaunch(exec, NULL)));
    MUST(cu.cuCtxSynchronize());
}

/* ---------------------------------------------------------------- virtual memory management */

static struct {
    CUmemAllocationProp prop;
    CUmemAccessDesc access;
    size_t page;
} vmm;

static bool has_pages(void) {
    int supported = 0;
    cu.cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                            gpu.device);
    memset(&vmm, 0, sizeof vmm);
    vmm.prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    vmm.prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    vmm.prop.location.id = gpu.device;
    vmm.access.location = vmm.prop.location;
    vmm.access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (!supported || !GPU_HAS(cuMemCreate) ||
        cu.cuMemGetAllocationGranularity(&vmm.page, &vmm.prop,
                                         CU_MEM_ALLOC_GRANULARITY_MINIMUM)) {
        say("not here");
        return false;
    }
    return true;
}

static CUmemGenericAllocationHandle pages(size_t count) {
    CUmemGenericAllocationHandle handle;
    MUST(cu.cuMemCreate(&handle, count * vmm.page, &vmm.prop, 0));
    return handle;
}

static CUdeviceptr reserved(size_t count) {
    CUdeviceptr range;
    MUST(cu.cuMemAddressReserve(&range, count * vmm.page, 0, 0, 0));
    return range;
}

void guess_map_over(void) {
    if (!has_pages())
        return;
    CUdeviceptr range = reserved(2);
    MUST(cu.cuMemMap(range, vmm.page, 0, pages(1), 0));
    say("%s", gpu_error(cu.cuMemMap(range, vmm.page, 0, pages(1), 0)));
}

void guess_map_offset(void) {
    if (!has_pages())
        return;
    say("%s", gpu_error(cu.cuMemMap(reserved(2), vmm.page, vmm.page, pages(2), 0)));
}

void guess_map_beyond(void) {
    if (!has_pages())
        return;
    CUdeviceptr range = reserved(2);
    say("%s", gpu_error(cu.cuMemMap(range + vmm.page, 2 * vmm.page, 0, pages(2), 0)));
}

void guess_unmap_part(void) {
    if (!has_pages())
        return;
    CUdeviceptr range = reserved(2);
    MUST(cu.cuMemMap(range, 2 * vmm.page, 0, pages(2), 0));
    say("of one handle %s, ", gpu_error(cu.cuMemUnmap(range, vmm.page)));
    range = reserved(2);
    MUST(cu.cuMemMap(range, vmm.page, 0, pages(1), 0));
    say("more than is mapped %s", gpu_error(cu.cuMemUnmap(range, 2 * vmm.page)));
}

void guess_reservation_in_use(void) {
    if (!has_pages())
        return;
    CUdeviceptr range = reserved(2);
    MUST(cu.cuMemMap(range, vmm.page, 0, pages(1), 0));
    say("%s", gpu_error(cu.cuMemAddressFree(range, 2 * vmm.page)));
}

void guess_access_unmapped(void) {
    unsigned long long flags = 0;
    if (!has_pages())
        return;
    CUdeviceptr range = reserved(2);
    say("set %s, ", gpu_error(cu.cuMemSetAccess(range, vmm.page, &vmm.access, 1)));
    say("get %s", gpu_error(cu.cuMemGetAccess(&flags, &vmm.access.location, range)));
}

void guess_access_plain(void) {
    unsigned long long flags = 0;
    CUmemGenericAllocationHandle handle;
    if (!has_pages())
        return;
    CUdeviceptr memory = some_memory(vmm.page);
    MUST(cu.cuMemCreate(&handle, vmm.page, &vmm.prop, 0));
    say("set %s, ", gpu_error(cu.cuMemSetAccess(memory, vmm.page, &vmm.access, 1)));
    say("get %s, ", gpu_error(cu.cuMemGetAccess(&flags, &vmm.access.location, memory)));
    say("map %s, ", gpu_error(cu.cuMemMap(memory, vmm.page, 0, handle, 0)));
    say("unmap %s, ", gpu_error(cu.cuMemUnmap(memory, vmm.page)));
    say("free %s", gpu_error(cu.cuMemAddressFree(memory, vmm.page)));
}

void guess_create_odd(void) {
    CUmemGenericAllocationHandle handle;
    if (has_pages())
        say("%s", gpu_error(cu.cuMemCreate(&handle, vmm.page + 4096, &vmm.prop, 0)));
}

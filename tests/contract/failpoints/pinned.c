/* Faults in keeping pinned memory. */
#include "failpoints.h"

#include <dlfcn.h>

enum { BYTES = 1 << 20 };

static CUdeviceptr take(unsigned flags) {
    void *memory;
    MUST(cuMemHostAlloc(&memory, BYTES, flags));
    return (CUdeviceptr)(uintptr_t)memory;
}

static void give(CUdeviceptr memory) {
    MUST(cuMemFreeHost((void *)(uintptr_t)memory));
}

/* As failpoint_seek. */
static void seek(failpoint_run_t *t) {
    CUdeviceptr before = t->memory, kept[FAILPOINT_SOME];
    int count = 0;
    do
        kept[count++] = take(CU_MEMHOSTALLOC_PORTABLE);
    while (count < FAILPOINT_SOME && kept[count - 1] != before);
    t->memory = kept[--count];
    while (count)
        give(kept[--count]);
}

void failpoint_pinned_reused_early(failpoint_run_t *t) {
    t->memory = take(CU_MEMHOSTALLOC_PORTABLE);
    failpoint_old(t, t->stream[0]);
    give(t->memory);
    seek(t);
    failpoint_new(t, t->stream[1]);
}

void failpoint_pinned_flags_forgotten(failpoint_run_t *t) {
    unsigned flags = 0;
    give(take(CU_MEMHOSTALLOC_WRITECOMBINED));
    t->memory = take(CU_MEMHOSTALLOC_PORTABLE);
    MUST(cuMemHostGetFlags(&flags, (void *)(uintptr_t)t->memory));
    if (flags & CU_MEMHOSTALLOC_WRITECOMBINED)
        test_stop(TEST_WRONG, "memory with other flags");
    failpoint_new(t, t->stream[0]);
}

void failpoint_pinned_owner_forgotten(failpoint_run_t *t) {
    int device = 0;
    give(take(CU_MEMHOSTALLOC_PORTABLE));
    failpoint_second_device(t);
    t->memory = take(CU_MEMHOSTALLOC_PORTABLE);
    MUST(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, t->memory));
    if (device != 1)
        test_stop(TEST_WRONG, "memory of another context than the current one");
    failpoint_new(t, t->stream[1]);
}

void failpoint_pinned_handout_awaited(failpoint_run_t *t) {
    t->memory = take(CU_MEMHOSTALLOC_PORTABLE);
    MUST(cuMemsetD8Async(t->memory, 0, BYTES, t->stream[0]));
    MUST(cuCtxSynchronize()); /* all earlier work is known to be over */
    failpoint_old(t, t->stream[0]);
    give(t->memory);
    seek(t);
    failpoint_new(t, t->stream[1]);
}

/* Uses the runtime's functions. The library serves them to this thread without the
 * runtime. */
void failpoint_pinned_path_kept(failpoint_run_t *t) {
    int (*host_alloc)(void **, size_t, unsigned), (*free_host)(void *), device = 0;
    CUcontext first, second;
    void *runtime = dlopen("libcudart.so", RTLD_NOW | RTLD_GLOBAL), *memory;
    NEED(runtime);
    *(void **)&host_alloc = dlsym(RTLD_DEFAULT, "cudaHostAlloc");
    *(void **)&free_host = dlsym(RTLD_DEFAULT, "cudaFreeHost");
    NEED(host_alloc && free_host);
    MUST(cuCtxGetCurrent(&first));
    failpoint_second_device(t);
    MUST(cuCtxGetCurrent(&second));
    MUST(cuCtxSetCurrent(first));
    for (int i = 0; i < 2; i++) {
        NEED(host_alloc(&memory, BYTES, CU_MEMHOSTALLOC_PORTABLE) == 0);
        NEED(free_host(memory) == 0);
    }
    MUST(cuCtxSetCurrent(second));
    NEED(host_alloc(&memory, BYTES, CU_MEMHOSTALLOC_PORTABLE) == 0);
    t->memory = (CUdeviceptr)(uintptr_t)memory;
    MUST(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, t->memory));
    if (device != 1)
        test_stop(TEST_WRONG, "memory of another context than the current one");
    failpoint_new(t, t->stream[1]);
}

void failpoint_pinned_capture_forgotten(failpoint_run_t *t) {
    CUgraph graph;
    CUgraphExec exec;
    t->memory = take(CU_MEMHOSTALLOC_PORTABLE);
    MUST(cuStreamBeginCapture_v2(t->stream[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    failpoint_old(t, t->stream[0]);
    give(t->memory);
    MUST(cuStreamEndCapture(t->stream[0], &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    seek(t);
    failpoint_new(t, t->stream[1]);
    MUST(cuGraphLaunch(exec, t->stream[0]));
    MUST(cuCtxSynchronize());
    MUST(cuGraphExecDestroy(exec));
}

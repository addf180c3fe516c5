/* Probes of contexts, streams, events and processes. */
#include "guesses.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static CUresult synchronize_legacy(void *arg) {
    (void)arg;
    return cu.cuStreamSynchronize(CU_STREAM_LEGACY);
}

void guess_synchronize_legacy(void) {
    CUstream blocking = a_stream(CU_STREAM_DEFAULT);
    say("a blocking stream: %s, ", say_waits(blocking, gpu.slow, NULL, synchronize_legacy, NULL));
    gpu_launch(gpu.slow, blocking, gpu_word(0), gpu_word(1));
    say("cuStreamQuery %s", gpu_error(cu.cuStreamQuery(CU_STREAM_LEGACY)));
    MUST(cu.cuCtxSynchronize());
}

/* May crash, so it runs in a process of its own. */
void guess_destroyed_stream(void) {
    CUstream stream = a_stream(CU_STREAM_NON_BLOCKING);
    MUST(cu.cuStreamDestroy_v2(stream));
    say("%s", gpu_error(cu.cuStreamQuery(stream)));
}

void guess_stream_handles(void) {
    CUstream first = a_stream(0), second = a_stream(0);
    MUST(cu.cuStreamDestroy_v2(first));
    MUST(cu.cuStreamDestroy_v2(second));
    CUstream third = a_stream(0);
    say("%s", third == second  ? "the newest dead one's value comes back first"
              : third == first ? "the oldest dead one's value comes back first"
                               : "a new value");
}

void guess_elapsed_of_two(void) {
    CUevent events[2];
    float ms;
    if (!gpu_beside()) {
        say("not here");
        return;
    }
    for (int i = 0; i < 2; i++) {
        if (i)
            MUST(cu.cuCtxSetCurrent(gpu_beside()->context));
        MUST(cu.cuEventCreate(&events[i], 0));
        MUST(cu.cuEventRecord(events[i], NULL));
        MUST(cu.cuEventSynchronize(events[i]));
    }
    CUresult result = GPU_HAS(cuEventElapsedTime_v2)
                          ? cu.cuEventElapsedTime_v2(&ms, events[0], events[1])
                          : cu.cuEventElapsedTime(&ms, events[0], events[1]);
    MUST(cu.cuCtxSetCurrent(gpu.primary));
    say("%s", gpu_error(result));
}

static void *destroy_beside(void *arg) {
    MUST(cu.cuCtxDestroy_v2(gpu_beside()->context));
    return arg;
}

/* May crash, so it runs in a process of its own. */
void guess_destroyed_context(void) {
    CUdeviceptr memory;
    CUcontext top = NULL;
    pthread_t thread;
    if (!gpu_beside()) {
        say("not here");
        return;
    }
    MUST(cu.cuCtxSetCurrent(gpu_beside()->context));
    if (!pthread_create(&thread, NULL, destroy_beside, NULL))
        pthread_join(thread, NULL);
    CUresult result = cu.cuCtxGetCurrent(&top);
    say("%s; ", result                         ? gpu_error(result)
                : top == gpu_beside()->context ? "its handle"
                : top                          ? "another handle"
                                               : "NULL");
    say("cuMemAlloc %s", gpu_error(cu.cuMemAlloc_v2(&memory, KIB)));
}

void guess_push_nothing(void) {
    say("%s", gpu_error(cu.cuCtxPushCurrent_v2(NULL)));
}

void guess_destroy_primary(void) {
    say("%s", gpu_error(cu.cuCtxDestroy_v2(gpu.primary)));
}

/* The context's end destroys events, so the kernel's word shows whether the kernel was over. */
void guess_destroy_pending(void) {
    if (!gpu_beside()) {
        say("not here");
        return;
    }
    MUST(cu.cuCtxSetCurrent(gpu_beside()->context));
    gpu.words[20] = 0;
    gpu_launch(gpu_beside()->slow, gpu_beside()->stream, gpu_word(0), gpu_word(20));
    CUresult result = cu.cuCtxDestroy_v2(gpu_beside()->context);
    bool over = gpu.words[20] != 0;
    say("%s, the work %s", gpu_error(result), over ? "was waited for" : "was not waited for");
}

void guess_reset_counts(void) {
    CUcontext again = NULL;
    CUdeviceptr memory;
    unsigned flags;
    int active = -1;
    MUST(cu.cuDevicePrimaryCtxReset_v2(gpu.device));
    MUST(cu.cuDevicePrimaryCtxGetState(gpu.device, &flags, &active));
    say("active %d, memory %s; ", active, gpu_error(cu.cuMemAlloc_v2(&memory, KIB)));
    MUST(cu.cuDevicePrimaryCtxRetain(&again, gpu.device));
    MUST(cu.cuCtxSetCurrent(again));
    say("retained %s; ", gpu_error(cu.cuMemAlloc_v2(&memory, KIB)));
    CUresult first = cu.cuDevicePrimaryCtxRelease_v2(gpu.device);
    CUresult second = cu.cuDevicePrimaryCtxRelease_v2(gpu.device);
    say("releases %s, ", gpu_error(first));
    say("%s", gpu_error(second));
}

/* Runs in a process that has not opened a device. */
void guess_release_unretained(void) {
    CUdevice device;
    MUST(cu.cuInit(0));
    MUST(cu.cuDeviceGet(&device, 0));
    say("%s", gpu_error(cu.cuDevicePrimaryCtxRelease_v2(device)));
}

void guess_context_memory(void) {
    size_t before, after, total;
    MUST(cu.cuMemGetInfo_v2(&before, &total));
    if (!gpu_beside()) {
        say("not here");
        return;
    }
    MUST(cu.cuMemGetInfo_v2(&after, &total));
    say("%zu MiB", before > after ? (before - after) >> 20 : 0);
}

static CUresult synchronize(void *arg) {
    (void)arg;
    return cu.cuCtxSynchronize();
}

/* Returns true if an event that cuCtxRecordEvent records for `context` covers work of `stream`. */
static bool records(CUcontext context, CUstream stream) {
    CUevent event = an_event();
    bool covered = true;
    gpu.words[21] = 0;
    gpu_launch(gpu.slow, stream, gpu_word(0), gpu_word(21));
    MUST(cu.cuCtxRecordEvent(context, event));
    while (cu.cuEventQuery(event) == CUDA_ERROR_NOT_READY)
        gpu_pause();
    covered = gpu.words[21] != 0;
    MUST(cu.cuCtxSynchronize());
    return covered;
}

void guess_green_synchronize(void) {
    const gpu_green_t *green = a_green_context();
    if (!green)
        return;
    CUstream streams[] = {green->stream, CU_STREAM_LEGACY, a_stream(CU_STREAM_NON_BLOCKING)};
    static const char *const names[] = {"its streams", "default streams",
                                        "the primary one's streams"};
    say("waits for");
    for (int i = 0; i < 3; i++)
        if (*say_waits(streams[i], gpu.slow, green->view, synchronize, NULL) == 'w')
            say("%s %s", i ? "," : "", names[i]);
    say("; recording covers");
    for (int i = 0; i < 3; i++)
        if (records(green->view, streams[i]))
            say("%s %s", i ? "," : "", names[i]);
}

void guess_green_stream_context(void) {
    const gpu_green_t *green = a_green_context();
    CUcontext of = NULL;
    if (!green)
        return;
    CUresult result = cu.cuStreamGetCtx(green->stream, &of);
    say("%s", result              ? gpu_error(result)
              : of == gpu.primary ? "the primary one"
              : of == green->view ? "its own"
                                  : "another one");
}

void guess_green_wait(void) {
    const gpu_green_t *green = a_green_context();
    CUevent event = an_event();
    CUstream busy = a_stream(CU_STREAM_NON_BLOCKING);
    if (!green)
        return;
    CUstream streams[] = {green->stream, CU_STREAM_LEGACY};
    for (int i = 0; i < 2; i++) {
        gpu.words[22] = 0;
        gpu_launch(gpu.slow, busy, gpu_word(0), gpu_word(22));
        MUST(cu.cuEventRecord(event, busy));
        MUST(cu.cuGreenCtxWaitEvent(green->green, event));
        gpu_launch(gpu.quick, streams[i], gpu_word(22), gpu_word(23));
        MUST(cu.cuStreamSynchronize(streams[i]));
        say("%s %s", i ? ", default streams" : "its streams",
            gpu.words[23] == 2 ? "are held up" : "are not held up");
        MUST(cu.cuCtxSynchronize());
    }
}

/* Forks after cuInit, so it runs in a process of its own. */
void guess_fork(void) {
    CUdeviceptr memory;
    int pipes[2];
    char text[200];
    if (pipe(pipes))
        return;
    pid_t child = fork();
    if (child == 0) {
        int count;
        char *end = text;
        end += snprintf(end, 60, "cuInit %s, ", gpu_error(cu.cuInit(0)));
        end += snprintf(end, 60, "cuDeviceGetCount %s, ", gpu_error(cu.cuDeviceGetCount(&count)));
        end += snprintf(end, 60, "cuMemAlloc %s", gpu_error(cu.cuMemAlloc_v2(&memory, KIB)));
        _exit(write(pipes[1], text, (size_t)(end - text)) < 0);
    }
    close(pipes[1]);
    ssize_t length = read(pipes[0], text, sizeof text - 1);
    close(pipes[0]);
    if (child > 0)
        waitpid(child, NULL, 0);
    say("%.*s", length > 0 ? (int)length : 0, text);
}

/* Called by guesses.c after the driver's destructors have run. */
void guess_late_calls(void) {
    int count;
    say("cuDeviceGetCount %s", gpu_error(cu.cuDeviceGetCount(&count)));
}

void guess_lookup_unknown(void) {
    void *found = &found;
    CUdriverProcAddressQueryResult status = 0;
    CUresult result = cu.cuGetProcAddress_v2("cuNoSuchFunction", &found, 12000, 0, &status);
    say("unknown %s, %s; ", gpu_error(result), found ? "pointer kept" : "NULL");
    found = &found;
    result = cu.cuGetProcAddress_v2("cuMemAllocAsync", &found, 11010, 0, &status);
    say("too low %s, %s", gpu_error(result), found ? "pointer kept" : "NULL");
}

void guess_lookup_newer(void) {
    void *now = NULL, *found = NULL;
    CUresult result = cu.cuGetProcAddress_v2("cuMemAlloc", &found, 99000, 0, NULL);
    MUST(cu.cuGetProcAddress_v2("cuMemAlloc", &now, gpu.version, 0, NULL));
    say("%s", result         ? gpu_error(result)
              : found == now ? "answered as for the driver's own"
                             : "another function");
}

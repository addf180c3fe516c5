// Tests that the runtime's allocations and submissions reach the library.  The program runs with
// the library preloaded and reads its counters before and after each call.
//
// It prints "allocations yes|no ..." and "submissions yes|no ...".  Exit status 77: no device.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

#include <cuda_runtime.h>

__device__ int symbol[4];

extern "C" __global__ void gpu_quick(unsigned long long from, unsigned long long to,
                                     unsigned long long clocks) {
    (void)clocks;
    *reinterpret_cast<volatile unsigned *>(to) =
        *reinterpret_cast<volatile unsigned *>(from) + 1;
}

static int (*stats_json)(char **);
static int (*record_stream)(void *, void *);

// Returns a counter of the library's statistics; -1 if there is none of this name.
static long long counter(const char *name) {
    char *text = nullptr, quoted[64];
    if (stats_json(&text) != 0 || !text) {
        return -1;
    }
    snprintf(quoted, sizeof quoted, "\"%s\":", name);
    const char *at = strstr(text, quoted);
    const long long value = at ? atoll(at + strlen(quoted)) : -1;
    free(text);
    return value;
}

static char missing[600];
static int steps, unseen;

#define STEP(call)                                                                            \
    do {                                                                                      \
        const long long before = counter("submissions");                                      \
        const cudaError_t error = (call);                                                     \
        const long long after = counter("submissions");                                       \
        steps++;                                                                              \
        if (error != cudaSuccess || before < 0 || after <= before) {                          \
            unseen++;                                                                         \
            snprintf(missing + strlen(missing), sizeof missing - strlen(missing),             \
                     " %.60s (%s, %lld);", #call, cudaGetErrorName(error), after - before);   \
        }                                                                                     \
    } while (0)

#define MUST(call)                                                                            \
    do {                                                                                      \
        const cudaError_t error = (call);                                                     \
        if (error != cudaSuccess) {                                                           \
            printf("allocations no %s: %s\nsubmissions no\n", #call, cudaGetErrorName(error)); \
            return 1;                                                                         \
        }                                                                                     \
    } while (0)

static void CUDART_CB on_host(void *) {
}

static cudaError_t launch(unsigned *memory, cudaStream_t stream) {
    const unsigned long long at = reinterpret_cast<unsigned long long>(memory);
    gpu_quick<<<1, 1, 0, stream>>>(at, at + 4, 0);
    return cudaGetLastError();
}

static cudaError_t replay(cudaStream_t stream, unsigned *memory, cudaGraphExec_t *exec) {
    cudaGraph_t graph;
    cudaError_t error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    if (error == cudaSuccess) {
        error = launch(memory, stream);
    }
    const cudaError_t end = cudaStreamEndCapture(stream, &graph);
    if (error != cudaSuccess || end != cudaSuccess) {
        return error != cudaSuccess ? error : end;
    }
    error = cudaGraphInstantiate(exec, graph, 0);
    cudaGraphDestroy(graph);
    return error;
}

int main() {
    unsigned *memory = nullptr, *second = nullptr, host[64] = {0};
    cudaStream_t stream;
    cudaGraphExec_t exec = nullptr;
    int count = 0;
    *reinterpret_cast<void **>(&stats_json) = dlsym(RTLD_DEFAULT, "accel_stats_json");
    *reinterpret_cast<void **>(&record_stream) = dlsym(RTLD_DEFAULT, "accel_record_stream");
    if (!stats_json || !record_stream) {
        printf("allocations no the library is not in the process\nsubmissions no\n");
        return 1;
    }
    const cudaError_t there = cudaGetDeviceCount(&count);
    if (there != cudaSuccess || count == 0) {
        printf("allocations the runtime answers %s\nsubmissions the runtime answers %s\n",
               cudaGetErrorName(there), cudaGetErrorName(there));
        return 77;
    }
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    MUST(cudaMalloc(&memory, 1 << 20));
    MUST(cudaMalloc(&second, 3000));
    const bool ours = record_stream(memory, nullptr) == 0 && record_stream(second, nullptr) == 0;
    printf("allocations %s cudaMalloc gave %p and %p; the library %s them; %lld of %lld lookups "
           "were answered with a hook\n",
           ours ? "yes" : "no", static_cast<void *>(memory), static_cast<void *>(second),
           ours ? "holds" : "does not know", counter("lookups_substituted"), counter("lookups"));
    fflush(stdout);
    const unsigned long long bytes = sizeof host;
    STEP(cudaMemset(memory, 0, bytes));
    STEP(cudaMemsetAsync(memory, 0, bytes, stream));
    STEP(cudaMemcpy(memory, host, bytes, cudaMemcpyHostToDevice));
    STEP(cudaMemcpy(host, memory, bytes, cudaMemcpyDeviceToHost));
    STEP(cudaMemcpy(second, memory, bytes, cudaMemcpyDeviceToDevice));
    STEP(cudaMemcpyAsync(memory, host, bytes, cudaMemcpyHostToDevice, stream));
    STEP(cudaMemcpyAsync(second, memory, bytes, cudaMemcpyDeviceToDevice, stream));
    STEP(cudaMemcpy2DAsync(memory, 64, host, 16, 16, 4, cudaMemcpyHostToDevice, stream));
    STEP(cudaMemcpyToSymbol(symbol, host, sizeof symbol));
    STEP(launch(memory, nullptr));
    STEP(launch(memory, stream));
    STEP(launch(memory, cudaStreamPerThread));
    STEP(cudaLaunchHostFunc(stream, on_host, nullptr));
    MUST(replay(stream, memory, &exec));
    STEP(cudaGraphLaunch(exec, stream));
    MUST(cudaDeviceSynchronize());
    MUST(cudaFree(second));
    MUST(cudaFree(memory));
    const long long unknown = counter("unknown_functions");
    printf("submissions %s %d of %d calls raised no counter;%s %lld functions were handed out that "
           "no table knows\n",
           unseen == 0 && unknown == 0 ? "yes" : "no", unseen, steps, missing, unknown);
    return 0;
}

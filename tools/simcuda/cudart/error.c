/* Errors: the last one of each thread, and their names.  Every entry point that fails calls this
 * file.  No lock: the state belongs to the thread. */
#include "internal.h"

_Thread_local struct simrt_thread simrt_thread;

/* Records failures only; a success never clears an earlier failure.  cudaErrorNotReady is no
 * failure, and is not reported later (CUDA C++ Programming Guide, "Error Checking"). */
cudaError_t simrt_fail(cudaError_t error) {
    if (error != cudaErrorNotReady)
        simrt_thread.last_error = error;
    return error;
}

cudaError_t cudaGetLastError(void) {
    cudaError_t error = simrt_thread.last_error;
    simrt_thread.last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void) {
    return simrt_thread.last_error;
}

static const struct {
    cudaError_t number;
    const char *name;
    const char *text;
} errors[] = {
#define RT_ERROR(name, number, text) {name, #name, text},
#include "errors.def"
#undef RT_ERROR
};

static int find(cudaError_t error) {
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        if (errors[i].number == error) {
            return (int)i;
        }
    }
    return -1;
}

const char *cudaGetErrorName(cudaError_t error) {
    int i = find(error);
    return i < 0 ? "unrecognized error code" : errors[i].name;
}

const char *cudaGetErrorString(cudaError_t error) {
    int i = find(error);
    return i < 0 ? "unrecognized error code" : errors[i].text;
}

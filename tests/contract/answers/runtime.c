/* The runtime's answers: cudaMalloc and its kin, the error that the runtime remembers, devices
 * and threads.  Each case runs in a child of its own, so that the first call of a process is one
 * too.
 *
 * usage: runtime       One line a call: what was asked => result, then the remembered error. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "cuda_runtime_min.h"

#include "answers.h"

/* Prints the result, the error of cudaPeekAtLastError, and the errors of two calls of
 * cudaGetLastError. */
static int say(const char *what, int result) {
    int peeked = (int)cudaPeekAtLastError(), got = (int)cudaGetLastError();
    printf("%s: %s => %d, remembered %d %d %d\n", title, what, result, peeked, got,
           (int)cudaGetLastError());
    fflush(stdout);
    return result;
}
#define SAY(call) say(#call, (int)(call))

static void say_number(const char *what, long long number) {
    printf("%s: %s => %lld\n", title, what, number);
    fflush(stdout);
}

static void *block(size_t bytes) {
    void *pointer = NULL;
    MUST(cudaMalloc(&pointer, bytes));
    return pointer;
}

static void first_calls(void) {
    void *pointer = (void *)0x5a5a;
    SAY(cudaFree(NULL));
    SAY(cudaMalloc(&pointer, 0));
    say_number("pointer of no bytes", (long long)(intptr_t)pointer);
    SAY(cudaMalloc(NULL, 512));
    SAY(cudaMalloc(NULL, 0));
    SAY(cudaMalloc(&pointer, 512));
    say_number("aligned", (intptr_t)pointer % 512);
    SAY(cudaFree(pointer));
    SAY(cudaFree(pointer));
}

static void sizes(void) {
    static const size_t size[] = {1, 511, 513, 65536, 65537, MIB, 3 * MIB, 20 * MIB, 200 * MIB};
    static const size_t hopeless[] = {(size_t)2 << 30, (size_t)1 << 47, SIZE_MAX - 511, SIZE_MAX};
    unsigned char bytes[2] = {0, 0};
    for (int again = 0; again < 3; again++) /* the later rounds are hits */
        for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
            char *pointer = NULL;
            SAY(cudaMalloc((void **)&pointer, size[i]));
            SAY(cudaMemset(pointer, 7, size[i]));
            SAY(cudaMemcpy(&bytes[0], pointer, 1, cudaMemcpyDeviceToHost));
            SAY(cudaMemcpy(&bytes[1], pointer + size[i] - 1, 1, cudaMemcpyDeviceToHost));
            say_number("contents", bytes[0] * 256 + bytes[1]);
            SAY(cudaFree(pointer));
        }
    for (size_t i = 0; i < sizeof hopeless / sizeof *hopeless; i++) {
        void *pointer = (void *)0x5a5a;
        SAY(cudaMalloc(&pointer, hopeless[i]));
        say_number("pointer of a failure", (long long)(intptr_t)pointer);
    }
}

/* An error stays until the program reads it, also if later calls succeed. */
static void remembered_errors(void) {
    void *pointer, *other = block(MIB);
    cudaFree(other);
    MUST(cudaMalloc(&pointer, MIB));
    say_number("failure", cudaMalloc(&other, SIZE_MAX / 2));
    say_number("success after it", cudaFree(pointer));
    say_number("another success", cudaMalloc(&pointer, MIB));
    SAY(cudaFree(pointer));
    say_number("bad free", cudaFree((void *)0x1000));
    say_number("success after it", cudaMalloc(&pointer, MIB));
    SAY(cudaFree(pointer));
}

static void wrong_pointers(void) {
    char *first = block(MIB), *second = block(4096);
    int host = 0;
    SAY(cudaFree(first + 512));
    SAY(cudaFree(first + 1));
    SAY(cudaFree(&host));
    SAY(cudaFree((void *)0x1));
    SAY(cudaFree(second));
    SAY(cudaFree(second));
    SAY(cudaFree(first));
    SAY(cudaFree(first));
}

/* Runs each call twice: the library may serve the second one without the runtime. */
static void stream_ordered(void) {
    void *pointer = NULL, *plain;
    cudaStream_t stream;
    SAY(cudaMallocAsync(&pointer, 4096, NULL)); /* the first call of all */
    SAY(cudaFreeAsync(pointer, NULL));
    SAY(cudaStreamCreate(&stream));
    for (int i = 0; i < 2; i++) {
        SAY(cudaMallocAsync(&pointer, 70000, stream));
        SAY(cudaMemsetAsync(pointer, 3, 70000, stream));
        SAY(cudaFreeAsync(pointer, stream));
        SAY(cudaMallocAsync_ptsz(&pointer, 70000, NULL));
        SAY(cudaFreeAsync_ptsz(pointer, NULL));
        SAY(cudaMallocAsync(&pointer, 70000, stream));
        SAY(cudaStreamSynchronize(stream));
        SAY(cudaFree(pointer));
        SAY(cudaMalloc(&plain, 70000));
        SAY(cudaFreeAsync(plain, stream));
        SAY(cudaFreeAsync(plain, stream));
        SAY(cudaGetLastError());
        SAY(cudaMallocAsync(&pointer, 0, stream));
        SAY(cudaMallocAsync(NULL, 512, stream));
        SAY(cudaMallocAsync(&pointer, (size_t)1 << 44, stream));
        SAY(cudaGetLastError());
        SAY(cudaFreeAsync(NULL, stream));
        SAY(cudaFreeAsync((void *)0x1000, stream));
        SAY(cudaGetLastError());
    }
    SAY(cudaStreamSynchronize(stream));
    SAY(cudaStreamDestroy(stream));
}

static void pitched(void) {
    size_t pitch = 77;
    void *pointer = NULL;
    struct cudaPitchedPtr volume;
    SAY(cudaMallocPitch(&pointer, &pitch, 100, 10));
    say_number("pitch", (long long)pitch);
    SAY(cudaFree(pointer));
    SAY(cudaMallocPitch(&pointer, &pitch, 5000, 300));
    say_number("pitch", (long long)pitch);
    SAY(cudaFree(pointer));
    SAY(cudaMallocPitch(&pointer, &pitch, 0, 0));
    SAY(cudaMallocPitch(NULL, &pitch, 1, 1));
    SAY(cudaMallocPitch(&pointer, NULL, 1, 1));
    memset(&volume, 0, sizeof volume);
    SAY(cudaMalloc3D(&volume, (struct cudaExtent){.width = 100, .height = 20, .depth = 3}));
    say_number("pitch", (long long)volume.pitch);
    say_number("width", (long long)volume.xsize);
    say_number("height", (long long)volume.ysize);
    SAY(cudaFree(volume.ptr));
}

static void attributes(void) {
    struct cudaPointerAttributes a;
    char *pointer = block(3 * MIB);
    memset(&a, 0, sizeof a);
    SAY(cudaPointerGetAttributes(&a, pointer + 1000));
    say_number("type", (long long)a.type);
    say_number("device", a.device);
    say_number("offset", (char *)a.devicePointer - pointer);
    SAY(cudaFree(pointer));
    memset(&a, 0, sizeof a);
    SAY(cudaPointerGetAttributes(&a, pointer));
    say_number("type after the free", (long long)a.type);
    SAY(cudaPointerGetAttributes(NULL, pointer));
}

static void memory_info(void) {
    size_t before = 0, during = 0, after = 0, total = 0;
    SAY(cudaMemGetInfo(&before, &total));
    void *pointer = block(64 * MIB);
    SAY(cudaMemGetInfo(&during, &total));
    SAY(cudaFree(pointer));
    SAY(cudaMemGetInfo(&after, &total));
    say_number("taken", (long long)(before - during));
    say_number("back", (long long)(after - during));
    say_number("total", (long long)total);
}

static void devices(void) {
    int current = -1;
    void *pointer[2];
    struct cudaPointerAttributes a;
    for (int round = 0; round < 3; round++)
        for (int device = 0; device < 2; device++) {
            SAY(cudaSetDevice(device));
            SAY(cudaMalloc(&pointer[device], MIB));
            memset(&a, 0, sizeof a);
            SAY(cudaPointerGetAttributes(&a, pointer[device]));
            say_number("memory on device", a.device);
            SAY(cudaGetDevice(&current));
            say_number("current", current);
            if (device == 1)
                for (int i = 0; i < 2; i++)
                    SAY(cudaFree(pointer[i])); /* the first with the other device current */
        }
    SAY(cudaSetDevice(2));
    SAY(cudaSetDevice(-1));
    SAY(cudaGetDevice(&current));
    say_number("current after bad ordinals", current);
}

static void reset(void) {
    void *pointer = block(MIB), *other = block(30 * MIB);
    SAY(cudaFree(other));
    SAY(cudaDeviceReset());
    SAY(cudaFree(pointer)); /* went with the context */
    SAY(cudaMalloc(&pointer, MIB));
    SAY(cudaMemset(pointer, 1, MIB));
    SAY(cudaFree(pointer));
}

/* Only a fence of the library has seen the fault. From then on no hit may hide it. */
static void sticky(void) {
    void *used = block(MIB), *kept = block(MIB), *pointer;
    CUmodule module;
    CUfunction kernel;
    MUST(cuModuleLoadData(&module, "stand-in"));
    MUST(cuModuleGetFunction(&kernel, module, "any"));
    cudaFree(block(MIB));
    MUST(cudaMemset(used, 1, MIB));
    simcuda_sticky(1);
    MUST(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    cudaFree(used); /* may still succeed: an asynchronous error may surface later, not vanish */
    cudaGetLastError();
    simcuda_advance(1000000000);
    SAY(cudaMalloc(&pointer, 64 * MIB));
    SAY(cudaMalloc(&pointer, MIB));
    SAY(cudaMalloc(&pointer, 512));
    SAY(cudaFree(kept));
    SAY(cudaDeviceSynchronize());
}

/* --- threads: each has its own device, its own remembered error; memory belongs to all --- */

enum { THREADS = 8, ROUNDS = 200 };
typedef struct {
    pthread_t thread;
    int number, wrong;
    void *left;
} worker_t;

static void *work(void *arg) {
    worker_t *worker = arg;
    int device = worker->number % 2;
    worker->wrong += cudaSetDevice(device) != cudaSuccess;
    for (int round = 0; round < ROUNDS; round++) {
        struct cudaPointerAttributes a;
        void *pointer = NULL;
        memset(&a, 0, sizeof a);
        worker->wrong += cudaMalloc(&pointer, (size_t)(round % 7 + 1) * 300000) != cudaSuccess;
        worker->wrong +=
            cudaPointerGetAttributes(&a, pointer) != cudaSuccess || a.device != device;
        worker->wrong += cudaFree(pointer) != cudaSuccess;
        if (round == worker->number)
            worker->wrong += cudaFree((void *)0x1000) == cudaSuccess;
    }
    worker->wrong += cudaGetLastError() == cudaSuccess; /* of its own bad free */
    worker->wrong += cudaGetLastError() != cudaSuccess;
    worker->wrong += cudaMalloc(&worker->left, MIB) != cudaSuccess;
    return NULL;
}

static void threads(void) {
    worker_t worker[THREADS];
    for (int i = 0; i < THREADS; i++) {
        worker[i] = (worker_t){.number = i};
        if (pthread_create(&worker[i].thread, NULL, work, &worker[i]) != 0)
            test_stop(TEST_BROKEN, "pthread_create");
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(worker[i].thread, NULL);
        say_number("wrong answers of a thread", worker[i].wrong);
        SAY(cudaFree(worker[i].left)); /* of another thread, half of another device */
    }
}

/* Calls from a function that the driver calls are refused. The library's earlier knowledge stays
 * valid. */
static void call_inside(void *arg) {
    void *pointer = NULL;
    size_t available, total;
    SAY(cudaMalloc(&pointer, MIB));
    SAY(cudaMallocAsync(&pointer, MIB, NULL));
    SAY(cudaMemGetInfo(&available, &total));
    SAY(cudaFreeAsync(arg, NULL));
    SAY(cudaFree(arg));
    SAY(cudaFree(arg));
    SAY(cudaFree(NULL));
}

static void called_back(cudaStream_t stream, cudaError_t status, void *arg) {
    (void)stream, (void)status;
    call_inside(arg);
}

static void host_functions(void) {
    void *kept = block(MIB);
    for (int i = 0; i < 2; i++) {
        MUST(cudaLaunchHostFunc(NULL, call_inside, kept));
        MUST(cudaDeviceSynchronize());
        MUST(cudaStreamAddCallback(NULL, called_back, kept, 0));
        MUST(cudaDeviceSynchronize());
    }
    SAY(cudaFree(kept));
    SAY(cudaFree(kept));
}

static const answers_case_t cases[] = {{"first calls", first_calls},
                                       {"sizes", sizes},
                                       {"remembered errors", remembered_errors},
                                       {"wrong pointers", wrong_pointers},
                                       {"stream ordered", stream_ordered},
                                       {"pitched", pitched},
                                       {"attributes", attributes},
                                       {"memory info", memory_info},
                                       {"devices", devices},
                                       {"reset", reset},
                                       {"sticky", sticky},
                                       {"threads", threads},
                                       {"host functions", host_functions}};

int main(void) {
    return in_children(cases, sizeof cases / sizeof *cases);
}

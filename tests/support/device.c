/* The device of test programs, as harness.h declares it. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agrees.h"
#include "harness.h"

CUcontext test_device(int i) {
    CUcontext context;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, i));
    MUST(cuCtxSetCurrent(context));
    return context;
}

bool test_find(const char *name, void *slot) {
    void *found = dlsym(RTLD_DEFAULT, name);
    memcpy(slot, &found, sizeof found);
    return found;
}

CUfunction test_kernel(const simcuda_kernel_t *kernel) {
    __typeof__(&simcuda_register_kernel) enter;
    CUmodule module;
    CUfunction function;
    NEED(test_find("simcuda_register_kernel", &enter));
    NEED(!enter(kernel));
    MUST(cuModuleLoadData(&module, "stand-in"));
    MUST(cuModuleGetFunction(&function, module, kernel->name));
    return function;
}

void test_store(const simcuda_launch_t *launch) {
    __typeof__(&simcuda_host) host;
    CUdeviceptr to;
    memcpy(&to, launch->params[0], sizeof to);
    void *at = test_find("simcuda_host", &host) ? host(to) : NULL;
    if (at)
        memcpy(at, launch->params[1], sizeof(unsigned));
}

CUstream test_stream(void) {
    CUstream stream;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

bool test_library_is_here(void) {
    return dlsym(RTLD_DEFAULT, "accel_stats_json");
}

long long test_figure(const char *name) {
    int (*stats)(char **);
    char *text, key[64];
    long long sum = 0;
    if (!test_find("accel_stats_json", &stats))
        return 0;
    NEED(stats(&text) == 0);
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(text, key);
    NEED(at); /* else the name is wrong */
    for (; at; at = strstr(at + 1, key))
        sum += strtoll(at + strlen(key), NULL, 10);
    free(text);
    return sum;
}

void test_library_agrees(void) {
    accel_status_t (*checker)(char *, size_t);
    char message[256] = "";
    if (test_find("accel_check", &checker) && records_agree(checker, message, sizeof message))
        test_stop(TEST_WRONG, "%s", message);
}

/* steps CASE: what one thread of a program does between two steps that the library takes for another
 * one, on the simulated device.  The library of the tests calls back (shim/failpoint.h).
 * Exit status 0: as it should be. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "accelcache.h"
#include "harness.h"

#define MIB ((size_t)1 << 20)

/* Where it runs, for the library; once. */
void ac_test_window(const char *name) __attribute__((visibility("default")));
static const char *at;
static void (*part)(void);

static void *run_part(void *unused) {
    test_device(0);
    part();
    return unused;
}

static void wait_for_part(void) {
    pthread_t thread;
    NEED(pthread_create(&thread, NULL, run_part, NULL) == 0);
    NEED(pthread_join(thread, NULL) == 0);
}

void ac_test_window(const char *name) {
    if (!at || strcmp(name, at) != 0)
        return;
    at = NULL;
    wait_for_part();
}

static void at_window(const char *name, void (*what)(void)) {
    part = what;
    at = name;
}

static CUdeviceptr taken(size_t bytes) {
    CUdeviceptr address = 0;
    MUST(cuMemAlloc_v2(&address, bytes));
    return address;
}

/* --- a call of the driver is out of memory, and another thread gives back what it lacked --- */

static accel_status_t (*empty_cache)(void);

static void give_back(void) {
    NEED(empty_cache() == ACCEL_OK);
}

static void given_back_by_another(void) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle handle;
    NEED(test_find("accel_empty_cache", &empty_cache));
    MUST(cuMemFree_v2(taken(40 * MIB)));
    at_window("driver_is_full", give_back);
    GIVES(cuMemCreate(&handle, 40 * MIB, &prop, 0), CUDA_SUCCESS);
    NEED(!at);
    MUST(cuMemRelease(handle));
}

/* --- a block is freed while it is exported --- */

enum { WHOLE = 40 };
static CUdeviceptr whole;

static void free_and_share_out(void) {
    MUST(cuMemFree_v2(whole));
    for (int i = 0; i < 2; i++)
        taken(WHOLE / 4 * MIB);
}

/* The driver's handle opens the whole segment, with whatever serves there. */
static void freed_during_export(void) {
    CUipcMemHandle handle;
    whole = taken(WHOLE * MIB);
    at_window("segment_named", free_and_share_out);
    GIVES(cuIpcGetMemHandle(&handle, whole), CUDA_ERROR_INVALID_VALUE);
    NEED(!at);
}

/* Nobody has got to know the segment: it serves again. */
static void export_refused(void) {
    CUipcMemHandle handle;
    whole = taken(WHOLE * MIB);
    GIVES(cuIpcGetMemHandle(&handle, whole), CUDA_ERROR_MAP_FAILED); /* as ACCEL_SIM says */
    MUST(cuMemFree_v2(whole));
    EXPECT(taken(WHOLE * MIB) == whole && simcuda_calls("cuMemAlloc_v2") == 1);
    GIVES(cuIpcGetMemHandle(&handle, whole), CUDA_SUCCESS);
    MUST(cuMemFree_v2(whole));
    taken(WHOLE * MIB);
    EXPECT(simcuda_calls("cuMemAlloc_v2") == 2);
}

/* --- two threads end one context --- */

static CUcontext later;
static CUdeviceptr memory;

/* So many records rest before the oldest, that of the primary context, serves again. */
static void end_and_go_on(void) {
    enum { RESTING = 16 };
    MUST(cuDevicePrimaryCtxReset_v2(0));
    for (int i = 0; i <= RESTING; i++) {
        MUST(cuCtxCreate_v2(&later, 0, 0));
        taken(MIB); /* so that the next is no segment of its own */
        memory = taken(MIB);
        if (i < RESTING)
            MUST(cuCtxDestroy_v2(later));
    }
}

static void ended_twice(void) {
    MUST(cuMemFree_v2(taken(MIB)));
    at_window("contexts_found", end_and_go_on);
    MUST(cuDevicePrimaryCtxReset_v2(0));
    NEED(!at);
    MUST(cuCtxSetCurrent(later));
    GIVES(cuMemFree_v2(memory), CUDA_SUCCESS);
    EXPECT(taken(MIB) == memory);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"given_back_by_another", given_back_by_another},
    {"freed_during_export", freed_during_export},
    {"export_refused", export_refused},
    {"ended_twice", ended_twice},
};

int main(int argc, char **argv) {
    for (unsigned i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(argv[1], cases[i].name)) {
            test_title = argv[1];
            test_device(0);
            cases[i].run();
            return TEST_GOOD;
        }
    fprintf(stderr, "usage: steps CASE\n");
    return TEST_USAGE;
}

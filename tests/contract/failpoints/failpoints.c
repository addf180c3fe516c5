/* failpoints NAME: sets up the device, runs the program for that row of shim/failpoints.def
 * (failpoints.h).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failpoints.h"

enum {
    BESIDE = 1 << 20,
    OLD_VALUE = 1,
    NEW_VALUE = 2,
    LONG_NS = 1000000,
    SHORT_NS = 1000,
    ENDLESS_NS = 1000000000
};

static const char ptx[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry old_owner(.param .u64 to, .param .u32 value) { ret; }\n"
    ".visible .entry new_owner(.param .u64 to, .param .u32 value) { ret; }\n"
    ".visible .entry endless() { ret; }\n";

static void register_kernels(void) {
    static const unsigned short sizes[] = {8, 4};
    static const simcuda_access_t access = {0, -1, sizeof(unsigned), 1};
    simcuda_kernel_t kernel = {"old_owner", test_store, LONG_NS, 2, sizes, 1, &access};
    simcuda_register_kernel(&kernel);
    kernel.name = "new_owner";
    kernel.duration_ns = SHORT_NS;
    simcuda_register_kernel(&kernel);
    simcuda_register_kernel(&(simcuda_kernel_t){.name = "endless", .duration_ns = ENDLESS_NS});
}

static void set_up(failpoint_run_t *t, int device) {
    CUmodule module;
    t->ctx[device] = test_device(device);
    MUST(cuModuleLoadData(&module, ptx));
    MUST(cuModuleGetFunction(&t->old_owner, module, "old_owner"));
    MUST(cuModuleGetFunction(&t->new_owner, module, "new_owner"));
    MUST(cuModuleGetFunction(&t->endless, module, "endless"));
    for (int i = 0; i < 3; i++)
        t->stream[i] = test_stream();
}

void failpoint_second_device(failpoint_run_t *t) {
    set_up(t, 1);
}

void failpoint_take(failpoint_run_t *t, size_t bytes) {
    t->bytes = bytes;
    MUST(cuMemAlloc_v2(&t->beside, BESIDE));
    MUST(cuMemAlloc_v2(&t->memory, bytes));
}

static CUresult launch(CUfunction kernel, CUstream stream, CUdeviceptr to, unsigned value) {
    void *params[] = {&to, &value};
    return cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

void failpoint_old(failpoint_run_t *t, CUstream stream) {
    MUST(launch(t->old_owner, stream, t->memory, OLD_VALUE));
}

void failpoint_new(failpoint_run_t *t, CUstream stream) {
    MUST(launch(t->new_owner, stream, t->memory, NEW_VALUE));
}

void failpoint_long(failpoint_run_t *t, CUstream stream) {
    MUST(cuLaunchKernel(t->endless, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
}

void failpoint_new_programmatic(failpoint_run_t *t, CUstream stream) {
    unsigned value = NEW_VALUE;
    void *params[] = {&t->memory, &value};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, stream, &attribute, 1};
    MUST(cuLaunchKernelEx(&config, t->new_owner, params, NULL));
}

void failpoint_old_event(failpoint_run_t *t, CUstream stream, CUevent event) {
    unsigned value = OLD_VALUE;
    void *params[] = {&t->memory, &value};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT};
    attribute.value.programmaticEvent.event = event;
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, stream, &attribute, 1};
    MUST(cuLaunchKernelEx(&config, t->old_owner, params, NULL));
}

CUresult failpoint_elsewhere(failpoint_run_t *t, CUstream stream) {
    return launch(t->new_owner, stream, t->beside, OLD_VALUE);
}

void failpoint_give(failpoint_run_t *t) {
    MUST(cuMemFree_v2(t->memory));
}

void failpoint_seek(failpoint_run_t *t, int most) {
    CUdeviceptr before = t->memory, kept[FAILPOINT_MANY];
    int count = 0;
    do {
        if (cuMemAlloc_v2(&kept[count], t->bytes))
            break;
        count++;
    } while (count < most && kept[count - 1] != before);
    if (!count)
        test_stop(TEST_WRONG, "no memory");
    t->memory = kept[--count];
    while (count)
        MUST(cuMemFree_v2(kept[--count]));
}

static struct {
    const char *name;
    void (*part)(failpoint_run_t *t);
    failpoint_run_t *t;
} window;

void failpoint_at_window(const char *name, void (*part)(failpoint_run_t *t), failpoint_run_t *t) {
    window.part = part;
    window.t = t;
    window.name = name;
}

void ac_test_window(const char *name) {
    if (!window.name || strcmp(name, window.name))
        return;
    window.name = NULL;
    window.part(window.t);
}

void failpoint_settle(failpoint_run_t *t) {
    unsigned value = 0;
    for (int i = 0; i < 2; i++)
        if (t->ctx[i]) {
            MUST(cuCtxSetCurrent(t->ctx[i]));
            MUST(cuCtxSynchronize());
        }
    MUST(cuMemcpyDtoH_v2(&value, t->memory, sizeof value));
    if (value != NEW_VALUE)
        test_stop(TEST_WRONG, "the new owner's value is not in its memory");
}

static const struct {
    const char *name;
    void (*run)(failpoint_run_t *t);
} programs[] = {
#define FAILPOINT(number, name, text) {#name, failpoint_##name},
#define WINDOW(number, name, text)
#include "failpoints.def"
#undef WINDOW
#undef FAILPOINT
    {"page_moved", failpoint_page_moved},
    {"page_moved_waited", failpoint_page_moved_waited},
    {"page_taken", failpoint_page_taken},
    {"page_taken_waited", failpoint_page_taken_waited},
    {"stream_of_strange_context", failpoint_stream_of_strange_context},
    {"freed_on_untold_stream", failpoint_freed_on_untold_stream},
    {"no_stream", failpoint_no_stream},
    {"found_and_not_called", failpoint_found_and_not_called},
    {"many_attributes", failpoint_many_attributes},
    {"found_before_contexts", failpoint_found_before_contexts},
    {"too_many_contexts", failpoint_too_many_contexts},
};

int main(int argc, char **argv) {
    failpoint_run_t t = {.bytes = 0};
    for (size_t i = 0; argc == 2 && i < sizeof programs / sizeof *programs; i++)
        if (!strcmp(argv[1], programs[i].name)) {
            register_kernels();
            set_up(&t, 0);
            programs[i].run(&t);
            failpoint_settle(&t);
            return 0;
        }
    fprintf(
        stderr,
        "usage: failpoints NAME, a row of shim/failpoints.def or a name at the table's end\n");
    return TEST_USAGE;
}

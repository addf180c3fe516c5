/* Memory and events that processes share: cuda.h, cuIpcGetMemHandle to cuIpcCloseMemHandle. The
 * tests in tests/process/ipc run two processes at the same time. */
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "extra.h"

extern char **environ;

static CUipcMemHandle given; /* to the other process */

enum { LAZY = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS };

static void to_text(const CUipcMemHandle *handle, char *text) {
    for (size_t i = 0; i < sizeof handle->reserved; i++)
        snprintf(text + 2 * i, 3, "%02x", (unsigned char)handle->reserved[i]);
}

static CUipcMemHandle from_text(const char *text) {
    CUipcMemHandle handle;
    for (size_t i = 0; i < sizeof handle.reserved; i++) {
        unsigned byte = 0;
        sscanf(text + 2 * i, "%2x", &byte);
        handle.reserved[i] = (char)byte;
    }
    return handle;
}

/* Runs this program again: `what` says which part of main; its exit status. */
static int other_process(const char *what, const CUipcMemHandle *handle) {
    char text[2 * sizeof handle->reserved + 1], part[32];
    to_text(handle, text);
    snprintf(part, sizeof part, "%s", what);
    char *arguments[] = {(char[]){"check_ipc"}, part, text, NULL};
    pid_t child;
    int status = -1;
    ck_assert_int_eq(posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ), 0);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Other process: the bytes are there, writes come back, opening twice counts. */
START_TEST(importer) {
    CUipcMemHandle handle = given;
    CUdeviceptr p, again;
    OK(cuIpcOpenMemHandle_v2(&p, handle, LAZY));
    OK(cuIpcOpenMemHandle_v2(&again, handle, LAZY));
    ck_assert_uint_eq(p, again);
    ck_assert_uint_eq(extra_word(p), 31);
    CUdeviceptr base;
    size_t size;
    OK(cuMemGetAddressRange_v2(&base, &size, p + 8));
    ck_assert_uint_eq(base, p);
    ck_assert_uint_eq(size, 5000);
    OK(extra_launch(NULL, p + 4, 32));
    OK(cuCtxSynchronize());
    GIVES(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
    OK(cuIpcCloseMemHandle(p));
    ck_assert_uint_eq(extra_word(p), 31);
    OK(cuIpcCloseMemHandle(p));
    GIVES(cuIpcCloseMemHandle(p), CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr own;
    OK(cuMemAlloc_v2(&own, 5000));
    GIVES(cuIpcCloseMemHandle(own), CUDA_ERROR_INVALID_VALUE);
    OK(extra_launch(NULL, p, 1)); /* closed: nothing is there any more */
    GIVES(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

/* Other process: the exporter has freed the memory. */
START_TEST(refused) {
    CUdeviceptr p;
    GIVES(cuIpcOpenMemHandle_v2(&p, given, LAZY), CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

static CUdeviceptr exported(CUipcMemHandle *handle) {
    CUdeviceptr p, spacer;
    OK(cuMemAlloc_v2(&spacer, 512)); /* so that p begins inside a page */
    OK(cuMemAlloc_v2(&p, 5000));
    OK(extra_launch(NULL, p, 31));
    OK(cuCtxSynchronize());
    OK(cuIpcGetMemHandle(handle, p));
    return p;
}

START_TEST(two_processes) {
    CUipcMemHandle handle;
    CUdeviceptr p = exported(&handle);
    ck_assert_int_eq(other_process("import", &handle), 0);
    ck_assert_uint_eq(extra_word(p + 4), 32);
    ck_assert_uint_eq(extra_word(p), 31);
}
END_TEST

/* A handle denotes the allocation, wherever in it the address was. */
START_TEST(interior_addresses) {
    CUipcMemHandle handle, inside;
    CUdeviceptr p = exported(&handle);
    OK(cuIpcGetMemHandle(&inside, p + 4000));
    ck_assert_mem_eq(&inside, &handle, sizeof handle);
    ck_assert_int_eq(other_process("import", &inside), 0);
}
END_TEST

START_TEST(own_process_is_refused) {
    CUipcMemHandle handle;
    CUdeviceptr p;
    exported(&handle);
    GIVES(cuIpcOpenMemHandle_v2(&p, handle, LAZY), CUDA_ERROR_INVALID_CONTEXT);
    GIVES(cuIpcOpenMemHandle(&p, handle, LAZY), CUDA_ERROR_INVALID_CONTEXT);
}
END_TEST

START_TEST(freed_memory_is_refused) {
    CUipcMemHandle handle, again;
    CUdeviceptr p = exported(&handle), q;
    OK(cuMemFree_v2(p));
    ck_assert_int_eq(other_process("refused", &handle), 0);
    OK(cuMemAlloc_v2(&q, 5000));
    ck_assert_uint_eq(q, p);
    OK(extra_launch(NULL, q, 31));
    OK(cuCtxSynchronize());
    OK(cuIpcGetMemHandle(&again, q));
    ck_assert_mem_ne(&again, &handle, sizeof handle); /* documented: a unique handle */
    ck_assert_int_eq(other_process("refused", &handle), 0);
    ck_assert_int_eq(other_process("import", &again), 0);
}
END_TEST

START_TEST(strange_handles_are_refused) {
    CUipcMemHandle handle = {{0}}, broken;
    CUdeviceptr p;
    GIVES(cuIpcOpenMemHandle_v2(&p, handle, LAZY), CUDA_ERROR_INVALID_VALUE);
    memset(&handle, 0x5c, sizeof handle);
    GIVES(cuIpcOpenMemHandle_v2(&p, handle, LAZY), CUDA_ERROR_INVALID_VALUE);
    exported(&handle);
    GIVES(cuIpcOpenMemHandle_v2(&p, handle, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuIpcOpenMemHandle_v2(NULL, handle, LAZY), CUDA_ERROR_INVALID_VALUE);
    broken = handle;
    broken.reserved[20] ^= 1;
    GIVES(cuIpcOpenMemHandle_v2(&p, broken, LAZY), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(what_can_be_exported) {
    CUipcMemHandle handle;
    CUdeviceptr pool, managed, plain;
    OK(cuMemAlloc_v2(&plain, 64));
    OK(cuMemAllocAsync(&pool, 64, NULL));
    OK(cuMemAllocManaged(&managed, 64, CU_MEM_ATTACH_GLOBAL));
    OK(cuCtxSynchronize());
    GIVES(cuIpcGetMemHandle(&handle, pool), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuIpcGetMemHandle(&handle, managed), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuIpcGetMemHandle(&handle, 0x1234), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuIpcGetMemHandle(NULL, plain), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuIpcCloseMemHandle(plain), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

static CUipcMemHandle mem_of(const CUipcEventHandle *event) {
    CUipcMemHandle handle;
    memcpy(&handle, event, sizeof handle);
    return handle;
}

static CUipcEventHandle event_of(const CUipcMemHandle *handle) {
    CUipcEventHandle event;
    memcpy(&event, handle, sizeof event);
    return event;
}

static CUevent shared_event(CUipcEventHandle *handle) {
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    OK(cuIpcGetEventHandle(handle, event));
    return event;
}

/* Other process: the event is complete, records of it here are seen there. */
START_TEST(event_importer) {
    CUevent event, again;
    OK(cuIpcOpenEventHandle(&event, event_of(&given)));
    OK(cuIpcOpenEventHandle(&again, event_of(&given)));
    OK(cuEventQuery(event));
    OK(cuEventSynchronize(event));
    CUstream stream = extra_stream(), other = extra_stream();
    CUdeviceptr p;
    OK(cuMemAlloc_v2(&p, 64));
    OK(extra_launch(stream, p, 5));
    OK(cuEventRecord(event, stream));
    GIVES(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    GIVES(cuEventQuery(again), CUDA_ERROR_NOT_READY);
    OK(cuStreamWaitEvent(other, again, 0));
    OK(extra_launch(other, p + 4, 6));
    OK(cuStreamSynchronize(other)); /* another name of the event, so the kernels are ordered */
    ck_assert_uint_eq(extra_word(p), 5);
    OK(cuEventQuery(event));
    float ms;
    GIVES(cuEventElapsedTime(&ms, event, again), CUDA_ERROR_INVALID_HANDLE);
    CUipcEventHandle handle;
    GIVES(cuIpcGetEventHandle(&handle, event), CUDA_ERROR_INVALID_HANDLE);
    ck_assert_uint_eq(simcuda_live("shared_events"), 2);
    OK(cuEventDestroy_v2(event));
    OK(cuEventDestroy_v2(again));
    ck_assert_uint_eq(simcuda_live("shared_events"), 0);
}
END_TEST

START_TEST(event_refused) {
    CUevent event;
    GIVES(cuIpcOpenEventHandle(&event, event_of(&given)), CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

START_TEST(events_of_two_processes) {
    CUipcEventHandle handle, other;
    CUevent event = shared_event(&handle), opened;
    OK(cuIpcGetEventHandle(&other, event));
    ck_assert_mem_eq(&other, &handle, sizeof handle);
    CUipcMemHandle text = mem_of(&handle);
    OK(cuEventQuery(event)); /* never recorded */
    OK(cuEventRecord(event, NULL));
    OK(cuEventSynchronize(event));
    ck_assert_int_eq(other_process("event", &text), 0);
    OK(cuEventSynchronize(event)); /* the newest record is the other's, and complete */
    GIVES(cuIpcOpenEventHandle(&opened, handle), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuEventDestroy_v2(event));
    ck_assert_int_eq(other_process("no event", &text), 0);
    CUevent plain;
    OK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    GIVES(cuIpcGetEventHandle(&handle, plain), CUDA_ERROR_INVALID_HANDLE);
    GIVES(cuEventCreate(&plain, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
    memset(&other, 0x5c, sizeof other);
    GIVES(cuIpcOpenEventHandle(&opened, other), CUDA_ERROR_INVALID_VALUE);
    CUipcMemHandle memory;
    exported(&memory); /* memory is no event, nor the other way round */
    GIVES(cuIpcOpenEventHandle(&opened, event_of(&memory)), CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr p;
    GIVES(cuIpcOpenMemHandle_v2(&p, text, LAZY), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

/* Slots of events that are gone are used again. */
START_TEST(many_events) {
    CUipcEventHandle handle;
    for (int i = 0; i < 20000; i++)
        OK(cuEventDestroy_v2(shared_event(&handle)));
    CUevent event = shared_event(&handle);
    CUstream stream = extra_stream();
    for (unsigned i = 0; i < 100; i++) { /* more records than the event keeps separate */
        CUdeviceptr p;
        OK(cuMemAllocAsync(&p, 64, stream));
        OK(extra_launch(stream, p, i));
        OK(cuEventRecord(event, stream));
        OK(cuMemFreeAsync(p, stream));
    }
    GIVES(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    OK(cuEventSynchronize(event));
    ck_assert_uint_eq(simcuda_now() >= 100 * 10000, 1);
    OK(cuEventDestroy_v2(event));
}
END_TEST

/* An exporter that is gone: the handle comes back through its exit. */
START_TEST(export_and_leave) {
    CUipcMemHandle handle;
    char text[2 * sizeof handle.reserved + 1];
    exported(&handle);
    to_text(&handle, text);
    ck_assert_int_ge(puts(text), 0);
}
END_TEST

START_TEST(ended_process_is_refused) {
    char self[256], command[512], text[2 * CU_IPC_HANDLE_SIZE + 8] = "";
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    ck_assert_int_gt(length, 0);
    self[length] = 0;
    snprintf(command, sizeof command, "'%s' export", self);
    FILE *pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    ck_assert_ptr_nonnull(fgets(text, sizeof text, pipe));
    ck_assert_int_eq(pclose(pipe), 0);
    CUdeviceptr p;
    GIVES(cuIpcOpenMemHandle_v2(&p, from_text(text), LAZY), CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

int main(int argc, char **argv) {
    if (argc > 1) {
        if (argc > 2)
            given = from_text(argv[2]);
        return extra_part(!strcmp(argv[1], "export")     ? export_and_leave
                          : !strcmp(argv[1], "import")   ? importer
                          : !strcmp(argv[1], "event")    ? event_importer
                          : !strcmp(argv[1], "no event") ? event_refused
                                                         : refused);
    }
    TCase *t;
    Suite *suite = extra_suite("ipc", &t);
    tcase_add_test(t, two_processes);
    tcase_add_test(t, interior_addresses);
    tcase_add_test(t, own_process_is_refused);
    tcase_add_test(t, freed_memory_is_refused);
    tcase_add_test(t, strange_handles_are_refused);
    tcase_add_test(t, what_can_be_exported);
    tcase_add_test(t, ended_process_is_refused);
    tcase_add_test(t, events_of_two_processes);
    tcase_add_test(t, many_events);
    return run_suite(suite);
}

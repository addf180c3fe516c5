/* The short way of cudaMalloc and cudaFree under the library, and what ends it for a thread that
 * takes it: other threads' doings, of which its own calls tell nothing.  Each test has a process
 * of its own. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include "cuda_runtime_min.h"
#include "simcuda.h"
#include "run_suite.h"

#define OK(call) ck_assert_int_eq((call), cudaSuccess)

enum { BYTES = 1 << 20, WARM = 100 };

static unsigned long long (*calls)(const char *);
static int (*configure)(const char *, char *, size_t);
static int (*add_kernel)(const simcuda_kernel_t *);
static void (*make_faulty)(unsigned long long);

static void *symbol(void *library, const char *name) {
    void *found = dlsym(library, name);
    ck_assert_msg(found != NULL, "%s is missing", name);
    return found;
}

/* Before all else: opening a library ends the short way, too. */
static void find_functions(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *found = symbol(driver, "simcuda_calls");
    memcpy(&calls, &found, sizeof calls);
    found = symbol(driver, "simcuda_register_kernel");
    memcpy(&add_kernel, &found, sizeof add_kernel);
    found = symbol(driver, "simcuda_sticky");
    memcpy(&make_faulty, &found, sizeof make_faulty);
    found = symbol(RTLD_DEFAULT, "accel_set_allocator_settings");
    memcpy(&configure, &found, sizeof configure);
}

/* Number of memory requests that reached the driver. */
static unsigned long long driver_calls(void) {
    return calls("cuMemAlloc_v2");
}

/* The library remembers callers by pages of code: all calls are made here, and return here. */
static __attribute__((noinline)) cudaError_t get(void **p) {
    volatile cudaError_t result = cudaMalloc(p, BYTES);
    return result;
}

static __attribute__((noinline)) cudaError_t give(void *p) {
    volatile cudaError_t result = cudaFree(p);
    return result;
}

static void *pair(void) {
    void *p = NULL;
    OK(get(&p));
    OK(give(p));
    return p;
}

/* The calling thread takes the short way from now on. */
static void *warm(void) {
    void *p = NULL;
    for (int i = 0; i < WARM; i++)
        p = pair();
    unsigned long long before = driver_calls();
    ck_assert_ptr_eq(pair(), p);
    ck_assert_uint_eq(driver_calls(), before);
    return p;
}

static void by_another_thread(void *act(void *), void *arg) {
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, act, arg), 0);
    pthread_join(thread, NULL);
}

/* --- another context gets at the memory --- */

static _Atomic bool go_on;

static void wait_for_it(void *unused) {
    (void)unused;
    while (!atomic_load(&go_on))
        ;
}

static void *copy_to_the_other_device(void *from) {
    void *to = NULL;
    cudaStream_t stream = NULL;
    OK(cudaSetDevice(1));
    OK(cudaMalloc(&to, BYTES));
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaLaunchHostFunc(stream, wait_for_it, NULL));
    OK(cudaMemcpyPeerAsync(to, 1, from, 0, BYTES, stream));
    return NULL;
}

START_TEST(a_copy_by_another_device) {
    void *p = NULL, *next = NULL;
    warm();
    OK(get(&p));
    by_another_thread(copy_to_the_other_device, p);
    OK(give(p)); /* the copy has not begun */
    OK(get(&next));
    ck_assert_ptr_ne(next, p);
    atomic_store(&go_on, true);
    OK(give(next));
}
END_TEST

/* --- the context goes --- */

static void *reset(void *unused) {
    OK(cudaSetDevice(0));
    OK(cudaDeviceReset());
    return unused;
}

START_TEST(a_reset_by_another_thread) {
    void *p = NULL;
    warm();
    OK(get(&p));
    unsigned long long before = driver_calls();
    by_another_thread(reset, NULL);
    void *next = NULL;
    OK(get(&next));
    ck_assert_uint_gt(driver_calls(), before); /* nothing of the old context serves */
    OK(cudaMemset(next, 1, BYTES));
    OK(give(next));
}
END_TEST

/* --- the context breaks --- */

static const char module_text[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                                  ".visible .entry nothing()\n{\n    ret;\n}\n";
static const struct simrt_fatbin_wrapper wrapper = {RT_FATBIN_MAGIC, 1, module_text, NULL};
static char nothing_stub;

static void nothing(const simcuda_launch_t *launch) {
    (void)launch;
}

static void register_kernel(void) {
    static const simcuda_kernel_t kernel = {.name = "nothing", .fn = nothing, .duration_ns = -1};
    ck_assert_int_eq(add_kernel(&kernel), 0);
    void **module = __cudaRegisterFatBinary((void *)(uintptr_t)&wrapper);
    __cudaRegisterFunction(module, &nothing_stub, &nothing_stub, "nothing", -1, NULL, NULL, NULL,
                           NULL, NULL);
    __cudaRegisterFatBinaryEnd(module);
}

static void *launch_and_wait(void *expected) {
    const dim3 one = {1, 1, 1};
    OK(cudaSetDevice(0));
    OK(cudaLaunchKernel(&nothing_stub, one, one, NULL, 0, NULL));
    ck_assert_int_eq(cudaDeviceSynchronize(), *(const cudaError_t *)expected);
    return NULL;
}

START_TEST(a_fault_seen_by_another_thread) {
    cudaError_t good = cudaSuccess, fault = cudaErrorIllegalAddress;
    void *p = NULL;
    register_kernel();
    by_another_thread(launch_and_wait, &good); /* the first launch opens the device */
    warm();
    make_faulty(1);
    by_another_thread(launch_and_wait, &fault);
    ck_assert_int_eq(get(&p), cudaErrorIllegalAddress);
}
END_TEST

/* --- settings --- */

static void *switch_off(void *unused) {
    ck_assert_int_eq(configure("enabled:false", NULL, 0), 0);
    return unused;
}

START_TEST(switched_off_by_another_thread) {
    void *p = NULL;
    warm();
    unsigned long long before = driver_calls();
    by_another_thread(switch_off, NULL);
    OK(get(&p));
    ck_assert_uint_eq(driver_calls(), before + 1);
    OK(give(p));
}
END_TEST

/* --- the device is chosen --- */

enum { CONTEXT_OF_POINTER = 1 /* CU_POINTER_ATTRIBUTE_CONTEXT */ };
static int (*create_context)(void **, unsigned, int);
static int (*current_context)(void **);
static int (*make_current)(void *);
static int (*attribute)(void *, int, unsigned long long);

static void find_contexts(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *found = symbol(driver, "cuCtxCreate_v2");
    memcpy(&create_context, &found, sizeof create_context);
    found = symbol(driver, "cuCtxGetCurrent");
    memcpy(&current_context, &found, sizeof current_context);
    found = symbol(driver, "cuCtxSetCurrent");
    memcpy(&make_current, &found, sizeof make_current);
    found = symbol(driver, "cuPointerGetAttribute");
    memcpy(&attribute, &found, sizeof attribute);
}

static void *context_of(void *p) {
    void *context = NULL;
    OK(attribute(&context, CONTEXT_OF_POINTER, (unsigned long long)(uintptr_t)p));
    return context;
}

static void *context_of_next(void) {
    void *p = NULL;
    OK(get(&p));
    void *context = context_of(p);
    OK(give(p));
    return context;
}

START_TEST(the_device_is_chosen) {
    void *first, *second;
    find_contexts();
    warm();
    first = context_of_next();
    OK(cudaSetDevice(1));
    second = context_of_next();
    ck_assert_ptr_ne(second, first);
    for (int i = 0; i < 3; i++) {
        OK(cudaSetDevice(1));
        ck_assert_ptr_eq(context_of_next(), second);
    }
    OK(cudaSetDevice(0));
    OK(cudaSetDevice(1));
    OK(cudaSetDevice(0));
    ck_assert_ptr_eq(context_of_next(), first);
}
END_TEST

START_TEST(a_failed_choice) {
    find_contexts();
    warm();
    void *first = context_of_next();
    ck_assert_int_eq(cudaSetDevice(7), cudaErrorInvalidDevice);
    ck_assert_ptr_eq(context_of_next(), first);
}
END_TEST

/* The runtime turns from a context of the program's own to the primary one of the same device. */
START_TEST(the_device_of_a_created_context_is_chosen) {
    void *created = NULL;
    find_contexts();
    warm();
    void *first = context_of_next();
    OK(create_context(&created, 0, 0));
    warm();
    ck_assert_ptr_eq(context_of_next(), created);
    OK(cudaSetDevice(0));
    ck_assert_ptr_eq(context_of_next(), first);
}
END_TEST

/* A choice of the runtime and one of the driver: the newer one counts, but for a runtime before version 12, which
 * does its part with its next call. */
START_TEST(the_runtime_and_the_driver_choose) {
    void *second, *now = NULL;
    find_contexts();
    warm();
    void *first = context_of_next();
    OK(cudaSetDevice(1));
    second = context_of_next();
    OK(cudaSetDevice(0));
    OK(make_current(second));
    ck_assert_ptr_eq(context_of_next(), RT_MAJOR < 12 ? first : second);
    OK(current_context(&now));
    OK(make_current(now));
    ck_assert_ptr_eq(context_of_next(), now);
    for (int i = 0; i < 4; i++) {
        OK(make_current(i % 2 ? first : second));
        ck_assert_ptr_eq(context_of_next(), i % 2 ? first : second);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("fast_path");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, find_functions, NULL);
    tcase_set_timeout(all, 60);
    tcase_add_test(all, a_copy_by_another_device);
    tcase_add_test(all, a_reset_by_another_thread);
    tcase_add_test(all, a_fault_seen_by_another_thread);
    tcase_add_test(all, switched_off_by_another_thread);
    tcase_add_test(all, the_device_is_chosen);
    tcase_add_test(all, a_failed_choice);
    tcase_add_test(all, the_device_of_a_created_context_is_chosen);
    tcase_add_test(all, the_runtime_and_the_driver_choose);
    suite_add_tcase(suite, all);
    return run_suite_as(suite, CK_FORK);
}

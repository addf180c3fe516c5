/* The resolver alone, against a driver with oddities (strange_driver.c), and its view of
 * objects against the loader's.  Every test runs in a process of its own, so it starts with
 * nothing known.  This program takes the place of the library: "ours" are its own symbols. */
#include <check.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/order/fence.h"
#include "bind/callers.h"
#include "track/running.h"
#include "bind/resolve.h"
#include "bind/watch.h"
#include "observe/live.h"
#include "strange_driver.h"
#include "run_suite.h"

extern unsigned stub_forgotten;
extern bool stub_guest;
extern void (*stub_meanwhile)(void);

static void *open_driver(void) {
    void *driver = dlopen(STRANGE_DRIVER, RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(driver != NULL, "%s", dlerror());
    return driver;
}

static void *hook(const char *name) {
    int index = ac_hook_by_name(name);
    ck_assert_msg(index >= 0, "%s is no hook", name);
    return ac_hook_function(index);
}

static uint64_t counted(unsigned counter) {
    return ac_live_common->counter[counter];
}

START_TEST(names_lead_to_their_rows) {
    for (int i = 0; i < AC_HOOK_COUNT; i++) {
        bool loader = ac_hook_kinds[i] == AC_KIND_LOADER;
        ck_assert_int_eq(ac_hook_by_name(ac_hook_name(i)), loader ? AC_HOOK_NONE : i);
        if (!loader)
            ck_assert_msg(ac_hook_function(i) != NULL, "%s is not exported", ac_hook_name(i));
    }
    static const char *const none[] = {
        "",       "cu",          "cuMem",       "cuMemAlloc",    "cuMemAlloc_v22",
        "malloc", "cudaMallocX", "cudnnCreate", "curl_easy_init"};
    for (unsigned i = 0; i < sizeof(none) / sizeof(none[0]); i++)
        ck_assert_int_eq(ac_hook_by_name(none[i]), AC_HOOK_NONE);
}
END_TEST

START_TEST(every_function_is_found_by_its_query) {
    unsigned rows = 0, reached = 0;
#define CU_FN(symbol, name, since, mode, params, args) rows++;
#include "device/cuda_functions.def"
#undef CU_FN
    for (unsigned i = 0; i < rows; i++) {
        ck_assert_int_eq(ac_function_by_symbol(ac_function_symbol((int)i)), (int)i);
        ck_assert_int_eq(ac_function_hook((int)i), ac_hook_by_name(ac_function_symbol((int)i)));
        bool found = false;
        unsigned length = 0;
        for (int row = ac_function_next(ac_function_name((int)i), -1); row >= 0;
             row = ac_function_next(ac_function_name((int)i), row)) {
            ck_assert_str_eq(ac_function_name(row), ac_function_name((int)i));
            found |= row == (int)i;
            ck_assert_uint_lt(++length, 20);
        }
        reached += found;
    }
    ck_assert_uint_eq(reached, rows);
    ck_assert_int_eq(ac_function_next("cuNothing", -1), -1);
    ck_assert_int_eq(ac_function_by_symbol("cuFutureLaunch"), -1);
}
END_TEST

START_TEST(objects_agree_with_the_loader) {
    static const char *const names[] = {"malloc",  "printf", "dlsym",          "dlopen", "qsort",
                                        "environ", "fopen",  "no_such_symbol", ""};
    ac_object_t libc = ac_object_by_soname("libc.so.6");
    void *handle = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    ck_assert(libc.dynamic && handle);
    ck_assert_str_eq(ac_object_soname(&libc), "libc.so.6");
    ac_dlsym_fn *real = ac_real_dlsym();
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        ck_assert_msg(ac_object_symbol(&libc, names[i]) == real(handle, names[i]), "%s",
                      names[i]);
    ck_assert_ptr_eq(__extension__(void *) real, ac_object_symbol(&libc, "dlsym"));
    ck_assert(!ac_is_ours(__extension__(void *) real));

    ac_object_t here = ac_object_of(names);
    ck_assert(ac_is_ourselves(&here));
    ck_assert(ac_is_ours(__extension__(void *) open_driver));
    ck_assert_ptr_null(ac_object_by_soname("libcuda.so").dynamic);
    ck_assert_ptr_eq(ac_object_after(names, "gnu_get_libc_version").dynamic, libc.dynamic);
    ck_assert_ptr_null(ac_object_after(names, "no_such_symbol").dynamic);
    ck_assert_ptr_null(ac_object_of((void *)16).dynamic);
}
END_TEST

START_TEST(without_a_driver_there_is_nothing) {
    ck_assert_ptr_null(ac_resolve_driver("cuInit"));
    ck_assert_ptr_null(ac_real_get(AC_HOOK_cuInit));
    ck_assert_ptr_null(ac_resolve_substitute((void *)0x1000));
    ck_assert_ptr_null(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
    ck_assert_ptr_nonnull(strstr(dlerror(), "cuMemAlloc_v2"));
    ck_assert_ptr_null(dlsym(RTLD_NEXT, "cuMemAlloc_v2"));
    ck_assert_uint_eq(counted(AC_COUNT_lookups_substituted), 0);
    void *function = &function;
    ck_assert_uint_ne(cuGetProcAddress_v2("cuInit", &function, 2000, 0, NULL), CUDA_SUCCESS);
    ck_assert(!atomic_load(&ac_fence_untracked));

    /* A later driver is found all the same. */
    void *driver = open_driver();
    ck_assert_ptr_eq(dlsym(driver, "cuMemAlloc_v2"), hook("cuMemAlloc_v2"));
    ck_assert_ptr_nonnull(ac_real_get(AC_HOOK_cuInit));
}
END_TEST

START_TEST(addresses_decide) {
    void *driver = open_driver();
    ac_dlsym_fn *real = ac_real_dlsym();
    for (int i = 0; i < AC_HOOK_COUNT; i++) {
        if (ac_hook_kinds[i] != AC_KIND_DRIVER)
            continue;
        void *natural = real(driver, ac_hook_name(i));
        ck_assert_msg(dlsym(driver, ac_hook_name(i)) == (natural ? ac_hook_function(i) : NULL),
                      "%s", ac_hook_name(i));
        ck_assert_ptr_eq(ac_real_get((ac_hook_t)i), natural);
        if (natural)
            ck_assert_ptr_null(dlerror());
    }
    ck_assert_ptr_eq(ac_resolve_substitute(real(driver, "cuMemAlloc_v2")), hook("cuMemAlloc_v2"));
    ck_assert_ptr_null(ac_resolve_substitute(real(driver, "cuDeviceGetCount")));
    ck_assert_ptr_eq(dlsym(driver, "cuDeviceGetCount"), real(driver, "cuDeviceGetCount"));
    ck_assert_ptr_null(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2")); /* it is loaded RTLD_LOCAL */
    ck_assert(!atomic_load(&ac_fence_untracked));
}
END_TEST

START_TEST(a_driver_once_seen_stays) {
    void *driver = open_driver();
    cuInit_fn *ours = __extension__(cuInit_fn *) dlsym(driver, "cuInit");
    ck_assert_ptr_eq(__extension__(void *) ours, hook("cuInit"));
    ck_assert_int_eq(dlclose(driver), 0);
    ck_assert_uint_eq(AC_REAL(cuInit)(7), 7); /* what we remember must not be unmapped */
    ck_assert_ptr_eq(dlsym(open_driver(), "cuInit"), hook("cuInit"));
}
END_TEST

static void *look_all_up(void *driver) {
    ac_dlsym_fn *real = ac_real_dlsym();
    uintptr_t wrong = 0;
    for (int i = 0; i < AC_HOOK_COUNT; i++) {
        if (ac_hook_kinds[i] != AC_KIND_DRIVER)
            continue;
        void *natural = real(driver, ac_hook_name(i));
        wrong += dlsym(driver, ac_hook_name(i)) != (natural ? ac_hook_function(i) : NULL);
    }
    return (void *)wrong;
}

START_TEST(threads_may_come_first_together) {
    enum { THREADS = 8 };
    void *driver = open_driver();
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, look_all_up, driver), 0);
    for (int i = 0; i < THREADS; i++) {
        void *wrong = NULL;
        pthread_join(threads[i], &wrong);
        ck_assert_uint_eq((uintptr_t)wrong, 0);
    }
}
END_TEST

START_TEST(the_driver_finds_itself) {
    void *driver = open_driver();
    void *(*look)(const char *) =
        __extension__(void *(*)(const char *)) dlsym(driver, "strange_lookup");
    ck_assert(dlsym(driver, "cuInit") == hook("cuInit"));
    ck_assert_ptr_eq(look("cuInit"), ac_resolve_driver("cuInit"));
    ck_assert(look("cuInit") != hook("cuInit"));
}
END_TEST

static void *ask(const char *name, int version, cuuint64_t flags) {
    void *function = NULL;
    CUdriverProcAddressQueryResult status = 99;
    CUresult result = cuGetProcAddress_v2(name, &function, version, flags, &status);
    ck_assert_uint_eq(result, function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
    ck_assert_uint_eq(status, function ? 0 : 1);
    return function;
}

START_TEST(rows_decide_where_addresses_cannot) {
    open_driver();
    /* One address, two symbols: the question tells which is meant. */
    ck_assert_ptr_eq(ask("cuMemFreeAsync", 11020, 0), hook("cuMemFreeAsync"));
    ck_assert_ptr_eq(ask("cuMemFreeAsync", 11020, 2), hook("cuMemFreeAsync_ptsz"));
    /* An address without a symbol, a symbol that the driver does not even export. */
    ck_assert_ptr_null(ac_real_get(AC_HOOK_cuMemFree_v2));
    ck_assert_ptr_eq(ask("cuMemFree", 3020, 0), hook("cuMemFree_v2"));
    ck_assert_uint_eq(AC_REAL(cuMemFree_v2)(1), CUDA_SUCCESS);
    /* The same for a function that is no hook: left alone, and known. */
    void *name = ask("cuDeviceGetName", 2000, 0);
    ck_assert(name && !ac_is_ours(name));
    ck_assert_ptr_eq(ask("cuMemAlloc", 99000, 0), hook("cuMemAlloc_v2"));
    ck_assert_ptr_null(ask("cuNothing", 13000, 0));
    ck_assert(!atomic_load(&ac_fence_untracked));
}
END_TEST

typedef CUresult future_fn(void);

static CUresult call(void *function) {
    return (__extension__(future_fn *) function)();
}

START_TEST(a_newer_variant_is_noticed_when_called) {
    CUcontext context;
    open_driver();
    ck_assert(!ac_is_ours(ask("cuProfilerStart", 4000, 0)));
    cuCtxCreate_fn *create = __extension__(cuCtxCreate_fn *) ask("cuCtxCreate", 20000, 0);
    ck_assert(create && __extension__(void *) create != hook("cuCtxCreate_v2"));
    ck_assert(!atomic_load(&ac_fence_untracked) && !atomic_load(&ac_current_unseen));
    ck_assert_uint_eq(create(&context, 0, 0), CUDA_SUCCESS);
    ck_assert(atomic_load(&ac_fence_untracked) && atomic_load(&ac_current_unseen));
}
END_TEST

/* A runtime that starts looks up what hardly any program calls. */
START_TEST(an_unknown_function_is_noticed_when_called) {
    void *driver = open_driver();
    ck_assert_ptr_nonnull(dlsym(driver, "cuProfilerStart"));
    ck_assert_ptr_null(dlsym(driver, "cuFutureNothing"));
    void *launch = _i == 0 ? ask("cuFutureLaunch", 13000, 0) : dlsym(driver, "cuFutureLaunch");
    ck_assert_ptr_nonnull(launch);
    ck_assert_ptr_eq(launch, ask("cuFutureLaunch", 13000, 0)); /* they are compared */
    ck_assert_ptr_eq(launch, dlsym(driver, "cuFutureLaunch"));
    ck_assert_ptr_ne(launch, dlsym(driver, "cuFutureDoubles"));
    ck_assert(!atomic_load(&ac_fence_untracked) && !atomic_load(&ac_fence_shared));
    ck_assert_uint_eq(counted(AC_COUNT_unknown_functions), 0);
    ck_assert_uint_eq(call(launch), CUDA_SUCCESS);
    ck_assert(ac_fence_is_unseen()); /* the whole of it, though no context was served yet */
    ck_assert_uint_eq(counted(AC_COUNT_unknown_functions), 1);
    ck_assert_uint_eq(call(launch), CUDA_SUCCESS);
    ck_assert_uint_eq(counted(AC_COUNT_unknown_functions), 1);
}
END_TEST

/* Two threads in the first call: one function was called, and neither goes on too early. */
static void *function_of_two;

static void *call_seen(void *arg) {
    (void)arg;
    call(function_of_two);
    ck_assert(ac_fence_is_unseen());
    return NULL;
}

static void call_in_another(void) {
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, call_seen, NULL), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

START_TEST(an_unknown_function_is_counted_once) {
    function_of_two = dlsym(open_driver(), "cuFutureLaunch");
    stub_meanwhile = call_in_another;
    ck_assert_uint_eq(call(function_of_two), CUDA_SUCCESS);
    ck_assert(!stub_meanwhile);
    ck_assert_uint_eq(counted(AC_COUNT_unknown_functions), 1);
}
END_TEST

/* Frames go through streams, and lead others to memory of ours; connections do not. */
START_TEST(frames_are_noticed) {
    static const char *const names[] = {
        "cuEGLStreamProducerPresentFrame", "cuEGLStreamProducerReturnFrame",
        "cuEGLStreamConsumerAcquireFrame", "cuEGLStreamConsumerReleaseFrame",
        "cuEGLStreamConsumerConnect",      "cuEGLStreamConsumerConnectWithFlags",
        "cuEGLStreamProducerConnect",      "cuEGLStreamProducerDisconnect"};
    open_driver();
    void *found = ask(names[_i], 7000, 0);
    ck_assert_ptr_nonnull(found);
    ck_assert(!ac_fence_is_unseen());
    ck_assert_uint_eq(call(found), CUDA_SUCCESS);
    ck_assert(ac_fence_is_unseen() == (_i < 4));
}
END_TEST

/* It is noticed before the driver is entered, and the driver gets what the program gave. */
START_TEST(an_unknown_function_gets_its_arguments) {
    void *driver = open_driver();
    const strange_value_t value = {{51, 57, 63}};
    const double third = 3.5;
    bool noticed = false;
    strange_arguments_fn *direct =
        __extension__(strange_arguments_fn *) ac_resolve_driver("cuFutureArguments");
    strange_arguments_fn *found =
        __extension__(strange_arguments_fn *) dlsym(driver, "cuFutureArguments");
    ck_assert(found && found != direct);
#define ARGUMENTS                                                                                \
    (&noticed, ac_fence_is_unseen, 3, (uint64_t)1 << 40, &third, 4, 5, (uint64_t)1 << 41, 7.25,  \
     8.5, 9.75f, 10, 11, 12, 13, 14, 15, value)
    double right = direct ARGUMENTS;
    ck_assert(!noticed);
    for (int i = 0; i < 2; i++) {
        noticed = false;
        ck_assert_double_eq(found ARGUMENTS, right);
        ck_assert(noticed);
    }
}
END_TEST

START_TEST(an_unknown_function_may_be_variadic) {
    strange_doubles_fn *found =
        __extension__(strange_doubles_fn *) dlsym(open_driver(), "cuFutureDoubles");
    ck_assert_double_eq(found(10, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0), 385);
    ck_assert(ac_fence_is_unseen());
}
END_TEST

static void *call_in_thread(void *function) {
    bool noticed = false;
    const strange_value_t value = {{0}};
    const double third = 0;
    (__extension__(strange_arguments_fn *) function)(&noticed, ac_fence_is_unseen, 0, 0, &third,
                                                     0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, value);
    return noticed ? function : NULL;
}

START_TEST(threads_may_call_first_together) {
    enum { THREADS = 8 };
    void *found = dlsym(open_driver(), "cuFutureArguments");
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, call_in_thread, found), 0);
    for (int i = 0; i < THREADS; i++) {
        void *noticed = NULL;
        pthread_join(threads[i], &noticed);
        ck_assert_ptr_nonnull(noticed);
    }
}
END_TEST

static void find_another_name(void) {
    ck_assert_ptr_nonnull(ask("cuFutureCtxArguments", 13000, 0));
}

/* One function, two names: the second tells more.  It is asked for after the first call, before it, and in it. */
START_TEST(another_name_of_an_unknown_function) {
    void *found = dlsym(open_driver(), "cuFutureArguments");
    if (_i == 2)
        stub_meanwhile = find_another_name;
    if (_i != 1)
        ck_assert_ptr_nonnull(call_in_thread(found));
    ck_assert(!stub_meanwhile);
    if (_i != 2)
        ck_assert_ptr_eq(ask("cuFutureCtxArguments", 13000, 0), found);
    if (_i == 1) {
        ck_assert(!atomic_load(&ac_current_unseen));
        ck_assert_ptr_nonnull(call_in_thread(found));
    }
    ck_assert(atomic_load(&ac_current_unseen));
}
END_TEST

/* In a child made by fork no lock of ours may be taken, in a host function the driver not be
 * called: it refuses the program everything there. */
START_TEST(an_unknown_function_where_the_driver_refuses) {
    void *launch = dlsym(open_driver(), "cuFutureLaunch");
    atomic_store(&ac_state, _i == 0 ? AC_STATE_INERT : AC_STATE_ACTIVE);
    stub_guest = _i == 1;
    ck_assert_uint_eq(call(launch), CUDA_SUCCESS);
    ck_assert(!atomic_load(&ac_fence_untracked));
    atomic_store(&ac_state, AC_STATE_ACTIVE);
    stub_guest = false;
    ck_assert_uint_eq(call(launch), CUDA_SUCCESS);
    ck_assert(ac_fence_is_unseen());
}
END_TEST

/* Answers that stay as they are count as called. */
START_TEST(what_cannot_be_watched_is_noticed_at_once) {
    static char many[AC_WATCHES];
    void *driver = open_driver(), *found;
    if (_i == 0) {
        found = dlsym(driver, "cuFutureData");
        ck_assert_int_eq(*(int *)found, 5);
    } else if (_i == 1) {
        ck_assert_ptr_null(dlsym(RTLD_NEXT, "cuFutureLaunch")); /* some scope has it */
    } else {
        for (unsigned i = 0; i < AC_WATCHES; i++) {
            found = ac_watch(&many[i], 0);
            ck_assert_ptr_nonnull(found);
            ck_assert_ptr_eq(ac_watch(&many[i], 0), found);
        }
        ck_assert(!atomic_load(&ac_fence_untracked));
        found = dlsym(driver, "cuFutureLaunch");
        ck_assert_ptr_eq(found, ac_resolve_driver("cuFutureLaunch"));
    }
    ck_assert(ac_fence_is_unseen());
    ck_assert_uint_eq(counted(AC_COUNT_unknown_functions), 1);
}
END_TEST

typedef CUresult gl_make_fn(CUcontext *context, unsigned flags, CUdevice device);
typedef CUresult vdpau_make_fn(CUcontext *context, unsigned flags, CUdevice device,
                               unsigned vdp_device, void *vdp_lookup);

START_TEST(a_context_of_graphics_becomes_current) {
    void *driver = open_driver();
    CUcontext context = NULL;
    /* Asked for by every runtime that starts: no reason to be careful from then on. */
    void *gl = _i == 0 ? ask("cuGLCtxCreate", 3020, 0) : dlsym(driver, "cuGLCtxCreate_v2");
    ck_assert(gl && ac_is_ours(gl));
    gl_make_fn *make = __extension__(gl_make_fn *) gl;
    ck_assert_uint_eq(make(&context, 40, 2), 42);
    ck_assert_ptr_eq(context, (CUcontext)&context);
    ck_assert_uint_eq(stub_forgotten, 1);
    if (_i == 0) {
        vdpau_make_fn *vdpau = __extension__(vdpau_make_fn *) ask("cuVDPAUCtxCreate", 3020, 0);
        ck_assert(ac_is_ours(__extension__(void *) vdpau));
        ck_assert_uint_eq(vdpau(&context, 40, 2, 3, driver), 45);
        ck_assert_ptr_eq(context, (CUcontext)driver);
        ck_assert_uint_eq(stub_forgotten, 2);
    }
    ck_assert(!atomic_load(&ac_current_unseen));
    ck_assert(!atomic_load(&ac_fence_untracked));
    ck_assert_uint_eq(counted(AC_COUNT_unknown_functions), 0);
}
END_TEST

/* Ways to make a context current that are not ours to follow. */
START_TEST(the_current_context_may_change_unseen) {
    CUcontext context;
    void *driver = open_driver();
    call(dlsym(driver, "cuFutureLaunch"));
    ck_assert(!atomic_load(&ac_current_unseen));
    if (_i == 0)
        call(dlsym(driver, "cuFutureCtxMake"));
    else if (_i == 1)
        (__extension__(cuCtxCreate_fn *) ask("cuCtxCreate", 20000, 0))(&context, 0, 0);
    else if (_i == 2)
        (__extension__(vdpau_make_fn *) ask("cuVDPAUCtxCreate", 20000, 0))(&context, 0, 0, 0,
                                                                           NULL);
    else
        ck_assert_ptr_null(dlsym(RTLD_NEXT, "cuGLCtxCreate_v2")); /* some scope has it */
    ck_assert(atomic_load(&ac_current_unseen));
    ck_assert_uint_eq(counted(AC_COUNT_unknown_functions), _i == 3 ? 1 : 2);
}
END_TEST

/* What the runtimes ask for changes nothing, what the driver refuses neither. */
START_TEST(a_table_that_no_list_knows_is_noticed) {
    static const uint64_t lists[][2] = {
#define HARMLESS_FUNCTION(name)
#define HARMLESS_TABLE(name, first, last) {first, last},
#include "bind/harmless.def"
        {0, 0}};
    const void *table = NULL;
    CUuuid id;
    open_driver();
    for (unsigned i = 0; i < sizeof lists / sizeof *lists; i++) {
        for (int byte = 0; byte < 16; byte++)
            id.bytes[byte] = (char)(lists[i][byte / 8] >> (56 - 8 * (byte % 8)));
        ck_assert_uint_eq(cuGetExportTable(&table, &id),
                          lists[i][0] ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
        ck_assert_ptr_eq(table, &id);
    }
    ck_assert(!ac_fence_is_unseen() && !atomic_load(&ac_current_unseen));
    ck_assert_uint_eq(counted(AC_COUNT_unknown_tables), 0);
    id.bytes[_i] ^= 1;
    ck_assert_uint_eq(cuGetExportTable(&table, &id), CUDA_SUCCESS);
    ck_assert_ptr_eq(table, &id);
    ck_assert(ac_fence_is_unseen() && atomic_load(&ac_current_unseen));
    ck_assert(atomic_load(&ac_graph_unseen));
    ck_assert_uint_eq(counted(AC_COUNT_unknown_tables), 1);
}
END_TEST

/* The object is there already, so that only what comes before the load forgets. */
START_TEST(a_caller_is_forgotten_with_each_dlopen) {
    static ac_callers_t callers;
    const void *code = __extension__(const void *) ac_callers_word;
    unsigned number = 0;
    void *library = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    ck_assert_ptr_nonnull(library);
    for (unsigned turn = 1; turn <= 3; turn++) {
        ck_assert(!ac_callers_find(&callers, ac_callers_word(code), &number));
        ac_callers_remember(&callers, ac_callers_word(code), turn);
        ck_assert(ac_callers_find(&callers, ac_callers_word(code), &number) && number == turn);
        void *again = turn % 2 ? dlopen("libc.so.6", RTLD_NOW)
                               : dlmopen(LM_ID_BASE, "libc.so.6", RTLD_NOW);
        ck_assert_ptr_eq(again, library);
    }
}
END_TEST

START_TEST(failures_are_the_drivers) {
    open_driver();
    void *function = NULL;
    ck_assert_uint_eq(cuGetProcAddress_v2("cuMemAlloc", &function, 12000, 77, NULL),
                      CUDA_ERROR_INVALID_VALUE);
    ck_assert(!ac_is_ours(function));
    /* This driver has no function of four arguments. */
    ck_assert_uint_eq(cuGetProcAddress("cuMemAlloc", &function, 12000, 0), CUDA_ERROR_NOT_FOUND);
}
END_TEST

static Suite *suite(void) {
    Suite *suite = suite_create("resolver");
    TCase *tests = tcase_create("resolver");
    tcase_add_test(tests, names_lead_to_their_rows);
    tcase_add_test(tests, every_function_is_found_by_its_query);
    tcase_add_test(tests, objects_agree_with_the_loader);
    tcase_add_test(tests, without_a_driver_there_is_nothing);
    tcase_add_test(tests, addresses_decide);
    tcase_add_test(tests, a_driver_once_seen_stays);
    tcase_add_loop_test(tests, threads_may_come_first_together, 0, 20);
    tcase_add_test(tests, the_driver_finds_itself);
    tcase_add_test(tests, rows_decide_where_addresses_cannot);
    tcase_add_test(tests, a_newer_variant_is_noticed_when_called);
    tcase_add_loop_test(tests, an_unknown_function_is_noticed_when_called, 0, 2);
    tcase_add_test(tests, an_unknown_function_is_counted_once);
    tcase_add_loop_test(tests, frames_are_noticed, 0, 8);
    tcase_add_test(tests, an_unknown_function_gets_its_arguments);
    tcase_add_test(tests, an_unknown_function_may_be_variadic);
    tcase_add_test(tests, threads_may_call_first_together);
    tcase_add_loop_test(tests, another_name_of_an_unknown_function, 0, 3);
    tcase_add_loop_test(tests, an_unknown_function_where_the_driver_refuses, 0, 2);
    tcase_add_loop_test(tests, what_cannot_be_watched_is_noticed_at_once, 0, 3);
    tcase_add_loop_test(tests, a_context_of_graphics_becomes_current, 0, 2);
    tcase_add_loop_test(tests, the_current_context_may_change_unseen, 0, 4);
    tcase_add_loop_test(tests, a_table_that_no_list_knows_is_noticed, 0, 16);
    tcase_add_test(tests, a_caller_is_forgotten_with_each_dlopen);
    tcase_add_test(tests, failures_are_the_drivers);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void) {
    return run_suite(suite());
}

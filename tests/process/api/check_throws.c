/* PyTorch is loaded as Python's extensions are: libstdc++ is in no scope that all can see. */
#include <check.h>
#include <dlfcn.h>

#include "accelcache.h"
#include "run_suite.h"

typedef int ask_fn(void *(*ask)(size_t bytes, int device, void *stream));

START_TEST(out_of_memory_throws) {
    ask_fn *asks_for_too_much = NULL;
    ck_assert(!dlsym(RTLD_DEFAULT, "_ZSt17__throw_bad_allocv"));
    ck_assert_ptr_null(accel_torch_malloc_or_throw((size_t)1 << 45, 0, NULL));
    void *plugin = dlopen(API_THROWER, RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(plugin != NULL, "%s", dlerror());
    ck_assert(!dlsym(RTLD_DEFAULT, "_ZSt17__throw_bad_allocv"));
    *(void **)&asks_for_too_much = dlsym(plugin, "asks_for_too_much");
    ck_assert(asks_for_too_much != NULL);
    ck_assert_int_eq(asks_for_too_much(accel_torch_malloc_or_throw), 2);
    ck_assert_int_eq(asks_for_too_much(accel_torch_malloc), 1);
    dlclose(plugin);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("throws");
    TCase *all = tcase_create("throws");
    tcase_add_test(all, out_of_memory_throws);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}

/* PyTorch is loaded like Python's extensions: libstdc++ is not in the global scope. */
#include <dlfcn.h>

#include "api.h"

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
    const TTest *const tests[] = {out_of_memory_throws, NULL};
    return run_tests("throws", tests);
}

/* How often the rules of frames are rebuilt: once for each load, whether a hook saw it or not. */
#include <check.h>
#include <dlfcn.h>

#include "bind/callers.h"
#include "tell/frame_rules.h"
#include "bind/resolve.h"
#include "run_suite.h"

/* Replaces the library's function: no frame belongs to this library here. */
bool ac_is_ourselves(const ac_object_t *object) {
    (void)object;
    return false;
}

unsigned frame_call(unsigned (*function)(void)); /* of a library that may be unloaded */

static unsigned walk_here(void) {
    static ac_thread_t thread;
    uintptr_t pc[64];
    unsigned count = 0;
    ac_frame_walk(&thread, pc, 64, &count);
    return count;
}

static unsigned walk(void) {
    return frame_call(walk_here);
}

static void *opened(const char *name) {
    void *handle = dlopen(name, RTLD_NOW);
    ck_assert_msg(handle != NULL, "%s: %s", name, dlerror());
    return handle;
}

static void *open_seen(const char *name) {
    ac_callers_forget(); /* as the hook does, before the load */
    return opened(name);
}

/* Both libraries are part of glibc, and nothing else loads them. */
START_TEST(made_once_for_a_load_that_is_seen) {
    walk();
    uint32_t before = ac_callers_now();
    walk();
    ck_assert_uint_eq(ac_callers_now(), before);
    open_seen("libBrokenLocale.so.1");
    for (int i = 0; i < 3; i++)
        walk();
    ck_assert_uint_eq(ac_callers_now(), before + 1);
    open_seen("libBrokenLocale.so.1"); /* this call loads nothing */
    walk();
    ck_assert_uint_eq(ac_callers_now(), before + 2);
}
END_TEST

START_TEST(made_anew_for_a_load_that_is_not_seen) {
    walk();
    uint32_t before = ac_callers_now();
    void *handle = opened("libanl.so.1");
    ck_assert_uint_gt(walk(), 2);
    ck_assert_uint_eq(ac_callers_now(), before + 1);
    ck_assert_int_eq(dlclose(handle), 0);
    for (int i = 0; i < 3; i++)
        walk();
    ck_assert_uint_eq(ac_callers_now(), before + 2);
}
END_TEST

/* The hook runs first. A walk that happens before the load finishes is outdated by that load. */
START_TEST(made_anew_where_a_look_comes_between) {
    walk();
    uint32_t before = ac_callers_now();
    ac_callers_forget();
    walk();
    ck_assert_uint_eq(ac_callers_now(), before + 1);
    opened("libanl.so.1");
    walk();
    ck_assert_uint_eq(ac_callers_now(), before + 2);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("frame_rules");
    TCase *all = tcase_create("all");
    tcase_add_test(all, made_once_for_a_load_that_is_seen);
    tcase_add_test(all, made_anew_for_a_load_that_is_not_seen);
    tcase_add_test(all, made_anew_where_a_look_comes_between);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}

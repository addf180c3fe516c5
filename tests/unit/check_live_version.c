/* The version of the live page must differ for rows of equal layout: two counters swapped
 * (swapped), or one renamed (named). Otherwise a reader would show wrong figures. */
#include <check.h>

#include "observe/live.h"
#include "run_suite.h"

uint32_t version_swapped(void);
uint32_t version_named(void);

START_TEST(other_rows_are_another_version) {
    ck_assert_uint_ne(version_swapped(), ac_live_version());
    ck_assert_uint_ne(version_named(), ac_live_version());
    ck_assert_uint_ne(version_named(), version_swapped());
}
END_TEST

START_TEST(a_page_of_other_rows_is_refused) {
    char why[512];
    bool alive;
    ac_live_name_t name;
    ck_assert_int_eq(ac_live_open("", "", 0, 0), 0);
    ck_assert(ac_live_find((int)ac_live->pid, 0, &name));
    const ac_live_t *page = ac_live_read(&name, &alive, why, sizeof why);
    ck_assert_msg(page != NULL, "%s", why);
    ac_live_free(page);
    ac_live->version = version_swapped();
    ck_assert_ptr_null(ac_live_read(&name, &alive, why, sizeof why));
    ac_live_close();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("live_version");
    TCase *cases = tcase_create("live_version");
    tcase_add_test(cases, other_rows_are_another_version);
    tcase_add_test(cases, a_page_of_other_rows_is_refused);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}

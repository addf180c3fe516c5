/* Old names of keys: parser and dump of the product over rows of which two have one (other_rows). */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "observe/dump.h"
#include "run_suite.h"

static ac_config_t config;
static ac_config_error_t error;
static ac_config_warnings_t warnings;

static void accept(const char *text) {
    ck_assert_msg(ac_config_parse(text, &config, &error, &warnings) == 0, "%s: %s", text,
                  error.text);
}

START_TEST(an_old_name_is_taken_with_one_warning) {
    accept("barrier:sync, per_thread_mb:7");
    ck_assert_int_eq(config.fence, AC_FENCE_SYNC);
    ck_assert_uint_eq(config.thread_cache, (uint64_t)7 << 20);
    ck_assert_uint_eq(warnings.count, 2);
    ck_assert_ptr_nonnull(strstr(warnings.text[0], "barrier is called fence now"));
    ck_assert_ptr_nonnull(
        strstr(warnings.text[1], "per_thread_mb is called thread_cache_mb now"));
    accept("fence:sync,thread_cache_mb:7");
    ck_assert_uint_eq(warnings.count, 0);
}
END_TEST

START_TEST(both_names_are_one_key) {
    ck_assert_int_eq(ac_config_parse("barrier:sync,fence:ctx", &config, &error, NULL), -1);
    ck_assert_ptr_nonnull(strstr(error.text, "\"fence\": given twice"));
    ck_assert_int_eq(ac_config_parse("barrier:no", &config, &error, NULL), -1);
    ck_assert_ptr_nonnull(strstr(error.text, "position 8: key \"fence\": expected auto"));
}
END_TEST

START_TEST(only_new_names_are_shown) {
    char value[64];
    const char *key;
    accept("barrier:sync");
    for (unsigned i = 0; (key = ac_config_key(i)); i++)
        ck_assert_str_ne(key, "barrier");
    ck_assert_int_eq(ac_config_value(&config, "fence", value, sizeof value), 4);
    ck_assert_str_eq(value, "sync");
    ck_assert_str_eq(ac_config_renamed[0].old, "barrier");
    ck_assert_str_eq(ac_config_renamed[0].key, "fence");
    ck_assert_ptr_null(ac_config_renamed[2].old);
}
END_TEST

START_TEST(dumps_show_both_names) {
    size_t length;
    ac_live_set_conf("barrier:sync");
    char *text = ac_dump_text(ac_live, "request", &length);
    ck_assert_ptr_nonnull(text);
    ck_assert_ptr_nonnull(strstr(text, "\"fence\": \"sync\""));
    ck_assert_ptr_nonnull(strstr(text, "\"barrier\": \"sync\""));
    ck_assert_ptr_nonnull(strstr(text, "\"per_thread_mb\": \"128\""));
    free(text);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("renamed");
    TCase *cases = tcase_create("renamed");
    tcase_add_test(cases, an_old_name_is_taken_with_one_warning);
    tcase_add_test(cases, both_names_are_one_key);
    tcase_add_test(cases, only_new_names_are_shown);
    tcase_add_test(cases, dumps_show_both_names);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}

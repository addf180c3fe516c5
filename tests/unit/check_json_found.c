/* JSON texts of the command (tools/accelcache/base/safe.c) if jansson is found at run time instead of linked.
 * The first text needs jansson's functions before other code asked for them. */
#include <check.h>
#include <stdlib.h>

#include "command.h"
#include "observe/log.h"
#include "run_suite.h"

/* --- functions that the command provides --- */

void *cmd_alloc(size_t size) {
    return malloc(size);
}

void cmd_say(const char *format, ...) {
    ck_abort_msg("said: %s", format);
}

void ac_log(ac_log_level_t level, const char *format, ...) {
    (void)level;
    ck_abort_msg("said: %s", format);
}

/* --- */

START_TEST(text_is_the_first) {
    json_t *text = cmd_json_text("a\xff");
    ck_assert_str_eq(json_string_value(text), "a\xef\xbf\xbd");
    json_decref(text);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("json_found");
    TCase *c = tcase_create("command");
    tcase_add_test(c, text_is_the_first);
    suite_add_tcase(suite, c);
    return run_suite(suite);
}

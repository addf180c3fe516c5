/* Judging, as harness.h declares it. */
#include "harness.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void say_on_stderr(int status, const char *message) {
    (void)status;
    if (test_title)
        fprintf(stderr, "not ok %s, %s\n", test_title, message);
    else
        fprintf(stderr, "%s\n", message);
}

const char *test_title;
bool test_may_lack;
const char *(*test_result_name)(CUresult result);
test_say_fn *test_say = say_on_stderr;

void test_stop(int status, const char *format, ...) {
    char message[1000];
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    test_say(status, message);
    fflush(stdout);
    _exit(status);
}

static const char *base(const char *file) {
    const char *name = strrchr(file, '/');
    return name ? name + 1 : file;
}

void test_must(long long result, const char *call, const char *file, int line) {
    bool lacks = test_may_lack && result == CUDA_ERROR_NOT_SUPPORTED;
    if (result)
        test_stop(lacks ? TEST_SKIPPED : TEST_BROKEN, "%s:%d: %s => %lld%s%s", base(file), line, call,
                  result, test_result_name ? " " : "",
                  test_result_name ? test_result_name((CUresult)result) : "");
}

void test_need(bool holds, const char *condition, const char *file, int line) {
    if (!holds)
        test_stop(TEST_BROKEN, "%s:%d: not so: %s", base(file), line, condition);
}

void test_expect(bool holds, const char *condition, const char *file, int line) {
    if (!holds)
        test_stop(TEST_WRONG, "%s:%d: not so: %s", base(file), line, condition);
}

void test_gives(long long result, long long wanted, const char *call, const char *file,
                int line) {
    if (result != wanted)
        test_stop(TEST_WRONG, "%s:%d: %s => %lld, not %lld", base(file), line, call, result,
                  wanted);
}

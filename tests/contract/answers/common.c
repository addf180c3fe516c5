/* The functions that answers.h declares. */
#include "answers.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

const char *code(CUresult result) {
    static _Thread_local char text[4][16];
    static _Thread_local unsigned turn;
    if (result == CUDA_SUCCESS)
        return "ok";
    char *out = text[turn++ % 4];
    snprintf(out, sizeof text[0], "%u", (unsigned)result);
    return out;
}

/* Prints a message on stdout, where it is one of the compared lines. */
static void say(int status, const char *message) {
    printf("%s%s\n", status == TEST_BROKEN ? "SETUP FAILED " : "", message);
}

__attribute__((constructor)) static void say_on_stdout(void) {
    test_say = say;
}

/* Limit of a case, close to the limit of the test: it ends a case that hangs, but not one
 * that only lacks processor time. */
enum { CASE_S = 200 };

int in_child(const char *name, void (*body)(const void *), const void *arg) {
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(CASE_S);
        setvbuf(stdout, NULL, _IOLBF, 0);
        body(arg);
        fflush(stdout);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("fork");
        exit(2);
    }
    if (WIFSIGNALED(status))
        printf("%s: CRASHED signal %d\n", name, WTERMSIG(status));
    else if (WEXITSTATUS(status))
        printf("%s: FAILED status %d\n", name, WEXITSTATUS(status));
    return status;
}

const char *title;

static void run_case(const void *arg) {
    const answers_case_t *it = arg;
    title = it->name;
    it->run();
}

int in_children(const answers_case_t *cases, size_t count) {
    int failed = 0;
    for (size_t i = 0; i < count; i++)
        failed |= in_child(cases[i].name, run_case, &cases[i]);
    return failed;
}

CUresult say_answer(const char *what, CUresult result) {
    printf("%s: %s => %s\n", title, what, code(result));
    fflush(stdout);
    return result;
}

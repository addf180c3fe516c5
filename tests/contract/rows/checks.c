#include "checks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "accelcache.h"

#pragma weak accel_stats_json /* of the preloaded library */

enum { SECONDS = 60, TEXT = 160 };

CUcontext here;
static bool quiet;

static void say(int status, const char *message) {
    if (!quiet || status == TEST_BROKEN)
        fprintf(stderr, "%s: %s\n", test_title, message);
}

void expect(bool good, const char *what) {
    if (!good)
        test_stop(TEST_WRONG, "%s", what);
}

void set_up(void) {
    here = test_device(0);
}

CUdeviceptr take(void) {
    CUdeviceptr memory;
    MUST(cuMemAlloc_v2(&memory, MIB));
    return memory;
}

CUdeviceptr take_first(void) {
    take();
    return take();
}

bool comes_back(CUdeviceptr memory) {
    bool back = false;
    for (int i = 0; i < SOME && !back; i++)
        back = take() == memory;
    return back;
}

unsigned long long figure(const char *name) {
    char key[TEXT], *json = NULL;
    snprintf(key, sizeof key, "\"%s\":", name);
    if (accel_stats_json(&json) || !json)
        test_stop(TEST_BROKEN, "no statistics");
    const char *at = strstr(json, key);
    unsigned long long value = at ? strtoull(at + strlen(key), NULL, 10) : 0;
    free(json);
    return value;
}

int checks_run(const char *symbol, const char *name, const char *failpoint,
               void (*job)(const void *argument), const void *argument) {
    char title[TEXT], spoil[TEXT];
    int status;
    snprintf(title, sizeof title, "%s, %s%s%s", symbol, name, failpoint ? ", spoilt: " : "",
             failpoint ? failpoint : "");
    snprintf(spoil, sizeof spoil, "%s:%s", symbol, failpoint ? failpoint : "");
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        test_title = title;
        test_say = say;
        quiet = failpoint;
        if (failpoint)
            setenv("ACCEL_FAILPOINT_ROW", spoil, 1);
        alarm(SECONDS);
        job(argument);
        _exit(TEST_GOOD);
    }
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return TEST_BROKEN;
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    fprintf(stderr, "%s: ended by signal %d\n", title, WTERMSIG(status));
    return TEST_BROKEN;
}

#include "checks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "accelcache.h"

#pragma weak accel_stats_json /* of the library that is preloaded */

enum { SECONDS = 60, TEXT = 160 };

CUcontext here;
static const char *running = ""; /* what a message begins with */
static bool quiet;

void leave_with(int status, const char *what) {
    if (!quiet || status == BROKEN)
        fprintf(stderr, "%s: %s\n", running, what);
    _exit(status);
}

void expect(bool good, const char *what) {
    if (!good)
        leave_with(WRONG, what);
}

void must(CUresult result, const char *call) {
    char text[TEXT];
    snprintf(text, sizeof text, "%s: %d", call, (int)result);
    if (result)
        leave_with(BROKEN, text);
}

void set_up(void) {
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&here, 0));
    MUST(cuCtxSetCurrent(here));
}

CUstream new_stream(void) {
    CUstream stream;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
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
        leave_with(BROKEN, "no statistics");
    const char *at = strstr(json, key);
    unsigned long long value = at ? strtoull(at + strlen(key), NULL, 10) : 0;
    free(json);
    return value;
}

int checks_run(const char *symbol, const char *name, const char *plant,
               void (*job)(const void *argument), const void *argument) {
    char title[TEXT], spoil[TEXT];
    int status;
    snprintf(title, sizeof title, "%s, %s%s%s", symbol, name, plant ? ", spoilt: " : "",
             plant ? plant : "");
    snprintf(spoil, sizeof spoil, "%s:%s", symbol, plant ? plant : "");
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        running = title;
        quiet = plant;
        if (plant)
            setenv("ACCEL_PLANT_ROW", spoil, 1);
        alarm(SECONDS);
        job(argument);
        _exit(GOOD);
    }
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return BROKEN;
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    fprintf(stderr, "%s: ended by signal %d\n", title, WTERMSIG(status));
    return BROKEN;
}

/* Faults in recording the holders of memory, while host memory is short. */
#include "failpoints.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { BYTES = 1 << 20 };

/* Requests memory with at most `left` bytes of address space available. */
static void take_starved(failpoint_run_t *t, unsigned long left) {
    unsigned long pages = 0;
    struct rlimit usual;
    FILE *file = fopen("/proc/self/statm", "re");
    NEED(file && fscanf(file, "%lu", &pages) == 1);
    fclose(file);
    NEED(getrlimit(RLIMIT_AS, &usual) == 0);
    NEED(setrlimit(RLIMIT_AS, &(struct rlimit){pages * 4096 + left, usual.rlim_max}) == 0);
    MUST(cuMemAlloc_v2(&t->memory, BYTES));
    NEED(setrlimit(RLIMIT_AS, &usual) == 0);
}

/* Without the library there is no history to look at. */
static void look_for(const char *none, const char *fault) {
    int (*stats_json)(char **text);
    char *text;
    *(void **)&stats_json = dlsym(RTLD_DEFAULT, "accel_stats_json");
    if (!stats_json)
        return;
    NEED(stats_json(&text) == 0);
    if (strstr(text, none))
        test_stop(TEST_WRONG, fault);
    free(text);
}

/* The ring has 1 GiB in this row's settings. */
void failpoint_history_without_memory(failpoint_run_t *t) {
    take_starved(t, 256 << 20);
    look_for("\"dropped\": 0,", "an event is missing and not counted");
    failpoint_new(t, t->stream[0]);
}

/* The table of stacks takes 1.5 MiB. */
void failpoint_stack_without_memory(failpoint_run_t *t) {
    take_starved(t, 5 << 18);
    look_for("\"lost_stacks\": 0,", "a stack is missing and not counted");
    failpoint_new(t, t->stream[0]);
}

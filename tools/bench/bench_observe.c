/* `accelcache-dev bench`: the cost of observing; see bench.h and bench_observe.def. */
#include "bench.h"
#include "command.h"
#include "base/conf.h"
#include "base/output.h"
#include "run/trial.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const bench_observe_t bench_observe[BENCH_OBSERVE_COUNT] = {
#define BENCH_OBSERVE(id, conf, what) {#id, conf, what},
#include "bench_observe.def"
#undef BENCH_OBSERVE
};

/* A request that the thread's cache serves, and one that mostly misses it. */
static const struct {
    const char *id, *arguments;
} loops[] = {{"hit", "hot live=0 bytes=65536"},
             {"miss", "cycle count=200 low=4096 high=16777216"}};
enum { LOOPS = sizeof loops / sizeof *loops };

static const char *const endings[] = {".json", ".prom", ".trace"};

/* Returns the row's settings, with names below `stem`; malloc'd. */
static char *conf_of(const bench_t *b, const bench_observe_t *row, const char *stem) {
    const char *place = strstr(row->conf, "%s");
    if (!place)
        return cmd_conf_merge(b->conf, row->conf);
    char *own = cmd_format("%.*s%s%s", (int)(place - row->conf), row->conf, stem, place + 2);
    char *whole = cmd_conf_merge(b->conf, own);
    free(own);
    return whole;
}

static void forget_files(const char *stem) {
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        char *path = cmd_format("%s%s", stem, endings[i]);
        unlink(path);
        free(path);
    }
}

static void run_loop(bench_t *b, const bench_observe_t *row, int loop, const bench_child_t *child,
                     bool counts) {
    char *error = NULL, *part = cmd_format("observe/%s", row->id);
    const char *words = loops[loop].arguments;
    size_t name = strcspn(words, " "), i;
    char *arguments =
        cmd_format("%.*s passes=%d us=%ld pairs=%ld cpu=%d%s", (int)name, words, b->quick ? 5 : 7,
                   b->pass_us, b->pairs, b->simulated, words + name);
    bench_child_t timed = *child;
    json_t *all = bench_child_run(b, &timed, arguments, &error), *ns;
    double each;
    if (!all)
        bench_leave_out(b, BENCH_accelcache, part, error);
    json_array_foreach(json_object_get(json_array_get(all, 0), "ns"), i, ns) {
        bench_sample(b, json_number_value(ns), "observe/%s/%s_ns", row->id, loops[loop].id);
    }
    json_decref(all);
    free(error);
    error = NULL;
    if (counts && bench_count(b, child, words, &each, 1, &error) == 1)
        bench_sample(b, each, "observe/%s/%s_instructions", row->id, loops[loop].id);
    else if (counts)
        bench_skip(b, part, error);
    free(error);
    free(arguments);
    free(part);
}

/* Rows take turns, so that other load on the machine affects all of them alike.  The counts do not
 * vary: once is enough. */
void bench_run_observe(bench_t *b, long round) {
    bool counts = b->instructions && round == 0 && bench_can_count(b, "observe_instructions");
    char *folder = cmd_trial_folder(NULL);
    if (!folder) {
        bench_skip(b, "observe", "there is no folder for its files");
        b->failed = true;
        return;
    }
    cmd_folder_guard(folder);
    char *stem = cmd_format("%s/file", folder);
    for (int i = 0; i < BENCH_OBSERVE_COUNT; i++) {
        const bench_observe_t *row = &bench_observe[i];
        char *conf = conf_of(b, row, stem);
        bench_child_t child = {.program = "bench_runtime", .preload = true, .conf = conf};
        bench_progress(b, round, row->id);
        for (int loop = 0; loop < LOOPS; loop++) {
            run_loop(b, row, loop, &child, counts);
            forget_files(stem);
        }
        free(conf);
    }
    free(stem);
    cmd_folder_remove(folder);
    cmd_folder_guard(NULL);
    free(folder);
}

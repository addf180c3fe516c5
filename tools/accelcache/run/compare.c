/* `accelcache run --compare`: the same program with caching off, then on. */
#include "command.h"
#include "run/run.h"
#include "base/terminal.h"
#include "run/trial.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Figures of a comparison: one row each.
 *   FIGURE(key, unit, "label", expression of a trial `t`, "what it measures") */
#define FIGURES                                                                                  \
    FIGURE(wall_ns, ns, "wall time", t->wall, "from the start of the program to its end")        \
    FIGURE(allocation_ns, ns, "in allocation calls",                                             \
           PROCESS(passed_ns) + DEVICE(driver_alloc_ns) + DEVICE(driver_free_ns) +               \
               WAITS + PROCESS(shim_ns),                                                         \
           "host time of requests for memory and of frees: the four rows below; threads at "     \
           "work at the same time add up")                                                       \
    FIGURE(passed_ns, ns, "  driver, for the program", PROCESS(passed_ns),                       \
           "in the driver, for requests and frees of the program that are left to it, "          \
           "stream-ordered ones included")                                                       \
    FIGURE(segment_ns, ns, "  driver, for segments",                                             \
           DEVICE(driver_alloc_ns) + DEVICE(driver_free_ns),                                     \
           "in the driver, for the memory that the library serves requests from")                \
    FIGURE(fence_wait_ns, ns, "  waiting for fences", WAITS,                                     \
           "requests that waited for the device to finish with freed memory, and frees that "    \
           "waited for results (free_sync)")                                                     \
    FIGURE(shim_ns, ns, "  in the library", PROCESS(shim_ns),                                    \
           "the library's own work, an estimate from one call in 128, so it is rough below some "    \
           "thousand calls; what a thread serves from "                                          \
           "its own cache, about 10 ns a call, is not in it")                                    \
    FIGURE(driver_calls, calls, "driver calls made",                                             \
           PROCESS(passed_allocs) + PROCESS(passed_frees) + PROCESS(passed_async) +              \
               PROCESS(passed_async_frees) + DEVICE(driver_allocs) + DEVICE(driver_frees),       \
           "allocations and frees that reached the driver")                                      \
    FIGURE(saved_calls, calls, "driver calls saved",                                             \
           DEVICE(cached_allocs) + DEVICE(cached_frees), "allocations and frees that did not")   \
    FIGURE(reserved_peak, bytes, "peak reserved", t->figures.reserved_peak,                      \
           "most memory that the library had from the driver at a time; with caching off it "    \
           "has none")                                                                           \
    FIGURE(allocated_peak, bytes, "peak allocated", t->figures.allocated_peak,                   \
           "most memory that the program held of it at a time")
#define WAITS         DEVICE(fence_wait_ns) + PROCESS(free_wait_ns)
#define DEVICE(name)  (int64_t) t->figures.device.name
#define PROCESS(name) (int64_t) t->figures.process[AC_COUNT_##name]

enum {
#define FIGURE(key, unit, label, expression, doc) FIGURE_##key,
    FIGURES
#undef FIGURE
        FIGURE_COUNT
};

static const struct {
    const char *key, *unit, *label, *doc;
} figure_rows[] = {
#define FIGURE(key, unit, label, expression, doc) {#key, #unit, label, doc},
    FIGURES
#undef FIGURE
};

static int64_t figure_value(const cmd_trial_t *t, int figure) {
    switch (figure) {
#define FIGURE(key, unit, label, expression, doc)                                                \
    case FIGURE_##key:                                                                           \
        return expression;
        FIGURES
#undef FIGURE
    }
    return 0;
}

/* With caching off the library passes allocations on and keeps no account of their bytes. */
static bool is_untracked(int figure, int64_t value) {
    return value == 0 && (figure == FIGURE_reserved_peak || figure == FIGURE_allocated_peak);
}

enum { MOST_ROUNDS = 5 }; /* without --repeat */

typedef struct {
    const cmd_run_t *run;
    const char *folder; /* with the processes of all runs */
    cmd_trial_t *first; /* warm-up runs, uncounted, all off */
    cmd_trial_t *trial; /* off and on of each round */
    int count;          /* of `trial` */
    bool simulated;
    bool same_stdout, same_stderr; /* of the last round */
    bool steady;                   /* runs with the same setting agree in stdout */
    int64_t value[2][FIGURE_COUNT];
} comparison_t;

/* ------------------------------------------------------------------ figures */

static void find_medians(comparison_t *c) {
    int64_t *values = cmd_alloc((size_t)c->count * sizeof *values);
    for (int figure = 0; figure < FIGURE_COUNT; figure++) {
        for (int cached = 0; cached < 2; cached++) {
            size_t n = 0;
            for (int i = 0; i < c->count; i++)
                if (c->trial[i].cached == cached)
                    values[n++] = figure_value(&c->trial[i], figure);
            c->value[cached][figure] = cmd_median(values, n);
        }
    }
    free(values);
}

static void compare_outputs(comparison_t *c) {
    const cmd_trial_t *off = &c->trial[c->count - 2], *on = &c->trial[c->count - 1];
    c->same_stdout = cmd_trial_same(off, on, "stdout");
    c->same_stderr = cmd_trial_same(off, on, "stderr");
    c->steady = true;
    for (int i = 0; i < c->run->warm_up; i++)
        c->steady &= cmd_trial_same(&c->first[i], off, "stdout");
    for (int i = 2; i < c->count; i++)
        c->steady &= cmd_trial_same(&c->trial[i - 2], &c->trial[i], "stdout");
}

/* ------------------------------------------------------------------ human */

static char *factor(const char *unit, int64_t off, int64_t on) {
    static const char *const words[][3] = {
        {"ns", "faster", "slower"}, {"bytes", "less", "more"}, {"calls", "fewer", "more"}};
    if (off <= 0 || on <= 0 || off == on)
        return cmd_format("%s", "");
    unsigned row = 0;
    while (row < 2 && strcmp(unit, words[row][0]))
        row++;
    int64_t most = on < off ? off : on, least = on < off ? on : off;
    return cmd_format("%.*f times %s", most / least >= 10 ? 0 : 2, (double)most / (double)least,
                      words[row][on < off ? 1 : 2]);
}

/* The line of `text` that begins at `at`, fit for a terminal. */
static void print_line(const char *mark, const char *text, size_t at, size_t length) {
    size_t end = at;
    size_t columns = (size_t)cmd_columns(stdout);
    size_t most = columns > 40 ? columns - 14 : 100;
    while (end < length && text[end] != '\n' && end < at + most)
        end++;
    char *line = cmd_format("%.*s", (int)(end - at), at < length ? text + at : "");
    printf("    %s ", mark);
    cmd_print_safe(line);
    puts(at >= length ? "(nothing)" : "");
    free(line);
}

static void print_difference(const comparison_t *c) {
    const cmd_trial_t *off = &c->trial[c->count - 2], *on = &c->trial[c->count - 1];
    size_t length[2] = {0, 0}, at = 0, start = 0;
    int line = 1;
    char *path[2] = {cmd_format("%s/stdout", off->folder), cmd_format("%s/stdout", on->folder)};
    char *text[2] = {cmd_file_read(path[0], &length[0]), cmd_file_read(path[1], &length[1])};
    if (text[0] && text[1]) {
        for (; at < length[0] && at < length[1] && text[0][at] == text[1][at]; at++) {
            if (text[0][at] == '\n') {
                start = at + 1;
                line++;
            }
        }
        printf("  first difference in line %d:\n", line);
        print_line("off:", text[0], start, length[0]);
        print_line("on: ", text[1], start, length[1]);
    }
    for (int i = 0; i < 2; i++) {
        free(text[i]);
        free(path[i]);
    }
}

static void print_outputs(const comparison_t *c) {
    printf("stdout  %s\n", c->same_stdout ? "byte-identical" : "differs");
    if (!c->same_stdout) {
        if (c->steady)
            print_difference(c);
        cmd_print_paragraph(
            !c->steady ? "it differs between runs of the same setting as well: not caching's "
                         "doing (time "
                         "stamps, measured times, addresses and process ids do that)"
            : c->run->warm_up || c->count > 2
                ? "runs of the same setting agree: caching changes it. --keep DIR keeps both "
                  "outputs, --conf free_sync:true tells whether the program relies on frees to "
                  "wait"
                : "time stamps, measured times, addresses and process ids in the output differ "
                  "between any two runs; without --warm-up 0 a first run tells whether it is "
                  "that",
            2);
    }
    if (!c->same_stderr)
        puts("stderr  differs");
}

void cmd_compare_print_measures(void) {
    printf("\n%swhat they measure%s\n", cmd_bold(), cmd_plain());
    for (int i = 0; i < FIGURE_COUNT; i++) {
        const char *label = figure_rows[i].label + strspn(figure_rows[i].label, " ");
        char *text = cmd_format("%s: %s.", label, figure_rows[i].doc);
        cmd_print_paragraph(text, 2);
        free(text);
    }
}

static void print_note(char *text) {
    cmd_print_hanging(text, 0, 2);
    free(text);
}

/* Processes of the program that did not write their figures themselves. */
static void print_unwritten(const cmd_trial_t *trial) {
    const char *way = trial->cached ? "on" : "off";
    if (trial->left)
        print_note(
            cmd_format("with caching %s %u process%s ended by a signal or _exit and wrote no "
                       "statistics: the figures are those of their counters in shared memory",
                       way, trial->left, trial->left == 1 ? "" : "es"));
    if (trial->running)
        print_note(cmd_format(
            "with caching %s %u process%s outlived the program: the figures are those so far",
            way, trial->running, trial->running == 1 ? "" : "es"));
}

/* If the device's calls return at once, their time is only the cost of the call. */
static bool driver_is_free(const comparison_t *c) {
    const char *spec = getenv("ACCEL_SIM"); /* run.c has put costs into it */
    return c->simulated && spec && strstr(spec, "costs:none");
}

/* Least and greatest wall time each way. */
static void print_spread(const comparison_t *c) {
    int64_t least[2] = {INT64_MAX, INT64_MAX}, most[2] = {0, 0};
    for (int i = 0; i < c->count; i++) {
        int64_t wall = figure_value(&c->trial[i], FIGURE_wall_ns);
        bool cached = c->trial[i].cached;
        least[cached] = wall < least[cached] ? wall : least[cached];
        most[cached] = wall > most[cached] ? wall : most[cached];
    }
    char text[4][CMD_FIGURE];
    for (int i = 0; i < 2; i++) {
        cmd_text_unit(text[2 * i], "ns", least[i]);
        cmd_text_unit(text[2 * i + 1], "ns", most[i]);
    }
    print_note(cmd_format("wall time from %s to %s with caching off, from %s to %s with caching on", text[0], text[1],
                          text[2], text[3]));
}

static void print_comparison(const comparison_t *c) {
    const char *mark = c->simulated ? " (simulated)" : "";
    char *warm_up = c->run->warm_up ? cmd_format(", after %d that %s not count", c->run->warm_up,
                                                 c->run->warm_up == 1 ? "does" : "do")
                                    : cmd_format("%s", "");
    char *title =
        cmd_format("%s: %d run%s each way%s%s", c->run->command[0], c->count / 2,
                   c->count > 2 ? "s" : "", c->count > 2 ? " in turn, medians" : "", warm_up);
    fputs(cmd_bold(), stdout);
    cmd_print_hanging(title, 0, 2);
    puts(cmd_plain());
    free(warm_up);
    free(title);
    char *head[2] = {cmd_format("off%s", mark), cmd_format("on%s", mark)};
    cmd_table_t *table = cmd_table_new("lrrl");
    cmd_table_row(table, "caching", head[0], head[1], "");
    bool costless = driver_is_free(c);
    for (int i = 0; i < FIGURE_COUNT; i++) {
        char off[CMD_FIGURE], on[CMD_FIGURE];
        bool means_nothing = costless && !strcmp(figure_rows[i].unit, "ns");
        char *change = means_nothing
                           ? cmd_format("%s", "")
                           : factor(figure_rows[i].unit, c->value[0][i], c->value[1][i]);
        cmd_table_row(table, figure_rows[i].label,
                      is_untracked(i, c->value[0][i])
                          ? "-"
                          : cmd_text_unit(off, figure_rows[i].unit, c->value[0][i]),
                      cmd_text_unit(on, figure_rows[i].unit, c->value[1][i]), change);
        free(change);
    }
    cmd_table_print(table, 0);
    free(head[0]);
    free(head[1]);
    if (costless && c->value[0][FIGURE_driver_calls])
        puts("driver calls cost nothing here: times say nothing, look at calls");
    if (c->count > 2)
        print_spread(c); /* in place of the empty line: all of it fits 24 lines */
    else
        putchar('\n');
    print_outputs(c);
    if (!c->trial[0].dumps || !c->trial[1].dumps)
        print_note(
            cmd_format("no statistics: the program did not use CUDA, or the library did not "
                       "reach it (accelcache doctor -- PROGRAM says which)"));
    for (int i = 0; i < 2; i++)
        if (c->trial[i].dumps > 1)
            print_note(
                cmd_format("with caching %s %u processes used CUDA: figures are their sums, "
                           "of peaks as well",
                           i ? "on" : "off", c->trial[i].dumps));
    for (int i = 0; i < 2; i++)
        print_unwritten(&c->trial[i]);
    if (c->run->keep) {
        fputs("dumps and outputs are in ", stdout);
        cmd_print_safe(c->folder);
        putchar('\n');
    }
    if (cmd_columns(stdout)) /* there it would push the figures out */
        puts("accelcache help run says what each figure measures");
    else
        cmd_compare_print_measures();
}

/* ------------------------------------------------------------------ JSON */

static json_t *figures_json(const int64_t value[FIGURE_COUNT]) {
    json_t *json = json_object();
    for (int i = 0; i < FIGURE_COUNT; i++)
        json_object_set_new(json, figure_rows[i].key,
                            is_untracked(i, value[i]) ? json_null() : json_integer(value[i]));
    return json;
}

static int print_json(const comparison_t *c) {
    json_t *command = json_array(), *trials = json_array();
    for (char **argument = c->run->command; *argument; argument++) {
        json_array_append_new(command, cmd_json_text(*argument));
    }
    for (int i = 0; i < c->count; i++) {
        const cmd_trial_t *t = &c->trial[i];
        int64_t value[FIGURE_COUNT];
        for (int f = 0; f < FIGURE_COUNT; f++)
            value[f] = figure_value(t, f);
        json_t *json = figures_json(value);
        json_object_set_new(json, "caching", json_boolean(t->cached));
        json_object_set_new(json, "status", json_integer(t->status));
        json_object_set_new(json, "dumps", json_integer(t->dumps));
        json_object_set_new(json, "ended_without_dump", json_integer(t->left));
        json_object_set_new(json, "still_running", json_integer(t->running));
        json_array_append_new(trials, json);
    }
    json_t *measures = json_object();
    for (int i = 0; i < FIGURE_COUNT; i++)
        json_object_set_new(
            measures, figure_rows[i].key,
            json_pack("{s:s, s:s}", "unit", figure_rows[i].unit, "measures", figure_rows[i].doc));
    json_t *whole =
        json_pack("{s:s, s:i, s:o, s:b, s:i, s:i, s:o, s:o, s:o, s:b, s:b, s:b, s:o}", "schema",
                  "accelcache-compare", "version", 1, "command", command, "simulated",
                  c->simulated, "repeat", c->count / 2, "warm_up", c->run->warm_up, "figures",
                  measures, "off", figures_json(c->value[0]), "on", figures_json(c->value[1]),
                  "stdout_identical", c->same_stdout, "stderr_identical", c->same_stderr,
                  "stdout_steady", c->steady, "runs", trials);
    return cmd_print_json(whole, 0);
}

/* ------------------------------------------------------------------ running */

/* Show what a failed run said. */
static void show_failure(const cmd_trial_t *trial, const char *which) {
    static const char *const names[] = {"stdout", "stderr"};
    cmd_say("with caching %s%s the program ended with status %d; its output:",
            trial->cached ? "on" : "off", which, trial->status);
    for (int i = 0; i < 2; i++) {
        char *path = cmd_format("%s/%s", trial->folder, names[i]);
        size_t length = 0;
        char *text = cmd_file_read(path, &length);
        if (text)
            fwrite(text, 1, length, stderr);
        free(text);
        free(path);
    }
}

typedef struct {
    const comparison_t *c;
    const char *program, *conf;
} runner_t;

/* One run in the folder `folder`/`name`, which a failure names.  0, or the status to end with. */
static int run_one(const runner_t *runner, cmd_trial_t *trial, bool cached, char *name,
                   const char *which) {
    const cmd_run_t *run = runner->c->run;
    int stopped = 0;
    trial->cached = cached;
    trial->folder = cmd_format("%s/%s", runner->c->folder, name);
    free(name);
    if (mkdir(trial->folder, 0777)) {
        cmd_say("%s: %s", trial->folder, strerror(errno));
        return CMD_FAILED;
    }
    if (cmd_trial_run(trial, runner->program, run->command, runner->conf,
                      run->input ? run->input : "/dev/null", &stopped))
        return CMD_FAILED;
    if (stopped) {
        cmd_say("stopped by signal %d", stopped);
        return 128 + stopped;
    }
    if (trial->status)
        show_failure(trial, which);
    return trial->status;
}

/* Rounds without --repeat: short programs run more often, since their times differ more from run to run.
 * `ns`: time of the first round. */
static int rounds_for(int64_t ns) {
    const int64_t second = 1000000000;
    return ns < 2 * second ? MOST_ROUNDS : ns < 20 * second ? 3 : 1;
}

/* All runs, warm-up runs first: the first run of a program pays for what later runs find (files in memory,
 * compiled kernels).  Then off and on in turn, and each round begins with the other one, so that a machine that
 * grows slower favours neither.  0, or the status to end with. */
static int run_trials(const runner_t *runner, comparison_t *c) {
    int status = CMD_OK;
    double all = c->run->warm_up + c->count;
    for (int i = 0; i < c->run->warm_up && !status; i++) {
        cmd_bar(i / all, "run %d, which does not count", i + 1);
        status = run_one(runner, &c->first[i], false, cmd_format("first-%d", i + 1),
                         ", in a run that does not count,");
    }
    for (int i = 0; i < c->count && !status; i++) {
        int round = i / 2;
        bool cached = (i + round) % 2;
        cmd_bar((c->run->warm_up + i) / all, "run %d of %d, caching %s", i + 1, c->count,
                cached ? "on" : "off");
        status = run_one(runner, &c->trial[2 * round + cached], cached,
                         cmd_format("%s-%d", cached ? "on" : "off", round + 1), "");
        if (i == 1 && !c->run->repeat) {
            c->count = 2 * rounds_for(c->trial[0].wall + c->trial[1].wall);
            all = c->run->warm_up + c->count;
        }
    }
    cmd_bar_end();
    return status;
}

static void trials_free(cmd_trial_t *trial, int count) {
    for (int i = 0; i < count; i++)
        free(trial[i].folder);
    free(trial);
}

int cmd_run_compare(const cmd_run_t *run, const char *program, const char *conf) {
    comparison_t c = {.run = run, .simulated = run->simulated, .count = 2 * (run->repeat ? run->repeat : 1)};
    char *folder = cmd_trial_folder(run->keep);
    if (!folder)
        return CMD_FAILED;
    c.folder = folder;
    c.first = cmd_alloc((size_t)run->warm_up * sizeof *c.first);
    int most = run->repeat ? run->repeat : MOST_ROUNDS;
    c.trial = cmd_alloc(2 * (size_t)most * sizeof *c.trial);
    int status = run_trials(&(runner_t){&c, program, conf}, &c);
    if (!status) {
        find_medians(&c);
        compare_outputs(&c);
        if (run->json)
            status = print_json(&c);
        else
            print_comparison(&c);
        if (!status && run->strict && !c.same_stdout && c.steady)
            status = CMD_DIFFERS;
    }
    if (!run->keep)
        cmd_folder_remove(folder);
    trials_free(c.first, run->warm_up);
    trials_free(c.trial, c.count);
    free(folder);
    return status;
}

/* `accelcache tune`: the configuration that a program needs, by its traces. */
#include "replay/tune.h"
#include "command.h"
#include "replay/replay_options.h"
#include "base/terminal.h"

#include "base/option.h"
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: accelcache tune [OPTION...] TRACE...\n"
    "Searches the keys of ACCEL_ALLOC_CONF that decide the layout of memory.  It\n"
    "replays the first half of the first trace on all cores (the whole trace if the\n"
    "default runs out of memory in it), and checks the result on the second half,\n"
    "on the whole trace and on the other traces.  The last line can be pasted into\n"
    "a shell.\n"
    "\n"
    "It never recommends a setting that is worse than the default in any check, or\n"
    "better by less than 3 %, unless the default does not complete.  It says when\n"
    "the first trace is too short to conclude from: few requests come after a free,\n"
    "one driver call outweighs the 3 %, or there is no gain without one eighth of\n"
    "its requests.\n"
    "\n"
    "  --objective memory|time|balanced\n"
    "                   what counts: memory taken from the device, driver time, or\n"
    "                   (balanced) both: 0.05 ms of driver time per 1000 operations\n"
    "                   are worth 1 % of memory.  The program is assumed to run ten\n"
    "                   times as long as its trace\n"
    "  --capacity SIZE  memory of the device: a setting must complete in it; bytes\n"
    "                   with K, M, G or T, or 1.05x for that multiple of the first\n"
    "                   trace's peak\n"
    "  --pending K, --streams real, --costs FILE, --ordinal N\n"
    "                   see accelcache replay\n"
    "  --seconds N      begin no more replays of the search after N seconds (30)\n"
    "  --json           JSON instead of text\n"
    "\n"
    "Keys that are searched:\n";

static const char help_end[] =
    "JSON:\n"
    "  conf, changes         the recommendation; false: the default is right\n"
    "  conclusive, doubt     false: the trace is too short to conclude from, and why\n"
    "  default, recommended  {completed, peak_reserved, ratio,\n"
    "                        driver_ms_per_1000_ops} of the whole first trace\n"
    "  checks                [{trace, part, default_value, value}]: by the\n"
    "                        objective, less is better; above 1e9: out of memory\n"
    "  front                 [{conf, ratio, driver_ms_per_1000_ops}] of the part\n"
    "                        that was searched on\n"
    "  tried, cut_short, objective, capacity\n"
    "\n"
    "Exit status: 0 done, 1 a trace could not be read, or nothing completes with\n"
    "--capacity, 2 wrong usage.\n";

/* A part of a trace that a recommendation is judged by. */
typedef struct {
    const char *path, *part;
    cmd_ops_t *trace;
} check_t;

enum { FINALISTS = 5 };

/* Smaller gains do not outlive the next version of the program. */
#define WORTH_A_SETTING 0.97
#define WORTH_MORE_KEYS 0.99

typedef struct {
    char **path;
    int paths;
    cmd_ops_t **trace;
    cmd_costs_t costs;
    tune_t tune;
    check_t *check; /* [0]: the whole first trace */
    unsigned checks;
    size_t finalist[FINALISTS + 1]; /* points; [0]: the default */
    unsigned finalists;
    cmd_replay_figures_t *figures; /* of each finalist in each check */
    size_t chosen;                 /* of the finalists; 0: the default */
    char *doubt;                   /* why the trace is too short to conclude that; NULL: is not */
    bool json;
} tuning_t;

static const char *const objective_names[] = {"memory", "time", "balanced"};

static const cmd_replay_figures_t *figures_of(const tuning_t *t, size_t finalist,
                                              unsigned check) {
    return &t->figures[finalist * t->checks + check];
}

static const tune_point_t *point_of(const tuning_t *t, size_t finalist) {
    return &t->tune.point[t->finalist[finalist]];
}

static double value_of(const tuning_t *t, size_t finalist, unsigned check) {
    return tune_value(t->tune.objective, figures_of(t, finalist, check), t->check[check].trace);
}

/* ------------------------------------------------------------------ progress */

static double search_seconds; /* for the line of progress */

static void show_progress(double spent, size_t tried) {
    cmd_bar(spent / search_seconds, "%zu settings tried, %.0f s of %.0f s at most", tried, spent,
            search_seconds);
}

static void show_checks(size_t done, void *count) {
    double all = (double)*(size_t *)count;
    cmd_bar((double)done / all, "%zu of %.0f checks of what was found", done, all);
}

/* ------------------------------------------------------------------ checking */

static int by_value(const void *a, const void *b) {
    const tune_point_t *x = *(tune_point_t *const *)a, *y = *(tune_point_t *const *)b;
    if (x->value != y->value)
        return (x->value > y->value) - (x->value < y->value);
    return (x > y) - (x < y); /* what was tried first */
}

/* The default, what the search ended with, and the points that did best. */
static void find_finalists(tuning_t *t) {
    const tune_point_t **order = cmd_alloc(t->tune.count * sizeof *order);
    for (size_t i = 0; i < t->tune.count; i++)
        order[i] = &t->tune.point[i];
    qsort(order, t->tune.count, sizeof *order, by_value);
    t->finalist[t->finalists++] = 0;
    if (t->tune.best)
        t->finalist[t->finalists++] = t->tune.best;
    for (size_t i = 0; i < t->tune.count && t->finalists <= FINALISTS; i++) {
        size_t at = (size_t)(order[i] - t->tune.point);
        if (at && at != t->tune.best && order[i]->value <= t->tune.point[0].value)
            t->finalist[t->finalists++] = at;
    }
    free(order);
}

static void run_checks(tuning_t *t) {
    size_t count = t->finalists * t->checks;
    cmd_replay_job_t *job = cmd_alloc(count * sizeof *job);
    t->figures = cmd_alloc(count * sizeof *t->figures);
    for (size_t i = 0; i < count; i++)
        job[i] = (cmd_replay_job_t){.trace = t->check[i % t->checks].trace,
                                    .plan = &point_of(t, i / t->checks)->plan};
    cmd_bar_begin();
    cmd_replay_jobs(job, count, false, show_checks, &count);
    for (size_t i = 0; i < count; i++)
        t->figures[i] = job[i].figures;
    free(job);
}

/* Returns true if the finalist completes everything, and the default does not. */
static bool rescues(const tuning_t *t, size_t finalist) {
    bool needed = false;
    for (unsigned i = 0; i < t->checks; i++) {
        if (figures_of(t, finalist, i)->end != CMD_REPLAY_DONE)
            return false;
        needed |= figures_of(t, 0, i)->end != CMD_REPLAY_DONE;
    }
    return needed;
}

/* How a finalist compares with the default over all checks; less than 1 is better, and anything
 * worse in a single check counts as no solution, unless the default is none. */
static double compare(const tuning_t *t, size_t finalist) {
    double sum = 0, compared = 0;
    bool only = rescues(t, finalist);
    for (unsigned i = 0; i < t->checks; i++) {
        double value = value_of(t, finalist, i), usual = value_of(t, 0, i);
        if (value > usual && !only)
            return 2;
        if (usual <= 0)
            continue; /* nothing but waits in it: it says nothing */
        sum += value / usual;
        compared++;
    }
    return compared > 0 ? sum / compared : 1;
}

/* That a setting completes in the capacity is a fact; by how much one is better otherwise is an estimate. */
static void find_doubt(tuning_t *t) {
    const cmd_replay_plan_t *ours = t->chosen ? &point_of(t, t->chosen)->plan : NULL;
    if (rescues(t, t->chosen) || figures_of(t, t->chosen, 0)->end != CMD_REPLAY_DONE)
        return;
    t->doubt = tune_doubt(t->tune.objective, t->trace[0], &point_of(t, 0)->plan, ours);
}

static void choose(tuning_t *t) {
    double best = WORTH_A_SETTING;
    for (size_t i = 1; i < t->finalists; i++) {
        double value = compare(t, i);
        /* The result of the search is simple; others may bring keys of no use along. */
        if (value < best * (t->chosen ? WORTH_MORE_KEYS : 1)) {
            best = value;
            t->chosen = i;
        }
    }
}

/* ------------------------------------------------------------------ the front */

static bool is_beaten(const tune_t *tune, const tune_point_t *point) {
    double memory = tune_memory(&point->figures, tune->trace);
    double ms = tune_driver_ms(&point->figures);
    for (size_t i = 0; i < tune->count; i++) {
        const tune_point_t *other = &tune->point[i];
        double m = tune_memory(&other->figures, tune->trace);
        double d = tune_driver_ms(&other->figures);
        if (other->figures.end != CMD_REPLAY_DONE || m > memory || d > ms)
            continue;
        if (m < memory || d < ms || other < point)
            return true;
    }
    return false;
}

static int by_memory(const void *a, const void *b) {
    const tune_point_t *x = *(tune_point_t *const *)a, *y = *(tune_point_t *const *)b;
    uint64_t p =
        x->figures.peak[0] > x->figures.peak[1] ? x->figures.peak[0] : x->figures.peak[1];
    uint64_t q =
        y->figures.peak[0] > y->figures.peak[1] ? y->figures.peak[0] : y->figures.peak[1];
    return (p > q) - (p < q);
}

/* Points that no other one beats in both, least memory first.  malloc'd. */
static const tune_point_t **find_front(const tune_t *tune, size_t *count) {
    const tune_point_t **front = cmd_alloc(tune->count * sizeof *front);
    *count = 0;
    for (size_t i = 0; i < tune->count; i++)
        if (tune->point[i].figures.end == CMD_REPLAY_DONE && !is_beaten(tune, &tune->point[i]))
            front[(*count)++] = &tune->point[i];
    qsort(front, *count, sizeof *front, by_memory);
    return front;
}

/* ------------------------------------------------------------------ human */

enum { MOST_SHOWN = 5 }; /* rows of the front on a terminal; the result comes last */

static const char *conf_name(const tune_point_t *point) {
    return *point->conf ? point->conf : "(default)";
}

static void print_front(const tuning_t *t) {
    size_t count;
    const tune_point_t **front = find_front(&t->tune, &count);
    printf("%sMemory against driver time%s, %zu settings tried%s:\n", cmd_bold(), cmd_plain(),
           t->tune.count, t->tune.cut_short ? ", the search was cut short by --seconds" : "");
    if (t->tune.trace->count < t->trace[0]->count)
        cmd_print_paragraph("in the first half of the first trace, which the search replays: what is done once "
                            "weighs twice as much in a half as in the whole",
                            2);
    cmd_table_t *table = cmd_table_new("rrl");
    cmd_table_row(table, "reserved/live", "driver ms/1000 operations", "configuration");
    size_t most = cmd_columns(stdout) && count > MOST_SHOWN ? MOST_SHOWN : count;
    for (size_t i = 0; i < most; i++) {
        char memory[CMD_FIGURE], ms[CMD_FIGURE];
        snprintf(memory, sizeof memory, "%.3f", tune_memory(&front[i]->figures, t->tune.trace));
        snprintf(ms, sizeof ms, "%.3f", tune_driver_ms(&front[i]->figures));
        cmd_table_row(table, memory, ms, conf_name(front[i]));
    }
    cmd_table_print(table, 2);
    if (most < count)
        printf("  (and %zu that take more memory: --json)\n", count - most);
    if (!count)
        puts("  (nothing completes)");
    free(front);
}

static void figure_text(const cmd_replay_figures_t *f, const cmd_ops_t *trace, char *text,
                        size_t size) {
    char peak[CMD_FIGURE];
    uint64_t most = f->peak[0] > f->peak[1] ? f->peak[0] : f->peak[1];
    if (f->end == CMD_REPLAY_DONE)
        snprintf(text, size, "%s (%.3f), %.3f ms%s", cmd_text_bytes(peak, (int64_t)most),
                 tune_memory(f, trace), tune_driver_ms(f),
                 f->later_failed_at ? "; out of memory when run again in the same process" : "");
    else if (f->end == CMD_REPLAY_OOM)
        snprintf(text, size, "out of memory after %.0f %% of the trace",
                 100 * (double)f->failed_at / (double)trace->count);
    else
        snprintf(text, size, "failed: %s", f->why);
}

static void print_checks(const tuning_t *t) {
    printf("\n%sChecked%s, reserved (reserved/live), driver ms/1000 operations:\n", cmd_bold(),
           cmd_plain());
    cmd_table_t *table = cmd_table_new("lll");
    cmd_table_row(table, "", "default", t->chosen ? point_of(t, t->chosen)->conf : NULL);
    for (unsigned i = 0; i < t->checks; i++) {
        char usual[200], ours[200];
        char *name = cmd_format("%s, %s", t->check[i].path, t->check[i].part);
        figure_text(figures_of(t, 0, i), t->check[i].trace, usual, sizeof usual);
        figure_text(figures_of(t, t->chosen, i), t->check[i].trace, ours, sizeof ours);
        cmd_table_row(table, name, usual, t->chosen ? ours : NULL);
        free(name);
    }
    cmd_table_print(table, 2);
}

/* Prints what the chosen keys do, from the table of keys. */
static void print_keys(const tuning_t *t) {
    const tune_point_t *point = point_of(t, t->chosen);
    bool terminal = cmd_columns(stdout) != 0;
    for (unsigned i = 0; tune_key(i); i++) {
        if (!point->choice[i])
            continue;
        printf(terminal ? "accelcache config %s says what it does\n" : "%s\n", tune_key(i));
        if (!terminal)
            cmd_print_paragraph(tune_key_doc(i), 4);
    }
    putchar('\n');
}

static uint64_t most_reserved(const cmd_replay_figures_t *f) {
    return f->peak[0] > f->peak[1] ? f->peak[0] : f->peak[1];
}

static char *expectation(const tuning_t *t) {
    const cmd_replay_figures_t *usual = figures_of(t, 0, 0), *ours = figures_of(t, t->chosen, 0);
    char saved[CMD_FIGURE], whole[CMD_FIGURE];
    if (ours->end != CMD_REPLAY_DONE)
        return cmd_format("nothing completes in this capacity; this setting gets furthest");
    if (!t->chosen)
        return cmd_format(
            "the default is right: nothing did better by 3 %% wherever it was checked");
    int64_t less = (int64_t)most_reserved(usual) - (int64_t)most_reserved(ours);
    double ms = tune_driver_ms(usual) - tune_driver_ms(ours);
    if (usual->end != CMD_REPLAY_DONE)
        return cmd_format("completes where the default runs out of memory; reserves %s",
                          cmd_text_bytes(whole, (int64_t)most_reserved(ours)));
    if (usual->later_failed_at && !ours->later_failed_at)
        return cmd_format("completes again in the same process, where the default runs out of memory; reserves %s",
                          cmd_text_bytes(whole, (int64_t)most_reserved(ours)));
    char *time = fabs(ms) < 0.0005
                     ? cmd_format("leaves driver time as it is")
                     : cmd_format("%s %.3f ms of driver time per 1000 operations",
                                  ms < 0 ? "costs" : "saves", fabs(ms));
    char *text = cmd_format("%s %s of %s reserved (%.1f %%), %s",
                      less < 0 ? "takes" : "saves",
                      cmd_text_bytes(saved, less < 0 ? -less : less),
                      cmd_text_bytes(whole, (int64_t)most_reserved(usual)),
                      100 * (double)(less < 0 ? -less : less) / (double)most_reserved(usual),
                      time);
    free(time);
    return text;
}

static void print_text(const tuning_t *t) {
    const char *conf = point_of(t, t->chosen)->conf;
    bool quote = strpbrk(conf, "[]>*?") != NULL;
    char *expected = expectation(t);
    print_front(t);
    print_checks(t);
    putchar('\n');
    if (t->chosen)
        print_keys(t);
    if (t->doubt) {
        char *text =
            cmd_format("The trace is too short to conclude from: %s. Record a longer run "
                       "(accelcache run --trace), of several iterations.",
                       t->doubt);
        cmd_print_paragraph(text, 0);
        putchar('\n');
        free(text);
    }
    char *comment = cmd_format("# %s%s", t->doubt ? "not certain: " : "", expected);
    bool apart = cmd_columns(stdout) != 0; /* a line that is to be pasted stays short there */
    if (apart)
        cmd_print_hanging(comment, 0, 2);
    printf("export ACCEL_ALLOC_CONF=%s", quote ? "'" : "");
    cmd_print_safe(conf);
    printf("%s%s%s\n", quote ? "'" : "", apart ? "" : "  ", apart ? "" : comment);
    free(comment);
    free(expected);
}

/* ------------------------------------------------------------------ JSON */

static json_t *figures_json(const tuning_t *t, size_t finalist) {
    const cmd_replay_figures_t *f = figures_of(t, finalist, 0);
    const cmd_ops_t *trace = t->check[0].trace;
    return json_pack("{s:b, s:I, s:f, s:f}", "completed", f->end == CMD_REPLAY_DONE,
                     "peak_reserved", (json_int_t)most_reserved(f), "ratio",
                     tune_memory(f, trace), "driver_ms_per_1000_ops", tune_driver_ms(f));
}

static int print_json(const tuning_t *t) {
    json_t *checks = json_array(), *points = json_array();
    size_t count;
    const tune_point_t **front = find_front(&t->tune, &count);
    for (unsigned i = 0; i < t->checks; i++) {
        json_array_append_new(
            checks, json_pack("{s:o, s:s, s:f, s:f}", "trace", cmd_json_text(t->check[i].path),
                              "part", t->check[i].part, "default_value", value_of(t, 0, i),
                              "value", value_of(t, t->chosen, i)));
    }
    for (size_t i = 0; i < count; i++)
        json_array_append_new(
            points, json_pack("{s:o, s:f, s:f}", "conf", cmd_json_text(front[i]->conf), "ratio",
                              tune_memory(&front[i]->figures, t->tune.trace),
                              "driver_ms_per_1000_ops", tune_driver_ms(&front[i]->figures)));
    free(front);
    char *expected = expectation(t);
    json_t *whole =
        json_pack("{s:o, s:b, s:b, s:s?, s:s, s:s, s:I, s:o, s:o, s:o, s:o, s:I, s:b}", "conf",
                  cmd_json_text(point_of(t, t->chosen)->conf), "changes", t->chosen != 0,
                  "conclusive", !t->doubt, "doubt", t->doubt, "expectation", expected,
                  "objective", objective_names[t->tune.objective], "capacity",
                  (json_int_t)t->tune.plan.capacity, "default", figures_json(t, 0), "recommended",
                  figures_json(t, t->chosen), "checks", checks, "front", points, "tried",
                  (json_int_t)t->tune.count, "cut_short", t->tune.cut_short);
    free(expected);
    return cmd_print_json(whole, JSON_REAL_PRECISION(6));
}

/* ------------------------------------------------------------------ running */

static void add_check(tuning_t *t, const char *path, const char *part, cmd_ops_t *trace) {
    t->check[t->checks++] = (check_t){path, part, trace};
}

/* Returns true if the default completes the trace in the given capacity. */
static bool default_completes(const tuning_t *t, const cmd_ops_t *trace) {
    cmd_replay_plan_t plan = t->tune.plan;
    ac_config_default(&plan.config);
    cmd_replay_job_t job = {.trace = trace, .plan = &plan};
    cmd_replay_jobs(&job, 1, false, NULL, NULL);
    return job.figures.end == CMD_REPLAY_DONE;
}

/* Settings are searched on the first half, so that the second one can contradict.  If the default runs out of
 * memory, only the whole trace has the request that a setting must serve. */
static size_t searched_operations(const tuning_t *t, const cmd_ops_t *trace) {
    size_t half = trace->count / 2;
    return half && (!t->tune.plan.capacity || default_completes(t, trace)) ? half : trace->count;
}

static int tune_all(tuning_t *t) {
    cmd_ops_t *first = t->trace[0];
    size_t half = first->count / 2;
    cmd_ops_t *searched = cmd_ops_part(first, 0, searched_operations(t, first));
    cmd_ops_t *rest = cmd_ops_part(first, half, first->count);
    t->check = cmd_alloc(((size_t)t->paths + 1) * sizeof *t->check);
    add_check(t, t->path[0], "whole", first);
    add_check(t, t->path[0], "second half", rest);
    for (int i = 1; i < t->paths; i++)
        add_check(t, t->path[i], "whole", t->trace[i]);
    t->tune.trace = searched;
    t->tune.progress = show_progress;
    search_seconds = t->tune.seconds;
    cmd_bar_begin();
    tune_search(&t->tune);
    find_finalists(t);
    run_checks(t);
    choose(t);
    find_doubt(t);
    cmd_bar_end();
    int status = CMD_OK;
    if (t->json)
        status = print_json(t);
    else
        print_text(t);
    if (figures_of(t, t->chosen, 0)->end != CMD_REPLAY_DONE)
        status = CMD_FAILED;
    cmd_ops_free(searched);
    cmd_ops_free(rest);
    free(t->check);
    free(t->figures);
    free(t->doubt);
    free(t->tune.point);
    return status;
}

static int print_help(void) {
    fputs(help, stdout);
    int column = 80;
    for (unsigned i = 0; tune_key(i); i++) {
        int length = (int)strlen(tune_key(i)) + 1;
        if (column + length > 79)
            column = printf("\n ") - 1;
        column += printf(" %s", tune_key(i));
    }
    printf("\n\n%s", help_end);
    return CMD_OK;
}

static int take_objective(const char *name, void *objective) {
    for (unsigned i = 0; i < sizeof objective_names / sizeof *objective_names; i++) {
        if (!strcmp(name, objective_names[i])) {
            *(tune_objective_t *)objective = (tune_objective_t)i;
            return CMD_OK;
        }
    }
    return cmd_usage("--objective %s: memory, time or balanced", name);
}

typedef struct {
    const char *capacity, *costs;
    int ordinal;
} options_t;

static int read_all(tuning_t *t, const options_t *o) {
    t->trace = cmd_alloc((size_t)t->paths * sizeof *t->trace);
    for (int i = 0; i < t->paths; i++) {
        t->trace[i] = cmd_replay_trace(t->path[i], o->ordinal);
        if (!t->trace[i])
            return CMD_FAILED;
    }
    if (!cmd_replay_costs(&t->costs, o->costs))
        return CMD_FAILED;
    t->tune.plan.costs = &t->costs;
    if (!o->capacity)
        return CMD_OK;
    uint64_t *capacity = &t->tune.plan.capacity;
    int status = cmd_replay_capacity(o->capacity, t->trace[0], capacity);
    if (status == CMD_OK && !cmd_replay_fits(t->path[0], t->trace[0], *capacity))
        status = CMD_FAILED;
    return status;
}

int cmd_tune(int argc, char **argv) {
    tuning_t t = {.tune = {.plan = {.repeat = 2}, .objective = TUNE_BALANCED}};
    options_t o = {.ordinal = -1};
    uint64_t seconds = 30;
    int status;
    const cmd_option_t options[] = {
        {"objective", .take = take_objective, .arg = &t.tune.objective},
        {"capacity", .text = &o.capacity},
        {"pending", .take = cmd_replay_pending, .arg = &t.tune.plan},
        {"streams", .take = cmd_replay_streams, .arg = &t.tune.plan},
        {"costs", .text = &o.costs},
        {"ordinal", .take = cmd_replay_ordinal, .arg = &o.ordinal},
        {"seconds", .number = &seconds, .low = 1, .high = 86400, .expected = "a whole number"},
        {"json", .flag = &t.json},
        {"help", 'h', .stop = print_help},
        {.name = NULL}};
    if (!cmd_options(argc, argv, options, NULL, &status))
        return status;
    if (optind == argc)
        return cmd_usage("TRACE is missing");
    t.tune.seconds = (double)seconds;
    t.path = argv + optind;
    t.paths = argc - optind;
    status = read_all(&t, &o);
    if (status == CMD_OK)
        status = tune_all(&t);
    for (int i = 0; i < t.paths && t.trace; i++)
        cmd_ops_free(t.trace[i]);
    free(t.trace);
    return status;
}

/* The search (tune.h): in two rounds each key in turn takes its best candidate while the others stay as they are;
 * then keys that bring next to nothing go back to their defaults.  The search starts at the default, and again with
 * each switch thrown: a switch that gains nothing by itself may be what lets another key work.
 *
 * Keys are the rows of config.def with the trait TUNED: keys that decide the layout of memory. Limits of the
 * program are no such keys, nor are times after which memory goes back: a trace cannot decide them.  Candidates
 * follow the type of a key; the parser must accept them. */
#include "replay/tune.h"
#include "command.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_CANDIDATES = 16, ROUNDS = 2 };

/* A step has to bring this much; leaving a key out may cost that much. */
#define WORTH_IT 0.995
#define NO_LOSS  1.002

/* Types of value.h; the default joins in front. */
static const char *const candidates_BOOL[] = {"true", "false", NULL};
static const char *const candidates_PAGES[] = {"auto", NULL}; /* a trace shares nothing */
static const char *const candidates_MEGABYTES[] = {"2",   "4",   "8",   "16",   "32", "64",
                                                   "128", "256", "512", "1024", NULL};
static const char *const candidates_MEGABYTES_OR_NONE[] = {"none", "32",  "64",   "128",
                                                           "256",  "512", "1024", NULL};
static const char *const candidates_BYTES[] = {"16K", "64K", "256K", "1M", "4M",
                                               "16M", "64M", "256M", "1G", NULL};
static const char *const candidates_DIVISIONS[] = {"2", "4", "8", "16", "32", NULL};
static const char *const candidates_FRACTION[] = {"0.02", "0.05", "0.1", "0.2",
                                                  "0.3",  "0.5",  "0.8", NULL};
static const char *const none[] = {NULL};
#define candidates_BOOL_OR_BYTES none
#define candidates_NUMBER        none
#define candidates_SECONDS       none
#define candidates_MILLISECONDS  none
#define candidates_FENCE         none
#define candidates_FILL          none
#define candidates_SAMPLE        none
#define candidates_DUMP_FORMAT   none
#define candidates_FREE_SYNC     none
#define candidates_LEAK_REPORT   none
#define candidates_STACKS        none
#define candidates_DEEPBIND      none
#define candidates_IPC           none
#define candidates_VIEW          none
#define candidates_PATTERN       none
#define candidates_SIGNAL        none
#define candidates_LOG_LEVEL     none

static const struct {
    const char *key, *usual, *doc;
    ac_config_trait_t trait;
    const char *const *candidate;
} rows[] = {
#define CONFIG(key, type, field, low, high, default_text, scope, trait, range, doc)              \
    {#key, default_text, doc, AC_TRAIT_##trait, candidates_##type},
#include "config/config.def"
};
enum { ROWS = sizeof rows / sizeof *rows };

/* The row of config.def of each key that is searched. */
static unsigned find_keys(unsigned key[TUNE_KEYS]) {
    unsigned count = 0;
    for (unsigned i = 0; i < ROWS && count < TUNE_KEYS; i++)
        if (rows[i].trait == AC_TRAIT_TUNED)
            key[count++] = i;
    return count;
}

const char *tune_key(unsigned at) {
    unsigned key[TUNE_KEYS];
    return at < find_keys(key) ? rows[key[at]].key : NULL;
}

const char *tune_key_doc(unsigned at) {
    unsigned key[TUNE_KEYS];
    return at < find_keys(key) ? rows[key[at]].doc : NULL;
}

/* ------------------------------------------------------------------ its worth */

double tune_memory(const cmd_replay_figures_t *f, const cmd_ops_t *trace) {
    uint64_t peak = f->peak[1] > f->peak[0] ? f->peak[1] : f->peak[0];
    return trace->peak_live ? (double)peak / (double)trace->peak_live : 0;
}

double tune_driver_ms(const cmd_replay_figures_t *f) {
    return (f->driver_ms[0] + 9 * f->driver_ms[1]) / 10;
}

double tune_value(tune_objective_t objective, const cmd_replay_figures_t *f,
                  const cmd_ops_t *trace) {
    if (f->end != CMD_REPLAY_DONE)
        return TUNE_FAILED * (2 - (double)f->failed_at / (double)trace->count);
    if (f->later_failed_at)
        return TUNE_FAILED / 2 * (2 - (double)f->later_failed_at / (double)trace->count);
    double memory = tune_memory(f, trace), ms = tune_driver_ms(f);
    switch (objective) {
    case TUNE_MEMORY:
        return memory * (1 + ms / 1000); /* time only decides between equals */
    case TUNE_TIME:
        return 1 + ms + memory / 1000;
    default:
        return memory * (1 + ms / 5); /* 0.05 ms of driver time per 1000 operations: 1 % */
    }
}

/* ------------------------------------------------------------------ points */

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The configuration string of a point.  False: the parser refuses it. */
static bool write_conf(const unsigned *key, unsigned keys, tune_point_t *point) {
    size_t used = 0;
    ac_config_error_t error;
    point->conf[0] = '\0';
    for (unsigned i = 0; i < keys; i++) {
        if (!point->choice[i])
            continue;
        int n = snprintf(point->conf + used, TUNE_CONF - used, "%s%s:%s", used ? "," : "",
                         rows[key[i]].key, rows[key[i]].candidate[point->choice[i] - 1]);
        if (n < 0 || (size_t)n >= TUNE_CONF - used)
            return false;
        used += (size_t)n;
    }
    return ac_config_parse(point->conf, &point->plan.config, &error, NULL) == 0;
}

static bool is_known(const tune_t *tune, const tune_point_t *point) {
    for (size_t i = 0; i < tune->count; i++)
        if (!memcmp(tune->point[i].choice, point->choice, sizeof point->choice))
            return true;
    return false;
}

/* A candidate that is the default has that as choice 0 already. */
static bool is_usual(unsigned row, unsigned choice) {
    return choice && !strcmp(rows[row].candidate[choice - 1], rows[row].usual);
}

/* Makes a point next to the best one, in which `at` has `choice`; false: none, or it is known. */
static bool add_point(tune_t *tune, const unsigned *key, unsigned keys, unsigned at,
                      unsigned choice) {
    tune_point_t point = {.plan = tune->plan};
    if (tune->count)
        memcpy(point.choice, tune->point[tune->best].choice, sizeof point.choice);
    point.choice[at] = (uint8_t)choice;
    if (is_usual(key[at], choice) || !write_conf(key, keys, &point) || is_known(tune, &point))
        return false;
    if (tune->count == tune->room) {
        tune->room = tune->room ? tune->room * 2 : 64;
        tune->point = cmd_resize(tune->point, tune->room * sizeof *tune->point);
    }
    tune->point[tune->count++] = point;
    return true;
}

/* Replay the points from `from` on; the best of all becomes the one to go on from, if it is worth
 * it. */
static void show_progress(size_t done, void *arg) {
    tune_t *tune = arg;
    tune->progress(seconds_now() - tune->began, tune->measured + done);
}

static void measure(tune_t *tune, size_t from) {
    size_t count = tune->count - from, better = tune->best;
    if (!count)
        return;
    cmd_replay_job_t *job = cmd_alloc(count * sizeof *job);
    for (size_t i = 0; i < count; i++)
        job[i] = (cmd_replay_job_t){.trace = tune->trace, .plan = &tune->point[from + i].plan};
    tune->measured = from;
    cmd_replay_jobs(job, count, false, show_progress, tune);
    for (size_t i = 0; i < count; i++) {
        tune_point_t *point = &tune->point[from + i];
        point->figures = job[i].figures;
        point->value = tune_value(tune->objective, &point->figures, tune->trace);
        if (point->value < tune->point[better].value)
            better = from + i;
    }
    free(job);
    if (tune->point[better].value < tune->point[tune->best].value * WORTH_IT)
        tune->best = better;
}

static unsigned candidate_count(unsigned row) {
    unsigned count = 0;
    while (rows[row].candidate[count] && count < MOST_CANDIDATES)
        count++;
    return count;
}

/* Sets each key back to its default if that costs next to nothing. */
static void simplify(tune_t *tune, const unsigned *key, unsigned keys) {
    for (unsigned i = 0; i < keys; i++) {
        size_t from = tune->count, best = tune->best;
        if (!tune->point[best].choice[i])
            continue;
        tune_point_t less = tune->point[best];
        less.choice[i] = 0;
        size_t at = 0;
        if (add_point(tune, key, keys, i, 0))
            measure(tune, at = from);
        else
            while (at < tune->count &&
                   memcmp(tune->point[at].choice, less.choice, sizeof less.choice) != 0)
                at++;
        if (at < tune->count && tune->point[at].value <= tune->point[best].value * NO_LOSS)
            tune->best = at;
    }
}

/* The time to wait for pending memory has no effect if none is pending. */
static bool has_no_say(const tune_t *tune, unsigned row) {
    return tune->plan.work == CMD_WORK_NONE && !strcmp(rows[row].key, "wait_budget");
}

/* From the best point on, until no key brings more. */
static void descend(tune_t *tune, const unsigned *key, unsigned keys, double end) {
    for (unsigned round = 0; round < ROUNDS; round++) {
        size_t before = tune->best;
        for (unsigned i = 0; i < keys; i++) {
            size_t from = tune->count;
            if (has_no_say(tune, key[i]))
                continue;
            tune->cut_short |= seconds_now() > end;
            if (tune->cut_short)
                return;
            for (unsigned c = 0; c <= candidate_count(key[i]); c++)
                add_point(tune, key, keys, i, c);
            measure(tune, from);
        }
        if (tune->best == before)
            return;
    }
}

/* Returns true if the point acts differently from the default at all. */
static bool has_effect(const tune_point_t *usual, const tune_point_t *point) {
    return memcmp(usual->figures.peak, point->figures.peak, sizeof usual->figures.peak) != 0 ||
           memcmp(usual->figures.call, point->figures.call, sizeof usual->figures.call) != 0;
}

void tune_search(tune_t *tune) {
    unsigned key[TUNE_KEYS], keys = find_keys(key);
    tune->began = seconds_now();
    double end = tune->began + tune->seconds;
    add_point(tune, key, keys, 0, 0);
    measure(tune, 0);
    for (unsigned i = 0; i < keys; i++) /* switches, in addition to the default */
        if (rows[key[i]].candidate == candidates_BOOL)
            for (unsigned c = 1; c <= candidate_count(key[i]); c++)
                add_point(tune, key, keys, i, c);
    size_t starts = tune->count;
    measure(tune, 1);
    size_t best = 0;
    for (size_t start = 0; start < starts; start++) {
        if (start && !has_effect(&tune->point[0], &tune->point[start]))
            continue;
        tune->best = start;
        descend(tune, key, keys, end);
        if (tune->point[tune->best].value < tune->point[best].value * WORTH_IT)
            best = tune->best;
    }
    tune->best = best;
    if (!tune->cut_short)
        simplify(tune, key, keys);
}

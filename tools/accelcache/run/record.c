/* Lines behind a run: three of `accelcache record`, one of `run` on a terminal.  Finds the files that the run wrote. */
#include "command.h"
#include "config/config.h"
#include "read/headline.h"
#include "read/sites.h"
#include "run/run.h"
#include "base/terminal.h"
#include "read/trace_read.h"
#include "run/trial.h"

#include <glob.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

/* ------------------------------------------------------------------ files */

/* The pattern of glob for what a pattern of the configuration (%p, %h, ..) may become.  malloc'd. */
static char *glob_of(const char *pattern) {
    char *text = cmd_alloc(2 * strlen(pattern) + 1), *out = text;
    for (const char *at = pattern; *at; at++) {
        if (*at == '%' && at[1] && at[1] != '%') {
            *out++ = '*';
            at++;
        } else {
            at += *at == '%' && at[1] == '%';
            if (strchr("*?[\\", *at))
                *out++ = '\\';
            *out++ = *at;
        }
    }
    return text;
}

typedef void file_fn(const char *path, void *arg);

static bool is_later(const struct timespec *a, const struct timespec *b) {
    return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec : a->tv_nsec >= b->tv_nsec;
}

/* Each regular file of that pattern, with anything behind it if `longer`, that was written since `start`. */
static void each_file(const char *pattern, bool longer, const struct timespec *start, file_fn *visit, void *arg) {
    glob_t found;
    char *plain = glob_of(pattern), *whole = cmd_format("%s%s", plain, longer ? "*" : "");
    if (glob(whole, GLOB_NOSORT, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            struct stat status;
            if (stat(found.gl_pathv[i], &status) == 0 && S_ISREG(status.st_mode) &&
                is_later(&status.st_mtim, start))
                visit(found.gl_pathv[i], arg);
        }
        globfree(&found);
    }
    free(whole);
    free(plain);
}

/* ------------------------------------------------------------------ processes */

/* The process with the highest peak. */
typedef struct {
    cmd_headline_t headline;
    int pid;
    char *path; /* of its dump; NULL: not known */
    unsigned count;
} most_t;

static bool is_more(most_t *most, const json_t *document, cmd_headline_t *headline) {
    cmd_headline(headline, document);
    return !most->count++ || headline->allocated_peak > most->headline.allocated_peak;
}

static void take(const json_t *document, void *arg) {
    most_t *most = arg;
    cmd_headline_t headline;
    if (is_more(most, document, &headline)) {
        most->headline = headline;
        most->headline.not_applied = NULL; /* the document's */
        most->pid = (int)cmd_integer(json_object_get(document, "process"), "pid");
    }
}

static char *others_of(const most_t *most) {
    return most->count > 1 ? cmd_format(" (the largest of %u processes)", most->count)
                           : cmd_format("%s", "");
}

/* ------------------------------------------------------------------ record */

typedef struct {
    int pid;
    char *path; /* of the trace of that process; NULL: there is none */
} trace_t;

static void match_trace(const char *path, void *arg) {
    trace_t *wanted = arg;
    char *error = NULL;
    cmd_trace_t *trace = !wanted->path && cmd_trace_is(path) ? cmd_trace_open(path, &error) : NULL;
    if (trace && cmd_trace_header(trace)->pid == wanted->pid)
        wanted->path = cmd_format("%s", path);
    if (trace)
        cmd_trace_close(trace);
    free(error);
}

static void say_peak(const char *path, const char *others) {
    char *error = NULL, bytes[2][CMD_FIGURE];
    cmd_history_t *history = cmd_history_read(path, &error);
    cmd_sites_t sites = {0};
    bool known = history && cmd_sites_at(history, CMD_AT_PEAK, &sites, &error);
    cmd_bar_end();
    if (!known)
        cmd_say("%s", error);
    else if (!sites.count)
        cmd_say("peak 0 B%s", others);
    else
        cmd_say("peak %s%s, of which %s (%.1f %%) by %s", cmd_text_bytes(bytes[0], sites.bytes), others,
                cmd_text_bytes(bytes[1], sites.site[0].bytes),
                100 * (double)sites.site[0].bytes / (double)sites.bytes, sites.site[0].name);
    cmd_sites_free(&sites);
    if (history)
        cmd_history_free(history);
    free(error);
}

static int say_recorded(const most_t *most, const char *path) {
    char *others = others_of(most), served[CMD_HEADLINE_SHARE];
    cmd_say("%s", cmd_headline_share(served, &most->headline));
    say_peak(path, others);
    cmd_say("next: accelcache report %s", path);
    free(others);
    return CMD_OK;
}

/* The status of a run in which nothing was recorded. */
static int say_nothing_recorded(const most_t *most) {
    if (most->count)
        cmd_say("the trace of process %d was not found: is there space, may it be written?", most->pid);
    else
        cmd_say("nothing was recorded: the program did not use CUDA, or the library did not reach it "
                "(accelcache doctor -- PROGRAM says which)");
    return CMD_FAILED;
}

int cmd_run_record(const cmd_run_t *run, const char *program, const char *conf) {
    int stopped = 0, status = CMD_FAILED;
    most_t most = {.pid = 0};
    struct timespec start;
    cmd_trial_t trial = {.as_it_is = true, .visit = take, .arg = &most};
    clock_gettime(CLOCK_REALTIME_COARSE, &start);
    trial.folder = cmd_trial_folder(NULL);
    if (!trial.folder)
        return CMD_FAILED;
    if (cmd_trial_run(&trial, program, run->command, conf, NULL, &stopped) == 0) {
        trace_t trace = {.pid = most.pid};
        if (most.count)
            each_file(run->trace, true, &start, match_trace, &trace);
        bool ran = trial.status != CMD_NOT_FOUND && trial.status != CMD_CANNOT_RUN;
        status = trace.path      ? say_recorded(&most, trace.path)
                 : ran || most.count ? say_nothing_recorded(&most)
                                 : CMD_OK;
        status = trial.status ? trial.status : status;
        free(trace.path);
    }
    cmd_folder_remove(trial.folder);
    free(trial.folder);
    return status;
}

/* ------------------------------------------------------------------ run */

static void take_dump(const char *path, void *arg) {
    most_t *most = arg;
    char *error = NULL;
    json_t *document = cmd_document_load(path, &error);
    cmd_headline_t headline;
    if (document && is_more(most, document, &headline)) {
        most->headline = headline;
        most->headline.not_applied = NULL;
        free(most->path);
        most->path = cmd_format("%s", path);
    }
    json_decref(document);
    free(error);
}

/* A program that ended by a signal or _exit left its live page. */
static void take_page(int pid, most_t *most) {
    char *error = NULL;
    ac_live_name_t name;
    bool alive;
    json_t *document =
        cmd_page_find(pid, 0, &name, &error) ? cmd_document_live(&name, &alive, &error) : NULL;
    if (document) {
        take(document, most);
        most->path = cmd_format("%d", pid);
    }
    json_decref(document);
    free(error);
}

static void say_run(const most_t *most) {
    char *others = others_of(most), served[CMD_HEADLINE_SHARE], bytes[CMD_FIGURE];
    cmd_say("%s, peak %s%s; accelcache stat %s", cmd_headline_share(served, &most->headline),
            cmd_text_bytes(bytes, most->headline.allocated_peak), others, most->path);
    free(others);
}

/* Ends the command by the signal that ended the program, which wrote its core already. */
static void end_by(int number) {
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    signal(number, SIG_DFL);
    raise(number);
}

int cmd_run_told(const cmd_run_t *run, const char *program, const char *conf) {
    ac_config_t config;
    ac_config_error_t error;
    cmd_trial_t trial = {.as_it_is = true};
    most_t most = {.pid = 0};
    struct timespec start;
    clock_gettime(CLOCK_REALTIME_COARSE, &start);
    if (cmd_trial_plain(&trial, program, run->command, conf))
        return CMD_FAILED;
    if (!ac_config_parse(conf, &config, &error, NULL))
        each_file(config.dump, false, &start, take_dump, &most);
    if (!most.count)
        take_page(trial.pid, &most);
    if (most.path && most.headline.requests)
        say_run(&most);
    free(most.path);
    if (trial.signal)
        end_by(trial.signal);
    return trial.status;
}

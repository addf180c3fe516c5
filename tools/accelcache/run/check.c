/* `accelcache run --max-peak SIZE --fail-on-leak`: a program's memory as a test. */
#include "command.h"
#include "base/conf.h"
#include "run/run.h"
#include "run/trial.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const cmd_run_t *run;
    cmd_trial_t trial;
    /* The process and device that held most at a time. */
    int64_t peak, peak_pid, peak_device;
    /* Memory that processes held at their exit. */
    int64_t leaked_blocks, leaked_bytes, leak_pid;
    unsigned leaking;
    char *leakers; /* of the process `leak_pid`: the requests by module; "" if not known */
    char *peak_fault, *leak_fault; /* one line each; NULL: passed, or not asked for */
} check_t;

/* ------------------------------------------------------------------ figures */

/* "libplugin.so 10 blocks of 256 KiB, app 2 blocks (3.50 MiB)", the most bytes first; malloc'd. */
static char *leakers_of(const json_t *leaks) {
    enum { MOST = 3 };
    char *text = cmd_format("%s", "");
    for (size_t i = 0; i < json_array_size(leaks) && i < MOST; i++) {
        const json_t *leak = json_array_get(leaks, i), *sizes = json_object_get(leak, "sizes");
        const char *name = json_string_value(json_object_get(leak, "name"));
        int64_t blocks = cmd_integer(leak, "blocks");
        bool alike = json_array_size(sizes) == 1;
        const json_t *amount = alike
                                   ? json_object_get(json_array_get(sizes, 0), "requested_bytes")
                                   : json_object_get(leak, "bytes");
        char bytes[CMD_FIGURE];
        cmd_text_bytes(bytes, json_integer_value(amount));
        char *longer =
            cmd_format("%s%s%s %lld block%s %s%s%s", text, *text ? ", " : "",
                       name ? name : "code of no module", (long long)blocks,
                       blocks == 1 ? "" : "s", alike ? "of " : "(", bytes, alike ? "" : ")");
        free(text);
        text = longer;
    }
    return text;
}

static void look_at(const json_t *document, void *arg) {
    check_t *c = arg;
    const json_t *devices = json_object_get(document, "devices");
    const char *reason = json_string_value(json_object_get(document, "reason"));
    int64_t pid =
        cmd_integer(json_object_get(document, "process"), "pid");
    int64_t blocks = 0;
    for (size_t i = 0; i < json_array_size(devices); i++) {
        const json_t *device = json_array_get(devices, i);
        int64_t peak = cmd_document_stat(device, "allocated_bytes", "all", "peak");
        if (peak > c->peak) {
            c->peak = peak;
            c->peak_pid = pid;
            c->peak_device = cmd_integer(device, "ordinal");
        }
        /* A process that was ended could not free; one that exits could have. */
        if (!reason || strcmp(reason, "exit") != 0)
            continue;
        blocks += cmd_document_stat(device, "allocation", "all", "current");
        c->leaked_bytes += cmd_document_stat(device, "allocated_bytes", "all", "current");
    }
    if (blocks && !c->leaking++) {
        c->leak_pid = pid;
        c->leakers = leakers_of(json_object_get(document, "leaks"));
    }
    c->leaked_blocks += blocks;
}

/* Allocations without figures of their bytes. */
static uint64_t left_to_driver(const check_t *c) {
    return c->trial.figures.process[AC_COUNT_passed_allocs] +
           c->trial.figures.process[AC_COUNT_passed_async];
}

static void judge(check_t *c) {
    char text[2][CMD_FIGURE];
    if (c->run->max_peak && c->peak > (int64_t)c->run->max_peak)
        c->peak_fault = cmd_format(
            "process %lld held %s on device %lld at a time, more than the %s of --max-peak; "
            "accelcache run --trace FILE records what was held then",
            (long long)c->peak_pid, cmd_text_bytes(text[0], c->peak), (long long)c->peak_device,
            cmd_text_bytes(text[1], (int64_t)c->run->max_peak));
    if (c->run->fail_on_leak && c->leaked_blocks)
        c->leak_fault = cmd_format(
            "process %lld%s held %lld block%s, %s, when it exited%s%s; accelcache run --trace "
            "FILE records which were not freed",
            (long long)c->leak_pid, c->leaking > 1 ? " and others" : "",
            (long long)c->leaked_blocks, c->leaked_blocks == 1 ? "" : "s",
            cmd_text_bytes(text[0], c->leaked_bytes), *c->leakers ? ": " : "", c->leakers);
}

/* ------------------------------------------------------------------ saying it */

static void say_verdict(const check_t *c) {
    char peak[CMD_FIGURE];
    if (c->peak_fault)
        cmd_say("peak: %s", c->peak_fault);
    if (c->leak_fault)
        cmd_say("leak: %s", c->leak_fault);
    if (!c->peak_fault && !c->leak_fault)
        cmd_say("memory checks passed: at most %s held by a process on a device at a time%s",
                cmd_text_bytes(peak, c->peak), c->run->fail_on_leak ? ", nothing at exit" : "");
    if (c->run->keep)
        cmd_say("dumps are in %s", c->trial.folder);
    if (c->run->fail_on_leak && c->trial.left + c->trial.running)
        cmd_say("%u process%s did not exit by itself (a signal, _exit, or still running): "
                "what it held is no leak, and was not judged",
                c->trial.left + c->trial.running,
                c->trial.left + c->trial.running == 1 ? "" : "es");
    if (left_to_driver(c))
        cmd_say(
            "%llu allocations were left to the driver and are in no figure: passed_allocs and "
            "passed_async of accelcache stat (--keep DIR keeps the dumps)",
            (unsigned long long)left_to_driver(c));
}

/* For an attribute: nothing in it ends it, and control characters and broken UTF-8 are none of
 * XML's. */
static char *xml(const char *text) {
    static const struct {
        char letter;
        const char *entity;
    } entities[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}};
    char *safe = cmd_safe(text), *all = cmd_alloc(6 * strlen(safe) + 1), *out = all;
    for (const char *at = safe; *at; at++) {
        const char *entity = NULL;
        for (unsigned i = 0; i < sizeof entities / sizeof entities[0]; i++)
            if (*at == entities[i].letter)
                entity = entities[i].entity;
        if (entity)
            out = stpcpy(out, entity);
        else
            *out++ = *at;
    }
    free(safe);
    return all;
}

static void print_case(FILE *file, const check_t *c, const char *name, const char *fault) {
    char *command = xml(c->run->command[0]);
    fprintf(file, "<testcase classname=\"%s\" name=\"%s\" time=\"%.3f\"", command, name,
            (double)c->trial.wall / 1e9);
    if (fault) {
        char *text = xml(fault);
        fprintf(file, "><failure message=\"%s\"/></testcase>\n", text);
        free(text);
    } else {
        fputs("/>\n", file);
    }
    free(command);
}

/* Returns the exit status. */
static int write_junit(const check_t *c) {
    char *ended =
        c->trial.status ? cmd_format("the program ended with status %d", c->trial.status) : NULL;
    int tests = 1 + (c->run->max_peak != 0) + c->run->fail_on_leak;
    int faults = (ended != NULL) + (c->peak_fault != NULL) + (c->leak_fault != NULL);
    FILE *file = fopen(c->run->junit, "we");
    bool failed = !file;
    if (file) {
        fprintf(file,
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                "<testsuite name=\"accelcache\" tests=\"%d\" failures=\"%d\" time=\"%.3f\">\n",
                tests, faults, (double)c->trial.wall / 1e9);
        print_case(file, c, "status", ended);
        if (c->run->max_peak)
            print_case(file, c, "max-peak", c->peak_fault);
        if (c->run->fail_on_leak)
            print_case(file, c, "leak", c->leak_fault);
        fputs("</testsuite>\n", file);
        failed = ferror(file);
        failed |= fclose(file) != 0;
    }
    if (failed)
        cmd_say("--junit %s: %s", c->run->junit, strerror(errno));
    free(ended);
    return failed ? CMD_FAILED : CMD_OK;
}

static int print_json(const check_t *c) {
    json_t *command = json_array(), *peak = json_null(), *leak = json_null();
    for (char **argument = c->run->command; *argument; argument++)
        json_array_append_new(command, cmd_json_text(*argument));
    if (c->run->max_peak)
        peak = json_pack("{s:b, s:I, s:I, s:I, s:I}", "passed", !c->peak_fault, "allocated_bytes",
                         (json_int_t)c->peak, "limit", (json_int_t)c->run->max_peak, "pid",
                         (json_int_t)c->peak_pid, "device", (json_int_t)c->peak_device);
    if (c->run->fail_on_leak)
        leak = json_pack("{s:b, s:I, s:I, s:I}", "passed", !c->leak_fault, "blocks",
                         (json_int_t)c->leaked_blocks, "bytes", (json_int_t)c->leaked_bytes,
                         "processes", (json_int_t)c->leaking);
    return cmd_print_json(
        json_pack("{s:s, s:i, s:o, s:i, s:I, s:I, s:I, s:I, s:o, s:o}", "schema",
                  "accelcache-check", "version", 1, "command", command, "status", c->trial.status,
                  "wall_ns", (json_int_t)c->trial.wall, "dumps", (json_int_t)c->trial.dumps,
                  "ended_without_dump", (json_int_t)c->trial.left, "still_running",
                  (json_int_t)c->trial.running, "max_peak", peak, "leak", leak),
        0);
}

/* ------------------------------------------------------------------ running */

/* Returns the reason why the program's memory is not known; NULL: it is known.  malloc'd. */
static char *unmeasured(const check_t *c) {
    if (!c->trial.dumps)
        return cmd_format("the program did not use CUDA, or the library did not reach it "
                          "(accelcache doctor -- PROGRAM says which)");
    if (!c->peak && left_to_driver(c))
        return cmd_format("all of the program's allocations were left to the driver: "
                          "enabled:false, or memory of a kind that the library does not serve");
    return NULL;
}

/* The status to end with: the program's own, then that of what could not be judged, then that of
 * the first check that failed. */
static int report(check_t *c) {
    int written = CMD_OK;
    char *why = unmeasured(c);
    if (why) {
        cmd_say("nothing was measured: %s", why);
        if (c->run->max_peak)
            c->peak_fault = cmd_format("nothing was measured: %s", why);
        if (c->run->fail_on_leak)
            c->leak_fault = cmd_format("nothing was measured: %s", why);
    } else {
        judge(c);
        say_verdict(c);
    }
    if (c->run->junit)
        written = write_junit(c);
    if (c->run->json && print_json(c))
        written = CMD_FAILED;
    bool failed = written || why;
    free(why);
    if (c->trial.status)
        return c->trial.status;
    if (failed)
        return CMD_FAILED;
    return c->peak_fault ? CMD_PEAK : c->leak_fault ? CMD_LEAK : CMD_OK;
}

int cmd_run_check(const cmd_run_t *run, const char *program, const char *conf) {
    int stopped = 0, status = CMD_FAILED;
    /* The dump has the rest. */
    char *with_report =
        run->fail_on_leak ? cmd_conf_set(conf, "leak_report", "dump") : cmd_format("%s", conf);
    check_t c = {.run = run, .trial = {.as_it_is = true, .visit = look_at, .arg = &c}};
    c.trial.folder = cmd_trial_folder(run->keep);
    if (c.trial.folder &&
        cmd_trial_run(&c.trial, program, run->command, with_report, NULL, &stopped) == 0)
        status = stopped ? 128 + stopped : report(&c);
    if (c.trial.folder && !run->keep)
        cmd_folder_remove(c.trial.folder);
    free(c.trial.folder);
    free(c.peak_fault);
    free(c.leak_fault);
    free(c.leakers);
    free(with_report);
    return status;
}

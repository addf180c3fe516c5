/* `accelcache doctor --dump FILE`, and the last part of `doctor PID`: what the figures of a
 * program say about it. */
#include "command.h"
#include "run/doctor.h"
#include "read/document.h"
#include "read/passed.h"

#include <stdlib.h>
#include <string.h>

/* A driver's cuMemFree waits for the work that is pending; ours does so as `free_sync` says.  Only a
 * program that frees with work pending can tell the difference. */
static void check_frees(cmd_findings_t *findings, const cmd_figures_t *figures,
                        const char *free_sync) {
    uint64_t pending = figures->device.fenced_frees + figures->device.ordered_frees;
    uint64_t total = pending + figures->device.ready_frees;
    uint64_t waits = figures->process[AC_COUNT_free_waits];
    char some[CMD_FIGURE], all[CMD_FIGURE], waited[CMD_FIGURE], time[CMD_FIGURE];
    cmd_text_count(some, (int64_t)pending);
    cmd_text_count(all, (int64_t)total);
    cmd_text_count(waited, (int64_t)waits);
    cmd_text_ns(time, (int64_t)figures->process[AC_COUNT_free_wait_ns]);
    if (!strcmp(free_sync, "true"))
        cmd_finding(findings, CMD_FINDING_NOTE, "free_sync",
                    "on: each of the %s frees waited for the context's work first. It is right "
                    "for a program that reads on the host, without a synchronisation of its own, "
                    "what the device wrote before a free; for others it only costs time",
                    all);
    else if (!total)
        cmd_finding(findings, CMD_FINDING_OK, "free_sync", "nothing was freed so far");
    else if (waits)
        cmd_finding(findings, CMD_FINDING_NOTE, "free_sync",
                    "%s of %s frees waited, %s in all, for work with results that the host can read: the "
                    "program had not awaited a result itself. One that also relies on later frees "
                    "needs free_sync:true, one that relies on none saves the time with "
                    "free_sync:false: accelcache run --compare -- PROGRAM shows whether results "
                    "differ",
                    waited, all, time);
    else if (!pending)
        cmd_finding(findings, CMD_FINDING_OK, "free_sync",
                    "not needed: none of the %s frees found work pending", all);
    else
        cmd_finding(findings, CMD_FINDING_NOTE, "free_sync",
                    "%s of %s frees found work pending, and did not wait for it as the driver "
                    "would have. That is safe for device memory. Only a program that takes "
                    "cudaFree for a synchronisation, %sneeds free_sync:true: accelcache run "
                    "--compare -- PROGRAM shows whether results differ",
                    some, all,
                    !strcmp(free_sync, "auto") ? "and awaits other results itself, " : "");
}

/* Counters that should be 0, in the order of their weight. */
static void check_counters(cmd_findings_t *findings, const cmd_figures_t *figures) {
    const struct {
        uint64_t count;
        const char *topic, *text;
    } rows[] = {
        {(uint64_t)figures->ooms, "memory",
         "requests failed for lack of memory; the dump's warnings name the reason"},
        {figures->process[AC_COUNT_bad_frees], "frees",
         "frees of pointers into cached memory that hold no block: the program frees twice, or "
         "what it did not allocate"},
        {figures->process[AC_COUNT_internal_failures], "failures",
         "internal failures: those calls went to the driver and were not cached"},
        {figures->process[AC_COUNT_unknown_functions], "fences",
         "driver functions were called that no table knows: every free waits for a fence of all "
         "contexts from then on; a newer accelcache may know them"},
        {figures->process[AC_COUNT_unknown_tables], "fences",
         "private tables of the driver were handed out that no list knows (a profiler asks for "
         "such): every free waits for a fence of all contexts from then on"},
        {figures->process[AC_COUNT_untracked_submissions], "fences",
         "work went to streams or contexts that could not be told: every free waits for a fence "
         "of all contexts from then on"},
        {figures->process[AC_COUNT_fences_legacy], "fences",
         "fences needed an event on the legacy stream, which makes streams wait for each other: "
         "per-thread default streams on a driver before CUDA 12.5 do that"},
        {figures->process[AC_COUNT_fences_sync], "fences",
         "fences needed a synchronisation of the context: fence:sync asks for that, or the "
         "driver offers nothing better"},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        char count[CMD_FIGURE];
        if (rows[i].count)
            cmd_finding(findings, CMD_FINDING_NOTE, rows[i].topic, "%s %s",
                        cmd_text_count(count, (int64_t)rows[i].count), rows[i].text);
    }
}

/* Stream-ordered requests that were left to the driver: a finding for each reason that the program can remove. */
static void check_passed(cmd_findings_t *findings, const cmd_figures_t *figures) {
    cmd_passed_t rows[CMD_PASSED_REASONS];
    char text[CMD_PASSED_TEXT], count[CMD_FIGURE];
    if (!cmd_passed_text(text, figures))
        return;
    cmd_finding(findings, CMD_FINDING_NOTE, "streams", "%s", text);
    unsigned found = cmd_passed(figures, rows);
    for (unsigned i = 0; i < found; i++)
        if (rows[i].advice)
            cmd_finding(findings, CMD_FINDING_NOTE, "streams", "%s %s",
                        cmd_text_count(count, (int64_t)rows[i].count), rows[i].advice);
}

void cmd_doctor_figures(cmd_findings_t *findings, const json_t *document) {
    cmd_figures_t figures = {0};
    const json_t *config = json_object_get(document, "config");
    const char *free_sync =
        json_string_value(json_object_get(json_object_get(config, "effective"), "free_sync"));
    cmd_figures_add(&figures, document);
    check_frees(findings, &figures, free_sync ? free_sync : "");
    check_counters(findings, &figures);
    check_passed(findings, &figures);
    cmd_doctor_shares(findings, &figures);
}

void cmd_doctor_dump(cmd_findings_t *findings, const char *path) {
    char *error = NULL;
    json_t *document = cmd_document_load(path, &error);
    if (!document) {
        cmd_finding(findings, CMD_FINDING_PROBLEM, "dump", "%s: %s", path, error);
        free(error);
        return;
    }
    cmd_finding(findings, CMD_FINDING_OK, "dump", "%s can be read; accelcache stat shows it",
                path);
    cmd_doctor_figures(findings, document);
    json_decref(document);
}

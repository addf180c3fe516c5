/* Advice of a report (report.h).  Each rule looks at one thing, and says it with the figures that it rests on
 * and what can be done. */
#include "command.h"
#include "read/document.h"
#include "read/failure.h"
#include "read/headline.h"
#include "read/passed.h"
#include "write/report.h"
#include "read/stacks.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void say(json_t *advice, const char *level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void say(json_t *advice, const char *level, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    char *safe = cmd_safe(text);
    json_array_append_new(advice,
                          json_pack("{ss so}", "level", level, "text", cmd_json_text(safe)));
    free(safe);
}

static const char *plural(int64_t n) {
    return n == 1 ? "" : "s";
}

static double percent(int64_t part, int64_t whole) {
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0;
}

/* ------------------------------------------------------------------ a dump */

enum { MANY = 1000, MUCH = 64 << 20 };

static void advise_device(json_t *advice, const json_t *device) {
    char a[CMD_FIGURE], b[CMD_FIGURE];
    long long ordinal = cmd_integer(device, "ordinal");
    int64_t ooms = cmd_document_stat(device, "num_ooms", NULL, NULL);
    int64_t reserved = cmd_document_stat(device, "reserved_bytes", "all", "current");
    int64_t split = cmd_document_stat(device, "inactive_split_bytes", "all", "current");
    int64_t most_reserved = cmd_document_stat(device, "reserved_bytes", "all", "peak");
    int64_t most_allocated = cmd_document_stat(device, "allocated_bytes", "all", "peak");
    if (ooms)
        say(advice, "problem",
            "Device %lld: %s request%s failed for lack of memory. accelcache run --trace and "
            "accelcache tune --capacity say which settings complete; expandable_segments:true "
            "helps where enough is free, but in pieces.",
            ordinal, cmd_text_count(a, ooms), plural(ooms));
    if (reserved >= MUCH && percent(split, reserved) > 30)
        say(advice, "note",
            "Device %lld: %s of %s reserved are free, but beside used blocks. "
            "expandable_segments:true moves free pages to where they are needed.",
            ordinal, cmd_text_bytes(a, split), cmd_text_bytes(b, reserved));
    if (most_allocated >= MUCH && most_reserved > most_allocated + most_allocated / 2)
        say(advice, "note",
            "Device %lld: at most %s were reserved for %s that the program held. Ask accelcache "
            "tune, or try low_memory:true.",
            ordinal, cmd_text_bytes(a, most_reserved), cmd_text_bytes(b, most_allocated));
}

static void advise_dump(json_t *advice, const json_t *document) {
    const char *fault =
        json_string_value(json_object_get(json_object_get(document, "config"), "error"));
    cmd_figures_t figures = {0};
    char passed[CMD_PASSED_TEXT], count[CMD_FIGURE];
    size_t index;
    const json_t *device, *warning;
    char *failure = cmd_failure_text(document);
    if (failure)
        say(advice, "problem", "%s accelcache oom FILE says what would have served it.", failure);
    free(failure);
    if (fault && *fault)
        say(advice, "problem", "ACCEL_ALLOC_CONF was not applied: %s", fault);
    json_array_foreach(json_object_get(document, "devices"), index, device)
        advise_device(advice, device);
    cmd_headline_t headline; /* what accelcache stat says first */
    cmd_headline(&headline, document);
    if (headline.requests >= MANY)
        say(advice, cmd_headline_percent(&headline) >= 90 ? "good" : "note",
            "%.1f %% of %s requests were served without a driver call.",
            cmd_headline_percent(&headline), cmd_text_count(count, headline.requests));
    cmd_figures_add(&figures, document);
    if (cmd_passed_text(passed, &figures))
        say(advice, "note", "%s", passed);
    if (cmd_document_counter(document, "internal_failures"))
        say(advice, "problem",
            "The library failed inside %s times and left the calls to the driver; the warnings "
            "say why.",
            cmd_text_count(count, cmd_document_counter(document, "internal_failures")));
    json_array_foreach(json_object_get(document, "warnings"), index, warning)
        say(advice, "note", "Warning: %s", json_string_value(warning));
}

/* ------------------------------------------------------------------ events */

enum { QUARTERS = 4 };

typedef struct {
    int64_t most[QUARTERS]; /* bytes in use, of each quarter of the events */
    size_t end[QUARTERS];   /* number of events before that moment */
} quarters_t;

typedef struct {
    const char *site;
    int64_t held[QUARTERS]; /* at the peak of each quarter */
} riser_t;

static int by_name(const void *a, const void *b) {
    return strcmp(((const riser_t *)a)->site, ((const riser_t *)b)->site);
}

static int64_t rise_of(const riser_t *riser) {
    return riser->held[QUARTERS - 1] - riser->held[0];
}

static int by_rise(const void *a, const void *b) {
    int64_t x = rise_of(a), y = rise_of(b);
    return x != y ? x < y ? 1 : -1 : by_name(a, b);
}

static bool rises(const int64_t held[QUARTERS]) {
    return held[0] < held[1] && held[1] < held[2] && held[2] < held[3];
}

/* Names the call sites that held more at each quarter's peak, with their growth: "; a from 1 MiB to 9 MiB", the
 * most first. */
static char *risers_of(const cmd_history_t *history, const quarters_t *quarters) {
    enum { NAMED = 3 };
    cmd_stacks_t stacks[QUARTERS];
    cmd_stacks_before(history, quarters->end[QUARTERS - 1], &stacks[QUARTERS - 1]);
    size_t count = stacks[QUARTERS - 1].count, named = 0;
    riser_t *riser = cmd_alloc((count + 1) * sizeof *riser);
    for (size_t i = 0; i < count; i++)
        riser[i] = (riser_t){stacks[QUARTERS - 1].stack[i].site, {0, 0, 0, stacks[QUARTERS - 1].stack[i].bytes}};
    for (int k = 0; k < QUARTERS - 1; k++) {
        cmd_stacks_before(history, quarters->end[k], &stacks[k]);
        for (size_t i = 0; i < stacks[k].count; i++) { /* both lists are sorted by name */
            riser_t *of = bsearch(&(riser_t){.site = stacks[k].stack[i].site}, riser, count, sizeof *riser, by_name);
            if (of)
                of->held[k] = stacks[k].stack[i].bytes;
        }
    }
    if (count)
        qsort(riser, count, sizeof *riser, by_rise);
    char *text = cmd_format("%s", "");
    for (size_t i = 0; i < count && named < NAMED; i++) {
        char a[CMD_FIGURE], b[CMD_FIGURE];
        if (!rises(riser[i].held))
            continue;
        char *longer = cmd_format("%s%s%s from %s to %s", text, named++ ? "; " : " Grew in each: ", riser[i].site,
                                  cmd_text_bytes(a, riser[i].held[0]), cmd_text_bytes(b, riser[i].held[3]));
        free(text);
        text = longer;
    }
    for (int k = 0; k < QUARTERS; k++)
        cmd_stacks_free(&stacks[k]);
    free(riser);
    return text;
}

static void advise_growth(json_t *advice, const cmd_history_t *history, const quarters_t *quarters) {
    char a[CMD_FIGURE], b[CMD_FIGURE];
    const int64_t *most = quarters->most;
    if (!rises(most) || most[3] <= most[1] + most[1] / 4)
        return;
    char *risers = risers_of(history, quarters);
    say(advice, "note",
        "Peak memory grew in every quarter of the run, from %s to %s: does the program keep what it does not need?%s%s",
        cmd_text_bytes(a, most[0]), cmd_text_bytes(b, most[3]), risers, *risers ? "." : "");
    free(risers);
}

static void advise_events(json_t *advice, const cmd_history_t *history) {
    char a[CMD_FIGURE], b[CMD_FIGURE];
    int64_t requests = 0, failed = 0, largest_failed = 0, kept = 0, kept_bytes = 0, brief = 0;
    int64_t live = 0;
    quarters_t quarters = {{0}, {0}};
    for (size_t i = 0; i < history->events; i++) {
        const cmd_event_t *event = &history->event[i];
        int64_t bytes = (int64_t)event->bytes;
        live += event->kind == CMD_EVENT_ALLOC  ? bytes
                : event->kind == CMD_EVENT_FREE ? -bytes
                                                : 0;
        size_t quarter = i * QUARTERS / history->events;
        if (live > quarters.most[quarter]) {
            quarters.most[quarter] = live;
            quarters.end[quarter] = i + 1;
        }
        if (event->kind == CMD_EVENT_FAILED) {
            failed++;
            largest_failed = bytes > largest_failed ? bytes : largest_failed;
        }
        if (event->kind != CMD_EVENT_ALLOC)
            continue;
        requests++;
        if (event->partner == CMD_NO_PARTNER) {
            kept++;
            kept_bytes += bytes;
        } else if (history->timed &&
                   history->event[event->partner].time_ns - event->time_ns < 1000000) {
            brief++;
        }
    }
    if (failed)
        say(advice, "problem",
            "%s request%s failed, the largest of %s. accelcache tune --capacity says which "
            "settings "
            "complete.",
            cmd_text_count(a, failed), plural(failed), cmd_text_bytes(b, largest_failed));
    if (requests >= MANY && percent(brief, requests) >= 50)
        say(advice, "good",
            "%.0f %% of %s requests are freed within a millisecond: this is what the cache is "
            "for.",
            percent(brief, requests), cmd_text_count(a, requests));
    if (requests >= MANY)
        advise_growth(advice, history, &quarters);
    if (kept)
        say(advice, "note", "%s block%s with %s still in use at the end.",
            cmd_text_count(a, kept), plural(kept), cmd_text_bytes(b, kept_bytes));
    if (requests >= MANY && history->source == CMD_SOURCE_TRACE)
        say(advice, "note", "accelcache tune FILE says which settings suit these requests.");
}

static void advise_segments(json_t *advice, const cmd_history_t *history,
                            const cmd_segments_t *list) {
    uint64_t whole = 0, used = 0, pending = 0, largest = 0;
    char a[CMD_FIGURE], b[CMD_FIGURE], c[CMD_FIGURE];
    for (size_t i = 0; i < list->segments; i++)
        whole += list->segment[i].bytes;
    for (size_t i = 0; i < list->blocks; i++) {
        const cmd_block_t *block = &list->block[i];
        bool held = cmd_block_is_held(block), waits = cmd_block_waits(block);
        used += held || waits ? block->bytes : 0;
        pending += waits ? block->bytes : 0;
        if (!held && !waits && block->bytes > largest)
            largest = block->bytes;
    }
    if (history->source != CMD_SOURCE_SNAPSHOT || !whole)
        return;
    say(advice, percent((int64_t)(whole - used), (int64_t)whole) > 30 ? "note" : "good",
        "%s of %s reserved are free; the largest free piece has %s.",
        cmd_text_bytes(a, (int64_t)(whole - used)), cmd_text_bytes(b, (int64_t)whole),
        cmd_text_bytes(c, (int64_t)largest));
    if (pending)
        say(advice, "note", "%s are freed and wait for work on the device.",
            cmd_text_bytes(a, (int64_t)pending));
}

json_t *cmd_report_advice(const cmd_history_t *history, const cmd_segments_t *list) {
    json_t *advice = json_array();
    if (history->figures)
        advise_dump(advice, history->figures);
    if (history->events)
        advise_events(advice, history);
    advise_segments(advice, history, list);
    return advice;
}

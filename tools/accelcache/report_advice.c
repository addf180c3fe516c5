/* What the figures of a report ask for, in words (report.h).  Each rule looks at one thing, and
 * says it with the figures that it rests on and what can be done. */
#include "command.h"
#include "document.h"
#include "headline.h"
#include "passed.h"
#include "report.h"

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
    long long ordinal = json_integer_value(json_object_get(device, "ordinal"));
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

static void advise_events(json_t *advice, const cmd_history_t *history) {
    char a[CMD_FIGURE], b[CMD_FIGURE];
    int64_t requests = 0, failed = 0, largest_failed = 0, kept = 0, kept_bytes = 0, brief = 0;
    int64_t live = 0, quarter[QUARTERS] = {0};
    for (size_t i = 0; i < history->events; i++) {
        const cmd_event_t *event = &history->event[i];
        int64_t bytes = (int64_t)event->bytes;
        live += event->kind == CMD_EVENT_ALLOC  ? bytes
                : event->kind == CMD_EVENT_FREE ? -bytes
                                                : 0;
        int64_t *most = &quarter[i * QUARTERS / history->events];
        *most = live > *most ? live : *most;
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
    if (requests >= MANY && quarter[0] < quarter[1] && quarter[1] < quarter[2] &&
        quarter[2] < quarter[3] && quarter[3] > quarter[1] + quarter[1] / 4)
        say(advice, "note",
            "The most bytes in use grew in every quarter of the operations, from %s to %s: does "
            "the program keep what it does not need?",
            cmd_text_bytes(a, quarter[0]), cmd_text_bytes(b, quarter[3]));
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
        used += block->allocated || block->pending ? block->bytes : 0;
        pending += block->pending ? block->bytes : 0;
        if (!block->allocated && !block->pending && block->bytes > largest)
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

/* Chrome's JSON trace format, which Perfetto reads: a counter track for each device and figure, and instants for
 * driver calls, waits and failures; of a dump's history also pinned memory and what was left to the driver, of
 * what its events tell; with call sites, a track for each of those that ever held the most.  Times are in
 * microseconds; in a trace without times an operation is one. */
#include "command.h"
#include "write/export.h"
#include "read/naming.h"
#include "base/terminal.h"

#include <inttypes.h>
#include <stdlib.h>

static void put_time(FILE *out, const cmd_history_t *history, int64_t ns) {
    if (history->timed)
        fprintf(out, "%" PRId64 ".%03d", ns / 1000, (int)(ns % 1000));
    else
        fprintf(out, "%" PRId64, ns);
}

static void put_counter(FILE *out, const cmd_history_t *history, int64_t time, int device,
                        const char *figure, const char *unit, int64_t value) {
    fprintf(out, ",\n{\"ph\":\"C\",\"pid\":%d,\"name\":\"device %d %s\",\"ts\":", history->pid,
            device, figure);
    put_time(out, history, time);
    fprintf(out, ",\"args\":{\"%s\":%" PRId64 "}}", unit, value);
}

static void put_instant(FILE *out, const cmd_history_t *history, const cmd_event_t *event,
                        const char *name) {
    fprintf(out, ",\n{\"ph\":\"i\",\"s\":\"t\",\"pid\":%d,\"tid\":%u,\"name\":\"%s\",\"ts\":",
            history->pid, event->thread, name);
    put_time(out, history, event->time_ns);
    fprintf(out, ",\"args\":{\"device\":%d,\"bytes\":%" PRIu64 "}}", event->device, event->bytes);
}

static void put_holding(FILE *out, const cmd_history_t *history, const cmd_event_t *event,
                        const cmd_holding_t *holding) {
    switch ((cmd_event_kind_t)event->kind) {
    case CMD_EVENT_ALLOC:
    case CMD_EVENT_FREE:
        put_counter(out, history, event->time_ns, event->device, "allocated", "bytes",
                    holding->allocated);
        put_counter(out, history, event->time_ns, event->device, "blocks", "blocks",
                    holding->blocks);
        break;
    case CMD_EVENT_SEGMENT:
    case CMD_EVENT_SEGMENT_GONE:
        put_counter(out, history, event->time_ns, event->device, "reserved", "bytes",
                    holding->reserved);
        break;
    case CMD_EVENT_PINNED:
    case CMD_EVENT_PINNED_GONE:
        put_counter(out, history, event->time_ns, event->device, "pinned", "bytes",
                    holding->pinned);
        break;
    case CMD_EVENT_PASSED:
    case CMD_EVENT_PASSED_GONE:
    case CMD_EVENT_PHYSICAL:
    case CMD_EVENT_PHYSICAL_GONE:
    case CMD_EVENT_ARRAY:
    case CMD_EVENT_ARRAY_GONE:
        put_counter(out, history, event->time_ns, event->device, "passed", "bytes",
                    holding->passed);
        break;
    case CMD_EVENT_FAILED:
    case CMD_EVENT_WAIT:
    case CMD_EVENT_KINDS:
        break;
    }
}

/* ------------------------------------------------------------------ call sites */

enum { MOST_SITES = 24 };

typedef struct {
    char *name; /* of the track, as a JSON text */
    int64_t bytes, peak;
    bool shown;
} site_t;

typedef struct {
    site_t *site;
    size_t count;
    uint32_t *of; /* by event: its site; NO_SITE: not known */
} sites_t;
static const uint32_t NO_SITE = UINT32_MAX;

/* The site of a request, or of the request that a free ends. */
static uint32_t find_site(sites_t *sites, json_t *known, const cmd_event_t *event) {
    char *name = event->device < 0 ? NULL : cmd_naming_site(event->frames);
    if (!name)
        return NO_SITE;
    char *key = cmd_format("device %d %s", event->device, name);
    free(name);
    json_t *number = json_object_get(known, key);
    uint32_t site = number ? (uint32_t)json_integer_value(number) : (uint32_t)sites->count;
    if (!number) {
        sites->site = cmd_resize(sites->site, (sites->count + 1) * sizeof *sites->site);
        json_t *text = cmd_json_text(key);
        sites->site[sites->count++] =
            (site_t){.name = json_dumps(text, JSON_ENCODE_ANY)};
        json_decref(text);
        json_object_set_new(known, key, json_integer(site));
    }
    free(key);
    return site;
}

static int by_peak(const void *a, const void *b) {
    const site_t *x = *(const site_t *const *)a, *y = *(const site_t *const *)b;
    return (x->peak < y->peak) - (x->peak > y->peak);
}

/* Applies the event to the bytes of its site.  NULL: it has none. */
static site_t *change_site(const sites_t *sites, const cmd_history_t *history, size_t i) {
    site_t *site = sites->of[i] == NO_SITE ? NULL : &sites->site[sites->of[i]];
    int64_t bytes = (int64_t)history->event[i].bytes;
    if (site)
        site->bytes += history->event[i].kind == CMD_EVENT_ALLOC ? bytes : -bytes;
    return site;
}

static sites_t find_sites(const cmd_history_t *history) {
    sites_t sites = {.of = cmd_alloc((history->events + 1) * sizeof *sites.of)};
    json_t *known = json_object();
    for (size_t i = 0; i < history->events; i++) {
        const cmd_event_t *event = &history->event[i];
        sites.of[i] = event->kind == CMD_EVENT_ALLOC ? find_site(&sites, known, event)
                      : event->kind == CMD_EVENT_FREE && event->partner != CMD_NO_PARTNER
                          ? sites.of[event->partner]
                          : NO_SITE;
        site_t *site = change_site(&sites, history, i);
        if (site && site->bytes > site->peak)
            site->peak = site->bytes;
    }
    json_decref(known);
    site_t **order = cmd_alloc((sites.count + 1) * sizeof *order);
    for (size_t i = 0; i < sites.count; i++) {
        order[i] = &sites.site[i];
        order[i]->bytes = 0;
    }
    if (sites.count)
        qsort(order, sites.count, sizeof(site_t *), by_peak);
    for (size_t i = 0; i < sites.count && i < MOST_SITES; i++)
        order[i]->shown = true;
    free(order);
    return sites;
}

static void free_sites(sites_t *sites) {
    for (size_t i = 0; i < sites->count; i++)
        free(sites->site[i].name);
    free(sites->site);
    free(sites->of);
}

static void put_site(FILE *out, const cmd_history_t *history, int64_t time, const site_t *site) {
    if (!site || !site->shown)
        return;
    fprintf(out, ",\n{\"ph\":\"C\",\"pid\":%d,\"name\":%s,\"ts\":", history->pid, site->name);
    put_time(out, history, time);
    fprintf(out, ",\"args\":{\"bytes\":%" PRId64 "}}", site->bytes);
}

/* ------------------------------------------------------------------ the whole */

bool cmd_export_perfetto(const cmd_history_t *history, cmd_moment_t moment, FILE *out, char **error) {
    (void)moment;
    static const char *const instants[CMD_EVENT_KINDS] = {[CMD_EVENT_FAILED] = "request failed",
                                           [CMD_EVENT_WAIT] = "wait for the device",
                                           [CMD_EVENT_SEGMENT] = "memory from the driver",
                                           [CMD_EVENT_SEGMENT_GONE] = "memory to the driver",
                                           [CMD_EVENT_PHYSICAL] = "physical memory (cuMemCreate)",
                                           [CMD_EVENT_ARRAY] = "array"};
    cmd_holding_t holding[CMD_DEVICES];
    json_t *title = cmd_json_text(history->command ? history->command : history->format);
    char *name = json_dumps(title, JSON_ENCODE_ANY);
    json_decref(title);
    (void)error;
    fprintf(out,
            "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":%d,"
            "\"name\":\"process_name\",\"args\":{\"name\":%s}}",
            history->pid, name ? name : "\"\"");
    free(name);
    for (unsigned device = 0; device < history->devices; device++) {
        holding[device] = cmd_history_before(history, (int)device);
        put_counter(out, history, 0, (int)device, "allocated", "bytes",
                    holding[device].allocated);
        put_counter(out, history, 0, (int)device, "blocks", "blocks", holding[device].blocks);
        if (history->source == CMD_SOURCE_SNAPSHOT)
            put_counter(out, history, 0, (int)device, "reserved", "bytes",
                        holding[device].reserved);
    }
    sites_t sites = find_sites(history);
    for (size_t i = 0; i < sites.count; i++)
        put_site(out, history, 0, &sites.site[i]);
    for (size_t i = 0; i < history->events; i++) {
        const cmd_event_t *event = &history->event[i];
        cmd_bar_step("events", i, history->events);
        if (event->device >= 0) {
            cmd_holding_add(&holding[event->device], event);
            put_holding(out, history, event, &holding[event->device]);
        }
        put_site(out, history, event->time_ns, change_site(&sites, history, i));
        if (instants[event->kind])
            put_instant(out, history, event, instants[event->kind]);
    }
    free_sites(&sites);
    fputs("\n]}\n", out);
    return true;
}

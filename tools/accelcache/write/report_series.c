/* Memory over time, by call site (report.h). */
#include "command.h"
#include "base/terminal.h"
#include "read/document.h"
#include "read/naming.h"
#include "read/stacks.h"
#include "write/report.h"

#include <stdlib.h>
#include <string.h>

enum { FIGURES = 4, SITES = 10, REST = SITES, BUCKETS = 750, MOMENTS = 2 + 2 * FIGURES };

static const char *const figure_names[FIGURES] = {"allocated", "reserved", "pinned", "passed"};

/* ------------------------------------------------------------------ call sites */

typedef struct {
    char *name[SITES]; /* the largest at the peak */
    unsigned count;
    int64_t before[SITES]; /* bytes that it held before the first event */
    unsigned char *of; /* by event: the number of its site, REST for all others */
} sites_t;

static int by_bytes(const void *a, const void *b) {
    const cmd_stack_t *x = a, *y = b;
    return x->bytes != y->bytes ? x->bytes < y->bytes ? 1 : -1 : strcmp(x->site, y->site);
}

static unsigned char number_of(const sites_t *sites, const cmd_event_t *event) {
    char *name = cmd_stacks_site(event->frames, event->bytes, event->stream);
    unsigned number = 0;
    while (number < sites->count && strcmp(sites->name[number], name) != 0)
        number++;
    free(name);
    return (unsigned char)(number < sites->count ? number : REST);
}

/* Events of one stack follow each other, so the newest answers are kept: to name a stack takes microseconds.  Events
 * without frames may share one empty list, and their sizes name their sites: no answer is kept for them. */
static void number_events(const cmd_history_t *history, sites_t *sites) {
    enum { KEPT = 1 << 12 };
    struct {
        const json_t *frames;
        unsigned char number;
    } *kept = cmd_alloc(KEPT * sizeof *kept);
    memset(kept, 0, KEPT * sizeof *kept);
    for (size_t i = 0; i < history->events; i++) {
        const cmd_event_t *event = &history->event[i];
        sites->of[i] = event->kind == CMD_EVENT_FREE && event->partner < i ? sites->of[event->partner] : REST;
        if (event->kind != CMD_EVENT_ALLOC)
            continue;
        size_t at = ((size_t)(uintptr_t)event->frames >> 4) % KEPT;
        if (!json_array_size(event->frames) || kept[at].frames != event->frames) {
            kept[at].frames = event->frames;
            kept[at].number = number_of(sites, event);
        }
        sites->of[i] = kept[at].number;
    }
    free(kept);
}

/* A snapshot has blocks that no event asked for, and that no event frees: what a site holds at the end, less what
 * events say.  With several devices these stay among all others. */
static void find_before(const cmd_history_t *history, sites_t *sites) {
    cmd_stacks_t stacks;
    if (history->source != CMD_SOURCE_SNAPSHOT || history->devices != 1)
        return;
    cmd_stacks_before(history, history->events, &stacks);
    for (unsigned i = 0; i < sites->count; i++)
        for (size_t k = 0; k < stacks.count; k++)
            if (!strcmp(stacks.stack[k].site, sites->name[i]))
                sites->before[i] = stacks.stack[k].bytes;
    cmd_stacks_free(&stacks);
    for (size_t i = 0; i < history->events; i++)
        if (history->event[i].kind == CMD_EVENT_ALLOC && sites->of[i] != REST &&
            history->event[i].partner == CMD_NO_PARTNER)
            sites->before[sites->of[i]] -= (int64_t)history->event[i].bytes;
}

static sites_t find_sites(const cmd_history_t *history) {
    sites_t sites = {.of = cmd_alloc(history->events + 1)};
    cmd_stacks_t stacks;
    cmd_stacks_before(history, cmd_history_peak(history), &stacks);
    if (stacks.count)
        qsort(stacks.stack, stacks.count, sizeof *stacks.stack, by_bytes);
    for (size_t i = 0; i < stacks.count && sites.count < SITES && stacks.stack[i].bytes > 0; i++)
        sites.name[sites.count++] = cmd_format("%s", stacks.stack[i].site);
    cmd_stacks_free(&stacks);
    number_events(history, &sites);
    find_before(history, &sites);
    return sites;
}

/* ------------------------------------------------------------------ points */

typedef struct {
    size_t at;
    int64_t time;
    cmd_holding_t holding;
    int64_t held[SITES + 1]; /* by site */
} moment_t;

/* The events of one bucket that are shown: the first, the last, and where a figure is least and greatest. */
typedef struct {
    moment_t first, last, least[FIGURES], most[FIGURES];
    bool used;
} bucket_t;

typedef struct {
    const cmd_history_t *history;
    const sites_t *sites;
    json_t *points;
    int device;
    bool shown[FIGURES];
    int64_t below; /* how far the events fall below nothing: 0 or less */
    int64_t end;   /* what they leave in use */
} series_t;

/* How events and the other figures of a recording disagree. */
typedef struct {
    int64_t below, beyond; /* bytes: less than nothing, 0 or less; in use at the end without a block */
} fault_t;

static int64_t figure(const moment_t *moment, int which) {
    const cmd_holding_t *holding = &moment->holding;
    const int64_t figures[FIGURES] = {holding->allocated, holding->reserved, holding->pinned, holding->passed};
    return figures[which];
}

static void add_moment(bucket_t *bucket, const moment_t *moment) {
    if (!bucket->used)
        bucket->first = *moment;
    bucket->last = *moment;
    for (int i = 0; i < FIGURES; i++) {
        if (!bucket->used || figure(moment, i) < figure(&bucket->least[i], i))
            bucket->least[i] = *moment;
        if (!bucket->used || figure(moment, i) > figure(&bucket->most[i], i))
            bucket->most[i] = *moment;
    }
    bucket->used = true;
}

static int by_place(const void *a, const void *b) {
    const moment_t *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static json_t *time_json(const cmd_history_t *history, int64_t time) {
    return history->timed ? json_real((double)time / 1e9) : json_integer(time);
}

static void put_bytes(json_t *point, int64_t bytes) {
    json_array_append_new(point, json_integer(bytes > 0 ? bytes : 0));
}

static void put_moment(const series_t *series, const moment_t *moment) {
    json_t *point = json_array();
    json_array_append_new(point, time_json(series->history, moment->time));
    for (int i = 0; i < FIGURES; i++)
        if (series->shown[i])
            put_bytes(point, figure(moment, i));
    for (unsigned i = 0; i < series->sites->count; i++)
        put_bytes(point, moment->held[i]);
    json_array_append_new(series->points, point);
}

static void put_bucket(const series_t *series, bucket_t *bucket) {
    moment_t all[MOMENTS];
    int count = 0;
    if (!bucket->used)
        return;
    all[count++] = bucket->first;
    all[count++] = bucket->last;
    for (int i = 0; i < FIGURES; i++)
        if (series->shown[i]) {
            all[count++] = bucket->least[i];
            all[count++] = bucket->most[i];
        }
    qsort(all, (size_t)count, sizeof *all, by_place);
    for (int i = 0; i < count; i++)
        if (i == 0 || all[i].at != all[i - 1].at)
            put_moment(series, &all[i]);
    bucket->used = false;
}

static void add_event(moment_t *moment, const cmd_event_t *event, unsigned site) {
    cmd_holding_add(&moment->holding, event);
    moment->time = event->time_ns;
    if (event->kind == CMD_EVENT_ALLOC)
        moment->held[site] += (int64_t)event->bytes;
    else if (event->kind == CMD_EVENT_FREE)
        moment->held[site] -= (int64_t)event->bytes;
}

static void put_points(series_t *series) {
    const cmd_history_t *history = series->history;
    int64_t first = INT64_MAX, last = 0, number = 0;
    for (size_t i = 0; i < history->events; i++) {
        first = history->event[i].time_ns < first ? history->event[i].time_ns : first;
        last = history->event[i].time_ns > last ? history->event[i].time_ns : last;
    }
    moment_t moment = {.time = first, .holding = cmd_history_before(history, series->device)};
    bucket_t bucket = {.used = false};
    memcpy(moment.held, series->sites->before, sizeof series->sites->before);
    put_moment(series, &moment);
    for (size_t i = 0; i < history->events; i++) {
        const cmd_event_t *event = &history->event[i];
        cmd_bar_step("events", i, history->events);
        if (event->device != series->device)
            continue;
        moment.at = i + 1;
        add_event(&moment, event, series->sites->of[i]);
        series->below = moment.holding.allocated < series->below ? moment.holding.allocated : series->below;
        int64_t of = (int64_t)((double)(event->time_ns - first) / (double)(last - first + 1) * BUCKETS);
        if (of > number) { /* time may fall back a little between threads */
            put_bucket(series, &bucket);
            number = of;
        }
        add_moment(&bucket, &moment);
    }
    put_bucket(series, &bucket);
    series->end = moment.holding.allocated;
}

/* What the figures of the dump say of the device's peak; 0: they do not. */
static int64_t peak_of(const cmd_history_t *history, int ordinal) {
    size_t index;
    const json_t *device;
    json_array_foreach(json_object_get(history->figures, "devices"), index, device) {
        if (json_integer_value(json_object_get(device, "ordinal")) == ordinal)
            return cmd_document_stat(device, "allocated_bytes", "all", "peak");
    }
    return 0;
}

/* Bytes of the device's blocks, as the program asked. */
static int64_t held_now(const cmd_history_t *history, int device) {
    int64_t held = 0;
    for (size_t i = 0; i < history->now.segments; i++) {
        const cmd_segment_t *segment = &history->now.segment[i];
        for (size_t k = 0; k < segment->blocks && segment->device == device; k++) {
            const cmd_block_t *block = &history->now.block[segment->first + k];
            held += cmd_block_is_held(block) ? (int64_t)block->requested : 0;
        }
    }
    return held;
}

static json_t *series_of(const cmd_history_t *history, const sites_t *sites, int device, fault_t *fault) {
    series_t series = {history, sites, json_array(), device, {true, history->source == CMD_SOURCE_SNAPSHOT}, 0, 0};
    char figures[CMD_FIGURE * FIGURES] = "";
    for (size_t i = 0; i < history->events; i++) {
        int kind = history->event[i].device == device ? history->event[i].kind : -1;
        series.shown[2] |= kind == CMD_EVENT_PINNED;
        series.shown[3] |= kind == CMD_EVENT_PASSED || kind == CMD_EVENT_PHYSICAL || kind == CMD_EVENT_ARRAY;
    }
    for (int i = 0; i < FIGURES; i++)
        if (series.shown[i]) {
            strcat(figures, *figures ? " " : "");
            strcat(figures, figure_names[i]);
        }
    put_points(&series);
    fault->below = series.below < fault->below ? series.below : fault->below;
    if (history->now.segments && series.end > held_now(history, device))
        fault->beyond += series.end - held_now(history, device);
    json_t *json = json_pack("{si ss so}", "device", device, "figures", figures, "points", series.points);
    if (cmd_history_cut(history, device))
        json_object_set_new(json, "peak", json_integer(peak_of(history, device)));
    return json;
}

/* ------------------------------------------------------------------ phases */

/* [[name, from, to]] of the outermost phases that requests were made in; none if they are too many to be read. */
static json_t *phases_of(const cmd_history_t *history) {
    enum { MOST = 60 };
    json_t *list = json_array(), *newest = NULL;
    for (size_t i = 0; i < history->events && json_array_size(list) <= MOST; i++) {
        const cmd_event_t *event = &history->event[i];
        if (event->kind != CMD_EVENT_ALLOC)
            continue;
        const json_t *outermost = json_array_get(event->frames, json_array_size(event->frames) - 1);
        const char *name = cmd_naming_phase(outermost);
        if (!name)
            newest = NULL;
        else if (!newest || strcmp(json_string_value(json_array_get(newest, 0)), name) != 0) {
            newest = json_pack("[o, o]", cmd_json_text(name), time_json(history, event->time_ns));
            json_array_append_new(newest, time_json(history, event->time_ns));
            json_array_append_new(list, newest);
        } else {
            json_array_set_new(newest, 2, time_json(history, event->time_ns));
        }
    }
    if (json_array_size(list) > MOST)
        json_array_clear(list);
    return list;
}

/* ------------------------------------------------------------------ all */

/* Where events and figures of one run disagree, a sentence; NULL: they agree.  Threads that allocate at once may be
 * noted in another order than they were counted in, so a hundredth is no difference. */
static char *disagreement(const cmd_history_t *history, const fault_t *fault) {
    const json_t *recorded = json_object_get(json_object_get(history->figures, "recorded"), "peak");
    int64_t noted = json_integer_value(json_object_get(recorded, "requested")), most = 0, live = 0;
    char a[CMD_FIGURE], b[CMD_FIGURE];
    bool whole = noted > 0;
    for (unsigned device = 0; device < history->devices; device++)
        whole = whole && !cmd_history_cut(history, (int)device);
    for (size_t i = 0; i < history->events; i++) {
        const cmd_event_t *event = &history->event[i];
        live += event->kind == CMD_EVENT_ALLOC  ? (int64_t)event->bytes
                : event->kind == CMD_EVENT_FREE ? -(int64_t)event->bytes
                                                : 0;
        most = live > most ? live : most;
    }
    if (fault->below < 0)
        return cmd_format("The events free %s more than they show as allocated: some requests are missing. The chart "
                          "shows nothing in use there.",
                          cmd_text_bytes(a, -fault->below));
    if (fault->beyond > 0)
        return cmd_format("The events leave %s in use that no block holds at the end: some frees are missing.",
                          cmd_text_bytes(a, fault->beyond));
    if (whole && llabs(noted - most) > noted / 100)
        return cmd_format("The events reach %s at the peak, the figures %s: some events are missing.",
                          cmd_text_bytes(a, most), cmd_text_bytes(b, noted));
    return NULL;
}

void cmd_report_series(const cmd_history_t *history, json_t *data) {
    json_t *series = json_array(), *names = json_array();
    fault_t fault = {0, 0};
    if (history->events) {
        sites_t sites = find_sites(history);
        for (unsigned device = 0; device < history->devices; device++)
            json_array_append_new(series, series_of(history, &sites, (int)device, &fault));
        for (unsigned i = 0; i < sites.count; i++) {
            json_array_append_new(names, cmd_json_text(sites.name[i]));
            free(sites.name[i]);
        }
        free(sites.of);
    }
    char *said = disagreement(history, &fault);
    json_object_set_new(data, "series", series);
    json_object_set_new(data, "sites", names);
    json_object_set_new(data, "phases", phases_of(history));
    if (said)
        json_array_insert_new(json_object_get(data, "advice"), 0,
                              json_pack("{s:s, s:o}", "level", "problem", "text", cmd_json_text(said)));
    free(said);
}

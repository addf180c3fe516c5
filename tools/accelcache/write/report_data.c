/* Data of the charts of a report (report.h). */
#include "command.h"
#include "read/document.h"
#include "read/naming.h"
#include "write/report.h"
#include "read/stacks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ histograms */

typedef struct {
    int64_t count, bytes;
} bin_t;

/* From the first bin that has any to the last one. */
static json_t *bins_json(const bin_t *bins, unsigned count,
                         char *(*label)(unsigned bin, bool timed), bool timed) {
    json_t *list = json_array();
    unsigned from = 0, to = count;
    while (from < to && !bins[from].count)
        from++;
    while (to > from && !bins[to - 1].count)
        to--;
    for (unsigned i = from; i < to; i++) {
        char *text = label(i, timed);
        json_array_append_new(list, json_pack("{ss sI sI}", "label", text, "count",
                                              (json_int_t)bins[i].count, "bytes",
                                              (json_int_t)bins[i].bytes));
        free(text);
    }
    return list;
}

static char *size_label(unsigned bin, bool timed) {
    char text[CMD_FIGURE];
    (void)timed;
    return cmd_format("%s", cmd_text_bytes(text, (int64_t)1 << bin));
}

json_t *cmd_report_sizes(const cmd_history_t *history) {
    bin_t bins[63] = {{0, 0}};
    for (size_t i = 0; i < history->events; i++) {
        const cmd_event_t *event = &history->event[i];
        unsigned bin = 0;
        if (event->kind != CMD_EVENT_ALLOC)
            continue;
        while (bin < 62 && event->bytes >> (bin + 1))
            bin++;
        bins[bin].count++;
        bins[bin].bytes += (int64_t)event->bytes;
    }
    return bins_json(bins, 63, size_label, false);
}

/* The bin has lives from 10^bin to ten times that, in ns or in operations. */
static char *life_label(unsigned bin, bool timed) {
    static const char *const units[] = {"ns", "us", "ms", "s"};
    static const int factors[] = {1, 10, 100};
    int64_t value = 1;
    if (timed && bin < 12)
        return cmd_format("%d %s", factors[bin % 3], units[bin / 3]);
    for (unsigned i = timed ? 9 : 0; i < bin; i++)
        value *= 10;
    return cmd_format("%" PRId64 "%s", value, timed ? " s" : "");
}

json_t *cmd_report_lives(const cmd_history_t *history) {
    bin_t bins[19] = {{0, 0}};
    for (size_t i = 0; i < history->events; i++) {
        const cmd_event_t *event = &history->event[i];
        unsigned bin = 0;
        if (event->kind != CMD_EVENT_ALLOC || event->partner == CMD_NO_PARTNER)
            continue;
        int64_t life = history->event[event->partner].time_ns - event->time_ns;
        for (; bin < 18 && life >= 10; life /= 10)
            bin++;
        bins[bin].count++;
        bins[bin].bytes += (int64_t)event->bytes;
    }
    return bins_json(bins, 19, life_label, history->timed);
}

/* ------------------------------------------------------------------ the map of segments */

enum { CELLS = 240, MOST_ROWS = 200, FULL = 9 };

static int by_size(const void *a, const void *b, void *of) {
    const cmd_segments_t *list = of;
    const cmd_segment_t *x = &list->segment[*(const size_t *)a];
    const cmd_segment_t *y = &list->segment[*(const size_t *)b];
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return (x > y) - (x < y);
}

/* Each part as a digit: 0 free, 9 full, between them a share of both. */
static json_t *row_of(const cmd_segments_t *list, const cmd_segment_t *segment) {
    double part[CELLS] = {0}, width = (double)segment->bytes / CELLS;
    uint64_t used = 0;
    char cells[CELLS + 1] = {0}, address[CMD_FIGURE];
    for (size_t i = 0; i < segment->blocks; i++) {
        const cmd_block_t *block = &list->block[segment->first + i];
        if (!cmd_block_is_held(block) && !cmd_block_waits(block))
            continue;
        used += block->bytes;
        double from = (double)(block->address - segment->address) / width;
        double to = from + (double)block->bytes / width;
        for (int cell = (int)from; cell < to && cell < CELLS; cell++) {
            double left = cell > from ? cell : from, right = cell + 1 < to ? cell + 1 : to;
            part[cell] += right - left;
        }
    }
    for (int i = 0; i < CELLS; i++) {
        int level = (int)(part[i] * FULL + 0.5);
        /* Only what is wholly free or used looks so. */
        level = level == 0 && part[i] > 0          ? 1
                : level >= FULL && part[i] < 0.999 ? FULL - 1
                                                   : level;
        cells[i] = (char)('0' + (level < FULL ? level : FULL));
    }
    snprintf(address, sizeof address, "0x%" PRIx64, segment->address);
    return json_pack("{si ss sI sI ss}", "device", segment->device, "address", address, "bytes",
                     (json_int_t)segment->bytes, "used", (json_int_t)used, "cells", cells);
}

json_t *cmd_report_map(const cmd_history_t *history, const cmd_segments_t *list) {
    json_t *rows = json_array();
    size_t *order = cmd_alloc((list->segments + 1) * sizeof *order), shown = 0;
    for (size_t i = 0; i < list->segments; i++)
        order[i] = i;
    qsort_r(order, list->segments, sizeof *order, by_size, (void *)(uintptr_t)list);
    for (; shown < list->segments && shown < MOST_ROWS; shown++)
        json_array_append_new(rows, row_of(list, &list->segment[order[shown]]));
    free(order);
    return json_pack("{ss sI so}", "when",
                     history->source == CMD_SOURCE_SNAPSHOT ? "segments of the snapshot"
                                                            : "ranges of addresses at the peak",
                     "of", (json_int_t)list->segments, "rows", rows);
}

/* ------------------------------------------------------------------ the largest blocks */

enum { MOST_BLOCKS = 20 };

typedef struct {
    uint64_t address, bytes, stream;
    int64_t time;
    const json_t *frames;
    int device;
} large_t;

/* `large` has the largest so far, `count` of them, the largest first. */
static unsigned insert(large_t *large, unsigned count, const large_t *block) {
    unsigned at = count;
    while (at > 0 && large[at - 1].bytes < block->bytes)
        at--;
    if (at == MOST_BLOCKS)
        return count;
    count += count < MOST_BLOCKS;
    memmove(large + at + 1, large + at, (count - at - 1) * sizeof *large);
    large[at] = *block;
    return count;
}

json_t *cmd_report_blocks(const cmd_history_t *history, size_t at) {
    large_t large[MOST_BLOCKS] = {{0}};
    const cmd_segments_t *now = &history->now;
    unsigned count = 0;
    for (size_t i = 0; i < at && history->source == CMD_SOURCE_TRACE; i++) {
        const cmd_event_t *event = &history->event[i];
        if (event->kind == CMD_EVENT_ALLOC && event->partner >= at)
            count = insert(large, count,
                           &(large_t){event->address, event->bytes, event->stream, event->time_ns,
                                      event->frames, event->device});
    }
    for (size_t i = 0; i < now->segments; i++)
        for (size_t k = 0; k < now->segment[i].blocks; k++) {
            const cmd_block_t *block = &now->block[now->segment[i].first + k];
            if (cmd_block_is_held(block))
                count = insert(large, count,
                               &(large_t){block->address, block->requested,
                                          now->segment[i].stream, -1, block->frames,
                                          now->segment[i].device});
        }
    json_t *list = json_array();
    for (unsigned i = 0; i < count; i++) {
        char address[CMD_FIGURE];
        snprintf(address, sizeof address, "0x%" PRIx64, large[i].address);
        char *site = cmd_naming_site(large[i].frames);
        json_array_append_new(
            list, json_pack("{si so ss sI sI so}", "device", large[i].device, "site",
                            cmd_json_text(site ? site : ""), "address",
                            large[i].address ? address : "", "bytes", (json_int_t)large[i].bytes,
                            "stream", (json_int_t)large[i].stream, "since",
                            large[i].time < 0 ? json_null()
                            : history->timed  ? json_real((double)large[i].time / 1e9)
                                              : json_integer(large[i].time)));
        free(site);
    }
    return list;
}

/* ------------------------------------------------------------------ figures of a dump */

json_t *cmd_report_figures(const cmd_history_t *history) {
    json_t *list = json_array();
    size_t index;
    const json_t *device;
    json_array_foreach(json_object_get(history->figures, "devices"), index, device) {
        json_t *figures = json_object();
        json_object_set(figures, "device", json_object_get(device, "ordinal"));
        json_object_set_new(figures, "allocated",
                            json_integer(cmd_document_stat(device, "allocated_bytes", "all", "current")));
        json_object_set_new(figures, "peak", json_integer(cmd_document_stat(device, "allocated_bytes", "all", "peak")));
        json_object_set_new(figures, "reserved",
                            json_integer(cmd_document_stat(device, "reserved_bytes", "all", "current")));
        json_array_append_new(list, figures);
    }
    return list;
}

/* ------------------------------------------------------------------ stacks */

static int by_stack_bytes(const void *a, const void *b) {
    const cmd_stack_t *x = a, *y = b;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static json_t *stacks_at(const cmd_history_t *history, cmd_moment_t moment) {
    enum { MOST_STACKS = 2000 };
    cmd_stacks_t stacks;
    json_t *list = json_array();
    char *error = NULL;
    if (!cmd_stacks(history, moment, &stacks, &error)) { /* the page leaves out what is not known */
        free(error);
        return list;
    }
    if (stacks.count)
        qsort(stacks.stack, stacks.count, sizeof *stacks.stack, by_stack_bytes);
    for (size_t i = 0; i < stacks.count && i < MOST_STACKS && stacks.stack[i].bytes > 0; i++)
        json_array_append_new(list, json_pack("[o, I]", cmd_json_text(stacks.stack[i].frames),
                                              (json_int_t)stacks.stack[i].bytes));
    cmd_stacks_free(&stacks);
    return list;
}

json_t *cmd_report_stacks(const cmd_history_t *history) {
    return json_pack("{s:o, s:o, s:o}", "peak", stacks_at(history, CMD_AT_PEAK), "end",
                     stacks_at(history, CMD_AT_END), "leaked",
                     history->events ? stacks_at(history, CMD_AT_LEAKED) : json_array());
}

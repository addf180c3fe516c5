/* See headline.h. */
#include "read/headline.h"
#include "command.h"
#include "read/document.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* If calls take less than this on average, the driver does nothing. */
enum { NOTHING_NS = 150 };

/* Time that the saved calls would have taken: each as much as an allocation or a free of a segment did on
 * average, whichever took less.  Segments cost the driver more than most of the program's own blocks would, and
 * frees of them may wait for the device, so the larger figure would promise too much. */
static int64_t would_take(int64_t saved, const ac_device_counters_t *c) {
    double alloc = c->driver_allocs ? (double)c->driver_alloc_ns / (double)c->driver_allocs : 0;
    double release =
        c->driver_frees ? (double)c->driver_free_ns / (double)c->driver_frees : alloc;
    return (int64_t)((double)saved * (release < alloc ? release : alloc));
}

/* The simulator's devices have UUIDs that begin with "simu". */
bool cmd_is_simulated(const char *uuid) {
    static const char prefix[] = "GPU-73696d75-";
    return !strncmp(uuid, prefix, sizeof prefix - 1);
}

static bool is_simulated(const json_t *devices) {
    for (size_t i = 0; i < json_array_size(devices); i++) {
        const char *uuid = json_string_value(json_object_get(json_array_get(devices, i), "uuid"));
        if (uuid && cmd_is_simulated(uuid))
            return true;
    }
    return false;
}

void cmd_headline(cmd_headline_t *h, const json_t *document) {
    const json_t *devices = json_object_get(document, "devices");
    const json_t *config = json_object_get(document, "config");
    cmd_figures_t f = {0};
    int64_t blocks = 0;
    cmd_figures_add(&f, document);
    for (size_t i = 0; i < json_array_size(devices); i++)
        blocks = cmd_sum(
            blocks,
            cmd_document_stat(json_array_get(devices, i), "allocation", "all", "allocated"), 1);
    int64_t passed =
        (int64_t)(f.process[AC_COUNT_passed_allocs] + f.process[AC_COUNT_passed_async]);
    int64_t passed_frees =
        (int64_t)(f.process[AC_COUNT_passed_frees] + f.process[AC_COUNT_passed_async_frees]);
    int64_t driver_allocs = (int64_t)f.device.driver_allocs;
    int64_t driver_frees = (int64_t)f.device.driver_frees;
    int64_t cached_allocs = (int64_t)f.device.cached_allocs;
    int64_t cached_frees = (int64_t)f.device.cached_frees;
    const char *error = json_string_value(json_object_get(config, "error"));
    if (blocks < cached_allocs) /* the program has reset its statistics meanwhile */
        blocks = cmd_sum(cached_allocs, driver_allocs, 1);
    *h = (cmd_headline_t){.requests = cmd_sum(blocks, passed, 1),
                          .served = cached_allocs,
                          .driver_calls = cmd_sum(cmd_sum(driver_allocs, driver_frees, 1),
                                                  cmd_sum(passed, passed_frees, 1), 1),
                          .driver_ns =
                              (int64_t)(f.device.driver_alloc_ns + f.device.driver_free_ns +
                                        f.process[AC_COUNT_passed_ns]),
                          .saved_calls = cmd_sum(cached_allocs, cached_frees, 1),
                          .reserved_peak = f.reserved_peak,
                          .allocated_peak = f.allocated_peak,
                          .ooms = f.ooms,
                          .bad_frees = (int64_t)f.process[AC_COUNT_bad_frees],
                          .internal_failures = (int64_t)f.process[AC_COUNT_internal_failures],
                          .not_applied = error && *error ? error : NULL};
    const json_t *leak, *leaks = json_object_get(document, "leaks");
    size_t at;
    json_array_foreach(leaks, at, leak) {
        h->leaked_blocks =
            cmd_sum(h->leaked_blocks, cmd_integer(leak, "blocks"), 1);
        h->leaked_bytes =
            cmd_sum(h->leaked_bytes, cmd_integer(leak, "bytes"), 1);
    }
    h->free_driver = h->driver_ns < cmd_sum(0, h->driver_calls, NOTHING_NS);
    h->simulated = is_simulated(devices);
    h->saved_ns = would_take(h->saved_calls, &f.device);
}

double cmd_headline_percent(const cmd_headline_t *h) {
    return h->requests ? 100 * (double)h->served / (double)h->requests : 0;
}

/* 99.99 % is not all of them. */
static double shown_percent(const cmd_headline_t *h) {
    double percent = cmd_headline_percent(h);
    return h->served < h->requests && percent > 99.9 ? 99.9 : percent;
}

char *cmd_headline_share(char text[CMD_HEADLINE_SHARE], const cmd_headline_t *h) {
    char count[CMD_FIGURE];
    snprintf(text, CMD_HEADLINE_SHARE, "%.1f %% of %s request%s from cache", shown_percent(h),
             cmd_text_count(count, h->requests), h->requests == 1 ? "" : "s");
    return text;
}

/* "2 bad frees, " behind what is in `text`. */
static char *add(char *text, int64_t n, const char *one, const char *many) {
    char count[CMD_FIGURE];
    if (!n)
        return text;
    char *longer = cmd_format("%s%s%s %s", text, *text ? ", " : "", cmd_text_count(count, n),
                              n == 1 ? one : many);
    free(text);
    return longer;
}

static char *problems(const cmd_headline_t *h) {
    char *text = cmd_format("%s", "");
    text = add(text, h->ooms, "request out of memory", "requests out of memory");
    text = add(text, h->bad_frees, "bad free", "bad frees");
    text = add(text, h->internal_failures, "internal failure", "internal failures");
    if (h->leaked_blocks) {
        char bytes[CMD_FIGURE];
        char *longer = add(text, h->leaked_blocks, "block", "blocks");
        text = cmd_format("%s not freed at exit (%s)", longer,
                          cmd_text_bytes(bytes, h->leaked_bytes));
        free(longer);
    }
    if (h->not_applied) {
        char *longer =
            cmd_format("%s%ssettings not applied (%s)", text, *text ? ", " : "", h->not_applied);
        free(text);
        text = longer;
    }
    if (*text)
        return text;
    free(text);
    return cmd_format("none");
}

static void print_line(const char *label, char *text) {
    enum { LABEL = 14 };
    char *line = cmd_format("%-*s%s", LABEL, label, text);
    cmd_print_hanging(line, 0, LABEL);
    free(line);
    free(text);
}

void cmd_headline_print(const cmd_headline_t *h) {
    const char *simulated = h->simulated ? ", simulated" : "";
    char a[CMD_FIGURE], b[CMD_FIGURE], c[CMD_FIGURE], d[CMD_FIGURE];
    print_line("from cache",
               cmd_format("%s of %s requests (%.1f %%)", cmd_text_count(a, h->served),
                          cmd_text_count(b, h->requests), shown_percent(h)));
    cmd_text_count(a, h->saved_calls);
    cmd_text_count(b, h->driver_calls);
    cmd_text_ns(c, h->driver_ns);
    if (h->free_driver)
        print_line("driver calls",
                   cmd_format("%s saved, %s made, which cost nothing here%s", a, b, simulated));
    else
        print_line("driver calls", cmd_format("%s saved (about %s), %s made (%s)%s", a,
                                              cmd_text_ns(d, h->saved_ns), b, c, simulated));
    print_line("peak memory",
               cmd_format("%s reserved, %s allocated", cmd_text_bytes(a, h->reserved_peak),
                          cmd_text_bytes(b, h->allocated_peak)));
    print_line("problems", problems(h));
}

json_t *cmd_headline_json(const cmd_headline_t *h) {
    return json_pack(
        "{s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}",
        "requests", (json_int_t)h->requests, "served_from_cache", (json_int_t)h->served,
        "served_percent", cmd_headline_percent(h), "driver_calls", (json_int_t)h->driver_calls,
        "driver_ns", (json_int_t)h->driver_ns, "driver_calls_saved", (json_int_t)h->saved_calls,
        "driver_saved_ns", (json_int_t)h->saved_ns, "driver_costs_nothing", h->free_driver,
        "simulated", h->simulated,
        "reserved_peak", (json_int_t)h->reserved_peak, "allocated_peak",
        (json_int_t)h->allocated_peak, "out_of_memory", (json_int_t)h->ooms, "bad_frees",
        (json_int_t)h->bad_frees, "internal_failures", (json_int_t)h->internal_failures,
        "leaked_blocks", (json_int_t)h->leaked_blocks, "leaked_bytes",
        (json_int_t)h->leaked_bytes, "settings_not_applied",
        h->not_applied ? cmd_json_text(h->not_applied) : json_null());
}

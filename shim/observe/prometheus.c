/* See prometheus.h.  Families come from stats.def, host_stats.def and counters.def.  Names follow
 * Prometheus' rules: counters end in _total, times are in seconds. */
#include "observe/prometheus.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static void put_label(FILE *out, bool *first, const char *name, const char *value) {
    fputs(*first ? "{" : ",", out);
    *first = false;
    fputs(name, out);
    fputs("=\"", out);
    for (; *value; value++) {
        if (*value == '"' || *value == '\\')
            fprintf(out, "\\%c", *value);
        else
            putc(*value, out);
    }
    fputs("\"", out);
}

/* ------------------------------------------------------------------ families */

/* A metric family: a row of a table, and one of its fields. */
typedef struct {
    const char *name, *unit, *doc;
    const char *field; /* "", "peak", "allocated", "freed" */
    bool gauge;
} family_t;

/* Returns true for rows of counters.def that go up and down. */
static bool is_gauge(const char *name) {
    static const char *const gauges[] = {"capture_deferred_blocks",
                                         "capture_deferred_bytes",
                                         "thread_cache_blocks",
                                         "thread_cache_bytes",
                                         "thread_caches",
                                         "ipc_exported_bytes",
                                         "driver_bytes",
                                         "driver_pool_bytes",
                                         "physical_bytes",
                                         "array_bytes",
                                         "context_bytes"};
    for (size_t i = 0; i < sizeof gauges / sizeof *gauges; i++)
        if (!strcmp(name, gauges[i]))
            return true;
    return false;
}

static void put_name(FILE *out, const char *room, const family_t *family) {
    size_t length = strlen(family->name);
    bool ns = !strcmp(family->unit, "ns");
    fputs("accelcache_", out);
    fputs(room, out);
    fwrite(family->name, 1, ns ? length - strlen("_ns") : length, out);
    if (ns)
        fputs("_seconds", out);
    if (*family->field) {
        fputs("_", out);
        fputs(family->field, out);
    }
    if (!family->gauge)
        fputs("_total", out);
}

static void put_head(FILE *out, const char *room, const family_t *family) {
    fputs("# HELP ", out);
    put_name(out, room, family);
    fputs(" ", out);
    if (*family->field) {
        fputs(family->field, out);
        fputs(": ", out);
    }
    for (const char *at = family->doc; *at; at++)
        fprintf(out, *at == '\\' ? "\\%c" : "%c", *at);
    fputs("\n# TYPE ", out);
    put_name(out, room, family);
    fputs(family->gauge ? " gauge\n" : " counter\n", out);
}

/* `ordinal` -1: no device; `pool` NULL: none. */
static void put_sample(FILE *out, const ac_prometheus_t *in, const char *room,
                       const family_t *family, int64_t ordinal, const char *pool, int64_t value) {
    bool first = true;
    char device[24];
    put_name(out, room, family);
    for (const ac_label_t *label = in->label; label->name; label++)
        if (label->value && *label->value)
            put_label(out, &first, label->name, label->value);
    if (ordinal >= 0) {
        snprintf(device, sizeof device, "%" PRId64, ordinal);
        put_label(out, &first, "device", device);
    }
    if (pool)
        put_label(out, &first, "pool", pool);
    fputs(first ? " " : "} ", out);
    if (!strcmp(family->unit, "ns"))
        fprintf(out, "%" PRId64 ".%09" PRId64 "\n", value / 1000000000, value % 1000000000);
    else
        fprintf(out, "%" PRId64 "\n", value);
}

static const char *const fields[] = {"", "peak", "allocated", "freed"};

static int64_t field_of(const ac_stat_t *stat, unsigned field) {
    const int64_t values[] = {stat->current, stat->peak, stat->allocated, stat->freed};
    return values[field];
}

/* `stat` of each device lies `offset` behind the beginning of its statistics. */
static void put_stats(FILE *out, const ac_prometheus_t *in, const char *name, const char *unit,
                      const char *doc, size_t offset, unsigned pools) {
    static const char *const pool[AC_POOL_KINDS] = {"all", "small", "large"};
    for (unsigned field = 0; field < 4; field++) {
        family_t family = {name, unit, doc, fields[field], field < 2};
        put_head(out, "", &family);
        for (unsigned i = 0; i < in->devices; i++) {
            const ac_stat_t *stat =
                (const ac_stat_t *)(const void *)((const char *)in->device[i].stats + offset);
            for (unsigned k = 0; k < pools; k++)
                put_sample(out, in, "", &family, in->device[i].ordinal,
                           pools > 1 ? pool[k] : NULL, field_of(&stat[k], field));
        }
    }
}

static void put_devices(const ac_prometheus_t *in, FILE *out) {
    family_t memory = {"memory_bytes", "bytes", "memory of the device", "", true};
    put_head(out, "device_", &memory);
    for (unsigned i = 0; i < in->devices; i++)
        put_sample(out, in, "device_", &memory, in->device[i].ordinal, NULL,
                   (int64_t)in->device[i].total_memory);
#define STAT_ROW(name, doc, gauge)                                                               \
    {                                                                                            \
        family_t family = {#name, "", doc, "", gauge};                                           \
        put_head(out, "", &family);                                                              \
        for (unsigned i = 0; i < in->devices; i++)                                               \
            put_sample(out, in, "", &family, in->device[i].ordinal, NULL,                        \
                       in->device[i].stats->name);                                               \
    }
#define STAT_COUNT(name, doc)   STAT_ROW(name, doc, false)
#define STAT_SETTING(name, doc) STAT_ROW(name, doc, true)
#define STAT_POOLS(name, unit, doc)                                                              \
    put_stats(out, in, #name, #unit, doc, offsetof(ac_device_stats_t, name), AC_POOL_KINDS);
#define STAT_SINGLE(name, unit, doc)                                                             \
    put_stats(out, in, #name, #unit, doc, offsetof(ac_device_stats_t, name), 1);
#include "observe/stats.def"
#define DEVICE_COUNTER(name, unit, doc)                                                          \
    {                                                                                            \
        family_t family = {#name, #unit, doc, "", is_gauge(#name)};                              \
        put_head(out, "", &family);                                                              \
        for (unsigned i = 0; i < in->devices; i++)                                               \
            put_sample(out, in, "", &family, in->device[i].ordinal, NULL,                        \
                       (int64_t)in->device[i].counters->name);                                   \
    }
#include "observe/counters.def"
}

static void put_pinned(const ac_prometheus_t *in, FILE *out) {
#define HOST_STAT(name, unit, doc)                                                               \
    for (unsigned field = 0; field < 4; field++) {                                               \
        family_t family = {#name, #unit, doc, fields[field], field < 2};                         \
        put_head(out, "pinned_", &family);                                                       \
        put_sample(out, in, "pinned_", &family, -1, NULL, field_of(&in->pinned->name, field));   \
    }
#define HOST_COUNT(name, doc)                                                                    \
    {                                                                                            \
        family_t family = {#name, "", doc, "", false};                                           \
        put_head(out, "", &family);                                                              \
        put_sample(out, in, "", &family, -1, NULL, in->pinned->name);                            \
    }
#include "observe/host_stats.def"
}

void ac_prometheus_text(const ac_prometheus_t *in, FILE *out) {
    put_devices(in, out);
    put_pinned(in, out);
#define PROCESS_COUNTER(name, unit, doc)                                                         \
    {                                                                                            \
        family_t family = {#name, #unit, doc, "", is_gauge(#name)};                              \
        put_head(out, "", &family);                                                              \
        put_sample(out, in, "", &family, -1, NULL, (int64_t)in->counter[AC_COUNT_##name]);       \
    }
#include "observe/counters.def"
}

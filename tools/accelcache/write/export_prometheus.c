/* A dump in the text format of Prometheus: the structures that prometheus.h wants, filled
 * from JSON. */
#include "command.h"
#include "read/document.h"
#include "write/export.h"
#include "write/labels.h"

#include "observe/prometheus.h"

#include <stdlib.h>

typedef struct {
    ac_device_stats_t stats;
    ac_device_counters_t counters;
} device_t;

static void fill(ac_stat_t *stat, const json_t *holder, const char *name, const char *pool) {
    stat->current = cmd_document_stat(holder, name, pool, "current");
    stat->peak = cmd_document_stat(holder, name, pool, "peak");
    stat->allocated = cmd_document_stat(holder, name, pool, "allocated");
    stat->freed = cmd_document_stat(holder, name, pool, "freed");
}

static void fill_pools(ac_stat_t stat[AC_POOL_KINDS], const json_t *device, const char *name) {
    fill(&stat[AC_POOL_ALL], device, name, "all");
    fill(&stat[AC_POOL_SMALL], device, name, "small_pool");
    fill(&stat[AC_POOL_LARGE], device, name, "large_pool");
}

static void fill_device(device_t *to, const json_t *device) {
#define STAT_COUNT(name, doc)        to->stats.name = cmd_document_stat(device, #name, NULL, NULL);
#define STAT_POOLS(name, unit, doc)  fill_pools(to->stats.name, device, #name);
#define STAT_SINGLE(name, unit, doc) fill(&to->stats.name, device, #name, NULL);
#include "observe/stats.def"
#define DEVICE_COUNTER(name, unit, doc)                                                          \
    to->counters.name = (uint64_t)cmd_document_counter(device, #name);
#include "observe/counters.def"
}

bool cmd_export_prometheus(const cmd_history_t *history, cmd_moment_t moment, FILE *out, char **error) {
    (void)moment;
    (void)error;
    const json_t *devices = json_object_get(history->figures, "devices");
    const json_t *host = json_object_get(history->figures, "pinned");
    size_t count = json_array_size(devices);
    device_t *filled = cmd_alloc((count + 1) * sizeof *filled);
    ac_prometheus_device_t *device = cmd_alloc((count + 1) * sizeof *device);
    ac_label_t label[AC_LABELS + 1] = {{NULL, NULL}};
    ac_labels_t labels;
    uint64_t counter[AC_COUNT_HOOKS] = {0};
    ac_host_stats_t pinned = {0};
    cmd_labels(history, &labels);
    for (unsigned i = 0; i < AC_LABELS; i++)
        label[i] = (ac_label_t){ac_label_name[i], labels.value[i]};
    for (size_t i = 0; i < count; i++) {
        const json_t *from = json_array_get(devices, i);
        fill_device(&filled[i], from);
        device[i] = (ac_prometheus_device_t){
            .ordinal = cmd_integer(from, "ordinal"),
            .total_memory = (uint64_t)cmd_integer(from, "total_memory"),
            .stats = &filled[i].stats,
            .counters = &filled[i].counters};
    }
#define HOST_STAT(name, unit, doc) fill(&pinned.name, host, #name, NULL);
#define HOST_COUNT(name, doc)      pinned.name = cmd_document_stat(host, #name, NULL, NULL);
#include "observe/host_stats.def"
#define PROCESS_COUNTER(name, unit, doc)                                                         \
    counter[AC_COUNT_##name] = (uint64_t)cmd_document_counter(history->figures, #name);
#include "observe/counters.def"
    ac_prometheus_text(&(ac_prometheus_t){.label = label,
                                          .device = device,
                                          .devices = (unsigned)count,
                                          .pinned = &pinned,
                                          .counter = counter},
                       out);
    free(device);
    free(filled);
    return true;
}

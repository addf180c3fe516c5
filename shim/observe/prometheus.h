/* Statistics in the text format of Prometheus. */
#ifndef AC_PROMETHEUS_H
#define AC_PROMETHEUS_H

#include <stdint.h>
#include <stdio.h>

#include "observe/live.h"
#include "observe/stats.h"

typedef struct {
    const char *name, *value; /* UTF-8, no line breaks; a label without a value is left out */
} ac_label_t;

typedef struct {
    int64_t ordinal;
    uint64_t total_memory; /* bytes */
    const ac_device_stats_t *stats;
    const ac_device_counters_t *counters;
} ac_prometheus_device_t;

typedef struct {
    const ac_label_t *label; /* of every sample; ends with a NULL name */
    const ac_prometheus_device_t *device;
    unsigned devices;
    const ac_host_stats_t *pinned;
    const uint64_t *counter; /* of the process, by AC_COUNT_* */
} ac_prometheus_t;

/* Writes the metrics to `out`.  The caller checks `out` for errors. */
void ac_prometheus_text(const ac_prometheus_t *in, FILE *out);

#endif

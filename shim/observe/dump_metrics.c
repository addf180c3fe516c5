/* The dump of this process as metrics, for dump_format:prometheus (dump.h). */
#include "observe/dump.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "observe/folder.h"
#include "observe/labels.h"
#include "observe/prometheus.h"
#include "observe/raw.h"

/* Reads a file as text of at most `room` bytes, with its NUL.  Returns the length. */
static size_t read_file(const char *path, char *text, size_t room) {
    size_t length = 0;
    int fd = ac_raw_open(path, O_RDONLY | O_CLOEXEC, 0);
    for (ssize_t n = fd < 0 ? 0 : 1; n > 0 && length < room - 1;
         length += (size_t)(n > 0 ? n : 0))
        n = ac_raw_read(fd, text + length, room - 1 - length);
    text[length] = '\0';
    if (fd >= 0)
        ac_raw_close(fd);
    return length;
}

/* Fills in the labels, also from the environment and the control groups of the process. */
static void find_labels(ac_labels_t *labels) {
    enum { ROOM = 1 << 20 };
    char exe[AC_LIVE_EXE], *text = malloc(ROOM);
    memset(labels, 0, sizeof *labels);
    ac_live_exe(ac_live, exe);
    const char *slash = strrchr(exe, '/');
    snprintf(labels->value[AC_LABEL_PID], AC_LABEL_SIZE, "%d", (int)ac_live->pid);
    snprintf(labels->value[AC_LABEL_HOST], AC_LABEL_SIZE, "%s", ac_live->host);
    snprintf(labels->value[AC_LABEL_PROGRAM], AC_LABEL_SIZE, "%.255s", slash ? slash + 1 : exe);
    snprintf(labels->value[AC_LABEL_RANK], AC_LABEL_SIZE, "%s", ac_live->rank);
    if (text) {
        ac_labels_environment(labels, text, read_file("/proc/self/environ", text, ROOM));
        read_file("/proc/self/cgroup", text, ROOM);
        ac_labels_group(labels, text);
    }
    free(text);
    ac_labels_clean(labels);
}

typedef struct {
    ac_device_stats_t stats[AC_LIVE_DEVICES];
    ac_device_counters_t counters[AC_LIVE_DEVICES];
    ac_prometheus_device_t device[AC_LIVE_DEVICES];
    ac_host_stats_t pinned;
    uint64_t counter[AC_COUNT_HOOKS];
    ac_labels_t labels;
    ac_label_t label[AC_LABELS + 1];
    unsigned devices;
} metrics_t;

static void gather(metrics_t *metrics) {
    struct timespec deadline = ac_raw_time(CLOCK_REALTIME);
    deadline.tv_sec++;
    for (unsigned i = 0; i < AC_LIVE_DEVICES; i++) {
        const ac_live_device_t *from = ac_live_device(ac_live, i);
        if (!from)
            continue;
        ac_dump_device(ac_live, i, &deadline, &metrics->stats[i], &metrics->counters[i]);
        metrics->device[metrics->devices++] =
            (ac_prometheus_device_t){.ordinal = from->ordinal,
                                     .total_memory = ac_live->total_memory[i],
                                     .stats = &metrics->stats[i],
                                     .counters = &metrics->counters[i]};
    }
    ac_dump_host(ac_live, &deadline, &metrics->pinned);
    for (unsigned i = 0; i < AC_COUNT_HOOKS; i++)
        metrics->counter[i] = ac_live_sum(ac_live, i);
    find_labels(&metrics->labels);
    for (unsigned i = 0; i < AC_LABELS; i++)
        metrics->label[i] = (ac_label_t){ac_label_name[i], metrics->labels.value[i]};
}

char *ac_dump_metrics(size_t *length) {
    metrics_t *metrics = calloc(1, sizeof *metrics);
    char *text = NULL;
    FILE *out = metrics ? open_memstream(&text, length) : NULL;
    if (!out) {
        free(metrics);
        return NULL;
    }
    gather(metrics);
    ac_prometheus_text(&(ac_prometheus_t){.label = metrics->label,
                                          .device = metrics->device,
                                          .devices = metrics->devices,
                                          .pinned = &metrics->pinned,
                                          .counter = metrics->counter},
                       out);
    bool failed = ferror(out);
    failed |= fclose(out) != 0;
    free(metrics);
    if (failed) {
        free(text);
        return NULL;
    }
    return text;
}

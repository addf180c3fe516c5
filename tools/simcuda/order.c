/* The order in which work completed, as text lines for tests and tools.  Global lock. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"

bool sim_order_on;
static FILE *live; /* `record`: written as it happens */
static char *text;
static size_t length, room;

bool sim_order_open(const char *path) {
    live = fopen(path, "we");
    if (!live) {
        fprintf(stderr, "simcuda: ACCEL_SIM: record: cannot write %s\n", path);
        return false;
    }
    sim_order_on = true;
    return true;
}

static void keep(const char *line, size_t bytes) {
    if (length + bytes + 1 > room) {
        size_t wanted = 2 * (length + bytes) + 4096;
        char *grown = realloc(text, wanted);
        if (!grown)
            return;
        text = grown;
        room = wanted;
    }
    memcpy(text + length, line, bytes + 1);
    length += bytes;
}

void sim_order_note(const sim_work_t *work) {
    char line[1024];
    const sim_work_ops_t *ops = work->ops;
    int at =
        snprintf(line, sizeof line,
                 "%" PRIu64 " %s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %s",
                 work->seq, ops->name, work->stream_id, work->ctx_id, work->submitted,
                 work->start, work->done, work->label ? work->label : "-");
    for (size_t i = 0; i < work->access_count && at < (int)sizeof line - 64; i++)
        at += snprintf(line + at, sizeof line - (size_t)at, " %c:0x%" PRIx64 "+%" PRIu64,
                       work->accesses[i].write ? 'w' : 'r', work->accesses[i].address,
                       work->accesses[i].length);
    at = at < (int)sizeof line - 2 ? at : (int)sizeof line - 2;
    line[at++] = '\n';
    line[at] = 0;
    if (live) {
        fputs(line, live);
        fflush(live);
    } else {
        keep(line, (size_t)at);
    }
}

bool sim_order_dump(const char *path) {
    FILE *file = fopen(path, "we");
    if (!file)
        return false;
    if (length)
        fwrite(text, 1, length, file);
    return !fclose(file);
}

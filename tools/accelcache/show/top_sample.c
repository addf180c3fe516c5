/* A look at all processes that run; see top.h. */
#include "show/top.h"
#include "command.h"
#include "read/headline.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

const char *const top_sort_names[TOP_SORTS] = {"reserved", "allocated",     "rate",
                                               "hit",      "fragmentation", "pid"};

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double percent(int64_t part, int64_t whole) {
    return whole > 0 ? 100 * (double)part / (double)whole : 0;
}

/* Devices with one id are the same; a driver may give none. */
static top_device_t *device_of(top_sample_t *sample, const json_t *device) {
    const char *uuid = cmd_text(device, "uuid"), *name = cmd_text(device, "name");
    int64_t ordinal = cmd_integer(device, "ordinal");
    for (unsigned i = 0; i < sample->devices; i++) {
        top_device_t *d = &sample->device[i];
        if (*uuid ? !strcmp(d->uuid, uuid) : (d->ordinal == ordinal && !strcmp(d->name, name)))
            return d;
    }
    sample->device = cmd_resize(sample->device, (sample->devices + 1) * sizeof *sample->device);
    top_device_t *added = &sample->device[sample->devices++];
    *added = (top_device_t){.ordinal = ordinal,
                            .total = cmd_integer(device, "total_memory"),
                            .name = cmd_format("%s", name),
                            .uuid = cmd_format("%s", uuid)};
    return added;
}

static void add_devices(top_sample_t *sample, top_process_t *process, const json_t *document) {
    const json_t *devices = json_object_get(document, "devices");
    for (size_t i = 0; i < json_array_size(devices); i++) {
        const json_t *one = json_array_get(devices, i);
        top_device_t *device = device_of(sample, one);
        int64_t split = cmd_document_stat(one, "inactive_split_bytes", "all", "current");
        device->reserved += cmd_document_stat(one, "reserved_bytes", "all", "current");
        device->allocated += cmd_document_stat(one, "allocated_bytes", "all", "current");
        device->split += split;
        device->processes++;
        process->split += split;
    }
}

static const top_process_t *same_process(const top_sample_t *before, const ac_live_name_t *name) {
    for (unsigned i = 0; before && i < before->count; i++)
        if (before->process[i].name.pid == name->pid &&
            before->process[i].name.space == name->space &&
            before->process[i].name.user == name->user)
            return &before->process[i];
    return NULL;
}

/* Changes since the look before.  A pid of a new process, and statistics that were reset, start from zero. */
static void find_rates(top_process_t *process, const top_process_t *before, double seconds) {
    int64_t requests = process->requests, served = process->served;
    process->per_s = -1;
    if (before && seconds > 0 && requests >= before->requests && served >= before->served) {
        process->per_s = (double)(requests - before->requests) / seconds;
        if (requests > before->requests) {
            served -= before->served;
            requests -= before->requests;
        }
    }
    process->hit = percent(served, requests);
    process->fragmentation = percent(process->split, process->reserved);
}

void top_look(top_sample_t *sample, const top_sample_t *before, bool quiet) {
    cmd_processes_t list = {.quiet = quiet};
    *sample = (top_sample_t){.at = now_s()};
    cmd_processes_find(&list);
    sample->unread = list.unread;
    for (unsigned i = 0; i < list.count; i++) {
        const cmd_process_t *from = &list.process[i];
        if (!from->alive)
            continue;
        sample->process =
            cmd_resize(sample->process, (sample->count + 1) * sizeof *sample->process);
        top_process_t *process = &sample->process[sample->count++];
        const char *exe = cmd_process_exe(from), *base = strrchr(exe, '/');
        cmd_figures_t f = {0};
        cmd_headline_t headline;
        cmd_figures_add(&f, from->document);
        cmd_headline(&headline, from->document);
        *process = (top_process_t){.name = from->name,
                                   .program = cmd_format("%s", base ? base + 1 : exe),
                                   .reserved = f.reserved,
                                   .allocated = f.allocated,
                                   .peak = f.allocated_peak,
                                   .requests = headline.requests,
                                   .served = headline.served,
                                   .ooms = f.ooms};
        cmd_process_id(process->id, from);
        add_devices(sample, process, from->document);
        find_rates(process, same_process(before, &from->name),
                   before ? sample->at - before->at : 0);
    }
    cmd_processes_clear(&list);
}

void top_clear(top_sample_t *sample) {
    for (unsigned i = 0; i < sample->count; i++)
        free(sample->process[i].program);
    for (unsigned i = 0; i < sample->devices; i++) {
        free(sample->device[i].name);
        free(sample->device[i].uuid);
    }
    free(sample->process);
    free(sample->device);
    *sample = (top_sample_t){0};
}

static top_sort_t sorted_by;

static double key_of(const top_process_t *process) {
    switch (sorted_by) {
    case TOP_ALLOCATED:
        return (double)process->allocated;
    case TOP_RATE:
        return process->per_s;
    case TOP_HIT:
        return -process->hit; /* the worst one is of interest */
    case TOP_FRAGMENTATION:
        return process->fragmentation;
    case TOP_PID:
        return -process->name.pid;
    default:
        return (double)process->reserved;
    }
}

static int by_key(const void *a, const void *b) {
    const top_process_t *x = a, *y = b;
    double p = key_of(x), q = key_of(y);
    return p != q ? (p < q) - (p > q) : x->name.pid - y->name.pid;
}

void top_sort(top_sample_t *sample, top_sort_t by) {
    sorted_by = by;
    if (sample->count)
        qsort(sample->process, sample->count, sizeof *sample->process, by_key);
}

json_t *top_json(const top_sample_t *sample) {
    json_t *processes = json_array(), *devices = json_array();
    for (unsigned i = 0; i < sample->count; i++) {
        const top_process_t *p = &sample->process[i];
        json_array_append_new(
            processes,
            json_pack("{s:i, s:s, s:o, s:I, s:I, s:I, s:o, s:f, s:f, s:I}", "pid", p->name.pid,
                      "id", p->id, "program", cmd_json_text(p->program), "reserved_bytes",
                      (json_int_t)p->reserved, "allocated_bytes", (json_int_t)p->allocated,
                      "allocated_bytes_peak", (json_int_t)p->peak, "requests_per_s",
                      p->per_s < 0 ? json_null() : json_real(p->per_s), "hit_percent", p->hit,
                      "fragmentation_percent", p->fragmentation, "out_of_memory",
                      (json_int_t)p->ooms));
    }
    for (unsigned i = 0; i < sample->devices; i++) {
        const top_device_t *d = &sample->device[i];
        json_array_append_new(
            devices, json_pack("{s:I, s:o, s:o, s:b, s:I, s:I, s:I, s:f, s:i}", "ordinal",
                               (json_int_t)d->ordinal, "name", cmd_json_text(d->name), "uuid",
                               cmd_json_text(d->uuid), "simulated", cmd_is_simulated(d->uuid),
                               "total_memory", (json_int_t)d->total,
                               "reserved_bytes", (json_int_t)d->reserved, "allocated_bytes",
                               (json_int_t)d->allocated, "fragmentation_percent",
                               percent(d->split, d->reserved), "processes", (int)d->processes));
    }
    return json_pack("{s:s, s:i, s:o, s:o}", "schema", "accelcache-top", "version", 1, "devices",
                     devices, "processes", processes);
}

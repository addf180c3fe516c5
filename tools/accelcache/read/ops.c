/* Traces in memory: dense numbers, peaks, and which reader a file needs (ops.h). */
#include "read/ops.h"
#include "command.h"
#include "read/document.h"
#include "read/trace_read.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ names to numbers */

/* Open addressing with linear probing; removed entries leave a mark, and a map that is half full of entries and
 * marks is rebuilt. */
typedef struct {
    uint64_t key, bytes;
    uint32_t number;
    uint16_t stream;
    uint8_t state; /* 0 unused, 1 used, 2 left */
} entry_t;

typedef struct {
    entry_t *entry;
    size_t size, used, marked; /* `marked`: used or left */
} map_t;

static size_t place(const map_t *map, uint64_t key) {
    return (size_t)((key * 0x9e3779b97f4a7c15) >> 20) & (map->size - 1);
}

static entry_t *map_find(map_t *map, uint64_t key) {
    if (map->size == 0)
        return NULL;
    for (size_t at = place(map, key);; at = (at + 1) & (map->size - 1)) {
        entry_t *entry = &map->entry[at];
        if (entry->state == 0)
            return NULL;
        if (entry->state == 1 && entry->key == key)
            return entry;
    }
}

static entry_t *map_insert(map_t *map, uint64_t key);

static void map_grow(map_t *map) {
    map_t old = *map;
    map->size = old.used * 4 < 1024 ? 1024 : old.size;
    while (map->size < old.used * 4)
        map->size *= 2;
    map->entry = cmd_alloc(map->size * sizeof *map->entry);
    map->used = map->marked = 0;
    for (size_t i = 0; i < old.size; i++)
        if (old.entry[i].state == 1)
            *map_insert(map, old.entry[i].key) = old.entry[i];
    free(old.entry);
}

/* The key is not in the map. */
static entry_t *map_insert(map_t *map, uint64_t key) {
    if (map->marked * 2 >= map->size)
        map_grow(map);
    size_t at = place(map, key);
    while (map->entry[at].state == 1)
        at = (at + 1) & (map->size - 1);
    map->marked += map->entry[at].state == 0;
    map->used++;
    map->entry[at] = (entry_t){.key = key, .state = 1};
    return &map->entry[at];
}

static void map_remove(map_t *map, entry_t *entry) {
    entry->state = 2;
    map->used--;
}

/* ------------------------------------------------------------------ building */

typedef struct {
    cmd_op_t *op;
    size_t count, room;
} ops_t;

struct cmd_ops_builder {
    map_t blocks, streams;
    ops_t before, ops;
    uint32_t *spare; /* numbers of freed blocks */
    size_t spares, spare_room;
    uint32_t high;
    uint64_t live; /* bytes */
};

static void push(ops_t *ops, cmd_op_t op) {
    if (ops->count == ops->room) {
        ops->room = ops->room ? ops->room * 2 : 4096;
        ops->op = cmd_resize(ops->op, ops->room * sizeof *ops->op);
    }
    ops->op[ops->count++] = op;
}

static cmd_ops_builder_t *builder_of(cmd_reading_t *reading, unsigned device) {
    if (!reading->device[device])
        reading->device[device] = cmd_alloc(sizeof(cmd_ops_builder_t));
    return reading->device[device];
}

static uint16_t stream_number(cmd_ops_builder_t *builder, uint64_t stream) {
    if (stream == CMD_PLAIN_STREAM)
        return CMD_NO_STREAM;
    entry_t *entry = map_find(&builder->streams, stream);
    if (!entry) {
        size_t number = builder->streams.used;
        entry = map_insert(&builder->streams, stream);
        /* Further streams share the last number: their order gets stricter, no less. */
        entry->number = number < CMD_NO_STREAM - 1 ? (uint32_t)number : CMD_NO_STREAM - 1;
    }
    return (uint16_t)entry->number;
}

bool cmd_ops_add(cmd_reading_t *reading, unsigned device, uint64_t block, uint64_t bytes,
                 uint64_t stream) {
    cmd_ops_builder_t *builder = builder_of(reading, device);
    if (map_find(&builder->blocks, block))
        return false;
    entry_t *entry = map_insert(&builder->blocks, block);
    entry->number = builder->spares ? builder->spare[--builder->spares] : builder->high++;
    entry->stream = stream_number(builder, stream);
    entry->bytes = bytes;
    builder->live += bytes;
    push(&builder->ops, (cmd_op_t){bytes, entry->number, entry->stream, CMD_OP_ALLOC});
    return true;
}

void cmd_ops_before(cmd_reading_t *reading, unsigned device, uint64_t block, uint64_t bytes,
                    uint64_t stream) {
    cmd_ops_builder_t *builder = builder_of(reading, device);
    if (map_find(&builder->blocks, block))
        return;
    entry_t *entry = map_insert(&builder->blocks, block);
    entry->number = builder->high++; /* one that no operation of the file has used so far */
    entry->stream = stream_number(builder, stream);
    entry->bytes = bytes;
    builder->live += bytes;
    push(&builder->before, (cmd_op_t){bytes, entry->number, entry->stream, CMD_OP_ALLOC});
}

bool cmd_ops_remove(cmd_reading_t *reading, unsigned device, uint64_t block, uint64_t stream) {
    cmd_ops_builder_t *builder = builder_of(reading, device);
    entry_t *entry = map_find(&builder->blocks, block);
    if (!entry)
        return false;
    uint16_t number = stream == CMD_FREE_STREAM ? entry->stream : stream_number(builder, stream);
    push(&builder->ops, (cmd_op_t){entry->bytes, entry->number, number, CMD_OP_FREE});
    if (builder->spares == builder->spare_room) {
        builder->spare_room = builder->spare_room ? builder->spare_room * 2 : 1024;
        builder->spare = cmd_resize(builder->spare, builder->spare_room * sizeof *builder->spare);
    }
    builder->spare[builder->spares++] = entry->number;
    builder->live -= entry->bytes;
    map_remove(&builder->blocks, entry);
    return true;
}

bool cmd_ops_failed(cmd_reading_t *reading, unsigned device, uint64_t bytes, uint64_t stream, uint64_t total) {
    const uint64_t block = UINT64_MAX - 1; /* no file's name for a block */
    if (builder_of(reading, device)->live + bytes > total)
        return false;
    return cmd_ops_add(reading, device, block, bytes, stream) &&
           cmd_ops_remove(reading, device, block, CMD_FREE_STREAM);
}

void cmd_ops_sync(cmd_reading_t *reading, unsigned device) {
    push(&builder_of(reading, device)->ops, (cmd_op_t){0, 0, CMD_NO_STREAM, CMD_OP_SYNC});
}

static void builder_free(cmd_ops_builder_t *builder) {
    if (!builder)
        return;
    free(builder->blocks.entry);
    free(builder->streams.entry);
    free(builder->before.op);
    free(builder->ops.op);
    free(builder->spare);
    free(builder);
}

/* ------------------------------------------------------------------ finishing */

static void measure(cmd_ops_t *trace) {
    uint64_t live = 0;
    for (size_t i = 0; i < trace->count; i++) {
        if (trace->op[i].kind == CMD_OP_ALLOC)
            live += trace->op[i].bytes;
        else if (trace->op[i].kind == CMD_OP_FREE)
            live -= trace->op[i].bytes;
        if (live > trace->peak_live)
            trace->peak_live = live;
    }
    trace->live_at_end = live;
}

static cmd_ops_t *finish(cmd_reading_t *reading, int device) {
    cmd_ops_builder_t *builder = reading->device[device];
    cmd_ops_t *trace = cmd_alloc(sizeof *trace);
    size_t before = builder->before.count;
    *trace = (cmd_ops_t){.count = before + builder->ops.count,
                         .blocks = builder->high,
                         .streams = (unsigned)builder->streams.used,
                         .device = device,
                         .format = reading->format,
                         .note = reading->note};
    trace->op = cmd_alloc(trace->count * sizeof *trace->op);
    if (before)
        memcpy(trace->op, builder->before.op, before * sizeof *trace->op);
    memcpy(trace->op + before, builder->ops.op, builder->ops.count * sizeof *trace->op);
    for (int i = 0; i < CMD_OPS_DEVICES; i++)
        trace->devices += reading->device[i] != NULL;
    measure(trace);
    return trace;
}

/* The device with the most operations; -1: there are none. */
static int busiest(const cmd_reading_t *reading) {
    int best = -1;
    for (int i = 0; i < CMD_OPS_DEVICES; i++) {
        const cmd_ops_builder_t *builder = reading->device[i];
        if (builder && builder->ops.count &&
            (best < 0 || builder->ops.count > reading->device[best]->ops.count))
            best = i;
    }
    return best;
}

/* ------------------------------------------------------------------ formats */

static const char *skip_blanks(const char *data) {
    return data + strspn(data, " \t\r\n");
}

static cmd_ops_reader_fn *reader_of(const char *data, const char **format) {
    *format = "text";
    if ((unsigned char)data[0] == 0x80 || *skip_blanks(data) == '{') {
        *format = "PyTorch snapshot";
        return cmd_ops_read_torch;
    }
    if (cmd_ops_is_rmm(skip_blanks(data))) {
        *format = "RMM log";
        return cmd_ops_read_rmm;
    }
    return cmd_ops_is_rmm_debug(skip_blanks(data)) ? NULL : cmd_ops_read_text;
}

static bool read_data(cmd_reading_t *reading, const char *path, char **error) {
    size_t length;
    char *data = cmd_document_text(path, 0, &length, error);
    if (!data)
        return false;
    cmd_ops_reader_fn *reader = length ? reader_of(data, &reading->format) : NULL;
    if (!length)
        *error = cmd_format("the file is empty: there is nothing to replay");
    else if (!reader)
        *error = cmd_format("this is RMM's debug log, which does not name every request; log the requests with "
                            "rmm.enable_logging() or rmm::mr::logging_resource_adaptor");
    bool good = reader && reader(reading, data, length, error);
    free(data);
    return good;
}

static cmd_ops_t *choose_device(cmd_reading_t *reading, int device, char **error) {
    int chosen = device < 0 ? busiest(reading) : device;
    if (chosen < 0)
        *error = cmd_format("it holds no operation: the program allocated no memory, or the "
                            "recording was off");
    else if (!reading->device[chosen] || !reading->device[chosen]->ops.count)
        *error = cmd_format("it holds no operation of device %d", chosen);
    else
        return finish(reading, chosen);
    return NULL;
}

cmd_ops_t *cmd_ops_read(const char *path, int device, char **error) {
    cmd_reading_t reading = {.format = "binary"};
    cmd_ops_t *trace = NULL;
    char *why = NULL;
    bool standard = !strcmp(path, "-");
    bool binary = !standard && cmd_trace_is(path);
    bool good = binary ? cmd_ops_read_binary(&reading, path, &why)
                       : read_data(&reading, standard ? "/dev/stdin" : path, &why);
    if (good)
        trace = choose_device(&reading, device, &why);
    for (int i = 0; i < CMD_OPS_DEVICES; i++)
        builder_free(reading.device[i]);
    if (!trace) {
        free(reading.note);
        bool named = binary && !good; /* that reader does */
        *error = named ? cmd_format("%s", why)
                       : cmd_format("%s: %s", standard ? "standard input" : path, why);
        free(why);
    }
    return trace;
}

void cmd_ops_free(cmd_ops_t *trace) {
    if (!trace)
        return;
    free(trace->op);
    free(trace->note);
    free(trace);
}

cmd_ops_t *cmd_ops_part(const cmd_ops_t *trace, size_t from, size_t to) {
    cmd_ops_t *part = cmd_alloc(sizeof *part);
    const cmd_op_t **live = cmd_alloc(trace->blocks * sizeof *live);
    size_t before = 0;
    *part = (cmd_ops_t){.blocks = trace->blocks,
                        .streams = trace->streams,
                        .device = trace->device,
                        .devices = trace->devices,
                        .format = trace->format};
    for (size_t i = 0; i < from; i++) {
        if (trace->op[i].kind == CMD_OP_ALLOC)
            live[trace->op[i].block] = &trace->op[i];
        else if (trace->op[i].kind == CMD_OP_FREE)
            live[trace->op[i].block] = NULL;
    }
    for (uint32_t i = 0; i < trace->blocks; i++)
        before += live[i] != NULL;
    part->count = before + (to - from);
    part->op = cmd_alloc(part->count * sizeof *part->op);
    cmd_op_t *out = part->op;
    for (size_t i = 0; i < from; i++) /* in the order in which they were allocated */
        if (trace->op[i].kind == CMD_OP_ALLOC && live[trace->op[i].block] == &trace->op[i])
            *out++ = trace->op[i];
    memcpy(out, trace->op + from, (to - from) * sizeof *out);
    free(live);
    measure(part);
    return part;
}

cmd_ops_t *cmd_ops_without(const cmd_ops_t *trace, size_t from, size_t to) {
    cmd_ops_t *part = cmd_ops_part(trace, 0, trace->count);
    bool *left_out = cmd_alloc(trace->blocks * sizeof *left_out); /* the block, as it lives now */
    part->count = 0;
    for (size_t i = 0; i < trace->count; i++) {
        const cmd_op_t *op = &trace->op[i];
        if (op->kind == CMD_OP_ALLOC)
            left_out[op->block] = i >= from && i < to;
        if (op->kind == CMD_OP_SYNC || !left_out[op->block])
            part->op[part->count++] = *op;
    }
    free(left_out);
    measure(part);
    return part;
}

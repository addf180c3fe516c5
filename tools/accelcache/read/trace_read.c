/* See trace_read.h: the file's chunks, the merge of its lanes, and what events mean. */
#include "read/trace_read.h"

#include "command.h"
#include "read/trace_lane.h"
#include "read/trace_live.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    unsigned device, number;
    bool gone;
} context_t;

typedef struct {
    uint32_t context;
    uint64_t key;
} stream_t;

struct cmd_trace_file {
    int fd;
    ac_trace_header_t header;
    cmd_trace_lane_t *lane;
    size_t lanes;
    /* A heap of the lanes that have an event, the least sequence number first. */
    size_t *heap, heaped;
    cmd_trace_raw_t *head; /* by lane */
    bool primed;
    cmd_live_t live;
    context_t *context; /* by number - 1 */
    uint32_t contexts, epoch;
    stream_t *stream; /* by number - 1 */
    uint32_t streams;
    uint64_t ids;
    /* Events that come before anything else is read. */
    cmd_trace_event_t *queue;
    size_t queued, delivered;
    cmd_trace_counts_t counts;
    cmd_trace_sites_t *sites;
};

/* --- the file --- */

static bool read_at(int fd, void *data, size_t size, uint64_t offset) {
    ssize_t n;
    do
        n = pread(fd, data, size, (off_t)offset);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)size;
}

bool cmd_trace_is(const char *path) {
    uint64_t magic = 0;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    bool is = fd >= 0 && read_at(fd, &magic, sizeof magic, 0) &&
              (magic == AC_TRACE_MAGIC || magic == __builtin_bswap64(AC_TRACE_MAGIC));
    if (fd >= 0)
        close(fd);
    return is;
}

/* NULL, or what is wrong with the file. */
static char *check_header(const char *path, const ac_trace_header_t *header) {
    if (header->magic == __builtin_bswap64(AC_TRACE_MAGIC))
        return cmd_format("%s: recorded on a machine of another byte order", path);
    if (header->magic != AC_TRACE_MAGIC)
        return cmd_format("%s: no recorded trace (trace:FILE writes them)", path);
    if (header->version < AC_TRACE_VERSION || header->version > AC_TRACE_VERSION_SITES)
        return cmd_format("%s: a trace of version %u, and this command reads versions %d to %d", path,
                          header->version, AC_TRACE_VERSION, AC_TRACE_VERSION_SITES);
    if (header->byte_order != AC_TRACE_BYTE_ORDER || header->header_size != sizeof *header ||
        header->unit != AC_TRACE_UNIT || header->time_shift > 31)
        return cmd_format("%s: the header of this trace is damaged", path);
    return NULL;
}

/* A running process writes to its front meanwhile: the copy is one chunk if its ordinal is the same afterwards.
 * A chunk that is gone by then was copied before; the copy stands behind the chunks already seen.  NULL: none is
 * available. */
static uint64_t *read_front(const cmd_trace_t *trace, uint64_t offset, uint64_t *ordinal,
                            bool *cut) {
    enum { TRIES = 100 };
    uint64_t *front = cmd_alloc(AC_TRACE_UNIT);
    for (int i = 0; i < TRIES; i++) {
        ac_trace_chunk_t before, after;
        ssize_t n;
        memset(front, 0, AC_TRACE_UNIT);
        if (!read_at(trace->fd, &before, sizeof before, offset) ||
            /* Of a file that was cut short, what is there. */
            (n = pread(trace->fd, front, AC_TRACE_UNIT, (off_t)offset)) <
                (ssize_t)sizeof before ||
            !read_at(trace->fd, &after, sizeof after, offset))
            break;
        if (before.ordinal == after.ordinal) {
            *ordinal = before.ordinal;
            *cut = n < AC_TRACE_UNIT;
            return front;
        }
    }
    free(front);
    return NULL;
}

static bool is_chunk(const cmd_trace_t *trace, uint64_t offset, uint64_t units,
                     ac_trace_chunk_t *chunk) {
    return read_at(trace->fd, chunk, sizeof *chunk, offset) && chunk->lane < units &&
           (chunk->magic == AC_TRACE_CHUNK || chunk->magic == AC_TRACE_FRONT);
}

static void take_chunk(cmd_trace_t *trace, uint64_t offset, const ac_trace_chunk_t *chunk) {
    cmd_trace_span_t span = {.ordinal = chunk->ordinal, .offset = offset};
    if (chunk->lane >= trace->lanes) {
        size_t lanes = (size_t)chunk->lane + 1;
        trace->lane = cmd_resize(trace->lane, lanes * sizeof *trace->lane);
        memset(trace->lane + trace->lanes, 0, (lanes - trace->lanes) * sizeof *trace->lane);
        trace->lanes = lanes;
    }
    cmd_trace_lane_t *lane = &trace->lane[chunk->lane];
    bool cut = false;
    if (chunk->magic == AC_TRACE_FRONT &&
        !(span.front = read_front(trace, offset, &span.ordinal, &cut)))
        return;
    lane->damaged |= cut;
    cmd_trace_lane_add(lane, &span);
}

/* Fronts first: the copies they leave meanwhile are found behind them. */
static void find_chunks(cmd_trace_t *trace) {
    static const uint32_t kinds[] = {AC_TRACE_FRONT, AC_TRACE_CHUNK};
    ac_trace_chunk_t chunk;
    struct stat st;
    for (int i = 0; i < 2; i++) {
        uint64_t size = fstat(trace->fd, &st) == 0 ? (uint64_t)st.st_size : 0;
        uint64_t units = (size + AC_TRACE_UNIT - 1) / AC_TRACE_UNIT;
        for (uint64_t unit = 1; unit < units; unit++)
            if (is_chunk(trace, unit * AC_TRACE_UNIT, units, &chunk) && chunk.magic == kinds[i])
                take_chunk(trace, unit * AC_TRACE_UNIT, &chunk);
    }
    for (size_t i = 0; i < trace->lanes; i++) {
        trace->lane[i].fd = trace->fd;
        trace->lane[i].time_shift = trace->header.time_shift;
        trace->lane[i].sites = trace->sites;
        cmd_trace_lane_begin(&trace->lane[i]);
    }
}

cmd_trace_t *cmd_trace_open(const char *path, char **error) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    *error = NULL;
    if (fd < 0 || fstat(fd, &st) != 0) {
        *error = cmd_format("%s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    cmd_trace_t *trace = cmd_alloc(sizeof *trace);
    memset(trace, 0, sizeof *trace);
    trace->fd = fd;
    trace->sites = cmd_trace_sites_new();
    bool whole = S_ISREG(st.st_mode) && read_at(fd, &trace->header, sizeof trace->header, 0);
    if (!whole && cmd_trace_is(path))
        *error = cmd_format("%s: a trace that was cut short before its first event: copy it again", path);
    else if (!whole)
        *error = cmd_format("%s: no recorded trace (trace:FILE writes them)", path);
    else
        *error = check_header(path, &trace->header);
    if (*error) {
        cmd_trace_close(trace);
        return NULL;
    }
    trace->header.exe[sizeof trace->header.exe - 1] = '\0';
    find_chunks(trace);
    trace->head = cmd_alloc((trace->lanes + 1) * sizeof *trace->head);
    trace->heap = cmd_alloc((trace->lanes + 1) * sizeof *trace->heap);
    trace->epoch = 1;
    return trace;
}

void cmd_trace_close(cmd_trace_t *trace) {
    for (size_t i = 0; i < trace->lanes; i++)
        cmd_trace_lane_clear(&trace->lane[i]);
    cmd_live_clear(&trace->live);
    free(trace->lane);
    free(trace->head);
    free(trace->heap);
    free(trace->context);
    free(trace->stream);
    free(trace->queue);
    cmd_trace_sites_free(trace->sites);
    close(trace->fd);
    free(trace);
}

char *cmd_trace_command(const ac_trace_header_t *header) {
    size_t size = sizeof header->argv, used = 0;
    char *text = cmd_alloc(size + 1);
    while (used + 1 < size && (header->argv[used] || header->argv[used + 1])) {
        char c = header->argv[used];
        text[used++] = c ? c : ' ';
    }
    text[used] = '\0';
    return text;
}

const ac_trace_header_t *cmd_trace_header(const cmd_trace_t *trace) {
    return &trace->header;
}

bool cmd_trace_stack(const cmd_trace_t *trace, uint32_t stack, cmd_frame_t **frames,
                     size_t *count) {
    return cmd_trace_sites_get(trace->sites, stack, trace->header.exe, frames, count);
}

cmd_trace_counts_t cmd_trace_counts(const cmd_trace_t *trace) {
    cmd_trace_counts_t counts = trace->counts;
    for (size_t i = 0; i < trace->lanes; i++) {
        counts.refused_frees += trace->lane[i].refused;
        counts.damaged_lanes += trace->lane[i].damaged;
    }
    return counts;
}

/* --- the merge --- */

static bool comes_before(const cmd_trace_t *trace, size_t a, size_t b) {
    return trace->head[trace->heap[a]].sequence < trace->head[trace->heap[b]].sequence;
}

static void sift_down(cmd_trace_t *trace, size_t at) {
    for (;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < trace->heaped; child++)
            if (comes_before(trace, child, least))
                least = child;
        if (least == at)
            return;
        size_t lane = trace->heap[at];
        trace->heap[at] = trace->heap[least];
        trace->heap[least] = lane;
        at = least;
    }
}

static void prime(cmd_trace_t *trace) {
    for (size_t i = 0; i < trace->lanes; i++)
        if (cmd_trace_lane_next(&trace->lane[i], &trace->head[i]))
            trace->heap[trace->heaped++] = i;
    for (size_t i = trace->heaped; i-- > 0;)
        sift_down(trace, i);
    trace->primed = true;
}

/* Let the first lane go on to its next event. */
static void advance(cmd_trace_t *trace) {
    size_t lane = trace->heap[0];
    if (!cmd_trace_lane_next(&trace->lane[lane], &trace->head[lane]))
        trace->heap[0] = trace->heap[--trace->heaped];
    sift_down(trace, 0);
}

/* --- places --- */

static uint32_t number_context(cmd_trace_t *trace, unsigned device, unsigned number) {
    if (number == AC_TRACE_NOWHERE)
        return 0;
    for (uint32_t i = trace->contexts; i-- > 0;) {
        const context_t *context = &trace->context[i];
        if (context->device == device && context->number == number && !context->gone)
            return i + 1;
    }
    trace->context = cmd_resize(trace->context, (trace->contexts + 1) * sizeof *trace->context);
    trace->context[trace->contexts] = (context_t){device, number, false};
    return ++trace->contexts;
}

static uint32_t number_stream(cmd_trace_t *trace, uint32_t context, uint64_t key) {
    if (key == 0)
        return 0;
    for (uint32_t i = 0; i < trace->streams; i++)
        if (trace->stream[i].context == context && trace->stream[i].key == key)
            return i + 1;
    trace->stream = cmd_resize(trace->stream, (trace->streams + 1) * sizeof *trace->stream);
    trace->stream[trace->streams] = (stream_t){context, key};
    return ++trace->streams;
}

static void fill_place(cmd_trace_t *trace, cmd_trace_place_t *place, cmd_trace_event_t *event) {
    event->device = -1;
    if (!place)
        return;
    if (place->epoch != trace->epoch) { /* a context ended since: its number may be another's */
        place->context_number = number_context(trace, place->device, place->context);
        place->stream_number = number_stream(trace, place->context_number, place->stream);
        place->epoch = trace->epoch;
    }
    event->device = place->device == AC_TRACE_NOWHERE ? -1 : (int)place->device;
    event->context = place->context_number;
    event->stream = place->stream_number;
}

static int64_t time_of(const ac_trace_header_t *header, uint64_t ticks) {
    const ac_trace_time_t *latest = &header->latest[header->latest_turn & 1];
    double ns = (double)(int64_t)(latest->monotonic_ns - header->start.monotonic_ns);
    double all = (double)(int64_t)(latest->ticks - header->start.ticks);
    double since = (double)(int64_t)(ticks - header->start.ticks);
    double time = all > 0 && ns > 0 ? since * (ns / all) : since;
    return time > 0 && time < 9e18 ? (int64_t)time : 0;
}

/* --- what an event means --- */

static void enqueue(cmd_trace_t *trace, const cmd_trace_event_t *event) {
    if (trace->delivered == trace->queued)
        trace->delivered = trace->queued = 0;
    trace->queue = cmd_resize(trace->queue, (trace->queued + 1) * sizeof *trace->queue);
    trace->queue[trace->queued++] = *event;
}

/* `event` is a free of the block but for what the block tells. */
static void enqueue_free(cmd_trace_t *trace, cmd_trace_event_t event,
                         const cmd_live_block_t *block, bool implied) {
    event.kind = CMD_TRACE_FREE;
    event.implied = implied;
    event.managed = block->managed;
    event.id = block->id;
    event.address = block->address;
    event.bytes = block->bytes;
    event.device = block->device;
    event.context = block->context;
    trace->counts.implied_frees += implied;
    enqueue(trace, &event);
}

static void take_alloc(cmd_trace_t *trace, cmd_trace_event_t event) {
    cmd_live_block_t *old = cmd_live_find(&trace->live, event.address);
    if (old) {
        cmd_trace_event_t end = event;
        end.stream = 0;
        enqueue_free(trace, end, old, true);
        cmd_live_remove(&trace->live, old);
    }
    event.id = trace->ids++;
    cmd_live_block_t block = {event.address, event.id,     event.bytes,
                              event.context, event.device, event.managed};
    cmd_live_add(&trace->live, &block);
    enqueue(trace, &event);
}

static void take_free(cmd_trace_t *trace, cmd_trace_event_t event) {
    cmd_live_block_t *block = cmd_live_find(&trace->live, event.address);
    if (!block) {
        trace->counts.unknown_frees++;
        return;
    }
    enqueue_free(trace, event, block, false);
    cmd_live_remove(&trace->live, block);
}

static void take_gone(cmd_trace_t *trace, cmd_trace_event_t event) {
    size_t count;
    if (!event.context)
        return;
    cmd_live_block_t *block = cmd_live_take(&trace->live, event.context, &count);
    event.stream = 0;
    for (size_t i = 0; i < count; i++)
        enqueue_free(trace, event, &block[i], true);
    free(block);
    trace->context[event.context - 1].gone = true;
    trace->epoch++;
}

static void take(cmd_trace_t *trace, const cmd_trace_raw_t *raw) {
    cmd_trace_event_t event = {.thread = raw->thread,
                               .sequence = raw->sequence,
                               .time_ns = time_of(&trace->header, raw->ticks),
                               .address = raw->about};
    fill_place(trace, raw->place, &event);
    switch (raw->kind) {
    case AC_TRACE_ALLOC:
    case AC_TRACE_MANAGED:
        event.kind = CMD_TRACE_ALLOC;
        event.managed = raw->kind == AC_TRACE_MANAGED;
        event.bytes = raw->bytes;
        event.stack = raw->stack;
        take_alloc(trace, event);
        break;
    case AC_TRACE_FREE:
    case AC_TRACE_FREE_ON:
        event.kind = CMD_TRACE_FREE;
        take_free(trace, event);
        break;
    case AC_TRACE_FAILED:
        event.kind = CMD_TRACE_FAILED;
        event.error = (int)(raw->about & INT32_MAX);
        event.address = 0;
        event.bytes = raw->bytes;
        enqueue(trace, &event);
        break;
    case AC_TRACE_GONE:
        take_gone(trace, event);
        break;
    default:
        event.kind = raw->kind == AC_TRACE_SYNC          ? CMD_TRACE_SYNC
                     : raw->kind == AC_TRACE_SYNC_STREAM ? CMD_TRACE_SYNC_STREAM
                                                         : CMD_TRACE_SYNC_EVENT;
        if (raw->kind != AC_TRACE_SYNC_EVENT)
            event.address = 0;
        enqueue(trace, &event);
    }
}

bool cmd_trace_next(cmd_trace_t *trace, cmd_trace_event_t *event) {
    if (!trace->primed)
        prime(trace);
    while (trace->delivered == trace->queued) {
        if (!trace->heaped)
            return false;
        take(trace, &trace->head[trace->heap[0]]);
        advance(trace);
    }
    *event = trace->queue[trace->delivered++];
    trace->counts.events++;
    return true;
}

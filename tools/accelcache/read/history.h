/* A program's memory as a file of any form describes it: the
 * figures of a dump, or events in their order with the segments and blocks of one moment.
 *
 *   dump       JSON statistics of the library, or the live page of a process: figures alone.  With
 *              events (the key history) it counts as a snapshot, which has figures as well
 *   trace      what the key `trace` records, `accelcache-dev gen` writes or RMM logs: events.  They tell
 *              of no segments: see cmd_history_segments
 *   snapshot   segments and device_traces in PyTorch's layout, as JSON */
#ifndef CMD_HISTORY_H
#define CMD_HISTORY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "read/recorded.h"
#include "read/segments.h"

typedef enum {
    CMD_SOURCE_DUMP = 1,
    CMD_SOURCE_TRACE = 2,
    CMD_SOURCE_SNAPSHOT = 4
} cmd_source_t; /* bits, for sets of them */

typedef enum {
    CMD_EVENT_ALLOC,
    CMD_EVENT_FREE,        /* the program gave it back */
    CMD_EVENT_FAILED,      /* a request failed: `bytes` */
    CMD_EVENT_WAIT,        /* the program waited for the device, a stream or an event */
    CMD_EVENT_SEGMENT,     /* memory came from the driver */
    CMD_EVENT_SEGMENT_GONE, /* memory went back to it */
    /* Memory outside of the cache, each GONE after its own: a GONE without its request has 0 bytes. */
    CMD_EVENT_PINNED, /* pinned host memory */
    CMD_EVENT_PINNED_GONE,
    CMD_EVENT_PASSED, /* of the driver's own pools, or managed */
    CMD_EVENT_PASSED_GONE,
    CMD_EVENT_PHYSICAL, /* cuMemCreate; the address is the handle */
    CMD_EVENT_PHYSICAL_GONE,
    CMD_EVENT_ARRAY, /* likewise */
    CMD_EVENT_ARRAY_GONE,
    CMD_EVENT_KINDS
} cmd_event_kind_t;

#define CMD_NO_PARTNER UINT32_MAX

typedef struct {
    int64_t
        time_ns; /* since the first moment; the number of the operation if times are not known */
    uint64_t address; /* 0: not known */
    uint64_t bytes;   /* as the program asked */
    uint64_t stream;
    const json_t *frames; /* of the caller, innermost first; NULL: none known */
    uint32_t partner;     /* ALLOC: the event of its free, FREE: that of its request; or none */
    uint32_t thread;
    int16_t device; /* -1: not known */
    uint8_t kind;
    bool implied; /* FREE: the program did not free the block, its context ended */
} cmd_event_t;

typedef struct {
    cmd_source_t source;
    const char *format; /* for people */
    json_t *document;   /* DUMP, SNAPSHOT; of a TRACE what frames live in */
    json_t *figures;    /* of a DUMP, or of one that counts as a SNAPSHOT: the dump; else NULL */
    cmd_event_t *event;
    size_t events;
    cmd_segments_t now;                         /* SNAPSHOT: segments of its moment */
    unsigned devices;                           /* ordinals are below */
    uint64_t total_memory[CMD_DEVICES]; /* 0: not known */
    int64_t start_ns;                           /* of the clock; 0: not known */
    bool timed, addressed;                      /* events have times, addresses */
    char *command, *host, *note;                /* NULL: not known, none */
    int pid;                                    /* 0: not known */
} cmd_history_t;

/* Reads a file, or the page of a process if `path` is a PID and no file.  NULL: *error is one line with cause
 * and remedy, malloc'd. */
cmd_history_t *cmd_history_read(const char *path, char **error);
/* Returns the history of a dump that was read before.  NULL: as cmd_history_read. */
cmd_history_t *cmd_history_of(json_t *document, char **error);
void cmd_history_free(cmd_history_t *history);

/* The segments of a snapshot, or for a trace the ranges of addresses that its blocks ever lay in,
 * adjoining ones taken together, with the blocks that live before event `at` (`events`: at the
 * end).  Blocks of a trace are rounded up to 512 bytes, as the library does.  The caller releases them. */
cmd_segments_t cmd_history_segments(const cmd_history_t *history, size_t at);

/* The number of events before the first moment of the most bytes in use, on all devices together. */
size_t cmd_history_peak(const cmd_history_t *history);

/* Memory of a device before the first event.  A snapshot's history is cut short: it is the memory of its
 * segments less the changes of its events.  A trace begins with nothing. */
typedef struct {
    int64_t allocated, blocks, reserved; /* bytes, number, bytes */
    int64_t pinned, passed;              /* bytes that events tell of; 0 before them */
} cmd_holding_t;
cmd_holding_t cmd_history_before(const cmd_history_t *history, int device);
/* Returns true if earlier events are missing, or may be, as in PyTorch's snapshots. */
bool cmd_history_cut(const cmd_history_t *history, int device);
/* Adds the change of an event of the device. */
void cmd_holding_add(cmd_holding_t *holding, const cmd_event_t *event);

/* ------------------------------------------------------------------ for the readers */

void cmd_history_add(cmd_history_t *history, size_t *room, const cmd_event_t *event);
/* Each false with *error as above, without the file's name. */
bool cmd_history_trace(cmd_history_t *history, const char *path, char **error);
bool cmd_history_snapshot(cmd_history_t *history, char **error); /* of `document` */

/* Whether the dump has events, or blocks, and may be taken for a snapshot, which is made of it (the caller's). */
bool cmd_history_recorded(const json_t *document);
json_t *cmd_history_as_snapshot(const json_t *document);

#endif

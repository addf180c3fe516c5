/* Data of `top`: the processes of this user that run, their devices, and what happened since the look before. */
#ifndef CMD_TOP_H
#define CMD_TOP_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "observe/live.h"
#include "read/processes.h"

typedef struct {
    ac_live_name_t name;
    char id[CMD_PROCESS_ID];
    char *program; /* malloc'd, of the file without its folder, as it is: for terminals cmd_safe */
    int64_t reserved, allocated, peak; /* bytes; the peak is that of allocated */
    int64_t split;                     /* free bytes in segments that are in use */
    int64_t requests, served;          /* since the process began */
    int64_t ooms;
    double per_s;              /* requests a second since the look before; negative: not known */
    double hit, fragmentation; /* per cent; hit: of these requests; of all requests if there was none */
} top_process_t;

typedef struct {
    char *name, *uuid;                                  /* malloc'd */
    int64_t ordinal, total, reserved, allocated, split; /* bytes, summed over processes */
    unsigned processes;
} top_device_t;

typedef struct {
    top_process_t *process;
    top_device_t *device;
    unsigned count, devices;
    unsigned unread; /* pages that could not be read */
    double at;       /* seconds, of a clock that only goes on */
} top_sample_t;

/* Columns that processes are sorted by. */
typedef enum {
    TOP_RESERVED,
    TOP_ALLOCATED,
    TOP_RATE,
    TOP_HIT,
    TOP_FRAGMENTATION,
    TOP_PID,
    TOP_SORTS
} top_sort_t;
extern const char *const top_sort_names[TOP_SORTS];

/* Look at all processes that run; `before` (may be NULL) is the look that rates are counted from.
 * `quiet`: no message of what cannot be read.  The caller clears it. */
void top_look(top_sample_t *sample, const top_sample_t *before, bool quiet);
void top_clear(top_sample_t *sample);
void top_sort(top_sample_t *sample, top_sort_t by);
json_t *top_json(const top_sample_t *sample);

/* The interactive screen, until the user ends it; looks each `seconds`.  Returns the exit status, with a message
 * if this build has no screen. */
int top_run(double seconds, top_sort_t by);

#endif

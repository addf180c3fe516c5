/* A modelled device behind the contract of device.h: no GPU, no threads, no sleeping, the same in
 * every run.  Memory is address ranges, calls cost what a table says, and time is a number that
 * they advance.  One context; not thread-safe.
 *
 * Work that is pending at a free follows one of three models:
 *
 *   CMD_WORK_NONE     nothing is ever submitted: a freed block is ready at once.
 *   CMD_WORK_DELAY    one piece of work is submitted with each operation and completes when
 *                     `delay` more operations have followed, or when the host waits for it.  No
 *                     stream is named: a block can be had again only behind a fence.
 *   CMD_WORK_STREAMS  a request is followed by a kernel on its stream.  A kernel starts when the
 *                     one before it on that stream has ended and the host has submitted it, and
 *                     lasts as long as the table says for the block's size; streams run side by
 *                     side.  The host spends `operation` on each operation, and is CMD_RUN_AHEAD
 *                     kernels of a stream ahead of the device at most.  Requests and frees name
 *                     their stream, as cudaMallocAsync and cudaFreeAsync do.  The trace says
 *                     nothing of the program's own events, so no order between streams is known
 *                     but what the allocator makes, and what a full synchronisation ends.
 *
 * A fence completes when all that was submitted before it has. */
#ifndef CMD_MODEL_H
#define CMD_MODEL_H

#include "device/device.h"

enum {
#define CALL(name, text, fixed, mib, page, source) CMD_CALL_##name,
#define WORK(name, text, fixed, mib, source)
#include "replay/model_calls.def"
#undef CALL
#undef WORK
    CMD_CALLS
};

typedef struct {
    double fixed, per_mib, per_page; /* ns */
} cmd_cost_t;

typedef struct {
#define CALL(name, text, fixed, mib, page, source) cmd_cost_t name;
#define WORK(name, text, fixed, mib, source)       cmd_cost_t name;
#include "replay/model_calls.def"
#undef CALL
#undef WORK
} cmd_costs_t;

void cmd_costs_default(cmd_costs_t *costs);
/* Take over what a CSV file says: one of the model's (model_calls.def), or a table of the simulated device (its
 * first line begins with "function,"): as measured on a GPU.  False, and *error is one line, malloc'd. */
bool cmd_costs_read(cmd_costs_t *costs, const char *path, char **error);

/* The driver's name of a call. */
extern const char *const cmd_call_names[CMD_CALLS];

typedef enum { CMD_WORK_NONE, CMD_WORK_DELAY, CMD_WORK_STREAMS } cmd_work_t;
enum { CMD_RUN_AHEAD = 1024 };

/* Counts of the model; cmd_model_reset sets it back. */
typedef struct {
    uint64_t call[CMD_CALLS];
    double ns;             /* of all these calls, waits not included */
    uint64_t peak;         /* most bytes taken from the device at a time */
    uint64_t waits;        /* times the host had to wait for work */
    uint64_t stream_waits; /* times a stream was made to wait for another one */
} cmd_model_figures_t;

typedef struct cmd_model cmd_model_t;
extern const ac_device_ops_t cmd_model_ops; /* the context is the model */

/* `capacity` in bytes.  `no_fences`: recording is not supported. */
cmd_model_t *cmd_model_new(const cmd_costs_t *costs, uint64_t capacity, cmd_work_t work,
                           uint64_t delay, bool no_fences);
void cmd_model_free(cmd_model_t *model);

/* An operation of the program begins. */
void cmd_model_operation(cmd_model_t *model);
/* A kernel on `stream` (a number from 0) over `bytes`; only with CMD_WORK_STREAMS. */
void cmd_model_kernel(cmd_model_t *model, unsigned stream, uint64_t bytes);
/* The stream's key for the allocator, which is never that of a default stream. */
uint64_t cmd_model_stream_key(unsigned stream);
/* The program waits for the device. */
void cmd_model_synchronise(cmd_model_t *model);

/* Describes how the allocator broke the contract of device.h; NULL: nothing. */
const char *cmd_model_misuse(const cmd_model_t *model);
void cmd_model_figures(const cmd_model_t *model, cmd_model_figures_t *figures);
void cmd_model_reset(cmd_model_t *model); /* the peak becomes what is in use */

#endif

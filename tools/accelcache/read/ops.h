/* An allocation trace in memory, and the readers of the formats that it may come in.
 *
 * Blocks and streams get dense numbers when a trace is read, so that a replay looks nothing up:
 * a block's number is used again after its free, streams are numbered by first appearance.
 *
 *   text     one operation a line: `a ID BYTES STREAM` (`-`: no stream was named), `f ID`, `s`; # starts a comment
 *   binary   what the key `trace` of ACCEL_ALLOC_CONF writes
 *   RMM      the CSV of its logging adaptor
 *   PyTorch  `device_traces` of a memory snapshot, as JSON */
#ifndef CMD_OPS_H
#define CMD_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { CMD_OP_ALLOC, CMD_OP_FREE, CMD_OP_SYNC } cmd_op_kind_t;

/* A request or free that named no stream. */
enum { CMD_NO_STREAM = UINT16_MAX };

typedef struct {
    uint64_t bytes;  /* of a request */
    uint32_t block;  /* dense number */
    uint16_t stream; /* dense number, of a free too, or CMD_NO_STREAM */
    uint8_t kind;
} cmd_op_t;

typedef struct {
    cmd_op_t *op;
    size_t count;
    uint32_t blocks;      /* numbers in use: the most blocks that live at a time */
    unsigned streams;     /* numbers in use */
    uint64_t peak_live;   /* most bytes requested and not freed */
    uint64_t live_at_end; /* bytes */
    int device;           /* of the operations */
    unsigned devices;     /* how many the file speaks of */
    const char *format;
    char *note; /* what the user must know of the file (cut short, ...), or NULL */
} cmd_ops_t;

/* Read `path`, "-" for stdin.  `device` -1 takes the one with the most operations.  NULL, and
 * *error is one line with place, cause and remedy, malloc'd. */
cmd_ops_t *cmd_ops_read(const char *path, int device, char **error);
void cmd_ops_free(cmd_ops_t *trace);

/* The operations [from, to) as a trace of their own; blocks that live at `from` are allocated first. */
cmd_ops_t *cmd_ops_part(const cmd_ops_t *trace, size_t from, size_t to);

/* All but the requests of [from, to) and the frees of what they got. */
cmd_ops_t *cmd_ops_without(const cmd_ops_t *trace, size_t from, size_t to);

/* ------------------------------------------------------------------ for the readers */

/* Filled by a reader, one for each device of the file. */
typedef struct cmd_ops_builder cmd_ops_builder_t;
enum { CMD_OPS_DEVICES = 64 };
typedef struct {
    cmd_ops_builder_t *device[CMD_OPS_DEVICES]; /* NULL: nothing of that one */
    const char *format;
    char *note;
} cmd_reading_t;

/* `block` and `stream` are the file's own names for them.  Adding one that lives, or freeing one
 * that does not, changes nothing and returns false.  A free with CMD_FREE_STREAM happens on the
 * stream of the request. */
#define CMD_FREE_STREAM  (UINT64_MAX - 1)
#define CMD_PLAIN_STREAM UINT64_MAX /* the request named none */
bool cmd_ops_add(cmd_reading_t *reading, unsigned device, uint64_t block, uint64_t bytes,
                 uint64_t stream);
bool cmd_ops_remove(cmd_reading_t *reading, unsigned device, uint64_t block, uint64_t stream);
/* Adds a request that failed when it was recorded; its memory is freed at once.  Returns false, and adds
 * nothing, if no allocator could have served it: with what lives, it exceeds `total`, the device's bytes. */
bool cmd_ops_failed(cmd_reading_t *reading, unsigned device, uint64_t bytes, uint64_t stream, uint64_t total);
void cmd_ops_sync(cmd_reading_t *reading, unsigned device);
/* A block that lived before the first operation. */
void cmd_ops_before(cmd_reading_t *reading, unsigned device, uint64_t block, uint64_t bytes,
                    uint64_t stream);

/* Each reads the whole of a file; false, and *error without the file's name. */
typedef bool cmd_ops_reader_fn(cmd_reading_t *reading, const char *data, size_t length,
                               char **error);
cmd_ops_reader_fn cmd_ops_read_text, cmd_ops_read_rmm, cmd_ops_read_torch;
/* Returns true if a text begins like a log of RMM's requests, or like RMM's debug log (RMM_LOG), which is not
 * read. */
bool cmd_ops_is_rmm(const char *data);
bool cmd_ops_is_rmm_debug(const char *data);
/* This one maps its file. */
bool cmd_ops_read_binary(cmd_reading_t *reading, const char *path, char **error);

#endif

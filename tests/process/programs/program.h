/* A program over the driver API as data: settings and a list of operations (ops.def).
 *
 * Text form: one operation per line. Lines of settings come first, in any order:
 *
 *   seed N       of the generator               threads N    1 to 8
 *   devices N    1 to 3                         slow         accel_check after every operation
 *   loose        the program may free plain memory while other devices use it. A cache must
 *                tolerate this. A driver that waits only for the memory's device does not
 *   sim S        more settings of the simulated device, without clock, devices and race detector
 *   conf S       ACCEL_ALLOC_CONF
 *
 * # starts a comment. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
    THREADS = 8,
    DEVICES = 3,
    CONTEXTS = 6,
    STREAMS = 48,
    EVENTS = 32,
    BLOCKS = 256,
    GRAPHS = 12,
    GREENS = 4,
    POOLS = 4,
    OPERANDS = 4,
    SETTINGS = 600 /* bytes of a settings string */
};

/* Stream operands in addition to the slots. */
enum { STREAM_NULL = 100, STREAM_LEGACY, STREAM_OWN, STREAM_MASK = 0xff, STREAM_Z = 0x100 };

enum { LAUNCH_SPEEDS = 3, LAUNCH_PROGRAMMATIC = 4 };

typedef enum {
#define OP(symbol, name, operands, doc) OP_##symbol,
#include "ops.def"
#undef OP
    OP_COUNT
} op_code_t;

typedef struct {
    uint8_t code, thread;
    uint32_t at[OPERANDS];
} op_t;

typedef struct {
    unsigned long seed;
    unsigned threads, devices;
    bool slow, loose;
    char sim[SETTINGS], conf[SETTINGS];
    op_t *ops;
    size_t count, room;
} program_t;

const char *op_name(unsigned code);
const char *op_operands(unsigned code);
bool op_allocates(unsigned code); /* true: the first operands are a block and its bytes */

/* Makes an empty program with one thread and one device. */
void program_init(program_t *program);
void program_free(program_t *program);
void program_add(program_t *program, op_t op); /* ends the process if memory is short */
void program_copy(program_t *to, const program_t *from);

/* Returns false after one line on stderr. */
bool program_read(program_t *program, const char *path);
/* Writes each line of `note`, if not NULL, as a comment at the top. */
bool program_write(const program_t *program, const char *path, const char *note);
void op_print(const op_t *op, FILE *out);

#endif

/* Programs that continue when a call fails, for the injections of chaos.c.
 *
 * A program is a body that runs on a world (world.c): contexts, streams, and blocks with the
 * values written to them. Every driver call passes note(), which judges whether a failure is the
 * injected one. If a call fails, the program omits it and all that depends on it. A call that the
 * program needs is made a second time (TWICE). A wait replaces an order between streams that
 * could not be recorded. */
#ifndef CHAOS_H
#define CHAOS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

enum { DEVICES = 2, BLOCKS = 24, STREAMS = 6 };

typedef struct {
    CUdeviceptr address;
    size_t bytes;
    unsigned value; /* what the last work on it wrote; 0: nothing did */
    int device;     /* of the context that was current */
    bool there;
    bool ordered; /* by a stream: a plain free does not wait for its work */
} block_t;

typedef struct {
    CUcontext ctx[DEVICES];
    CUfunction store[DEVICES]; /* store(address, value) */
    int here;                  /* device of the current context; -1: none */
    block_t block[BLOCKS];
    CUstream stream[STREAMS]; /* NULL: not there */
    CUevent event[2];
    bool capturing; /* a request may fail with the driver's own call: it is not cached */
    bool library;   /* the cache is preloaded */
} world_t;

extern world_t world;

typedef struct {
    const char *name;
    int devices;
    void (*body)(void);
} program_t;

extern const program_t programs[];
extern const size_t program_count;

/* One result of a driver call of the program; true: it succeeded. */
bool note(const char *symbol, int line, CUresult result);
#define CALL(symbol, ...)  note(#symbol, __LINE__, symbol(__VA_ARGS__))
#define TWICE(symbol, ...) done(CALL(symbol, __VA_ARGS__) || CALL(symbol, __VA_ARGS__))

static inline bool done(bool good) {
    return good;
}

/* Something is wrong that is no result: a line of the report. */
void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- world.c --- */

/* Contexts of the first `devices` devices, the first one current.  False: not even at the second
 * try. */
bool world_start(int devices);

/* Make the context of `device` current; false: it is not. */
bool world_go(int device);

/* Streams 0 to n-1 and the events, in the current context. */
void world_streams(int n, unsigned flags);

/* Allocate, write by a kernel in `stream`, and free block i. They do nothing if the block they
 * need does not exist. */
void block_get(int i, size_t bytes);
void block_get_async(int i, size_t bytes, CUstream stream);
void block_use(int i, CUstream stream);
void block_give(int i);
void block_give_async(int i, CUstream stream);

/* All work of the current context. */
void wait_all(void);

/* Orders later work of `to` after all work submitted to `from` so far. */
void stream_order(CUstream from, CUstream to);

/* Wait for everything; what was written must be there, and the statistics of every device must
 * say what the program holds. */
void world_check(void);

/* Check, free everything, return idle memory, destroy the streams. */
void world_finish(void);

/* After world_finish with no failure to come: nothing may be left but what the cache keeps. */
void world_check_empty(void);

/* The contexts go. */
void world_end(void);

#endif

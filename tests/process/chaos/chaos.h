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
    unsigned value; /* value that the last work wrote; 0: none */
    int device;     /* of the context that was current */
    bool there;
    bool ordered; /* ordered by a stream: a plain free does not wait for its work */
} block_t;

typedef struct {
    CUcontext ctx[DEVICES];
    CUfunction store[DEVICES]; /* store(address, value) */
    int here;                  /* device of the current context; -1: none */
    block_t block[BLOCKS];
    CUstream stream[STREAMS]; /* NULL: not there */
    CUevent event[2];
    bool capturing; /* a request may fail like the driver's call: it is not cached */
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

/* Judges one result of a driver call of the program. Returns true if the call succeeded. */
bool note(const char *symbol, int line, CUresult result);
#define CALL(symbol, ...)  note(#symbol, __LINE__, symbol(__VA_ARGS__))
#define TWICE(symbol, ...) done(CALL(symbol, __VA_ARGS__) || CALL(symbol, __VA_ARGS__))

static inline bool done(bool good) {
    return good;
}

/* Reports a fault that is not the result of a call. */
void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- world.c --- */

/* Makes contexts of the first `devices` devices, and the first one current. Returns false if the
 * second attempt fails too. */
bool world_start(int devices);

/* Makes the context of `device` current. Returns false if that fails. */
bool world_go(int device);

/* Creates streams 0 to n-1 and the events in the current context. */
void world_streams(int n, unsigned flags);

/* Allocate, write by a kernel in `stream`, and free block i. They do nothing if the block they
 * need does not exist. */
void block_get(int i, size_t bytes);
void block_get_async(int i, size_t bytes, CUstream stream);
void block_use(int i, CUstream stream);
void block_give(int i);
void block_give_async(int i, CUstream stream);

/* Waits for all work of the current context. */
void wait_all(void);

/* Orders later work of `to` after all work submitted to `from` so far. */
void stream_order(CUstream from, CUstream to);

/* Waits for all work. Checks the written values, and compares the statistics of every device with
 * the program's blocks. */
void world_check(void);

/* Check, free everything, return idle memory, destroy the streams. */
void world_finish(void);

/* Called after world_finish, without further failures. Checks that only the cache's own objects
 * are left. */
void world_check_empty(void);

/* The contexts go. */
void world_end(void);

#endif

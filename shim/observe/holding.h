/* A table of recorded blocks by address: the stack that requested the block, the time, and the bytes that the
 * record represents.  Changes of the table also update the totals of each stack (sites.h).
 *
 * All functions are thread-safe.  The caller holds no other lock of the library. */
#ifndef AC_HOLDING_H
#define AC_HOLDING_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

typedef struct {
    uint64_t address; /* of the block; never 0 */
    uint64_t bytes;   /* of the request */
    int64_t time_ns;  /* CLOCK_REALTIME */
    uint64_t stream;  /* key of the stream that the call named; 0: none */
    /* stacks:sampled: bytes of all requests that this sample represents; 0: not a sample */
    uint64_t estimate;
    uint32_t stack; /* sites.h */
    uint32_t thread : 24, device : 8;
} ac_holding_t;

/* Adds a holding and replaces an older one of the same address.  If host memory is short, the holding is not kept,
 * and ac_holdings_lost counts it. */
void ac_holding_put(const ac_holding_t *holding);

/* Removes the holding of `address` and copies it.  Returns false if there is none. */
bool ac_holding_take(uint64_t address, ac_holding_t *holding);

/* Copies the holding of `address`.  Returns false if there is none, or if the lock was not free before `deadline`
 * (CLOCK_REALTIME).  A permanently stopped thread may own the lock. */
bool ac_holding_get(uint64_t address, const struct timespec *deadline, ac_holding_t *holding);

/* Sets another stack for a block.  A sample keeps its own stack, because that one was unwound. */
void ac_holding_rename(uint64_t address, uint32_t stack);

/* Removes each holding for which `wanted` returns true, and passes it to `gone`.  `wanted` runs under a lock of the
 * table and must take no lock of the library. */
void ac_holdings_sweep(bool (*wanted)(const ac_holding_t *holding, const void *arg), const void *arg,
                       void (*gone)(const ac_holding_t *holding));

/* Removes all holdings and empties the totals of stacks. */
void ac_holdings_clear(void);

/* Returns the number of holdings that were not kept. */
uint64_t ac_holdings_lost(void);

#endif

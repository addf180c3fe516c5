/* Who holds which block: for the address of each block that was handed out while it was recorded the
 * stack that asked, when, and how much it stands for.  What stacks hold (sites.h) follows from it.
 *
 * Any thread, under no other lock of the library. */
#ifndef AC_HOLDING_H
#define AC_HOLDING_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

typedef struct {
    uint64_t address; /* of the block: never 0 */
    uint64_t bytes;   /* as requested */
    int64_t time_ns;  /* CLOCK_REALTIME */
    uint64_t stream;  /* key of the stream that the call named; 0: none */
    /* stacks:sampled: bytes of all requests that this one stands for; 0: it is no sample */
    uint64_t estimate;
    uint32_t stack; /* sites.h */
    uint32_t thread : 24, device : 8;
} ac_holding_t;

/* Where there is one of that address, it is replaced; where host memory is short, nothing is kept, and
 * that is counted. */
void ac_holding_put(const ac_holding_t *holding);

/* Take it out.  False: there is none. */
bool ac_holding_take(uint64_t address, ac_holding_t *holding);

/* Look at it.  False also where the lock was not to be had before `deadline` (CLOCK_REALTIME): a
 * thread may have been stopped for good with it. */
bool ac_holding_get(uint64_t address, const struct timespec *deadline, ac_holding_t *holding);

/* The block was asked for by another stack.  A sample keeps its own, whose frames were unwound. */
void ac_holding_rename(uint64_t address, uint32_t stack);

/* Takes out each that `wanted` says is to go, and gives it to `gone`.
 * `wanted` may take no lock of the library. */
void ac_holdings_sweep(bool (*wanted)(const ac_holding_t *holding, const void *arg), const void *arg,
                       void (*gone)(const ac_holding_t *holding));

/* Forget all. */
void ac_holdings_clear(void);

uint64_t ac_holdings_lost(void);

#endif

/* Recorded events of an address: the request for the block there, and its free. */
#ifndef AC_RECORDED_OF_H
#define AC_RECORDED_OF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    int64_t time_ns;         /* CLOCK_REALTIME */
    uint64_t address, bytes; /* address of the block; bytes as requested */
    uint64_t stream;         /* key of the stream that the call named; 0: none */
    uint32_t stack, thread;  /* number of the stack (sites.h); kernel thread id */
} ac_recorded_t;

/* Finds the request for the block at `address`. If the program does not hold a block that begins there,
 * this is the latest request in the history for a block that contains the address. Returns false if
 * neither is known.
 *
 * Any thread, with no lock held. The call searches the history. */
bool ac_recorded_alloc(uint64_t address, ac_recorded_t *alloc);

/* Finds the latest free in the history of a block that contains the address. With `skip_latest` it is
 * the free before that one: the caller excludes a free that has just been recorded. A refused free does
 * not count. Returns false if the history has none. */
bool ac_recorded_free(uint64_t address, bool skip_latest, ac_recorded_t *freed);

/* Writes the request and the free with their frames as a JSON object, for `accelcache where`. Outer
 * frames are left out if `size` is too small for them. Returns 0 or an errno value. */
int ac_recorded_tell(uint64_t address, char *text, size_t size);

#endif

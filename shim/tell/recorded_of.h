/* What was recorded of an address: who asked for the block there, and who freed it. */
#ifndef AC_RECORDED_OF_H
#define AC_RECORDED_OF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    int64_t time_ns;         /* CLOCK_REALTIME */
    uint64_t address, bytes; /* of the block, as requested */
    uint64_t stream;         /* key that the call named; 0: none */
    uint32_t stack, thread;  /* sites.h; kernel id */
} ac_recorded_t;

/* The request of the block that begins at the address, if the program holds it, else the latest one
 * that the history has of a block with the address.  False: neither is known.
 *
 * Any thread, under no lock; it walks over the history. */
bool ac_recorded_alloc(uint64_t address, ac_recorded_t *alloc);

/* The latest free of a block with the address; with `skip_latest` the one before, where a free of this
 * very moment is not meant.  One that was refused is none.  False: the history has none. */
bool ac_recorded_free(uint64_t address, bool skip_latest, ac_recorded_t *freed);

/* Both with their frames as a JSON object, for `accelcache where`; outer frames are left out where there
 * is no room for them.  0, or an errno value. */
int ac_recorded_tell(uint64_t address, char *text, size_t size);

#endif

/* Device memory that the driver gives the program past the allocator: physical memory of cuMemCreate, arrays,
 * and what the driver serves of cuMemAlloc.  The limit counts it, and the history tells when each ends.
 * Physical memory ends with its last handle and its last mapping in this process.
 *
 * The driver may give a handle's number again as soon as the call that ends it is made.  So each entry has a
 * serial: it is asked for before that call and given after it, and says whether the entry is still the same.
 *
 * What host memory is too short for is not kept.  Any thread, one lock of its own. */
#ifndef AC_BESIDE_H
#define AC_BESIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    AC_BESIDE_PHYSICAL = 1,
    AC_BESIDE_ARRAY,
    AC_BESIDE_MAPPING,
    AC_BESIDE_PLAIN
} ac_beside_kind_t;

typedef struct {
    uint64_t handle; /* of a mapping, or of memory of cuMemAlloc: its address */
    uint64_t bytes, serial;
    const void *context; /* that it goes with; of physical memory NULL */
    uint64_t
        memory; /* of a mapping: the handle of what is mapped, whose `serial` it has; of plain memory: the
                        number of the memory pool that it is part of, or 0 */
    uint32_t handles, mappings; /* of physical memory */
    uint16_t device;
    uint8_t kind; /* ac_beside_kind_t; 0: none */
    bool told;    /* the history has its beginning */
} ac_beside_t;

/* It was made: `kind`, `handle`, `bytes`, `context`, `device`, `told` are read; `serial` becomes 0 if it is not
 * kept.  True: the driver has given the number again before the end of what had it was noted; that is in
 * `ended`. */
bool ac_beside_begin(ac_beside_t *made, ac_beside_t *ended);

/* 0: it is not known. */
uint64_t ac_beside_serial(ac_beside_kind_t kind, uint64_t handle);

/* The handle was released, the array destroyed, the memory freed.  True: nothing holds it, and it is in `ended`. */
bool ac_beside_end(ac_beside_kind_t kind, uint64_t handle, uint64_t serial, ac_beside_t *ended);

/* Physical memory got one more handle; it was mapped. */
void ac_beside_retain(uint64_t handle);
void ac_beside_map(uint64_t address, uint64_t bytes, uint64_t handle);

/* What was mapped from *at up to `end` is no longer.  True: with that the memory in `ended` ended; go on from
 * the new *at. */
bool ac_beside_unmap(uint64_t *at, uint64_t end, ac_beside_t *ended);

/* The context has gone.  True: so has what is in `ended`; go on from the new *at, which begins as 0.  Entries
 * that other threads move meanwhile may be passed over: repeat from 0 until there is none. */
bool ac_beside_lost(const void *context, size_t *at, ac_beside_t *ended);

/* Bytes of the plain memory that is part of the pool; with `end` it is part of none any more. */
uint64_t ac_beside_pooled(uint64_t pool, bool end);

/* The history begins anew: it has no beginning of what there is. */
void ac_beside_untell(void);

/* Forget all. */
void ac_beside_clear(void);

#endif

/* Device memory that the program takes by cuMemCreate, and arrays: which there are, so that the history can
 * tell when each ends.  Physical memory ends with its last handle and its last mapping in this process.
 *
 * The driver may give a handle's number again as soon as the call that ends it is made.  So each entry has a
 * serial: it is asked for before that call and given after it, and says whether the entry is still the same.
 *
 * Kept while the history is on.  What began before is not known, nor what host memory is too short for; its
 * end is then no event.  Any thread, one lock of its own. */
#ifndef AC_BESIDE_H
#define AC_BESIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { AC_BESIDE_PHYSICAL = 1, AC_BESIDE_ARRAY, AC_BESIDE_MAPPING } ac_beside_kind_t;

typedef struct {
    uint64_t handle; /* of a mapping: its address */
    uint64_t bytes, serial;
    const void *context; /* of an array; else NULL */
    uint64_t memory;     /* of a mapping: the handle of what is mapped, whose `serial` it has */
    uint32_t handles, mappings; /* of physical memory */
    uint16_t device;
    uint8_t kind; /* ac_beside_kind_t; 0: none */
} ac_beside_t;

/* It was made: `kind`, `handle`, `bytes`, `context`, `device` are read.  True: the driver has given the number
 * again before the end of what had it was noted; that is in `ended`. */
bool ac_beside_begin(const ac_beside_t *made, ac_beside_t *ended);

/* 0: it is not known. */
uint64_t ac_beside_serial(ac_beside_kind_t kind, uint64_t handle);

/* The handle was released, the array destroyed.  True: nothing holds it, and it is in `ended`. */
bool ac_beside_end(ac_beside_kind_t kind, uint64_t handle, uint64_t serial, ac_beside_t *ended);

/* Physical memory got one more handle; it was mapped. */
void ac_beside_retain(uint64_t handle);
void ac_beside_map(uint64_t address, uint64_t bytes, uint64_t handle);

/* What was mapped from *at up to `end` is no longer.  True: with that the memory in `ended` ended; go on from
 * the new *at. */
bool ac_beside_unmap(uint64_t *at, uint64_t end, ac_beside_t *ended);

/* The context has gone.  True: so has the array in `ended`; go on from the new *at, which begins as 0.  Entries
 * that other threads move meanwhile may be passed over: repeat from 0 until there is none. */
bool ac_beside_lost(const void *context, size_t *at, ac_beside_t *ended);

/* Forget all. */
void ac_beside_clear(void);

#endif

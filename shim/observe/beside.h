/* Device memory that the driver gives the program without the allocator: physical memory of cuMemCreate, arrays,
 * and cuMemAlloc requests that the driver serves.  The limit counts this memory, and the history records when
 * each piece ends.  Physical memory ends with its last handle and its last mapping in this process.
 *
 * The driver may reuse a handle's number as soon as the call that ends the handle is made.  So each entry has a
 * serial.  The caller reads the serial before that call and passes it afterwards, which shows whether the entry
 * is still the same one.
 *
 * If host memory is short, an entry is not kept.  All functions are thread-safe; the table has its own lock. */
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
    uint64_t handle; /* for a mapping or memory of cuMemAlloc: the address */
    uint64_t bytes, serial;
    const void *context; /* its end ends this memory; NULL for physical memory */
    uint64_t
        memory; /* MAPPING: handle of the mapped memory, with the same `serial`.  PLAIN: number of the memory
                        pool that contains it, or 0 */
    uint32_t handles, mappings; /* numbers of handles and mappings; PHYSICAL only */
    uint16_t device;
    uint8_t kind; /* ac_beside_kind_t; 0: empty entry */
    bool told;    /* the history contains the event of its allocation */
} ac_beside_t;

/* Adds memory that was just allocated.  Reads `kind`, `handle`, `bytes`, `context`, `device` and `told`.  Sets
 * `serial`; 0 means that the entry is not kept.  Returns true if an older entry had the same handle, because
 * the driver reused it before the older end was recorded.  The older entry is removed and copied to `ended`. */
bool ac_beside_begin(ac_beside_t *made, ac_beside_t *ended);

/* Returns the serial of the entry with this handle; 0 if there is none. */
uint64_t ac_beside_serial(ac_beside_kind_t kind, uint64_t handle);

/* Records that a handle was released, an array destroyed or memory freed.  Returns true if nothing holds the memory
 * any more.  The entry is then removed and copied to `ended`. */
bool ac_beside_end(ac_beside_kind_t kind, uint64_t handle, uint64_t serial, ac_beside_t *ended);

/* _retain adds a handle to physical memory; _map adds a mapping. */
void ac_beside_retain(uint64_t handle);
void ac_beside_map(uint64_t address, uint64_t bytes, uint64_t handle);

/* Removes the mappings that begin at *at or later and before `end`.  Returns true after a mapping that was the last
 * use of its physical memory, which is copied to `ended`.  The caller then repeats the call from the new *at. */
bool ac_beside_unmap(uint64_t *at, uint64_t end, ac_beside_t *ended);

/* Removes one entry of a destroyed context and copies it to `ended`; false if none is left.  *at is 0 for the first
 * call, and the next call continues from its new value.  The search may miss entries that other threads move
 * meanwhile.  The caller starts again at 0 until a whole search finds none. */
bool ac_beside_lost(const void *context, size_t *at, ac_beside_t *ended);

/* Returns the bytes of plain memory in the pool.  With `end`, the memory is in no pool afterwards. */
uint64_t ac_beside_pooled(uint64_t pool, bool end);

/* Clears `told` of all entries, because the history restarts without their allocations. */
void ac_beside_untell(void);

/* Removes all entries. */
void ac_beside_clear(void);

#endif

/* The table of physical memory, mappings, arrays and plain memory, by kind and handle (see the header). */
#include "observe/beside.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

#include "lock.h"

enum { FIRST_BITS = 8, LEAST_MAPPING = 64 << 10 };

/* A table with open addressing and linear probing: no empty slot lies between an entry and its home. */
static ac_mutex_t lock = AC_MUTEX(LEAF);
static ac_beside_t *table; /* [1 << bits]; NULL: none yet */
static unsigned bits;
static size_t used, mappings;
static uint64_t last_serial;

static size_t home_of(uint64_t handle, unsigned kind, unsigned table_bits) {
    return (size_t)((handle * 4 + kind) * 0x9e3779b97f4a7c15u >> (64 - table_bits));
}

/* Returns the entry, or the empty slot for it. */
static ac_beside_t *place_in(ac_beside_t *entries, unsigned entry_bits, unsigned kind,
                             uint64_t handle) {
    size_t mask = ((size_t)1 << entry_bits) - 1, at = home_of(handle, kind, entry_bits);
    while (entries[at].kind && (entries[at].kind != kind || entries[at].handle != handle))
        at = (at + 1) & mask;
    return &entries[at];
}

/* Returns the entry, or NULL if there is none. */
static ac_beside_t *find(unsigned kind, uint64_t handle) {
    ac_beside_t *entry = table ? place_in(table, bits, kind, handle) : NULL;
    return entry && entry->kind ? entry : NULL;
}

/* Doubles the table, or makes the first one.  Returns false if host memory is short. */
static bool grow(void) {
    int saved = errno;
    unsigned larger_bits = table ? bits + 1 : FIRST_BITS;
    ac_beside_t *larger = mmap(NULL, sizeof *larger << larger_bits, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (larger != MAP_FAILED) {
        for (size_t i = 0; table && i < (size_t)1 << bits; i++)
            if (table[i].kind)
                *place_in(larger, larger_bits, table[i].kind, table[i].handle) = table[i];
        if (table)
            munmap(table, sizeof *table << bits);
        table = larger;
        bits = larger_bits;
    }
    errno = saved;
    return larger != MAP_FAILED;
}

/* Stores an entry, replacing one with the same kind and handle.  Returns false if host memory is short. */
static bool put(const ac_beside_t *entry) {
    bool room = table && used < (size_t)3 << bits >> 2;
    if (!room && !grow())
        return false;
    ac_beside_t *place = place_in(table, bits, entry->kind, entry->handle);
    used += !place->kind;
    mappings += !place->kind && entry->kind == AC_BESIDE_MAPPING;
    *place = *entry;
    return true;
}

/* Removes an entry.  Later entries of the probe sequence move into the hole, because a search stops at the first
 * empty slot.  An entry with a home after the hole stays. */
static void take_out(ac_beside_t *entry) {
    size_t mask = ((size_t)1 << bits) - 1, hole = (size_t)(entry - table);
    mappings -= entry->kind == AC_BESIDE_MAPPING;
    for (size_t at = (hole + 1) & mask; table[at].kind; at = (at + 1) & mask) {
        size_t home = home_of(table[at].handle, table[at].kind, bits);
        if (((at - home) & mask) < ((at - hole) & mask))
            continue;
        table[hole] = table[at];
        hole = at;
    }
    table[hole].kind = 0;
    used--;
}

/* Removes the entry if it has no handle and no mapping. */
static bool end_unheld(ac_beside_t *entry, ac_beside_t *ended) {
    if (entry->handles || entry->mappings)
        return false;
    *ended = *entry;
    take_out(entry);
    return true;
}

bool ac_beside_begin(ac_beside_t *made, ac_beside_t *ended) {
    ac_lock(&lock);
    ac_beside_t *old = find(made->kind, made->handle);
    bool again = old;
    if (again) {
        *ended = *old;
        take_out(old);
    }
    made->serial = ++last_serial;
    made->handles = 1;
    made->mappings = 0;
    if (!put(made))
        made->serial = 0;
    ac_unlock(&lock);
    return again;
}

uint64_t ac_beside_serial(ac_beside_kind_t kind, uint64_t handle) {
    ac_lock(&lock);
    const ac_beside_t *entry = find(kind, handle);
    uint64_t serial = entry ? entry->serial : 0;
    ac_unlock(&lock);
    return serial;
}

bool ac_beside_end(ac_beside_kind_t kind, uint64_t handle, uint64_t serial, ac_beside_t *ended) {
    ac_lock(&lock);
    ac_beside_t *entry = find(kind, handle);
    bool gone = false;
    if (entry && entry->serial == serial) {
        entry->handles -= entry->handles != 0;
        gone = end_unheld(entry, ended);
    }
    ac_unlock(&lock);
    return gone;
}

void ac_beside_retain(uint64_t handle) {
    ac_lock(&lock);
    ac_beside_t *entry = find(AC_BESIDE_PHYSICAL, handle);
    if (entry)
        entry->handles++;
    ac_unlock(&lock);
}

void ac_beside_map(uint64_t address, uint64_t bytes, uint64_t handle) {
    ac_lock(&lock);
    ac_beside_t *memory = find(AC_BESIDE_PHYSICAL, handle);
    if (memory && put(&(ac_beside_t){.kind = AC_BESIDE_MAPPING,
                                     .handle = address,
                                     .bytes = bytes,
                                     .memory = handle,
                                     .serial = memory->serial}))
        find(AC_BESIDE_PHYSICAL, handle)->mappings++; /* the table may have moved */
    ac_unlock(&lock);
}

/* Returns the start of the first mapping in [at, end), or a value of at least `end`.  It probes each possible start;
 * if there are more of these than slots of the table, it scans the table. */
static uint64_t next_mapping(uint64_t at, uint64_t end) {
    size_t slots = (size_t)1 << bits;
    uint64_t next = end;
    for (size_t i = 0; i < slots; i++) {
        if (at >= end || find(AC_BESIDE_MAPPING, at))
            return at;
        if (end - at <= LEAST_MAPPING)
            return end;
        at += LEAST_MAPPING;
    }
    for (size_t i = 0; i < slots; i++)
        if (table[i].kind == AC_BESIDE_MAPPING && table[i].handle >= at && table[i].handle < next)
            next = table[i].handle;
    return next;
}

bool ac_beside_unmap(uint64_t *at, uint64_t end, ac_beside_t *ended) {
    bool gone = false;
    ac_lock(&lock);
    while (!gone && mappings && (*at = next_mapping(*at, end)) < end) {
        ac_beside_t *mapping = find(AC_BESIDE_MAPPING, *at);
        uint64_t handle = mapping->memory, serial = mapping->serial;
        *at += mapping->bytes ? mapping->bytes : LEAST_MAPPING;
        take_out(mapping);
        ac_beside_t *memory = find(AC_BESIDE_PHYSICAL, handle);
        if (memory && memory->serial == serial) {
            memory->mappings--;
            gone = end_unheld(memory, ended);
        }
    }
    ac_unlock(&lock);
    return gone;
}

bool ac_beside_lost(const void *context, size_t *at, ac_beside_t *ended) {
    bool found = false;
    ac_lock(&lock);
    while (!found && table && *at < (size_t)1 << bits) {
        ac_beside_t *entry = &table[*at];
        found = entry->kind && entry->context == context;
        if (found) {
            *ended = *entry;
            take_out(entry); /* another entry may have moved to this slot: the next call reads it again */
        } else {
            ++*at;
        }
    }
    ac_unlock(&lock);
    return found;
}

uint64_t ac_beside_pooled(uint64_t pool, bool end) {
    uint64_t bytes = 0;
    ac_lock(&lock);
    for (size_t i = 0; table && i < (size_t)1 << bits; i++) {
        if (table[i].kind != AC_BESIDE_PLAIN || table[i].memory != pool)
            continue;
        bytes += table[i].bytes;
        if (end)
            table[i].memory = 0;
    }
    ac_unlock(&lock);
    return bytes;
}

void ac_beside_untell(void) {
    ac_lock(&lock);
    for (size_t i = 0; table && i < (size_t)1 << bits; i++)
        table[i].told = false;
    ac_unlock(&lock);
}

void ac_beside_clear(void) {
    int saved = errno;
    ac_lock(&lock);
    ac_beside_t *old = table;
    size_t bytes = sizeof *old << bits;
    table = NULL;
    used = mappings = 0;
    ac_unlock(&lock);
    if (old)
        munmap(old, bytes);
    errno = saved;
}

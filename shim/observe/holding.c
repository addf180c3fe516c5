/* Holdings by address (holding.h).  Each of several tables has its own lock, so that threads seldom wait. */
#include "observe/holding.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>

#include "lock.h"
#include "observe/sites.h"

enum { SHARD_BITS = 6, SHARDS = 1 << SHARD_BITS, FIRST_BITS = 7 };

/* A table with open addressing and linear probing: no empty slot lies between an entry and its home. */
typedef struct {
    _Alignas(64) ac_mutex_t lock;
    ac_holding_t *entry; /* [1 << bits]; NULL: none yet */
    unsigned bits;
    size_t used;
} shard_t;

#define ONE                                                                                      \
    { .lock = AC_MUTEX(LEAF) }
#define FOUR ONE, ONE, ONE, ONE
#define MANY FOUR, FOUR, FOUR, FOUR
static shard_t shards[SHARDS] = {MANY, MANY, MANY, MANY};
static _Atomic uint64_t lost;

static uint64_t hash_of(uint64_t address) {
    return (address >> 9) * 0x9e3779b97f4a7c15u;
}

static shard_t *shard_of(uint64_t address) {
    return &shards[hash_of(address) >> (64 - SHARD_BITS)];
}

/* Returns the home slot of an address. */
static size_t home_of(const shard_t *shard, uint64_t address) {
    return (size_t)(hash_of(address) << SHARD_BITS >> (64 - shard->bits));
}

/* Returns the slot of the entry, or the empty slot for it. */
static size_t place_of(const shard_t *shard, uint64_t address) {
    size_t mask = ((size_t)1 << shard->bits) - 1, at = home_of(shard, address);
    while (shard->entry[at].address && shard->entry[at].address != address)
        at = (at + 1) & mask;
    return at;
}

/* Doubles the table, or makes the first one.  Returns false if host memory is short. */
static bool grow(shard_t *shard) {
    int saved = errno;
    shard_t larger = {.bits = shard->entry ? shard->bits + 1 : FIRST_BITS};
    size_t bytes = sizeof(ac_holding_t) << larger.bits;
    larger.entry = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (larger.entry != MAP_FAILED) {
        for (size_t i = 0; shard->entry && i < (size_t)1 << shard->bits; i++)
            if (shard->entry[i].address)
                larger.entry[place_of(&larger, shard->entry[i].address)] = shard->entry[i];
        if (shard->entry)
            munmap(shard->entry, sizeof(ac_holding_t) << shard->bits);
        shard->entry = larger.entry;
        shard->bits = larger.bits;
    }
    errno = saved;
    return larger.entry != MAP_FAILED;
}

static bool follows(void) {
    return __builtin_expect(atomic_load_explicit(&ac_sites_followed, memory_order_relaxed), 1);
}

/* Updates the totals of the stack; called without the shard's lock. */
static void count(const ac_holding_t *holding, int sign) {
    ac_site_hold(holding->stack, holding->device, (int64_t)holding->bytes,
                 (int64_t)holding->estimate, sign);
}

void ac_holding_put(const ac_holding_t *holding) {
    ac_holding_t before;
    bool replaces = false;
    shard_t *shard = shard_of(holding->address);
    ac_lock(&shard->lock);
    bool room = shard->entry && shard->used < (size_t)3 << shard->bits >> 2;
    room = room || grow(shard) || (shard->entry && shard->used + 1 < (size_t)1 << shard->bits);
    if (room) {
        ac_holding_t *entry = &shard->entry[place_of(shard, holding->address)];
        shard->used += !entry->address;
        replaces = entry->address;
        if (replaces)
            before = *entry;
        *entry = *holding;
    }
    ac_unlock(&shard->lock);
    if (replaces && follows())
        count(&before, -1);
    if (room && follows())
        count(holding, 1);
    if (!room)
        atomic_fetch_add_explicit(&lost, 1, memory_order_relaxed);
}

/* Removes an entry.  Later entries of the probe sequence move into the hole, because a search stops at the first
 * empty slot.  An entry with a home after the hole stays. */
static void take_out(shard_t *shard, size_t hole) {
    size_t mask = ((size_t)1 << shard->bits) - 1;
    for (size_t at = (hole + 1) & mask; shard->entry[at].address; at = (at + 1) & mask) {
        size_t home = home_of(shard, shard->entry[at].address);
        if (((at - home) & mask) < ((at - hole) & mask))
            continue;
        shard->entry[hole] = shard->entry[at];
        hole = at;
    }
    shard->entry[hole].address = 0;
    shard->used--;
}

static bool look(const shard_t *shard, uint64_t address, ac_holding_t *holding, size_t *at) {
    if (!shard->entry)
        return false;
    *at = place_of(shard, address);
    *holding = shard->entry[*at];
    return holding->address;
}

bool ac_holding_take(uint64_t address, ac_holding_t *holding) {
    shard_t *shard = shard_of(address);
    size_t at;
    ac_lock(&shard->lock);
    bool found = look(shard, address, holding, &at);
    if (found)
        take_out(shard, at);
    ac_unlock(&shard->lock);
    if (found && follows())
        count(holding, -1);
    return found;
}

void ac_holding_rename(uint64_t address, uint32_t stack) {
    shard_t *shard = shard_of(address);
    ac_holding_t before;
    size_t at;
    ac_lock(&shard->lock);
    bool found = look(shard, address, &before, &at) && !before.estimate;
    if (found)
        shard->entry[at].stack = stack;
    ac_unlock(&shard->lock);
    if (found && follows())
        ac_site_rename(before.stack, stack, before.device, (int64_t)before.bytes, 0);
}

/* Removes the first wanted entry of the shard from slot *from on.  *from stays at the slot after a removal, because
 * a later entry may move there.  A concurrent free of another thread may hide an entry from the search. */
static bool take_wanted(shard_t *shard,
                        bool (*wanted)(const ac_holding_t *holding, const void *arg),
                        const void *arg, size_t *from, ac_holding_t *holding) {
    bool found = false;
    ac_lock(&shard->lock);
    size_t end = shard->entry ? (size_t)1 << shard->bits : 0;
    for (; !found && *from < end; *from += !found) {
        *holding = shard->entry[*from];
        found = holding->address && wanted(holding, arg);
        if (found)
            take_out(shard, *from);
    }
    ac_unlock(&shard->lock);
    return found;
}

void ac_holdings_sweep(bool (*wanted)(const ac_holding_t *holding, const void *arg),
                       const void *arg, void (*gone)(const ac_holding_t *holding)) {
    for (unsigned i = 0; i < SHARDS; i++) {
        size_t from = 0;
        ac_holding_t holding;
        while (take_wanted(&shards[i], wanted, arg, &from, &holding)) {
            if (follows())
                count(&holding, -1);
            gone(&holding);
        }
    }
}

bool ac_holding_get(uint64_t address, const struct timespec *deadline, ac_holding_t *holding) {
    shard_t *shard = shard_of(address);
    size_t at;
    if (!ac_lock_until(&shard->lock, deadline))
        return false;
    bool found = look(shard, address, holding, &at);
    ac_unlock(&shard->lock);
    return found;
}

void ac_holdings_clear(void) {
    int saved = errno;
    for (unsigned i = 0; i < SHARDS; i++) {
        ac_lock(&shards[i].lock);
        ac_holding_t *entry = shards[i].entry;
        size_t bytes = sizeof(ac_holding_t) << shards[i].bits;
        shards[i].entry = NULL;
        shards[i].used = 0;
        ac_unlock(&shards[i].lock);
        if (entry)
            munmap(entry, bytes);
    }
    ac_sites_empty();
    errno = saved;
}

uint64_t ac_holdings_lost(void) {
    return atomic_load_explicit(&lost, memory_order_relaxed);
}

/* Raw memory by address: what accel_raw_delete has to know of a pointer.  Hash tables, each with a
 * lock, so that threads with memory of their own seldom meet. */
#include "api/api_int.h"

#include <stdlib.h>

#include "intercept/observers.h"
#include "lock.h"

enum { SHARDS = 16, FIRST = 64 };

typedef struct {
    ac_mutex_t lock;
    ac_raw_t *slot; /* [size]; address 0: empty */
    size_t size;    /* a power of two, or 0 */
    size_t used;
} shard_t;

#define SHARD                                                                                    \
    { .lock = AC_MUTEX(LEAF) }
#define SHARD_4 SHARD, SHARD, SHARD, SHARD
static shard_t shards[SHARDS] = {SHARD_4, SHARD_4, SHARD_4, SHARD_4};

/* How many blocks there are: a program without raw memory pays for a look. */
static _Atomic size_t total;

static uint64_t hash_of(uint64_t address) {
    return (address >> 9 | address << 55) * 0x9e3779b97f4a7c15u;
}

static shard_t *shard_of(uint64_t address) {
    return &shards[hash_of(address) >> 60];
}

static size_t slot_of(const shard_t *shard, uint64_t address) {
    return (size_t)(hash_of(address) >> 20) & (shard->size - 1);
}

/* The block's slot, or the empty one where it would be; the table has one. */
static size_t look(const shard_t *shard, uint64_t address) {
    size_t at = slot_of(shard, address);
    while (shard->slot[at].address && shard->slot[at].address != address)
        at = (at + 1) & (shard->size - 1);
    return at;
}

static bool grow(shard_t *shard) {
    shard_t larger = {.size = shard->size ? 2 * shard->size : FIRST};
    larger.slot = calloc(larger.size, sizeof *larger.slot);
    if (!larger.slot)
        return false;
    for (size_t i = 0; i < shard->size; i++)
        if (shard->slot[i].address)
            larger.slot[look(&larger, shard->slot[i].address)] = shard->slot[i];
    free(shard->slot);
    shard->slot = larger.slot;
    shard->size = larger.size;
    return true;
}

bool ac_raw_add(const ac_raw_t *raw) {
    shard_t *shard = shard_of(raw->address);
    ac_lock(&shard->lock);
    bool room = shard->used < shard->size / 2 || grow(shard);
    if (room) {
        ac_raw_t *slot = &shard->slot[look(shard, raw->address)];
        if (!slot->address) {
            shard->used++;
            atomic_fetch_add(&total, 1);
        }
        *slot = *raw;
    }
    ac_unlock(&shard->lock);
    return room;
}

/* What comes behind the hole and would not be found any more moves into it. */
static void close_gap(shard_t *shard, size_t hole) {
    size_t mask = shard->size - 1;
    for (size_t at = (hole + 1) & mask; shard->slot[at].address; at = (at + 1) & mask) {
        size_t home = slot_of(shard, shard->slot[at].address);
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            shard->slot[hole] = shard->slot[at];
            hole = at;
        }
    }
    shard->slot[hole].address = 0;
}

bool ac_raw_none(void) {
    return !atomic_load_explicit(&total, memory_order_acquire);
}

static bool find(uint64_t address, ac_raw_t *raw, bool take, bool record) {
    if (!address || ac_raw_none())
        return false;
    shard_t *shard = shard_of(address);
    ac_lock(&shard->lock);
    size_t at = shard->size ? look(shard, address) : 0;
    bool found = shard->size && shard->slot[at].address == address;
    if (found && record)
        shard->slot[at].recorded = true;
    if (found && raw)
        *raw = shard->slot[at];
    if (found && take) {
        close_gap(shard, at);
        shard->used--;
        atomic_fetch_sub(&total, 1);
    }
    ac_unlock(&shard->lock);
    return found;
}

bool ac_raw_find(uint64_t address, ac_raw_t *raw) {
    return find(address, raw, false, false);
}

bool ac_raw_take(uint64_t address, ac_raw_t *raw) {
    return find(address, raw, true, false);
}

bool ac_raw_record(uint64_t address) {
    return find(address, NULL, false, true);
}

/* --- lives of streams ---
 *
 * A handle that was destroyed may come back for another stream, whose order says nothing of work on
 * the first.  Each destruction is counted, by a hash of the handle: two handles that share a number
 * cost reuse, not safety. */

enum { LIVES = 1024 };

static _Atomic uint64_t lives[LIVES];

static _Atomic uint64_t *life_of(const void *stream) {
    return &lives[((uintptr_t)stream >> 3) * 0x9e3779b97f4a7c15u >> 54];
}

static void stream_gone(CUstream stream) {
    atomic_fetch_add(life_of(stream), 1);
}

/* Without a record a thread has no number: no two of its requests are of one stream then. */
static uint64_t life_per_thread(void) {
    static _Atomic uint64_t strangers;
    const ac_thread_t *thread = ac_is_active() ? ac_thread_get() : NULL;
    return thread ? thread->number : UINT64_MAX - atomic_fetch_add(&strangers, 1);
}

uint64_t ac_stream_life(void *stream) {
    if (stream == CU_STREAM_PER_THREAD)
        return life_per_thread();
    if (!atomic_load_explicit(&ac_stream_gone_observer, memory_order_relaxed))
        atomic_store(&ac_stream_gone_observer, stream_gone);
    return atomic_load(life_of(stream));
}

bool ac_stream_is_gone(void *stream, uint64_t life) {
    return stream != CU_STREAM_PER_THREAD && life != ac_stream_life(stream);
}

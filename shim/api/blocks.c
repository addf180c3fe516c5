/* Raw memory by address, for accel_raw_delete.  Each shard is a hash table with its own lock, so threads that use
 * different memory rarely contend. */
#include "api/api_int.h"

#include <stdlib.h>

#include "track/observers.h"
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

/* Number of blocks, so that a program without raw memory takes no lock; and the number of those that the program
 * freed and that wait. */
static _Atomic size_t total, late;

static uint64_t hash_of(uint64_t address) {
    return (address >> 9 | address << 55) * 0x9e3779b97f4a7c15u;
}

static shard_t *shard_of(uint64_t address) {
    return &shards[hash_of(address) >> 60];
}

static size_t slot_of(const shard_t *shard, uint64_t address) {
    return (size_t)(hash_of(address) >> 20) & (shard->size - 1);
}

/* Returns the slot of the block, or the empty slot for it.  The table has an empty slot. */
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
        } else if (slot->late) {
            atomic_fetch_sub(&late, 1);
        }
        *slot = *raw;
        if (raw->late)
            atomic_fetch_add(&late, 1);
    }
    ac_unlock(&shard->lock);
    return room;
}

/* Moves a later entry into the hole if a search would no longer find it. */
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

/* Removes an entry; called under the shard's lock. */
static void take_out(shard_t *shard, size_t at) {
    atomic_fetch_sub(&late, shard->slot[at].late);
    atomic_fetch_sub(&total, 1);
    shard->used--;
    close_gap(shard, at);
}

typedef enum { HELD = 1, LATE = 2, TAKE = 4, RECORD = 8 } find_t;

/* Kinds of blocks that a search accepts, and its actions. */
static bool find(uint64_t address, ac_raw_t *raw, unsigned how) {
    if (!address || ac_raw_none())
        return false;
    shard_t *shard = shard_of(address);
    ac_lock(&shard->lock);
    size_t at = shard->size ? look(shard, address) : 0;
    ac_raw_t *slot = shard->size ? &shard->slot[at] : NULL;
    bool found = slot && slot->address == address && how & (slot->late ? LATE : HELD);
    if (found && how & RECORD)
        slot->recorded = true;
    if (found && raw)
        *raw = *slot;
    if (found && how & TAKE)
        take_out(shard, at);
    ac_unlock(&shard->lock);
    return found;
}

bool ac_raw_find(uint64_t address, ac_raw_t *raw) {
    return find(address, raw, HELD);
}

bool ac_raw_take(uint64_t address, ac_raw_t *raw) {
    return find(address, raw, HELD | TAKE);
}

bool ac_raw_is_late(uint64_t address) {
    return atomic_load_explicit(&late, memory_order_acquire) && find(address, NULL, LATE);
}

void ac_raw_drop(uint64_t address) {
    find(address, NULL, HELD | LATE | TAKE);
}

bool ac_raw_record(uint64_t address) {
    return find(address, NULL, HELD | RECORD);
}

static bool may_look(const ac_raw_t *slot) {
    return slot->address && slot->late && !slot->look;
}

/* An entry that moves into a gap was visited before, or is visited next. */
bool ac_raw_look_late(ac_raw_t *raw, size_t *at, size_t slots) {
    enum { BITS = 48 };
    static _Atomic uint64_t looks;
    bool found = false, more = true;
    size_t shard = *at >> BITS, slot = *at & (((size_t)1 << BITS) - 1);
    while (shard < SHARDS && more && atomic_load_explicit(&late, memory_order_acquire)) {
        ac_lock(&shards[shard].lock);
        while (slots && slot < shards[shard].size && !may_look(&shards[shard].slot[slot]))
            slot++, slots--;
        bool over = slot >= shards[shard].size;
        found = !over && slots;
        if (found) {
            shards[shard].slot[slot].look = atomic_fetch_add(&looks, 1) + 1;
            *raw = shards[shard].slot[slot];
        }
        ac_unlock(&shards[shard].lock);
        more = over;
        shard += over;
        slot = over ? 0 : slot;
    }
    *at = shard < SHARDS && !more ? shard << BITS | slot : 0;
    return found;
}

/* A record that replaced it has another `look`, or none. */
static bool end_look(const ac_raw_t *raw, bool take) {
    shard_t *shard = shard_of(raw->address);
    ac_lock(&shard->lock);
    size_t at = look(shard, raw->address);
    ac_raw_t *slot = &shard->slot[at];
    bool same = slot->address && slot->look == raw->look;
    if (same && take)
        take_out(shard, at);
    else if (same)
        *slot = *raw, slot->look = 0;
    ac_unlock(&shard->lock);
    return same;
}

bool ac_raw_take_looked(const ac_raw_t *raw) {
    return end_look(raw, true);
}

void ac_raw_end_look(const ac_raw_t *raw) {
    end_look(raw, false);
}

/* --- lives of streams ---
 *
 * The driver may give the handle of a destroyed stream to a new stream.  The order of the new one says nothing about
 * work on the old one.  So each destruction raises a counter, chosen by a hash of the handle.  Two handles that share
 * a counter cost reuse, not safety. */

enum { LIVES = 1024 };

static _Atomic uint64_t lives[LIVES];

static _Atomic uint64_t *life_of(const void *stream) {
    return &lives[((uintptr_t)stream >> 3) * 0x9e3779b97f4a7c15u >> 54];
}

static void stream_gone(CUstream stream) {
    atomic_fetch_add(life_of(stream), 1);
}

/* A thread without a record has no number.  Each of its requests then counts as a stream of its own. */
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

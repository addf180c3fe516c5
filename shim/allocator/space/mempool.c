/* Figures of memory pools (mempool.h).  Synchronisations are counted for the whole process, and a
 * pool takes them in when its figures are next looked at or changed: nothing visits all pools at a
 * synchronisation. */
#include "allocator/space/mempool.h"

#include "allocator/space/block.h"

_Atomic uint64_t ac_mempool_syncs;

void ac_mempool_synced(void) {
    atomic_fetch_add_explicit(&ac_mempool_syncs, 1, memory_order_release);
}

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static void come_down(ac_mempool_t *pool) {
    uint64_t now = atomic_load_explicit(&ac_mempool_syncs, memory_order_acquire);
    if (pool->syncs == now)
        return;
    pool->syncs = now;
    if (pool->now[AC_MARK_RESERVED] > pool->threshold)
        pool->now[AC_MARK_RESERVED] = larger(pool->now[AC_MARK_USED], pool->threshold);
}

/* USED has risen. */
static void follow(ac_mempool_t *pool) {
    pool->now[AC_MARK_RESERVED] = larger(pool->now[AC_MARK_RESERVED], pool->now[AC_MARK_USED]);
    for (int mark = 0; mark < AC_MARKS; mark++)
        pool->most[mark] = larger(pool->most[mark], pool->now[mark]);
}

ac_mempool_t *ac_mempool_settle(ac_store_t *store, unsigned number) {
    ac_mempool_t *pool = &store->mempools[number];
    if (!pool->tallied)
        come_down(pool);
    return pool;
}

void ac_mempool_raise(ac_store_t *store, unsigned number) {
    ac_mempool_t *pool = &store->mempools[number];
    come_down(pool);
    follow(pool);
}

uint64_t ac_mempool_round(uint64_t bytes) {
    return (bytes + AC_GRANULE - 1) / AC_GRANULE * AC_GRANULE;
}

uint64_t ac_mempool_bytes(const ac_block_t *block) {
    return ac_mempool_round(block->requested);
}

void ac_mempool_take(ac_block_t *block, unsigned number) {
    ac_mempool_t *pool = ac_mempool_settle(block->segment->space->store, number);
    block->mempool = (uint8_t)number;
    uint64_t bytes = ac_mempool_bytes(block);
    pool->claimed -= bytes < pool->claimed ? bytes : pool->claimed; /* until now under way */
    pool->now[AC_MARK_USED] += bytes;
    if (!pool->tallied)
        follow(pool);
    else if (pool->now[AC_MARK_USED] > pool->most[AC_MARK_USED] ||
             pool->now[AC_MARK_USED] > pool->now[AC_MARK_RESERVED])
        block->segment->space->store->peaks_due = true;
}

void ac_mempool_give(const ac_block_t *block) {
    ac_store_t *store = block->segment->space->store;
    ac_mempool_settle(store, block->mempool)->now[AC_MARK_USED] -= ac_mempool_bytes(block);
}

uint64_t ac_mempool_kept(ac_store_t *store, unsigned but) {
    uint64_t kept = 0;
    for (unsigned number = AC_MEMPOOL_FIRST; number < AC_MEMPOOLS; number++) {
        const ac_mempool_t *pool = ac_mempool_settle(store, number);
        uint64_t least = pool->now[AC_MARK_RESERVED] < pool->threshold
                             ? pool->now[AC_MARK_RESERVED]
                             : pool->threshold;
        if (number != but && least > pool->now[AC_MARK_USED])
            kept += least - pool->now[AC_MARK_USED];
    }
    return kept;
}

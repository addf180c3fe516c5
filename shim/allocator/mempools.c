/* The figures of memory pools under the lock, and what the program's own trim of one gives back. */
#include "allocator/cache/caches.h"
#include "allocator/give_back.h"
#include "allocator/supply/supply.h"

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static uint64_t smaller(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* The figures of the moment, with what threads did without the lock. */
static ac_mempool_t *figures_of(ac_allocator_t *allocator, unsigned number) {
    if (number == allocator->caches->mempool)
        ac_caches_raise(allocator, NULL);
    return ac_mempool_settle(&allocator->store, number);
}

void ac_mempool_open(ac_allocator_t *allocator, unsigned number, uint64_t threshold,
                     uint64_t limit) {
    ac_lock(&allocator->lock);
    ac_mempool_t *pool = figures_of(allocator, number);
    pool->threshold = threshold;
    pool->limit = limit ? limit : AC_UNLIMITED;
    pool->now[AC_MARK_RESERVED] = pool->now[AC_MARK_USED];
    for (int mark = 0; mark < AC_MARKS; mark++)
        pool->most[mark] = pool->now[AC_MARK_USED];
    ac_unlock(&allocator->lock);
}

void ac_mempool_figures(ac_allocator_t *allocator, unsigned number, ac_mempool_t *figures) {
    ac_lock(&allocator->lock);
    *figures = *figures_of(allocator, number);
    ac_unlock(&allocator->lock);
}

uint64_t ac_mempool_reset(ac_allocator_t *allocator, unsigned number, ac_mark_t mark) {
    ac_lock(&allocator->lock);
    ac_mempool_t *pool = figures_of(allocator, number);
    uint64_t most = pool->most[mark];
    pool->most[mark] = pool->now[mark];
    ac_unlock(&allocator->lock);
    return most;
}

void ac_mempool_keep(ac_allocator_t *allocator, unsigned number, uint64_t threshold) {
    ac_lock(&allocator->lock);
    figures_of(allocator, number)->threshold = threshold;
    ac_unlock(&allocator->lock);
}

void ac_mempool_trim(ac_allocator_t *allocator, unsigned number, uint64_t least) {
    ac_lock(&allocator->lock);
    ac_mempool_t *pool = figures_of(allocator, number);
    least = larger(pool->now[AC_MARK_USED], least);
    if (pool->now[AC_MARK_RESERVED] > least)
        pool->now[AC_MARK_RESERVED] = least;
    uint64_t kept = pool->now[AC_MARK_RESERVED] - pool->now[AC_MARK_USED] +
                    ac_mempool_kept(&allocator->store, number);
    ac_unlock(&allocator->lock);
    const ac_shrink_t all = {.leaving = true};
    if (ac_give_back_begin(allocator, 0))
        ac_give_back_except(allocator, &all, kept);
}

bool ac_mempool_claim(ac_allocator_t *allocator, unsigned number, uint64_t bytes,
                      uint64_t other) {
    ac_lock(&allocator->lock);
    ac_mempool_t *pool = figures_of(allocator, number);
    uint64_t size = ac_mempool_round(bytes);
    uint64_t taken = pool->now[AC_MARK_USED] + pool->claimed + other;
    bool fits = bytes <= pool->limit && taken <= pool->limit && size <= pool->limit - taken;
    if (fits)
        pool->claimed += size;
    ac_unlock(&allocator->lock);
    return fits;
}

void ac_mempool_unclaim(ac_allocator_t *allocator, unsigned number, uint64_t bytes) {
    ac_lock(&allocator->lock);
    ac_mempool_t *pool = &allocator->mempools[number];
    pool->claimed -= smaller(pool->claimed, ac_mempool_round(bytes));
    ac_unlock(&allocator->lock);
}

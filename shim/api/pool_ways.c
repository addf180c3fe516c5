/* Which requests go to a private pool: ways, from accel_begin_allocate_to_pool to its end. */
#include "api/pools_int.h"

#include <stdlib.h>

/* Requests of a device for streams go to a pool. */
typedef struct ac_pool_way {
    struct ac_pool_way *next;
    ac_pool_t *pool;
    int device;
    accel_stream_filter_t filter;
    void *arg;
    void (*drop)(void *arg);
    unsigned calls; /* of the filter, under way */
    bool ended;
} way_t;

static way_t *ways; /* newest first, under ac_pools_lock */
static _Atomic bool ways_open;

/* Removes the way from the list if it has ended and no call of it is under way.  The caller drops it without
 * the lock. */
static way_t *unlink_way(way_t *way) {
    if (!way->ended || way->calls)
        return NULL;
    way_t **at = &ways;
    while (*at != way)
        at = &(*at)->next;
    *at = way->next;
    atomic_store(&ways_open, ways != NULL);
    return way;
}

static void drop_way(way_t *way) {
    if (way && way->drop)
        way->drop(way->arg);
    free(way);
}

ac_pool_t *ac_pool_route(int device, CUcontext context, void *stream) {
    ac_pool_t *found = NULL;
    if (!atomic_load_explicit(&ways_open, memory_order_acquire) ||
        !ac_api_is_primary(context, device))
        return NULL;
    ac_lock(&ac_pools_lock);
    way_t *way = ways;
    while (way && !found) {
        if (way->device != device || way->ended) {
            way = way->next;
            continue;
        }
        way->calls++;
        ac_unlock(&ac_pools_lock);
        bool takes = !way->filter || way->filter(stream, way->arg);
        ac_lock(&ac_pools_lock);
        way->calls--;
        way_t *next = way->next;
        if (takes && !way->ended) {
            found = way->pool;
            found->calls++;
        }
        way_t *over = unlink_way(way);
        way = next;
        if (over) { /* what follows may change meanwhile: start again */
            ac_unlock(&ac_pools_lock);
            drop_way(over);
            ac_lock(&ac_pools_lock);
            way = ways;
        }
    }
    ac_unlock(&ac_pools_lock);
    return found;
}

void ac_pool_unroute(ac_pool_t *pool) {
    ac_lock(&ac_pools_lock);
    pool->calls--;
    ac_pool_sweep(pool);
    ac_unlock(&ac_pools_lock);
}

accel_status_t ac_pool_begin(int device, accel_pool_id_t id, accel_stream_filter_t filter,
                             void *arg, void (*drop)(void *arg)) {
    accel_status_t status = ac_api_need(device);
    if (status == ACCEL_OK && ac_pool_is(id, (accel_pool_id_t)AC_POOL_NONE))
        status = ACCEL_ERROR_INVALID;
    way_t *way = status == ACCEL_OK ? calloc(1, sizeof *way) : NULL;
    if (!way)
        return status == ACCEL_OK ? ACCEL_ERROR_OUT_OF_MEMORY : status;
    ac_lock(&ac_pools_lock);
    ac_pool_t *pool = ac_pool_named(id);
    for (way_t *other = ways; other && status == ACCEL_OK; other = other->next)
        if (!other->ended && other->device == device && ac_pool_is(other->pool->id, id))
            status = ACCEL_ERROR_BUSY;
    if (status == ACCEL_OK && !pool && !(pool = ac_pool_make(id, 0, NULL)))
        status = ACCEL_ERROR_OUT_OF_MEMORY;
    if (status == ACCEL_OK) {
        *way = (way_t){ways, pool, device, filter, arg, drop, 0, false};
        ways = way;
        pool->users++;
        pool->ways++;
        atomic_store(&ways_open, true);
    }
    ac_unlock(&ac_pools_lock);
    if (status != ACCEL_OK)
        free(way);
    return status;
}

accel_status_t accel_begin_allocate_to_pool(int device, accel_pool_id_t pool,
                                            accel_stream_filter_t filter, void *arg) {
    const accel_allocator_t *set = ac_raw_allocator();
    if (!set || !set->begin_allocate_to_pool_fn)
        return ac_pool_begin(device, pool, filter, arg, NULL);
    set->begin_allocate_to_pool_fn(device, pool, filter, arg);
    return ACCEL_OK;
}

accel_status_t accel_end_allocate_to_pool(int device, accel_pool_id_t pool) {
    const accel_allocator_t *set = ac_raw_allocator();
    if (set && set->end_allocate_to_pool_fn) {
        set->end_allocate_to_pool_fn(device, pool);
        return ACCEL_OK;
    }
    ac_lock(&ac_pools_lock);
    way_t *way = ways;
    while (way && (way->ended || way->device != device || !ac_pool_is(way->pool->id, pool)))
        way = way->next;
    accel_status_t status = way ? ACCEL_OK : ACCEL_ERROR_INVALID;
    if (way) {
        way->ended = true;
        way->pool->ways--;
        ac_pool_sweep(way->pool);
        way = unlink_way(way);
    }
    ac_unlock(&ac_pools_lock);
    drop_way(way);
    return status;
}

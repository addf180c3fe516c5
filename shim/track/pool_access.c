/* Access of other devices to pools (pool_access.h).
 *
 * The driver gives another device access to a pool's memory in every context there.  The
 * library's pool memory is in segments of a primary context.  Each context of the other device
 * gets peer access to that context: existing contexts now, later ones when they are made.  The
 * table of pairs lets peer access look to the program as it would without the library. */
#include "track/pool_access.h"

#include "device/driver.h"
#include "track/running.h"
#include "track/mempools.h"
#include "track/peers.h"
#include "track/context.h"
#include "lock.h"
#include "observe/log.h"

enum { PAIRS = 256 };

typedef struct {
    CUcontext handle;
    unsigned long long id;
} name_t;

typedef struct {
    name_t from, to;
    bool program; /* the program enabled it, too */
} pair_t;

static ac_mutex_t lock = AC_MUTEX(LEAF);
static pair_t pairs[PAIRS];
static unsigned pair_count;

/* Bits of devices that reach the pool's memory; bits of devices that reach a device's memory. */
static _Atomic uint64_t reaches_pool[AC_MEMPOOLS], reaches_device[AC_LIVE_DEVICES];
static _Atomic bool any;

static name_t name_of(const ac_context_t *context) {
    return (name_t){context->cuda.handle, context->cuda.id};
}

static bool same(name_t a, name_t b) {
    return a.handle == b.handle && a.id == b.id;
}

/* Called under the lock. */
static pair_t *find(name_t from, name_t to) {
    for (unsigned i = 0; i < pair_count; i++)
        if (same(pairs[i].from, from) && same(pairs[i].to, to))
            return &pairs[i];
    return NULL;
}

/* Returns false if the table is full. */
static bool note(name_t from, name_t to, bool program) {
    ac_lock(&lock);
    bool room = pair_count < PAIRS;
    if (!find(from, to) && room)
        pairs[pair_count++] = (pair_t){from, to, program};
    ac_unlock(&lock);
    return room;
}

/* Lets `from` reach the memory of `to`. */
static void enable(ac_context_t *from, const ac_context_t *to) {
    ac_cuda_scope_t scope;
    name_t ends[2] = {name_of(from), name_of(to)};
    ac_lock(&lock);
    bool done = find(ends[0], ends[1]) != NULL;
    ac_unlock(&lock);
    if (done || !ac_driver.cuCtxEnablePeerAccess || !ac_cuda_enter(&from->cuda, &scope))
        return;
    CUresult result = ac_driver.cuCtxEnablePeerAccess(to->cuda.handle, 0);
    ac_cuda_leave(&scope);
    bool already = result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    if ((result == CUDA_SUCCESS || already) && note(ends[0], ends[1], already))
        return;
    ac_count(ac_thread_tls, AC_COUNT_internal_failures);
    ac_log_once(AC_LOG_WARNING,
                "device %d cannot be given access to memory of a pool of device %d that was "
                "allocated before cuMemPoolSetAccess; run with ACCEL_ALLOC_CONF=enabled:false",
                (int)from->cuda.device, (int)to->cuda.device);
}

/* A context, or a device, that is to reach primary contexts. */
typedef struct {
    ac_context_t *from;
    CUdevice device;
} reach_t;

static void reach_one(ac_context_t *to, void *arg) {
    reach_t *reach = arg;
    uint64_t who = atomic_load(&reaches_device[to->cuda.device]);
    if (!to->created && who >> reach->device & 1)
        enable(reach->from, to);
}

static void reach_all(ac_context_t *from, void *arg) {
    reach_t reach = *(reach_t *)arg;
    reach.from = from;
    if (from->cuda.device == reach.device)
        ac_context_each(reach_one, &reach);
}

static bool has_blocks(unsigned number, ac_allocator_t *allocator) {
    ac_mempool_t figures;
    ac_mempool_figures(allocator, number, &figures);
    return figures.now[AC_MARK_USED] || figures.claimed;
}

void ac_pool_reach_again(unsigned number) {
    ac_allocator_t *allocator = ac_mempool_allocator(number);
    uint64_t who = atomic_load(&reaches_pool[number]);
    CUdevice owner = ac_mempool_device(number);
    if (!who || !allocator || !has_blocks(number, allocator))
        return;
    ac_fence_share();
    atomic_store(&any, true);
    atomic_fetch_or(&reaches_device[owner], who);
    for (CUdevice other = 0; other < AC_LIVE_DEVICES; other++) {
        reach_t reach = {.device = other};
        if (!(who >> other & 1))
            continue;
        ac_peers_hold(owner, other, allocator);
        ac_context_primary(other);
        ac_context_each(reach_all, &reach);
    }
}

void ac_pool_reach(unsigned number, CUdevice other) {
    if (other < 0 || other >= AC_LIVE_DEVICES)
        return;
    atomic_fetch_or(&reaches_pool[number], (uint64_t)1 << other);
    ac_allocator_t *allocator = ac_mempool_allocator(number);
    if (allocator) /* the figures then show blocks that threads took from their caches */
        ac_allocator_recall(allocator);
    ac_pool_reach_again(number);
}

void ac_pool_reach_none(unsigned number) {
    atomic_store(&reaches_pool[number], 0);
}

void ac_pool_reach_from(CUcontext handle) {
    ac_context_t *from = atomic_load(&any) ? ac_context_of(handle) : NULL;
    reach_t reach = {.from = from, .device = from ? from->cuda.device : 0};
    if (from)
        ac_context_each(reach_one, &reach);
}

void ac_pool_reach_gone(const ac_context_t *context) {
    name_t name = name_of(context);
    ac_lock(&lock);
    for (unsigned i = pair_count; i-- > 0;)
        if (same(pairs[i].from, name) || same(pairs[i].to, name))
            pairs[i] = pairs[--pair_count];
    ac_unlock(&lock);
}

/* --- the program's own calls --- */

/* Returns the pair that a call of the program names.  Called under the lock. */
static pair_t *named(const ac_context_t *from, const ac_context_t *to) {
    return from && to ? find(name_of(from), name_of(to)) : NULL;
}

CUresult ac_pool_peer_enabled(ac_thread_t *thread, CUcontext peer, CUresult result) {
    if (!atomic_load(&any) || result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
        return result;
    const ac_context_t *from = ac_context_current(thread), *to = ac_context_of(peer);
    ac_lock(&lock);
    pair_t *pair = named(from, to);
    if (pair && !pair->program) {
        pair->program = true;
        result = CUDA_SUCCESS;
    }
    ac_unlock(&lock);
    return result;
}

bool ac_pool_peer_disables(ac_thread_t *thread, CUcontext peer, CUresult *result) {
    if (!atomic_load(&any))
        return false;
    const ac_context_t *from = ac_context_current(thread), *to = ac_context_of(peer);
    ac_lock(&lock);
    pair_t *pair = named(from, to);
    if (pair) {
        *result = pair->program ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
        pair->program = false;
    }
    ac_unlock(&lock);
    return pair != NULL;
}

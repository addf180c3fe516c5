/* Records of memory pools (mempools.h).
 *
 * A record is taken when the program makes a pool, or first uses one that the driver made.  It may
 * serve another pool after its own was destroyed and none of its blocks is in use.  `handle` of a
 * live pool is read without the lock: a record is complete before its handle is stored. */
#include "track/mempools.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#include "device/driver.h"
#include "device/wait.h"
#include "track/pool_access.h"
#include "lock.h"

/* Unit of `maxSize` (guesses.def: pool_limit) */
#define LIMIT_UNIT ((uint64_t)2 << 20)

typedef struct {
    _Atomic(CUmemoryPool) handle; /* handle of the live pool; NULL: there is none */
    CUmemoryPool last;            /* handle of the live or of the destroyed pool */
    _Atomic CUdevice device;
    _Atomic ac_passed_t reason;
    _Atomic bool made;   /* the program made the pool and may destroy it */
    _Atomic bool passed; /* the driver has served requests of it */
    bool taken;          /* it has a pool, live or destroyed with blocks in use */
    _Atomic bool counts; /* the allocator has figures of it */
    unsigned pins;       /* calls of the library under way that use the handle */
    unsigned destroying; /* calls under way that may end the pool: no call of the library begins */
    _Atomic uint64_t limit;
    /* If the driver also serves the pool: its share at the last change, and the peak until then. */
    uint64_t share[AC_MARKS], peak[AC_MARKS];
    bool resides;          /* memory on the device that belongs to this process */
    ac_allocator_sum_t at; /* bytes that the driver reserves for it */
} record_t;

static ac_mutex_t lock = AC_MUTEX(LEAF);
static ac_cond_t unpinned;
static record_t records[AC_MEMPOOLS];
static _Atomic unsigned end = AC_MEMPOOL_FIRST; /* no record from here on was ever in use */
static _Atomic bool full;                       /* a pool found no record */
static _Atomic bool any_passed;                 /* `passed` of some record was set */
static ac_passed_t all_left; /* reason why the driver serves every pool; under the lock */

/* --- finding --- */

static unsigned find(CUmemoryPool handle) {
    unsigned last = atomic_load_explicit(&end, memory_order_acquire);
    for (unsigned i = AC_MEMPOOL_FIRST; handle && i < last; i++)
        if (atomic_load_explicit(&records[i].handle, memory_order_acquire) == handle)
            return i;
    return 0;
}

CUdevice ac_mempool_device(unsigned number) {
    return records[number].device;
}

ac_allocator_t *ac_mempool_allocator(unsigned number) {
    return number && records[number].counts ? ac_device_allocator(records[number].device) : NULL;
}

ac_passed_t ac_mempool_reason(unsigned number) {
    return atomic_load_explicit(&records[number].reason, memory_order_acquire);
}

CUmemoryPool ac_mempool_handle(unsigned number) {
    ac_lock(&lock);
    CUmemoryPool handle = records[number].last;
    ac_unlock(&lock);
    return handle;
}

void ac_mempool_leave(unsigned number, ac_passed_t reason) {
    ac_passed_t ours = AC_POOL_OURS;
    if (number && atomic_compare_exchange_strong(&records[number].reason, &ours, reason))
        ac_generation_grow(); /* lanes of threads serve it without a check */
}

void ac_mempools_leave(ac_passed_t reason) {
    ac_lock(&lock);
    if (all_left == AC_POOL_OURS)
        all_left = reason;
    ac_unlock(&lock);
    unsigned last = atomic_load(&end); /* later ones see all_left */
    for (unsigned i = AC_MEMPOOL_FIRST; i < last; i++)
        ac_mempool_leave(i, reason);
}

/* --- taking and leaving records --- */

/* Returns true if blocks of the pool are in use, or about to be. */
static bool has_blocks(CUdevice device, unsigned number) {
    ac_mempool_t figures;
    ac_allocator_t *allocator = ac_device_allocator(device);
    if (!allocator)
        return false;
    ac_mempool_figures(allocator, number, &figures);
    return figures.now[AC_MARK_USED] || figures.claimed;
}

bool ac_mempool_is_named(CUmemoryPool handle) {
    unsigned last = atomic_load_explicit(&end, memory_order_acquire);
    for (unsigned i = AC_MEMPOOL_FIRST; handle && i < last; i++) {
        ac_lock(&lock);
        bool same = records[i].taken && records[i].counts && records[i].last == handle;
        CUdevice device = records[i].device;
        ac_unlock(&lock);
        if (same && has_blocks(device, i))
            return true;
    }
    return false;
}

/* Called under the lock. */
static void retire(record_t *record) {
    atomic_store(&record->handle, NULL);
}

static bool is_spare(const record_t *record) {
    return !record->taken ||
           (!atomic_load(&record->handle) && !record->pins && !record->destroying);
}

/* Takes a record without a pool; 0: there is none. */
static unsigned take_record(void) {
    for (unsigned i = AC_MEMPOOL_FIRST; i < AC_MEMPOOLS; i++) {
        ac_lock(&lock);
        bool spare = is_spare(&records[i]), taken = records[i].taken, counts = records[i].counts;
        CUdevice device = records[i].device;
        ac_unlock(&lock);
        if (!spare || (taken && counts && has_blocks(device, i)))
            continue;
        ac_lock(&lock);
        spare = is_spare(&records[i]) && records[i].taken == taken;
        if (spare) {
            records[i].taken = true;
            records[i].pins = 1; /* reserved until it is opened */
            if (atomic_load(&end) <= i)
                atomic_store_explicit(&end, i + 1, memory_order_release);
        }
        ac_unlock(&lock);
        if (spare)
            return i;
    }
    atomic_store(&full, true);
    return 0;
}

typedef struct {
    CUdevice device;
    ac_passed_t reason;
    bool made, resides;
    uint64_t threshold, limit;
} traits_t;

static void look_at(unsigned number);

/* Gives the pool a record.  An older record with the same handle belongs to a destroyed pool.  With
 * `keep`, it was made by another thread and is kept. */
static unsigned open_record(CUmemoryPool handle, const traits_t *traits, bool keep) {
    unsigned number = take_record();
    if (!number)
        return 0;
    ac_allocator_t *allocator =
        traits->reason == AC_POOL_OURS ? ac_device_allocator(traits->device) : NULL;
    ac_passed_t reason =
        traits->reason == AC_POOL_OURS && !allocator ? AC_PASSED(unknown) : traits->reason;
    if (allocator)
        ac_mempool_open(allocator, number, traits->threshold, traits->limit);
    ac_pool_reach_none(number);
    record_t *record = &records[number];
    look_at(number); /* nothing is left of the record's former pool */
    ac_lock(&lock);
    unsigned old = find(handle);
    record->pins = 0;
    if (old && keep) {
        record->taken = false;
        ac_unlock(&lock);
        return old;
    }
    if (old)
        retire(&records[old]);
    record->last = handle;
    record->device = traits->device;
    record->counts = allocator != NULL;
    record->limit = traits->limit;
    record->made = traits->made;
    record->resides = traits->resides;
    atomic_store(&record->reason, reason == AC_POOL_OURS ? all_left : reason);
    atomic_store(&record->passed, false);
    memset(record->share, 0, sizeof record->share);
    memset(record->peak, 0, sizeof record->peak);
    atomic_store_explicit(&record->handle, handle, memory_order_release);
    ac_unlock(&lock);
    return number;
}

/* --- pools that the program makes --- */

static ac_passed_t reason_for(const CUmemPoolProps *props) {
    if (!props || props->handleTypes != CU_MEM_HANDLE_TYPE_NONE)
        return AC_PASSED(exportable);
    bool plain = props->allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
                 props->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                 !props->win32SecurityAttributes && !props->usage;
    return plain ? AC_POOL_OURS : AC_PASSED(kind);
}

void ac_mempool_created(CUmemoryPool handle, const CUmemPoolProps *props) {
    traits_t traits = {.reason = reason_for(props), .made = true};
    if (props && props->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        traits.device = props->location.id;
        traits.resides = props->allocType == CU_MEM_ALLOCATION_TYPE_PINNED;
    }
    if (props && props->maxSize && props->maxSize <= INT64_MAX)
        traits.limit = (props->maxSize + LIMIT_UNIT - 1) / LIMIT_UNIT * LIMIT_UNIT;
    if (!open_record(handle, &traits, false)) {
        ac_lock(&lock);
        unsigned old = find(handle);
        if (old)
            retire(&records[old]);
        ac_unlock(&lock);
    }
}

/* Skips pools that the library could serve: it finds the pool of a device at its first use. */
void ac_mempool_shown(CUmemoryPool handle, const CUmemLocation *location,
                      CUmemAllocationType type) {
    const CUmemPoolProps props = {.allocType = type, .location = *location};
    traits_t traits = {.reason = reason_for(&props)};
    if (traits.reason != AC_POOL_OURS && !find(handle))
        open_record(handle, &traits, true);
}

void ac_mempool_destroying(unsigned number) {
    struct timespec until;
    if (!number)
        return;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += 1;
    ac_lock(&lock);
    records[number].destroying++;
    while (records[number].pins && ac_wait_until(&unpinned, &lock, &until) != ETIMEDOUT)
        continue;
    ac_unlock(&lock);
}

void ac_mempool_destroyed(unsigned number, bool done) {
    if (!number)
        return;
    if (done) /* before the record may serve another pool: see ac_mempool_admit */
        ac_mempool_current_changed(records[number].device);
    ac_lock(&lock);
    records[number].destroying--;
    if (done)
        retire(&records[number]);
    ac_unlock(&lock);
    if (done) {
        ac_tell_pool_gone(number);
        look_at(number);
    }
}

/* --- pools that the driver makes --- */

/* Returns the pool that the driver made for the device; NULL: none. */
static CUmemoryPool default_pool(CUdevice device) {
    static _Atomic(CUmemoryPool) known[AC_LIVE_DEVICES];
    int supported = 0;
    CUmemoryPool pool = atomic_load(&known[device]);
    if (!pool && ac_driver.cuDeviceGetDefaultMemPool && ac_driver.cuDeviceGetAttribute &&
        ac_driver.cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
                                       device) == CUDA_SUCCESS &&
        supported && ac_driver.cuDeviceGetDefaultMemPool(&pool, device) == CUDA_SUCCESS)
        atomic_store(&known[device], pool);
    return pool;
}

bool ac_mempool_is_default(unsigned number) {
    return ac_mempool_handle(number) == default_pool(ac_mempool_device(number));
}

/* Returns the reason not to serve a pool, from the changes that the program made before the first
 * look-up. */
static ac_passed_t past_of(CUmemoryPool pool, CUdevice device) {
    static const CUmemPool_attribute switches[] = {
        CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
        CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
        CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES};
    int count = 0, on;
    if (!ac_driver.cuMemPoolGetAttribute || !ac_driver.cuMemPoolGetAccess)
        return AC_PASSED(unknown);
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
        if (ac_driver.cuMemPoolGetAttribute(pool, switches[i], &on) != CUDA_SUCCESS)
            return AC_PASSED(unknown);
        if (!on)
            return AC_PASSED(reuse);
    }
    if (ac_driver.cuDeviceGetCount(&count) != CUDA_SUCCESS)
        return AC_PASSED(unknown);
    for (CUdevice other = 0; other < count; other++) {
        CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, other};
        CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
        if (other != device &&
            (ac_driver.cuMemPoolGetAccess(&flags, pool, &location) != CUDA_SUCCESS ||
             flags != CU_MEM_ACCESS_FLAGS_PROT_NONE))
            return flags ? AC_PASSED(access) : AC_PASSED(unknown);
    }
    return AC_POOL_OURS;
}

static unsigned open_default(CUmemoryPool pool, CUdevice device) {
    traits_t traits = {.device = device, .reason = past_of(pool, device), .resides = true};
    cuuint64_t threshold = 0;
    if (ac_driver.cuMemPoolGetAttribute &&
        ac_driver.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold) ==
            CUDA_SUCCESS)
        traits.threshold = threshold;
    return open_record(pool, &traits, true);
}

static ac_passed_t why_none(void) {
    return atomic_load(&full) ? AC_PASSED(limit) : AC_PASSED(unknown);
}

unsigned ac_mempool_named(CUmemoryPool handle, ac_passed_t *why) {
    unsigned number = find(handle);
    int count = 0;
    if (!number && handle && ac_driver.cuDeviceGetCount(&count) == CUDA_SUCCESS)
        for (CUdevice device = 0; !number && device < count && device < AC_LIVE_DEVICES; device++)
            if (default_pool(device) == handle)
                number = open_default(handle, device);
    if (!number && why)
        *why = why_none();
    return number;
}

/* --- the current pool of a device: its number, and above it how often that may have changed --- */

enum { NUMBER_BITS = 16 };
static _Atomic uint64_t current[AC_LIVE_DEVICES];

static void change_current(CUdevice device) {
    uint64_t old = atomic_load(&current[device]);
    while (!atomic_compare_exchange_weak(&current[device], &old,
                                         ((old >> NUMBER_BITS) + 1) << NUMBER_BITS))
        continue;
}

void ac_mempool_current_changed(CUdevice device) {
    for (CUdevice each = 0; each < AC_LIVE_DEVICES; each++)
        if (device < 0 || each == device)
            change_current(each);
    ac_generation_grow(); /* lanes of threads serve the former pool without a check */
}

unsigned ac_mempool_current(CUdevice device, ac_passed_t *why) {
    CUmemoryPool pool = NULL;
    if (device < 0 || device >= AC_LIVE_DEVICES) {
        *why = AC_PASSED(unknown);
        return 0;
    }
    uint64_t known = atomic_load_explicit(&current[device], memory_order_acquire);
    unsigned number = known & ((1u << NUMBER_BITS) - 1);
    if (number)
        return number;
    *why = AC_PASSED(unknown);
    if (!default_pool(device) || !ac_driver.cuDeviceGetMemPool ||
        ac_driver.cuDeviceGetMemPool(&pool, device) != CUDA_SUCCESS)
        return 0;
    number = ac_mempool_named(pool, why);
    if (number)
        atomic_compare_exchange_strong(&current[device], &known, known | number);
    return number;
}

/* --- what the driver serves --- */

/* Returns the live pool, which stays until unpin; NULL: it is destroyed, or may be at any moment. */
static CUmemoryPool pin(unsigned number) {
    ac_lock(&lock);
    CUmemoryPool pool = records[number].destroying ? NULL : atomic_load(&records[number].handle);
    records[number].pins += pool != NULL;
    ac_unlock(&lock);
    return pool;
}

static void unpin(unsigned number) {
    ac_lock(&lock);
    if (!--records[number].pins)
        ac_cond_broadcast(&unpinned);
    ac_unlock(&lock);
}

/* Returns a figure of the driver's part of the pool; 0: the pool is destroyed. */
static uint64_t figure(unsigned number, CUmemPool_attribute attribute) {
    cuuint64_t value = 0;
    CUmemoryPool pool = ac_driver.cuMemPoolGetAttribute ? pin(number) : NULL;
    if (!pool)
        return 0;
    if (ac_driver.cuMemPoolGetAttribute(pool, attribute, &value) != CUDA_SUCCESS)
        value = 0;
    unpin(number);
    return value;
}

/* Returns the driver's share of the pool: bytes used or reserved. */
static uint64_t driver_has(unsigned number, ac_mark_t mark) {
    return figure(number, mark == AC_MARK_USED ? CU_MEMPOOL_ATTR_USED_MEM_CURRENT
                                               : CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
}

/* --- peaks of both sides together --- */

/* Updates the peak if the driver's share changed.  Until now the sum was at most its old value plus
 * the library's peak since the last change. */
static void note_share(unsigned number, ac_mark_t mark) {
    record_t *record = &records[number];
    uint64_t share = driver_has(number, mark);
    ac_lock(&lock);
    bool same = record->share[mark] == share;
    ac_unlock(&lock);
    if (same)
        return;
    uint64_t most = ac_mempool_reset(ac_mempool_allocator(number), number, mark);
    ac_lock(&lock);
    if (record->peak[mark] < most + record->share[mark])
        record->peak[mark] = most + record->share[mark];
    record->share[mark] = share;
    ac_unlock(&lock);
}

static bool is_served_by_both(unsigned number) {
    return atomic_load(&records[number].passed) && ac_mempool_allocator(number);
}

static void note_all_marks(unsigned number) {
    for (int mark = 0; mark < AC_MARKS; mark++)
        if (is_served_by_both(number))
            note_share(number, (ac_mark_t)mark);
}

void ac_mempools_given(void) {
    unsigned last = atomic_load_explicit(&end, memory_order_acquire);
    for (unsigned i = AC_MEMPOOL_FIRST; atomic_load(&any_passed) && i < last; i++)
        if (atomic_load(&records[i].handle))
            note_all_marks(i);
}

uint64_t ac_mempool_peak(unsigned number, ac_mark_t mark, uint64_t driver) {
    ac_mempool_t ours;
    ac_mempool_figures(ac_mempool_allocator(number), number, &ours);
    ac_lock(&lock);
    uint64_t sum = ours.most[mark] + records[number].share[mark],
             peak = records[number].peak[mark];
    ac_unlock(&lock);
    sum = sum > peak ? sum : peak;
    return sum > driver ? sum : driver;
}

void ac_mempool_reset_peak(unsigned number, ac_mark_t mark) {
    uint64_t share = driver_has(number, mark);
    ac_mempool_reset(ac_mempool_allocator(number), number, mark);
    ac_lock(&lock);
    records[number].share[mark] = share;
    records[number].peak[mark] = 0;
    ac_unlock(&lock);
}

/* --- what a limit counts --- */

/* Returns the number of a look-up.  If two overlap, the one that began later counts. */
static uint64_t next_look(void) {
    static _Atomic uint64_t looks;
    return atomic_fetch_add(&looks, 1) + 1;
}

static void count_at(CUdevice device, ac_allocator_sum_t *at, uint64_t look, uint64_t bytes) {
    ac_allocator_t *allocator = bytes || at->bytes ? ac_device_allocator(device) : NULL;
    if (allocator)
        ac_allocator_hold_now(allocator, offsetof(ac_device_counters_t, driver_pool_bytes), at,
                              look, bytes);
}

static void look_at(unsigned number) {
    record_t *record = &records[number];
    uint64_t look = next_look();
    if (record->resides)
        count_at(record->device, &record->at, look,
                 figure(number, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
}

void ac_mempools_look(CUdevice device) {
    static ac_allocator_sum_t graphs[AC_LIVE_DEVICES];
    cuuint64_t bytes = 0;
    unsigned last = atomic_load_explicit(&end, memory_order_acquire);
    if (ac_cuda_is_capturing(NULL))
        return; /* it is unknown if these calls disturb a capture */
    for (unsigned i = AC_MEMPOOL_FIRST; i < last; i++)
        if (records[i].device == device && atomic_load(&records[i].passed))
            look_at(i);
    uint64_t look = next_look();
    if (ac_driver.cuDeviceGetGraphMemAttribute &&
        ac_driver.cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
                                               &bytes) == CUDA_SUCCESS)
        count_at(device, &graphs[device], look, bytes);
}

bool ac_mempool_resides(unsigned number) {
    return number && records[number].resides;
}

uint64_t ac_mempool_growth(unsigned number, uint64_t bytes) {
    if (!records[number].resides)
        return 0;
    uint64_t reserved = figure(number, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    uint64_t used = figure(number, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
    uint64_t left = reserved > used ? reserved - used : 0;
    return bytes > left ? bytes - left : 0;
}

/* Returns the allocator if requests of the pool need ac_mempool_admit; else NULL.  They do if the
 * pool has a limit, or if the program may destroy it meanwhile.  The record must not serve another
 * pool before the block has the number. */
static ac_allocator_t *claimed_from(unsigned number) {
    const record_t *record = &records[number];
    return record->made || record->limit ? ac_mempool_allocator(number) : NULL;
}

bool ac_mempool_is_open(unsigned number) {
    return ac_mempool_allocator(number) && !claimed_from(number);
}

bool ac_mempool_admit(unsigned number, uint64_t bytes) {
    const record_t *record = &records[number];
    ac_allocator_t *allocator = claimed_from(number);
    if (!allocator)
        return true;
    uint64_t other =
        record->limit && atomic_load(&record->passed) ? driver_has(number, AC_MARK_USED) : 0;
    return ac_mempool_claim(allocator, number, bytes, other);
}

void ac_mempool_cancel(unsigned number, uint64_t bytes) {
    ac_allocator_t *allocator = claimed_from(number);
    if (allocator)
        ac_mempool_unclaim(allocator, number, bytes);
}

void ac_mempool_passed(unsigned number) {
    if (!number)
        return;
    if (!atomic_load_explicit(&records[number].passed, memory_order_relaxed)) {
        atomic_store(&records[number].passed, true);
        atomic_store(&any_passed, true);
    }
    note_all_marks(number);
}

/* Requests that rely on unused memory of their pool, and threads that make pools give it back.  Each
 * side increments its counter before it reads the other's: at least one sees the other. */
static _Atomic int relying, yielding;

bool ac_mempools_rely(void) {
    atomic_fetch_add(&relying, 1);
    if (!atomic_load(&yielding))
        return true;
    atomic_fetch_sub(&relying, 1);
    return false;
}

void ac_mempools_relied(void) {
    atomic_fetch_sub(&relying, 1);
}

static bool yield_all(CUdevice device) {
    bool any = false;
    unsigned last = atomic_load_explicit(&end, memory_order_acquire);
    for (unsigned i = AC_MEMPOOL_FIRST; i < last; i++) {
        if (records[i].device != device || !atomic_load(&records[i].passed))
            continue;
        CUmemoryPool pool = pin(i);
        if (!pool)
            continue;
        any |= ac_driver.cuMemPoolTrimTo(pool, 0) == CUDA_SUCCESS;
        unpin(i);
        note_all_marks(i);
    }
    if (any)
        ac_mempools_look(device);
    return any;
}

bool ac_mempools_yield(CUdevice device) {
    enum { PATIENCE_NS = 100000000 };
    if (!ac_driver.cuMemPoolTrimTo || ac_cuda_is_capturing(NULL))
        return false;
    uint64_t begin = ac_cuda_ops.now_ns();
    atomic_fetch_add(&yielding, 1);
    while (atomic_load(&relying) && ac_cuda_ops.now_ns() - begin < PATIENCE_NS)
        sched_yield();
    bool any = !atomic_load(&relying) && yield_all(device);
    atomic_fetch_sub(&yielding, 1);
    return any;
}

/* Raw memory: of a private pool, of the allocator that the program set, or of the cache. */
#include "api/api_int.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "device/driver.h"
#include "device/wait.h"
#include "track/observers.h"
#include "lock.h"

/* --- the allocator in use --- */

static ac_mutex_t lock = AC_MUTEX(LEAF);
static const accel_allocator_t *_Atomic allocator; /* NULL: the cache */
enum { USE_NOT, USE_BEGINS, USE_OVERDUE, USE_BEGUN };
static _Atomic int use;    /* of raw memory */
static pthread_t beginner; /* while it begins: the thread that calls init_fn */

const accel_allocator_t *ac_allocator_copy(const accel_allocator_t *functions,
                                           accel_status_t *status) {
    accel_allocator_t known = {.size = 0};
    size_t size = functions->size < sizeof known ? functions->size : sizeof known;
    memcpy(&known, functions, size);
    known.size = sizeof known;
    *status = ACCEL_ERROR_INVALID;
    if (!known.alloc_fn || !known.free_fn)
        return NULL;
    accel_allocator_t *copy = malloc(sizeof *copy);
    *status = copy ? ACCEL_OK : ACCEL_ERROR_OUT_OF_MEMORY;
    if (copy)
        *copy = known;
    return copy;
}

const accel_allocator_t *ac_raw_allocator(void) {
    return atomic_load_explicit(&allocator, memory_order_acquire);
}

accel_status_t accel_set_allocator(const accel_allocator_t *functions) {
    accel_status_t status;
    const accel_allocator_t *copy = NULL;
    if (functions && !(copy = ac_allocator_copy(functions, &status)))
        return status;
    ac_lock(&lock);
    status = atomic_load(&use) != USE_NOT ? ACCEL_ERROR_BUSY : ACCEL_OK;
    if (status == ACCEL_OK)
        atomic_store(&allocator, copy); /* another thread may still read the one before */
    ac_unlock(&lock);
    if (status != ACCEL_OK)
        free((void *)(uintptr_t)copy);
    return status;
}

accel_status_t accel_get_allocator(accel_allocator_t *functions) {
    if (!functions || functions->size < sizeof functions->size)
        return ACCEL_ERROR_INVALID;
    const accel_allocator_t *set = ac_raw_allocator();
    accel_allocator_t out = {.size = 0};
    if (set)
        out = *set;
    out.size = functions->size;
    memcpy(functions, &out, functions->size < sizeof out ? functions->size : sizeof out);
    return ACCEL_OK;
}

/* How long others wait for the program's init_fn, which may do anything: wait for one of them, or end its
 * thread.  Once one has waited so long, none waits any more: their requests fail until it is done. */
enum { INIT_NAPS = 10000, INIT_NAP_NS = 1000000 };

/* The first request: the allocator stays what it is, and learns how many devices there are, before other
 * threads ask it for memory; init_fn itself may ask.  False: it goes on. */
static bool begin_use(void) {
    int begins = USE_BEGINS;
    if (atomic_load_explicit(&use, memory_order_acquire) == USE_BEGUN)
        return true;
    ac_lock(&lock);
    const accel_allocator_t *set = atomic_load(&allocator);
    bool first = atomic_load(&use) == USE_NOT;
    if (first) {
        beginner = pthread_self();
        atomic_store(&use, USE_BEGINS);
    }
    bool inside = pthread_equal(beginner, pthread_self());
    ac_unlock(&lock);
    if (first) {
        if (set && set->init_fn)
            set->init_fn(accel_device_count());
        atomic_store(&use, USE_BEGUN);
    }
    for (int i = 0; !inside && i < INIT_NAPS && atomic_load(&use) == USE_BEGINS; i++)
        ac_nap(INIT_NAP_NS);
    if (!inside)
        atomic_compare_exchange_strong(&use, &begins, USE_OVERDUE);
    return inside || atomic_load(&use) == USE_BEGUN;
}

/* --- requests --- */

/* Asks the cache; without the order of a stream if the driver has no stream-ordered memory. */
static accel_status_t ask_cache(ac_raw_t *raw, void **pointer, const void *caller) {
    accel_status_t status = ac_api_malloc_async(pointer, raw->bytes, raw->stream, caller);
    raw->ordered = status == ACCEL_OK;
    return status == ACCEL_ERROR_CUDA ? accel_malloc(pointer, raw->bytes) : status;
}

void ac_api_quiet(bool quiet) {
    ac_thread_t *thread = ac_is_active() ? ac_thread_get() : NULL;
    if (thread)
        thread->quiet = quiet;
}

/* A raw request that a private pool may serve, before it waits for work and counts as one that failed. */
typedef struct {
    ac_rescue_t rescue;
    const ac_raw_t *raw;
    void *memory;
} rescued_t;

static bool rescue(ac_rescue_t *of) {
    rescued_t *request = (rescued_t *)of;
    const ac_raw_t *raw = request->raw;
    return ac_pool_rescue(&request->memory, raw->bytes, raw->device, raw->stream, raw->stack);
}

static accel_status_t from_cache(ac_raw_t *raw, void **pointer, const void *caller) {
    rescued_t request = {.rescue.serve = rescue, .raw = raw};
    ac_thread_t *thread = ac_is_active() ? ac_thread_get() : NULL;
    bool may = thread && ac_pool_may_rescue(raw->device, raw->stream) &&
               ac_api_is_primary(raw->context, raw->device);
    if (may)
        thread->rescue = &request.rescue;
    accel_status_t status = ask_cache(raw, pointer, caller);
    if (may)
        thread->rescue = NULL;
    /* The driver may have been asked alone. */
    if (may && status == ACCEL_ERROR_DEVICE_MEMORY && ac_rescue_ask(&request.rescue)) {
        *pointer = request.memory;
        raw->address = 0; /* the pool's */
        return ACCEL_OK;
    }
    raw->address = status == ACCEL_OK ? (uint64_t)(uintptr_t)*pointer : 0;
    return status;
}

static accel_status_t from_program(ac_raw_t *raw, void **pointer) {
    void *memory = raw->allocator->alloc_fn(raw->bytes, raw->device, raw->stream);
    if (!memory)
        return ACCEL_ERROR_DEVICE_MEMORY;
    *pointer = memory;
    raw->address = (uint64_t)(uintptr_t)memory;
    return ACCEL_OK;
}

static void give(const ac_raw_t *raw, void *pointer) {
    if (raw->allocator)
        raw->allocator->free_fn(pointer, raw->bytes, raw->device, raw->stream);
    else if (raw->ordered)
        ac_api_free_async(pointer, raw->stream);
    else
        accel_free(pointer);
}

static accel_status_t alloc(ac_raw_t *raw, void **pointer, const void *caller) {
    accel_status_t status =
        raw->allocator ? from_program(raw, pointer) : from_cache(raw, pointer, caller);
    if (status != ACCEL_OK || !raw->address)
        return status;
    if (!ac_raw_add(raw)) {
        give(raw, *pointer);
        return ACCEL_ERROR_OUT_OF_MEMORY;
    }
    ac_history(ACCEL_TRACE_ALLOC, raw->device, raw->address, raw->bytes, raw->stream,
               (accel_pool_id_t){0, 0}, raw->stack);
    return ACCEL_OK;
}

/* Tells observers and the history of a failed request.  The cache has told observers of its own failures. */
static void tell_failure(int device, size_t bytes, void *stream, accel_pool_id_t pool,
                         const accel_allocator_t *source, uint32_t stack) {
    size_t available = 0, total;
    if (source && ac_observed(AC_OBSERVE_OOM) && ac_device_allocator(device))
        ac_observe_oom(device, ac_device_allocator(device), bytes);
    if (!atomic_load_explicit(&ac_history_wanted, memory_order_acquire))
        return;
    ac_driver.cuMemGetInfo_v2(&available, &total);
    ac_history(ACCEL_TRACE_OOM, device, available, bytes, stream, pool, stack);
}

accel_status_t ac_raw_alloc(void **pointer, size_t bytes, int device, void *stream,
                            const void *caller) {
    ac_api_scope_t scope;
    accel_status_t status = ac_api_need(device);
    void *memory = NULL;
    if (status != ACCEL_OK)
        return status;
    if (!begin_use())
        return ACCEL_ERROR_BUSY;
    uint32_t stack = ac_history_stack(ACCEL_CONTEXT_STATE, caller);
    ac_late_free_few();
    if (!ac_api_enter(&scope, device))
        return ACCEL_ERROR_CUDA;
    const accel_allocator_t *source = ac_raw_allocator();
    accel_pool_id_t id = {0, 0};
    ac_pool_t *pool = ac_pool_route(device, scope.context, stream);
    if (pool) {
        status = ac_pool_alloc(pool, &memory, bytes, device, stream, stack);
        ac_pool_told(pool, &id, &source);
        ac_pool_unroute(pool);
    } else {
        ac_raw_t raw = {.bytes = bytes,
                        .device = device,
                        .stream = stream,
                        .life = ac_stream_life(stream),
                        .context = scope.context,
                        .allocator = source,
                        .stack = stack};
        status = alloc(&raw, &memory, caller);
    }
    if (status == ACCEL_ERROR_DEVICE_MEMORY)
        tell_failure(device, bytes, stream, id, source, stack);
    ac_api_leave(&scope);
    if (status == ACCEL_OK)
        *pointer = memory;
    return status;
}

static accel_status_t request(void **pointer, size_t bytes, void *stream, bool named,
                              const void *caller) {
    if (!pointer)
        return ACCEL_ERROR_INVALID;
    int device = accel_current_device();
    if (device < 0)
        return ACCEL_ERROR_NO_DRIVER;
    if (!bytes) {
        *pointer = NULL;
        return ACCEL_OK;
    }
    return ac_raw_alloc(pointer, bytes, device, named ? stream : ac_api_stream(device), caller);
}

accel_status_t accel_allocate(size_t bytes, accel_data_t *data) {
    accel_data_t made = {NULL, accel_raw_deleter(), accel_current_device()};
    if (!data)
        return ACCEL_ERROR_INVALID;
    accel_status_t status = request(&made.pointer, bytes, NULL, false, __builtin_return_address(0));
    if (status == ACCEL_OK)
        *data = made;
    return status;
}

accel_status_t accel_raw_alloc(void **pointer, size_t bytes) {
    return request(pointer, bytes, NULL, false, __builtin_return_address(0));
}

accel_status_t accel_raw_alloc_with_stream(void **pointer, size_t bytes, void *stream) {
    return request(pointer, bytes, stream, true, __builtin_return_address(0));
}

/* Returns true if another call has freed the block and a request that is not of raw memory has it now: then the
 * record says nothing of the stream.  accel_malloc_async removes the record itself. */
static bool is_stale(const ac_raw_t *raw) {
    ac_block_info_t block;
    return !raw->allocator && ac_owned(raw->address) &&
           ac_block_find(raw->address, &block) == AC_OK && block.allocated &&
           (block.address != raw->address || block.requested != raw->bytes ||
            block.async != raw->ordered);
}

/* --- frees --- */

/* Returns true if work that the order of the stream does not cover may use the memory: on recorded streams, or if
 * the stream has gone, since its handle may name another one.  The handle of a default stream does so in other
 * threads and contexts. */
static bool order_is_not_enough(const ac_raw_t *raw) {
    return !raw->ordered || raw->recorded || raw->life != ac_stream_life(raw->stream);
}

static bool is_another(const ac_raw_t *raw, CUcontext context) {
    return raw->context != context && (CUstream)raw->stream <= CU_STREAM_PER_THREAD;
}

/* Waits for all work of the context: cuMemFree makes memory of the driver free at once.  ACCEL_ERROR_BUSY: a stream
 * captures, and a synchronisation would spoil that. */
static accel_status_t wait_for(CUcontext context) {
    if (!ac_cuda_sync_begin(NULL))
        return ACCEL_ERROR_BUSY;
    bool done = false;
    if (ac_driver.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS) {
        ac_thread_forget();
        done = cuCtxSynchronize() == CUDA_SUCCESS;
        ac_driver_pop();
        ac_thread_forget();
    }
    ac_cuda_sync_end();
    return done ? ACCEL_OK : ACCEL_ERROR_CUDA;
}

bool ac_raw_waits(const ac_raw_t *raw) {
    return raw->allocator || (!ac_owned(raw->address) &&
                              (order_is_not_enough(raw) || (CUstream)raw->stream <= CU_STREAM_PER_THREAD));
}

accel_status_t ac_raw_give(const ac_raw_t *raw, bool waits) {
    void *pointer = (void *)(uintptr_t)raw->address;
    ac_api_scope_t scope;
    if (raw->late && is_stale(raw))
        return ACCEL_ERROR_DOUBLE_FREE;
    if (waits && !order_is_not_enough(raw)) {
        if (!ac_api_enter(&scope, raw->device))
            return ACCEL_ERROR_CUDA;
        bool other = is_another(raw, scope.context);
        accel_status_t status = other ? ACCEL_OK : ac_api_free_async(pointer, raw->stream);
        ac_api_leave(&scope);
        if (!other)
            return status;
    }
    waits &= raw->allocator || !ac_owned(raw->address);
    accel_status_t waited = waits ? wait_for(raw->context) : ACCEL_OK;
    if (waited != ACCEL_OK)
        return waited;
    if (raw->allocator) {
        raw->allocator->free_fn(pointer, raw->bytes, raw->device, raw->stream);
        return ACCEL_OK;
    }
    ac_block_mark_used(raw->address);
    return accel_free(pointer);
}

void ac_raw_put_back(const ac_raw_t *raw, accel_status_t status) {
    bool gone = status == ACCEL_ERROR_DOUBLE_FREE || status == ACCEL_ERROR_NOT_OURS ||
                status == ACCEL_ERROR_INTERIOR; /* for the cache, which need not know the program's */
    if (status != ACCEL_OK && (raw->allocator || !gone))
        ac_raw_add(raw);
}

/* `late`: the caller learns of no failure. */
static accel_status_t raw_delete(void *pointer, bool late) {
    ac_raw_t raw;
    accel_status_t status = ACCEL_OK;
    uint64_t address = (uint64_t)(uintptr_t)pointer;
    if (!pointer)
        return ACCEL_OK;
    ac_late_free_few();
    if (!ac_raw_take(address, &raw) || is_stale(&raw)) {
        if (ac_raw_is_late(address))
            return ACCEL_ERROR_DOUBLE_FREE;
        status = ac_pool_free(address);
        return status == ACCEL_ERROR_NOT_OURS ? accel_free(pointer) : status;
    }
    const accel_pool_id_t none = {0, 0};
    uint32_t stack = ac_history_stack(ACCEL_CONTEXT_ALL, NULL);
    ac_history(ACCEL_TRACE_FREE_REQUESTED, raw.device, address, raw.bytes, raw.stream, none, stack);
    if (raw.allocator)
        raw.allocator->free_fn(pointer, raw.bytes, raw.device, raw.stream);
    else
        status = ac_raw_give(&raw, true);
    if (late && ac_late_may(status) && ac_late_add(&raw))
        return ACCEL_OK;
    if (status != ACCEL_OK)
        ac_raw_put_back(&raw, status);
    else
        ac_history(ACCEL_TRACE_FREE_COMPLETED, raw.device, address, raw.bytes, raw.stream, none,
                   stack);
    return status;
}

accel_status_t accel_raw_delete(void *pointer) {
    return raw_delete(pointer, false);
}

void ac_raw_delete_late(void *pointer) {
    raw_delete(pointer, true);
}

accel_deleter_t accel_raw_deleter(void) {
    return ac_raw_delete_late;
}

/* --- what is known of a pointer --- */

static bool find_in_cache(uint64_t address, accel_pointer_info_t *info) {
    ac_block_info_t block;
    ac_raw_t raw;
    if (!ac_owned(address) || ac_block_find(address, &block) != AC_OK || !block.allocated ||
        address - block.address >= block.requested)
        return false;
    info->base = (void *)(uintptr_t)block.address;
    info->bytes = block.requested;
    info->allocated = block.size;
    info->device = ac_block_device(&block);
    info->ordered = block.async;
    if (ac_raw_find(block.address, &raw) && !raw.allocator && !is_stale(&raw))
        info->stream = raw.stream;
    return true;
}

uint32_t ac_raw_stack(uint64_t address) {
    ac_raw_t raw;
    return ac_raw_find(address, &raw) && !raw.allocator && !is_stale(&raw) ? raw.stack : 0;
}

static bool find_in_pools(uint64_t address, accel_pointer_info_t *info) {
    ac_pool_info_t block;
    if (!ac_pool_find(address, &block) || address - block.address >= block.bytes)
        return false;
    info->base = (void *)(uintptr_t)block.address;
    info->bytes = block.bytes;
    info->allocated = block.size;
    info->device = block.device;
    info->ordered = true;
    info->stream = block.stream;
    info->pool = block.pool;
    return true;
}

bool ac_raw_of_driver(uint64_t address, ac_raw_t *raw) {
    CUdeviceptr base;
    size_t size;
    if (ac_raw_none() || ac_owned(address))
        return false;
    if (ac_raw_find(address, raw))
        return !raw->allocator;
    return cuMemGetAddressRange_v2(&base, &size, address) == CUDA_SUCCESS &&
           ac_raw_find(base, raw) && !raw->allocator;
}

static bool find_of_driver(uint64_t address, accel_pointer_info_t *info) {
    ac_raw_t raw;
    if (!ac_raw_of_driver(address, &raw) || address - raw.address >= raw.bytes)
        return false;
    info->base = (void *)(uintptr_t)raw.address;
    info->bytes = info->allocated = raw.bytes;
    info->device = raw.device;
    info->ordered = raw.ordered;
    info->stream = raw.stream;
    return true;
}

/* Asks the program's allocator, which alone knows the bounds of its blocks. */
static bool find_of_program(const void *pointer, accel_pointer_info_t *info) {
    const accel_allocator_t *set = ac_raw_allocator();
    void *base = (void *)(uintptr_t)pointer;
    size_t bytes = 0;
    ac_raw_t raw;
    if (!set)
        return false;
    if (!ac_raw_find((uint64_t)(uintptr_t)pointer, &raw) && set->base_alloc_fn)
        base = set->base_alloc_fn((void *)(uintptr_t)pointer, &bytes);
    if (!base || !ac_raw_find((uint64_t)(uintptr_t)base, &raw) || !raw.allocator)
        return false;
    info->base = base;
    info->bytes = raw.bytes;
    info->allocated = bytes ? bytes : raw.bytes;
    info->device = raw.device;
    info->ordered = true;
    info->stream = raw.stream;
    return true;
}

accel_status_t accel_pointer_info(const void *pointer, accel_pointer_info_t *info) {
    if (!info || info->size < sizeof info->size)
        return ACCEL_ERROR_INVALID;
    uint64_t address = (uint64_t)(uintptr_t)pointer;
    accel_pointer_info_t out = {.size = info->size};
    if (!find_in_pools(address, &out) && !find_of_program(pointer, &out) &&
        !find_in_cache(address, &out) && !find_of_driver(address, &out))
        return ACCEL_ERROR_NOT_OURS;
    memcpy(info, &out, info->size < sizeof out ? info->size : sizeof out);
    return ACCEL_OK;
}

accel_status_t accel_get_base_allocation(void *pointer, void **base, size_t *bytes) {
    accel_pointer_info_t info = {.size = sizeof info};
    if (!base)
        return ACCEL_ERROR_INVALID;
    accel_status_t status = accel_pointer_info(pointer, &info);
    if (status != ACCEL_OK)
        return status;
    *base = info.base;
    if (bytes)
        *bytes = info.bytes;
    return ACCEL_OK;
}

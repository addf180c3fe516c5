/* Memory pools and stream-ordered allocation (cuMemAllocAsync and its kin).  Global lock.
 *
 * A pool takes physical memory in chunks and cuts blocks from them.  A freed block carries the
 * item that frees it.  Until that item has run, only the same stream may have the block at once.
 * Other streams get it after the item completed (opportunistic) or with an inserted dependency.
 *
 * Every block that work may still touch has a record, so that accesses are checked in stream
 * order.  A new block is out of bounds until its allocation item ran; a freed one stays accessible
 * until its free item ran.  If a block is reused before that (same stream, or by dependency), it
 * gets a new record, which is accessible at once.
 *
 * Guesses (public documentation is silent):
 *   zero bytes, NULL address               INVALID_VALUE
 *   chunk size                             32 MiB multiples, 2 MiB when that does not fit
 *   granularity of blocks and of `used`    512 bytes
 *   `used` falls                           when cuMemFreeAsync is called, not when it runs
 *   reuse by event dependency              only together with inserted dependencies
 *   free of managed or host memory         INVALID_VALUE, but of pools of it
 *   reset of a primary context             empties the pools of its device, keeps them
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "graph.h"
#include "pool.h"
#include "race.h"

enum { BLOCK_ALIGN = 512 };
#define SEVERAL_STREAMS UINT64_MAX /* no stream has this id */
#define CHUNK_SIZE      (32ull << 20)
#define CHUNK_ALIGN     (2ull << 20)

typedef struct sim_block {
    sim_pool_owner_t owner;
    sim_pool_t *pool;
    struct sim_chunk *chunk;
    struct sim_block *prev, *next; /* neighbours by address */
    uint64_t base, size;
    bool used;
    sim_work_t *freed;     /* free item that has not run; NULL: ready for every stream */
    uint64_t freed_stream; /* id of its stream, also afterwards; 0: fresh */
    sim_alloc_t *record;
} sim_block_t;

typedef struct sim_chunk {
    struct sim_chunk *next;
    uint64_t base, size;
    sim_block_t *first;
} sim_chunk_t;

sim_slab_t sim_pools = SIM_SLAB(sim_pool_t, 4096);

static uint64_t round_up(uint64_t size, uint64_t align) {
    return (size + align - 1) & ~(align - 1);
}

sim_pool_t *sim_pool_get(CUmemoryPool handle) {
    return sim_slab_has(&sim_pools, handle) && !handle->doomed ? handle : NULL;
}

/* ---- blocks ---- */

static void block_drop_record(sim_block_t *block) {
    if (!block->record)
        return;
    sim_alloc_delete(block->record);
    block->record = NULL;
}

static bool block_make_record(sim_block_t *block, uint64_t size, bool accessible) {
    block_drop_record(block);
    sim_alloc_t *record =
        sim_alloc_new(SIM_MEM_POOL, block->base, size, block->pool->device, NULL);
    if (!record)
        return false;
    record->charged = 0; /* the device is charged for the pool's chunk */
    record->pool = block->pool;
    record->handle_types = block->pool->props.handleTypes;
    record->no_access = !accessible;
    record->touched = true;
    record->host = block->pool->on_host ? sim_bytes(block->base) : NULL;
    record->managed = block->pool->managed;
    record->owner = block;
    block->record = record;
    return true;
}

static void block_ready(sim_block_t *block) {
    sim_work_unref(block->freed);
    block->freed = NULL;
    block_drop_record(block);
}

/* Merges the block's right neighbour into the block. */
static void block_swallow_next(sim_block_t *block) {
    sim_block_t *gone = block->next;
    bool pending = block->freed != NULL;
    if (pending && gone->freed->seq > block->freed->seq) {
        sim_work_t *newer = sim_work_ref(gone->freed);
        sim_work_unref(block->freed);
        block->freed = newer;
    }
    if (block->freed_stream && gone->freed_stream && block->freed_stream != gone->freed_stream)
        block->freed_stream = SEVERAL_STREAMS;
    else if (gone->freed_stream)
        block->freed_stream = gone->freed_stream;
    block_ready(gone);
    block_drop_record(block);
    block->size += gone->size;
    block->next = gone->next;
    if (gone->next)
        gone->next->prev = block;
    free(gone);
    if (pending)
        block_make_record(block, block->size, true);
}

static bool blocks_alike(const sim_block_t *a, const sim_block_t *b) {
    if (a->used || b->used || !a->freed != !b->freed)
        return false;
    return !a->freed || a->freed_stream == b->freed_stream;
}

/* Settles frees that completed meanwhile, and joins free neighbours of equal readiness. */
static void chunk_settle(sim_chunk_t *chunk) {
    for (sim_block_t *block = chunk->first; block; block = block->next)
        if (!block->used && block->freed && block->freed->state == SIM_DONE)
            block_ready(block);
    for (sim_block_t *block = chunk->first; block;) {
        if (block->next && blocks_alike(block, block->next))
            block_swallow_next(block);
        else
            block = block->next;
    }
}

/* Cuts the block to `size` bytes.  The rest becomes a block of the same readiness. */
static bool block_split(sim_block_t *block, uint64_t size) {
    if (block->size == size)
        return true;
    sim_block_t *rest = calloc(1, sizeof *rest);
    if (!rest)
        return false;
    *rest = *block;
    rest->base += size;
    rest->size -= size;
    rest->record = NULL;
    rest->freed = sim_work_ref(block->freed);
    rest->prev = block;
    if (rest->next)
        rest->next->prev = rest;
    block->next = rest;
    block->size = size;
    if (block->freed) {
        block_make_record(block, size, true);
        block_make_record(rest, rest->size, true);
    }
    return true;
}

/* ---- chunks ---- */

/* Takes addresses that host and devices share. */
static uint64_t host_take(uint64_t size) {
    char *all = mmap(NULL, size + CHUNK_ALIGN, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED)
        return 0;
    char *at = all + (-(uint64_t)(uintptr_t)all & (CHUNK_ALIGN - 1));
    if (at > all)
        munmap(all, (size_t)(at - all));
    munmap(at + size, (size_t)(all + CHUNK_ALIGN - at));
    return (uint64_t)(uintptr_t)at;
}

static uint64_t memory_take(const sim_pool_t *pool, uint64_t size) {
    return pool->on_host ? host_take(size) : sim_range_take(size, CHUNK_ALIGN, 0);
}

static void memory_give(const sim_pool_t *pool, uint64_t base, uint64_t size) {
    if (pool->on_host) {
        munmap(sim_bytes(base), size);
        return;
    }
    sim_mirror_discard(base, size);
    sim_range_give(base, size);
}

static CUresult charge(const sim_pool_t *pool, uint64_t size) {
    return pool->on_host ? CUDA_SUCCESS : sim_device_charge(pool->device, size);
}

static void uncharge(const sim_pool_t *pool, uint64_t size) {
    if (!pool->on_host)
        sim_device_uncharge(pool->device, size);
}

static bool chunk_idle(sim_chunk_t *chunk) {
    chunk_settle(chunk);
    return !chunk->first->next && !chunk->first->used && !chunk->first->freed;
}

static void chunk_release(sim_pool_t *pool, sim_chunk_t **link) {
    sim_chunk_t *chunk = *link;
    *link = chunk->next;
    if (sim_race_on)
        sim_race_range_gone(chunk->base, chunk->size);
    memory_give(pool, chunk->base, chunk->size);
    uncharge(pool, chunk->size);
    pool->reserved -= chunk->size;
    free(chunk->first);
    free(chunk);
}

/* Releases idle chunks until at most `keep` bytes are reserved.  With `floor`, at least `keep`
 * bytes stay reserved. */
void sim_pool_trim(sim_pool_t *pool, uint64_t keep, bool floor) {
    for (sim_chunk_t **link = &pool->chunks; *link && pool->reserved > keep;) {
        bool fits = !floor || pool->reserved - (*link)->size >= keep;
        if (fits && chunk_idle(*link))
            chunk_release(pool, link);
        else
            link = &(*link)->next;
    }
}

void sim_pool_bury(sim_pool_t *pool) {
    sim_pool_trim(pool, 0, false);
    if (!pool->chunks && !pool->imports)
        sim_slab_give(&sim_pools, pool);
}

void sim_pool_synced(void) {
    sim_pool_t *pool;
    for (size_t at = 0; (pool = sim_slab_next(&sim_pools, &at));) {
        if (pool->doomed)
            sim_pool_bury(pool);
        else
            sim_pool_trim(pool, pool->threshold, false);
    }
}

uint64_t sim_pool_release_idle(int device) {
    uint64_t before = 0, after = 0;
    sim_pool_t *pool;
    for (size_t at = 0; (pool = sim_slab_next(&sim_pools, &at));) {
        if (pool->device != device || pool->on_host)
            continue;
        before += pool->reserved;
        sim_pool_trim(pool, 0, false);
        after += pool->reserved;
    }
    return before - after;
}

static CUresult chunk_try(sim_pool_t *pool, uint64_t size, sim_chunk_t **out) {
    if (pool->props.maxSize && pool->reserved + size > pool->props.maxSize)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = charge(pool, size);
    if (result)
        return result;
    sim_chunk_t *chunk = calloc(1, sizeof *chunk);
    sim_block_t *block = calloc(1, sizeof *block);
    uint64_t base = chunk && block ? memory_take(pool, size) : 0;
    if (!base) {
        free(chunk);
        free(block);
        uncharge(pool, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *block = (sim_block_t){
        .owner = SIM_OWNER_BLOCK, .pool = pool, .chunk = chunk, .base = base, .size = size};
    *chunk = (sim_chunk_t){.next = pool->chunks, .base = base, .size = size, .first = block};
    pool->chunks = chunk;
    pool->reserved += size;
    if (pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
    *out = chunk;
    return CUDA_SUCCESS;
}

static CUresult chunk_new(sim_pool_t *pool, uint64_t size, sim_chunk_t **out) {
    if (chunk_try(pool, round_up(size, CHUNK_SIZE), out) == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    CUresult result = chunk_try(pool, round_up(size, CHUNK_ALIGN), out);
    if (result && !pool->on_host && sim_pool_release_idle(pool->device))
        result = chunk_try(pool, round_up(size, CHUNK_ALIGN), out);
    return result;
}

/* ---- choosing a block ---- */

typedef enum { SAME_STREAM, COMPLETED, BY_DEPENDENCY, CHOICES } choice_t;

static bool block_fits(const sim_pool_t *pool, const sim_block_t *block, uint64_t size,
                       uint64_t stream_id, choice_t choice) {
    if (block->used || block->size < size)
        return false;
    switch (choice) {
    case SAME_STREAM:
        return block->freed_stream == stream_id;
    case COMPLETED:
        return !block->freed && (pool->opportunistic || !block->freed_stream);
    default:
        return block->freed && pool->internal_dependencies;
    }
}

/* Returns the smallest block that fits, with the lowest address first. */
static sim_block_t *block_find(sim_pool_t *pool, uint64_t size, uint64_t stream_id,
                               choice_t choice) {
    sim_block_t *best = NULL;
    for (sim_chunk_t *chunk = pool->chunks; chunk; chunk = chunk->next)
        for (sim_block_t *block = chunk->first; block; block = block->next)
            if (block_fits(pool, block, size, stream_id, choice) &&
                (!best || block->size < best->size ||
                 (block->size == best->size && block->base < best->base)))
                best = block;
    return best;
}

static CUresult block_take(sim_pool_t *pool, uint64_t size, uint64_t stream_id,
                           sim_block_t **out) {
    for (sim_chunk_t *chunk = pool->chunks; chunk; chunk = chunk->next)
        chunk_settle(chunk);
    sim_block_t *block = block_find(pool, size, stream_id, SAME_STREAM);
    if (!block)
        block = block_find(pool, size, stream_id, COMPLETED);
    if (!block) {
        sim_chunk_t *chunk = NULL;
        CUresult result = chunk_new(pool, size, &chunk);
        /* The real driver waits for other streams only if the device has no more memory. */
        block = result ? block_find(pool, size, stream_id, BY_DEPENDENCY) : chunk->first;
        if (!block)
            return result;
    }
    if (!block_split(block, size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = block;
    return CUDA_SUCCESS;
}

/* ---- items ---- */

typedef struct {
    uint64_t base, id; /* record that becomes accessible */
} alloc_payload_t;

static CUresult alloc_run(sim_work_t *work) {
    const alloc_payload_t *payload = SIM_PAYLOAD(work, alloc_payload_t);
    sim_alloc_t *record = sim_alloc_at(payload->base);
    if (record && record->id == payload->id)
        record->no_access = false;
    return CUDA_SUCCESS;
}

static const sim_work_ops_t alloc_ops = {
    .name = "alloc_async", .type = SIM_WORK_ALLOC, .flags = SIM_RUN_ALWAYS, .run = alloc_run};

typedef struct {
    sim_pool_t *pool;
    uint64_t pool_id;
} free_payload_t;

static CUresult free_run(sim_work_t *work) {
    const free_payload_t *payload = SIM_PAYLOAD(work, free_payload_t);
    sim_pool_t *pool = payload->pool;
    if (!sim_slab_has(&sim_pools, pool) || pool->object.id != payload->pool_id)
        return CUDA_SUCCESS;
    for (sim_chunk_t *chunk = pool->chunks; chunk; chunk = chunk->next)
        for (sim_block_t *block = chunk->first; block; block = block->next)
            if (!block->used && block->freed == work)
                block_ready(block);
    if (pool->doomed)
        sim_pool_bury(pool);
    return CUDA_SUCCESS;
}

static const sim_work_ops_t free_ops = {
    .name = "free_async", .type = SIM_WORK_FREE, .flags = SIM_RUN_ALWAYS, .run = free_run};

/* Runs cuMemFreeAsync of memory from cuMemAlloc: the memory is freed when the stream gets
 * there. */
static CUresult free_device_run(sim_work_t *work) {
    const alloc_payload_t *payload = SIM_PAYLOAD(work, alloc_payload_t);
    sim_alloc_t *record = sim_alloc_at(payload->base);
    if (record && record->id == payload->id)
        sim_device_free(record);
    return CUDA_SUCCESS;
}

static const sim_work_ops_t free_device_ops = {
    .name = "free_async", .type = SIM_WORK_FREE, .flags = SIM_RUN_ALWAYS, .run = free_device_run};

/* ---- allocation ---- */

static CUresult alloc_from(sim_pool_t *pool, CUstream stream, size_t asked, CUdeviceptr *out) {
    if (!out || !asked || pool->imported)
        return CUDA_ERROR_INVALID_VALUE;
    if (asked > (pool->on_host ? INT64_MAX / 2 : sim_devices[pool->device].total))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (stream->capture)
        return sim_capture_alloc(stream, &pool->props, asked, out);
    sim_block_t *block = NULL;
    CUresult result = block_take(pool, round_up(asked, BLOCK_ALIGN), stream->object.id, &block);
    if (result)
        return result;
    sim_work_t *work = sim_work_new(&alloc_ops, stream->ctx, sizeof(alloc_payload_t));
    bool reused = block->freed != NULL;
    if (!work ||
        (reused && block->freed_stream != stream->object.id &&
         !sim_work_after(work, block->freed)) ||
        !block_make_record(block, asked, reused)) {
        sim_work_unref(work);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (sim_race_on)
        sim_race_touch(work, block->base, asked, true, SIM_USE_ALLOC);
    SIM_PAYLOAD(work, alloc_payload_t)->base = block->base;
    SIM_PAYLOAD(work, alloc_payload_t)->id = block->record->id;
    block->used = true;
    result = sim_enqueue(stream, work, NULL);
    if (result) {
        block->used = false;
        if (reused)
            block_make_record(block, block->size, true);
        else
            block_drop_record(block);
        return result;
    }
    /* With clock:real the item may have run already, so the old free is forgotten only now. */
    sim_work_unref(block->freed);
    block->freed = NULL;
    pool->used += block->size;
    if (pool->used > pool->used_high)
        pool->used_high = pool->used;
    *out = block->base;
    return CUDA_SUCCESS;
}

static CUresult alloc_async(CUdeviceptr *out, size_t size, CUstream handle, bool per_thread) {
    CUstream stream;
    CUresult result = sim_stream_get(handle, per_thread, &stream);
    if (result)
        return result;
    sim_pool_t *pool = sim_pool_current(stream->ctx->device);
    sim_call_bytes(SIM_FN_cuMemAllocAsync, size);
    return pool ? alloc_from(pool, stream, size, out) : CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_API(cuMemAllocAsync)(CUdeviceptr *out, size_t size, CUstream stream) {
    return alloc_async(out, size, stream, false);
}

SIM_API(cuMemAllocAsync_ptsz)(CUdeviceptr *out, size_t size, CUstream stream) {
    return alloc_async(out, size, stream, true);
}

static CUresult alloc_from_async(CUdeviceptr *out, size_t size, CUmemoryPool handle,
                                 CUstream stream_handle, bool per_thread) {
    CUstream stream;
    CUresult result = sim_stream_get(stream_handle, per_thread, &stream);
    if (result)
        return result;
    sim_pool_t *pool = sim_pool_get(handle);
    sim_call_bytes(SIM_FN_cuMemAllocFromPoolAsync, size);
    return pool ? alloc_from(pool, stream, size, out) : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuMemAllocFromPoolAsync)
(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream) {
    return alloc_from_async(out, size, pool, stream, false);
}

SIM_API(cuMemAllocFromPoolAsync_ptsz)
(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream) {
    return alloc_from_async(out, size, pool, stream, true);
}

/* ---- freeing ---- */

static CUresult free_block(sim_block_t *block, CUstream stream) {
    if (!block->used)
        return CUDA_ERROR_INVALID_VALUE;
    sim_work_t *work = sim_work_new(&free_ops, stream->ctx, sizeof(free_payload_t));
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_pool_t *pool = block->pool;
    *SIM_PAYLOAD(work, free_payload_t) = (free_payload_t){pool, pool->object.id};
    if (sim_race_on)
        sim_race_touch(work, block->base, block->record->size, true, SIM_USE_FREE);
    /* Set before submission, because an idle stream may run the item at once. */
    block->used = false;
    block->freed = sim_work_ref(work);
    block->freed_stream = stream->object.id;
    pool->used -= block->size;
    uint64_t size = block->size;
    CUresult result = sim_enqueue(stream, work, NULL);
    if (result) {
        sim_work_unref(block->freed);
        block->freed = NULL;
        block->used = true;
        pool->used += size;
    }
    return result;
}

static CUresult free_graph_mem(sim_graph_mem_t *mem, CUstream stream) {
    if (!mem->live)
        return CUDA_ERROR_INVALID_VALUE;
    sim_work_t *work = sim_graph_mem_free_work(stream->ctx, mem);
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    mem->live = false;
    CUresult result = sim_enqueue(stream, work, NULL);
    mem->live = result != CUDA_SUCCESS;
    return result;
}

static CUresult free_plain(sim_alloc_t *record, CUstream stream) {
    if (record->owner == &free_device_ops)
        return CUDA_ERROR_INVALID_VALUE; /* already on its way */
    sim_work_t *work = sim_work_new(&free_device_ops, stream->ctx, sizeof(alloc_payload_t));
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *SIM_PAYLOAD(work, alloc_payload_t) = (alloc_payload_t){record->base, record->id};
    union {
        const sim_work_ops_t *ops;
        void *owner;
    } mark = {.ops = &free_device_ops};
    record->owner = mark.owner;
    if (sim_race_on)
        sim_race_touch(work, record->base, record->size, true, SIM_USE_FREE);
    uint64_t base = record->base, id = record->id;
    CUresult result = sim_enqueue(stream, work, NULL);
    record = result ? sim_alloc_at(base) : NULL;
    if (record && record->id == id)
        record->owner = NULL;
    return result;
}

static CUresult free_async(CUdeviceptr address, CUstream handle, bool per_thread) {
    CUstream stream;
    CUresult result = sim_stream_get(handle, per_thread, &stream);
    if (result)
        return result;
    if (stream->capture)
        return sim_capture_free(stream, address);
    sim_alloc_t *record = sim_alloc_at(address);
    if (!record)
        return CUDA_ERROR_INVALID_VALUE;
    sim_call_bytes(SIM_FN_cuMemFreeAsync, record->size);
    if (record->kind == SIM_MEM_DEVICE)
        return free_plain(record, stream);
    if (record->kind != SIM_MEM_POOL || !record->owner)
        return CUDA_ERROR_INVALID_VALUE;
    if (*(sim_pool_owner_t *)record->owner == SIM_OWNER_GRAPH)
        return free_graph_mem(record->owner, stream);
    if (*(sim_pool_owner_t *)record->owner == SIM_OWNER_IMPORT)
        return sim_pool_import_free_async(record, stream);
    return free_block(record->owner, stream);
}

SIM_API(cuMemFreeAsync)(CUdeviceptr address, CUstream stream) {
    return free_async(address, stream, false);
}

SIM_API(cuMemFreeAsync_ptsz)(CUdeviceptr address, CUstream stream) {
    return free_async(address, stream, true);
}

/* Implements cuMemFree of stream-ordered memory, which does not wait: the documentation requires
 * that the caller has waited.  Work that still uses the block faults. */
CUresult sim_pool_free_sync(sim_alloc_t *record) {
    if (record->kind != SIM_MEM_POOL || !record->owner)
        return CUDA_ERROR_INVALID_VALUE;
    if (*(sim_pool_owner_t *)record->owner == SIM_OWNER_GRAPH) {
        sim_graph_mem_t *mem = record->owner;
        if (!mem->live)
            return CUDA_ERROR_INVALID_VALUE;
        mem->live = false;
        sim_graph_mem_rollback(mem);
        return CUDA_SUCCESS;
    }
    if (*(sim_pool_owner_t *)record->owner == SIM_OWNER_IMPORT)
        return sim_pool_import_free(record);
    sim_block_t *block = record->owner;
    if (!block->used)
        return CUDA_ERROR_INVALID_VALUE;
    sim_pool_t *pool = block->pool;
    block->used = false;
    block_drop_record(block);
    pool->used -= block->size;
    if (pool->doomed)
        sim_pool_bury(pool);
    return CUDA_SUCCESS;
}

void sim_ctx_gone_pool(CUcontext ctx) {
    if (!ctx->primary)
        return;
    sim_pool_t *pool;
    for (size_t at = 0; (pool = sim_slab_next(&sim_pools, &at));) {
        if (pool->device != ctx->device || pool->on_host)
            continue;
        for (sim_chunk_t *chunk = pool->chunks; chunk; chunk = chunk->next)
            for (sim_block_t *block = chunk->first; block; block = block->next) {
                block->used = false;
                block_ready(block);
            }
        pool->used = 0;
        sim_pool_trim(pool, 0, false);
        if (pool->doomed)
            sim_pool_bury(pool);
    }
}

SIM_LIVE_COUNT(pools) {
    return sim_pools.live;
}

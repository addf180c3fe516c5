/* Operations on blocks and on memory pools. */
#include "operations_int.h"

/* ---- blocks ---- */

static void began(const call_t *c, uint32_t at, CUdeviceptr address, uint32_t bytes) {
    memory_t *memory = &run.memory[at];
    memory->live = true;
    memory->at = address;
    memory->bytes = bytes;
    memory->sync = 0;
    memory->id = 0;
    memory->pool = run.model->block[at].pool;
    if (!run.first && !run.model->block[at].pinned)
        run.first = address;
    if (!run.model->block[at].pinned)
        run_note(address - run.first);
    change(c, CHANGE_VALUE, at, at, 0);
}

RUN(ALLOC) {
    CUdeviceptr address;
    CUresult result = cuMemAlloc_v2(&address, c->op->at[1]);
    if (!result)
        began(c, c->op->at[0], address, c->op->at[1]);
    return result;
}

/* The hash omits the address of host memory, because it differs between processes. */
RUN(PIN) {
    void *memory;
    CUresult result = cuMemHostAlloc(&memory, c->op->at[1], CU_MEMHOSTALLOC_PORTABLE);
    if (!result)
        began(c, c->op->at[0], (CUdeviceptr)(uintptr_t)memory, c->op->at[1]);
    return result;
}

RUN(UNPIN) {
    run.memory[c->op->at[0]].live = false;
    return cuMemFreeHost((void *)(uintptr_t)run.memory[c->op->at[0]].at);
}

RUN(ALLOCASYNC) {
    CUdeviceptr address;
    uint32_t on = c->op->at[2];
    CUresult result = BY(on, cuMemAllocAsync)(&address, c->op->at[1], handle(on));
    if (!result)
        began(c, c->op->at[0], address, c->op->at[1]);
    return result;
}

RUN(ALLOCFROM) {
    CUdeviceptr address;
    uint32_t on = c->op->at[3];
    CUresult result = BY(on, cuMemAllocFromPoolAsync)(&address, c->op->at[1],
                                                      run.pool[c->op->at[2]], handle(on));
    if (!result)
        began(c, c->op->at[0], address, c->op->at[1]);
    return result;
}

RUN(FREE) {
    run.memory[c->op->at[0]].live = false;
    return cuMemFree_v2(run.memory[c->op->at[0]].at);
}

RUN(FREEASYNC) {
    uint32_t on = c->op->at[1];
    run.memory[c->op->at[0]].live = false;
    return BY(on, cuMemFreeAsync)(run.memory[c->op->at[0]].at, handle(on));
}

RUN(RANGE) {
    const memory_t *memory = &run.memory[c->op->at[0]];
    CUdeviceptr base = 0;
    size_t bytes = 0;
    CUresult result = cuMemGetAddressRange_v2(&base, &bytes, memory->at + memory->bytes / 2);
    if (!result && (base != memory->at || bytes < memory->bytes))
        run_fail("operation %zu: the range of a block of %u bytes is %zu bytes, %lld from it",
                 run.next, memory->bytes, bytes, (long long)(base - memory->at));
    return result;
}

static void new_id(memory_t *memory, unsigned long long id) {
    for (unsigned i = 0; i < run.ids; i++)
        if (run.id[i] == id)
            run_fail("operation %zu: id %llx was another lifetime's", run.next, id);
    memory->id = id;
    if (run.ids < IDS)
        run.id[run.ids++] = id;
}

RUN(ID) {
    memory_t *memory = &run.memory[c->op->at[0]];
    unsigned long long id = 0;
    CUresult result = cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                            memory->at + memory->bytes / 2);
    if (result)
        return result;
    if (!memory->id)
        new_id(memory, id);
    if (memory->id != id)
        run_fail("operation %zu: a block's id is %llx, and was %llx", run.next, id, memory->id);
    return CUDA_SUCCESS;
}

RUN(SYNCMEMOPS) {
    memory_t *memory = &run.memory[c->op->at[0]];
    unsigned want = c->op->at[1], before = 0, after = 0;
    CUresult result =
        cuPointerGetAttribute(&before, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory->at);
    if (!result)
        result = cuPointerSetAttribute(&want, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory->at);
    if (!result)
        result = cuPointerGetAttribute(&after, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory->at);
    if (!result && (before != memory->sync || after != want))
        run_fail("operation %zu: SYNC_MEMOPS was %u, not %u, and is %u, not %u", run.next, before,
                 memory->sync, after, want);
    memory->sync = want;
    return result;
}

/* The handle of a block inside a segment may be refused. */
RUN(HANDLE) {
    CUipcMemHandle out;
    run_note(cuIpcGetMemHandle(&out, run.memory[c->op->at[0]].at));
    return CUDA_SUCCESS;
}

/* ---- pools ---- */

CUresult drop_pool(unsigned pool) {
    CUmemoryPool gone = run.pool[pool];
    run.pool[pool] = NULL;
    for (unsigned i = 0; i < BLOCKS; i++)
        if (run.memory[i].pool == (int)pool)
            run.memory[i].pool = -1;
    return cuMemPoolDestroy(gone);
}

RUN(POOL) {
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, (int)c->op->at[1]}};
    return cuMemPoolCreate(&run.pool[c->op->at[0]], &props);
}

RUN(DROPPOOL) {
    return drop_pool(c->op->at[0]);
}

RUN(POOLREACH) {
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, (int)c->op->at[1]},
                              CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return cuMemPoolSetAccess(run.pool[c->op->at[0]], &access, 1);
}

RUN(POOLSET) {
    static const CUmemPool_attribute kinds[] = {
        CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
        CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
        CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES};
    CUmemoryPool pool = run.pool[c->op->at[0]];
    uint32_t what = c->op->at[1];
    uint64_t keep = what ? UINT64_MAX : 0;
    int off = 0;
    return what < 2 ? cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep)
                    : cuMemPoolSetAttribute(pool, kinds[what - 2], &off);
}

/* The pool counts allocated memory in units, and does not count freed memory, even if its free is
 * pending. */
RUN(POOLASK) {
    enum { UNIT = 512 };
    uint64_t used = 0, right = 0;
    for (unsigned i = 0; i < BLOCKS; i++)
        if (run.memory[i].live && run.memory[i].pool == (int)c->op->at[0])
            right += (run.memory[i].bytes + UNIT - 1) / UNIT * UNIT;
    CUresult result =
        cuMemPoolGetAttribute(run.pool[c->op->at[0]], CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
    if (!result && used != right)
        run_fail("operation %zu: %llu bytes of the pool are in use, not %llu", run.next,
                 (unsigned long long)used, (unsigned long long)right);
    return result;
}

RUN(POOLTRIM) {
    return cuMemPoolTrimTo(run.pool[c->op->at[0]], 0);
}

RUN(DEVICEPOOL) {
    return cuDeviceSetMemPool(run.model->pool[c->op->at[0]].device, run.pool[c->op->at[0]]);
}

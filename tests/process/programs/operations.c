/* Execution of the operations: one function per row of ops.def. */
#include <dlfcn.h>
#include <string.h>

#include "operations_int.h"

static const CUresult skipped = 0xffffffffu; /* a value that no driver returns */

static uint32_t smaller(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* Returns the bytes that copies and fills use: whole words. */
static uint32_t extent(const memory_t *memory) {
    return smaller(memory->bytes, COPY_MOST) & ~3u;
}

static CUresult with_context(int context, CUresult (*act)(const call_t *), const call_t *c) {
    CUcontext popped;
    CUresult result = cuCtxPushCurrent_v2(run.context[context]);
    if (result)
        return result;
    result = act(c);
    cuCtxPopCurrent_v2(&popped);
    return result;
}

/* Returns the driver's function of this name. The race detector ends a lifetime at frees by their
 * own names, even if they fail. */
static void *by_name(const char *name) {
    void *found = NULL;
    if (cuGetProcAddress(name, &found, 12000, CU_GET_PROC_ADDRESS_DEFAULT) || !found)
        run_fail("no %s", name);
    return found;
}

static cuMemFree_v2_fn *plain_free;
static cuMemFreeAsync_fn *free_in_order;

/* Returns memory of the program, for calls that are refused. */
static void *some_memory(void) {
    unsigned i = 0;
    while (i + 1 < BLOCKS && !run.memory[i].live)
        i++;
    if (!plain_free) {
        *(void **)&plain_free = by_name("cuMemFree");
        *(void **)&free_in_order = by_name("cuMemFreeAsync");
    }
    return (void *)(uintptr_t)run.memory[i].at;
}

/* ---- contents of the blocks ---- */

static void change_all(const changes_t *changes, uint32_t *value, uint32_t *local) {
    for (unsigned i = 0; i < changes->count; i++) {
        const change_t *change = &changes->change[i];
        uint32_t *to = change->to_local ? local : value;
        uint32_t from = (change->from_local ? local : value)[change->from];
        if (change->kind == CHANGE_VALUE)
            to[change->to] = change->value;
        else if (change->kind == CHANGE_COPY)
            to[change->to] = from;
        else
            to[change->to] = from ? run_mixed(from) : 0;
    }
}

static void change_now(const changes_t *changes) {
    uint32_t value[BLOCKS], local[BLOCKS] = {0};
    for (unsigned i = 0; i < BLOCKS; i++)
        value[i] = run.memory[i].value;
    change_all(changes, value, local);
    for (unsigned i = 0; i < BLOCKS; i++)
        run.memory[i].value = value[i];
}

void change(const call_t *c, change_kind_t kind, uint32_t to, uint32_t from, uint32_t value) {
    change_t made = {kind,
                     to,
                     from,
                     value,
                     run.model->block[to].local >= 0,
                     run.model->block[from].local >= 0};
    if (c->capture < 0) {
        change_now(&(changes_t){1, {made}});
        return;
    }
    changes_t *captured = &run.captured[c->capture];
    if (captured->count < CHANGES)
        captured->change[captured->count++] = made;
}

/* Returns the value that an item reading the block now will find; 0: unknown. */
static uint32_t expected(const call_t *c, uint32_t block) {
    uint32_t value[BLOCKS] = {0}, local[BLOCKS] = {0};
    if (c->capture < 0)
        return run.memory[block].value;
    change_all(&run.captured[c->capture], value, local);
    return (run.model->block[block].local >= 0 ? local : value)[block];
}

static uint32_t new_value(void) {
    return ++run.next_value;
}

/* ---- contexts and streams ---- */

RUN(USE) {
    run.stale[c->op->thread] = CUDA_SUCCESS;
    return cuCtxSetCurrent(run.context[c->op->at[0]]);
}

RUN(NEWCTX) {
    CUcontext popped;
    int at = (int)c->op->at[0];
    CUresult result = cuCtxCreate_v2(&run.context[at], 0, (int)c->op->at[1]);
    if (result)
        return result;
    run_context_ready(at);
    return cuCtxPopCurrent_v2(&popped);
}

/* Drops the executor's records of objects that ended with the context. */
static void forget(int context) {
    run_context_ends(context);
    for (unsigned i = 0; i < BLOCKS; i++)
        if (run.memory[i].live && !run.model->block[i].live) {
            run.memory[i].live = false;
            simcuda_owner_end(run.memory[i].at);
        }
    for (unsigned i = 0; i < GRAPHS; i++)
        if (run.graph[i].exec && !run.model->graph[i].live) {
            cuGraphExecDestroy(run.graph[i].exec);
            run.graph[i].exec = NULL;
        }
    for (unsigned i = 0; i < POOLS; i++)
        if (run.pool[i] && !run.model->pool[i].live)
            drop_pool(i);
}

RUN(DROPCTX) {
    CUcontext mine = NULL, context = run.context[c->op->at[0]];
    forget((int)c->op->at[0]);
    cuCtxGetCurrent(&mine);
    for (unsigned i = 0; i < THREADS; i++)
        if (run.model->current[i] < 0 && !run.stale[i])
            run.stale[i] = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (mine == context && run.model->current[c->op->thread] < 0)
        run.stale[c->op->thread] = CUDA_ERROR_INVALID_CONTEXT; /* popped */
    return cuCtxDestroy_v2(context);
}

static CUresult ready_again(const call_t *c) {
    run_context_ready((int)c->op->at[0]);
    return CUDA_SUCCESS;
}

/* The program holds one reference to the primary context before and afterwards. */
RUN(RESET) {
    CUcontext again;
    int device = (int)c->op->at[0];
    bool release = c->op->at[1];
    forget((int)c->op->at[0]);
    CUresult result =
        release ? cuDevicePrimaryCtxRelease_v2(device) : cuDevicePrimaryCtxReset_v2(device);
    if (!result)
        result = cuDevicePrimaryCtxRetain(&again, device);
    if (!result && !release)
        result = cuDevicePrimaryCtxRelease_v2(device);
    if (result)
        return result;
    if (again != run.context[device])
        run_fail("operation %zu: a primary context has another handle", run.next);
    return with_context(device, ready_again, c);
}

RUN(STALE) {
    CUdeviceptr taken;
    void *had = some_memory();
    CUresult result = cuMemAlloc_v2(&taken, HEAD),
             freed = plain_free((CUdeviceptr)(uintptr_t)had), right = run.stale[c->op->thread];
    if (result != right || freed != right)
        run_fail("operation %zu answered %u and %u, not %u", run.next, result, freed, right);
    return CUDA_SUCCESS;
}

static CUresult peer(const call_t *c) {
    return cuCtxEnablePeerAccess(run.context[c->op->at[1]], 0);
}

RUN(PEER) {
    return with_context((int)c->op->at[0], peer, c);
}

static CUresult unpeer(const call_t *c) {
    return cuCtxDisablePeerAccess(run.context[c->op->at[1]]);
}

RUN(UNPEER) {
    return with_context((int)c->op->at[0], unpeer, c);
}

static CUresult stream(const call_t *c) {
    CUstream *out = &run.stream[c->op->at[0]];
    unsigned flags = c->op->at[2] & 1 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT;
    return c->op->at[2] & 2 ? cuStreamCreateWithPriority(out, flags, -1)
                            : cuStreamCreate(out, flags);
}

RUN(STREAM) {
    return with_context((int)c->op->at[1], stream, c);
}

RUN(GREEN) {
    unsigned char resource[256];
    CUdevResourceDesc share;
    CUdevice device = (int)c->op->at[1];
    CUresult result = cuDeviceGetDevResource(device, (CUdevResource *)(void *)resource, 1);
    if (!result)
        result = cuDevResourceGenerateDesc(&share, (CUdevResource *)(void *)resource, 1);
    return result ? result : cuGreenCtxCreate(&run.green[c->op->at[0]], share, device, 1);
}

RUN(GSTREAM) {
    return cuGreenCtxStreamCreate(&run.stream[c->op->at[0]], run.green[c->op->at[1]],
                                  CU_STREAM_NON_BLOCKING, 0);
}

RUN(DROPGREEN) {
    return cuGreenCtxDestroy(run.green[c->op->at[0]]);
}

RUN(DROP) {
    return cuStreamDestroy_v2(run.stream[c->op->at[0]]);
}

/* ---- kernels ---- */

static CUresult launch(const call_t *c, unsigned kernel, uint32_t how, uint32_t to, uint32_t from,
                       uint32_t value, uint32_t expect) {
    memory_t *first = &run.memory[to], *second = &run.memory[from];
    uint32_t number = (uint32_t)run.next, on = c->op->at[0];
    void *params[] = {&first->at, &first->bytes, &second->at, &second->bytes,
                      &value,     &expect,       &number};
    CUfunction function =
        run.function[run.model->lane[c->lane].ctx][kernel][how % LAUNCH_PROGRAMMATIC % 3];
    if (!(how & LAUNCH_PROGRAMMATIC))
        return BY(on, cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, handle(on), params, NULL);
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, handle(on), &attribute, 1};
    return BY(on, cuLaunchKernelEx)(&config, function, params, NULL);
}

RUN(FILL) {
    uint32_t to = c->op->at[1], value = new_value();
    CUresult result = launch(c, KERNEL_FILL, c->op->at[2], to, to, value, 0);
    if (!result)
        change(c, CHANGE_VALUE, to, to, value);
    return result;
}

RUN(CHECK) {
    uint32_t of = c->op->at[1];
    return launch(c, KERNEL_CHECK, c->op->at[2], of, of, 0, expected(c, of));
}

RUN(MIX) {
    uint32_t to = c->op->at[1], from = c->op->at[2];
    CUresult result = launch(c, KERNEL_MIX, c->op->at[3], to, from, 0, expected(c, from));
    if (!result)
        change(c, CHANGE_MIX, to, from, 0);
    return result;
}

/* ---- copies and fills ---- */

static uint32_t host_words[COPY_MOST / 4];

static uint32_t host_fill(void) {
    uint32_t value = new_value();
    for (unsigned i = 0; i < HEAD / 4; i++)
        host_words[i] = value;
    return value;
}

static CUresult filled(const call_t *c, CUresult result, uint32_t value) {
    if (!result)
        change(c, CHANGE_VALUE, c->op->at[1], c->op->at[1], value);
    return result;
}

RUN(SET) {
    const memory_t *to = &run.memory[c->op->at[1]];
    uint32_t on = c->op->at[0], value = new_value();
    return filled(c, BY(on, cuMemsetD32Async)(to->at, value, extent(to) / 4, handle(on)), value);
}

RUN(SETNOW) {
    const memory_t *to = &run.memory[c->op->at[1]];
    uint32_t value = new_value();
    return filled(c, NOW_BY(c->op->at[0], cuMemsetD32_v2)(to->at, value, extent(to) / 4), value);
}

RUN(PUT) {
    const memory_t *to = &run.memory[c->op->at[1]];
    uint32_t on = c->op->at[0], value = host_fill();
    return filled(c, BY(on, cuMemcpyHtoDAsync_v2)(to->at, host_words, extent(to), handle(on)),
                  value);
}

RUN(PUTNOW) {
    const memory_t *to = &run.memory[c->op->at[1]];
    uint32_t value = host_fill();
    return filled(c, NOW_BY(c->op->at[0], cuMemcpyHtoD_v2)(to->at, host_words, extent(to)),
                  value);
}

static void seen(void *argument) {
    slot_t *slot = argument;
    for (unsigned i = 0; slot->expect && i < HEAD / 4; i++)
        if (slot->seen[i] != slot->expect)
            run_mismatch(slot->at, slot->expect, slot->seen[i]);
    slot->busy = false;
}

RUN(GET) {
    slot_t *slot = &run.slot[run.next_slot % SLOTS];
    uint32_t on = c->op->at[0];
    if (slot->busy)
        return skipped;
    slot->seen = run.pinned[run.model->lane[c->lane].ctx] + run.next_slot++ % SLOTS * (HEAD / 4);
    CUresult result =
        BY(on, cuMemcpyDtoHAsync_v2)(slot->seen, run.memory[c->op->at[1]].at, HEAD, handle(on));
    if (result)
        return result;
    slot->at = run.next;
    slot->expect = expected(c, c->op->at[1]);
    slot->busy = true;
    return BY(on, cuLaunchHostFunc)(handle(on), seen, slot);
}

RUN(GETNOW) {
    slot_t slot = {.seen = host_words, .at = run.next, .expect = expected(c, c->op->at[1])};
    CUresult result =
        NOW_BY(c->op->at[0], cuMemcpyDtoH_v2)(host_words, run.memory[c->op->at[1]].at, HEAD);
    if (!result)
        seen(&slot);
    return result;
}

static CUresult copied(const call_t *c, CUresult result) {
    if (!result)
        change(c, CHANGE_COPY, c->op->at[1], c->op->at[2], 0);
    return result;
}

RUN(COPY) {
    const memory_t *to = &run.memory[c->op->at[1]], *from = &run.memory[c->op->at[2]];
    uint32_t on = c->op->at[0], bytes = smaller(extent(to), extent(from));
    if (run.next % 2) /* two equivalent calls */
        return copied(c, BY(on, cuMemcpyAsync)(to->at, from->at, bytes, handle(on)));
    return copied(c, BY(on, cuMemcpyDtoDAsync_v2)(to->at, from->at, bytes, handle(on)));
}

RUN(COPYNOW) {
    const memory_t *to = &run.memory[c->op->at[1]], *from = &run.memory[c->op->at[2]];
    return copied(c, NOW_BY(c->op->at[0], cuMemcpyDtoD_v2)(to->at, from->at,
                                                           smaller(extent(to), extent(from))));
}

/* ---- a function of a newer driver, in no table of the library ---- */

void *raw_function(void *handle, const char *name);

typedef CUresult future_fn(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream,
                           bool per_thread);

static CUresult future_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream,
                            bool per_thread) {
    static cuMemcpyDtoDAsync_v2_fn *copy, *copy_ptsz;
    void *driver = copy ? NULL : dlopen("libcuda.so.1", RTLD_NOW);
    if (driver) { /* calls inside the driver, which the library does not see */
        *(void **)&copy = raw_function(driver, "cuMemcpyDtoDAsync_v2");
        *(void **)&copy_ptsz = raw_function(driver, "cuMemcpyDtoDAsync_v2_ptsz");
    }
    return (per_thread ? copy_ptsz : copy)(to, from, bytes, stream);
}

static future_fn *future;

RUN(FIND) {
    static const char name[] = "cuFutureCopy";
    static bool offered;
    (void)c;
    if (!offered && simcuda_offer_function(name, __extension__(void *) future_copy))
        run_fail("the driver takes no function");
    offered = true;
    *(void **)&future = by_name(name);
    return CUDA_SUCCESS;
}

RUN(UNSEEN) {
    const memory_t *to = &run.memory[c->op->at[1]], *from = &run.memory[c->op->at[2]];
    uint32_t on = c->op->at[0];
    return copied(c, future(to->at, from->at, smaller(extent(to), extent(from)), handle(on),
                            on & STREAM_Z));
}

RUN(PEERCOPY) {
    const memory_t *to = &run.memory[c->op->at[1]], *from = &run.memory[c->op->at[2]];
    const block_t *block = run.model->block;
    uint32_t on = c->op->at[0];
    return copied(c, BY(on, cuMemcpyPeerAsync)(to->at, run.context[block[c->op->at[1]].ctx],
                                               from->at, run.context[block[c->op->at[2]].ctx],
                                               smaller(extent(to), extent(from)), handle(on)));
}

static void nothing(void *argument) {
    (void)argument;
}

/* Makes calls in a host function, among them a free. CUDA refuses them all. */
static void call_inside(void *argument) {
    CUdeviceptr taken = 0, had = (CUdeviceptr)(uintptr_t)argument;
    size_t available, total;
    const CUresult right = CUDA_ERROR_NOT_PERMITTED;
    CUresult alloc = cuMemAlloc_v2(&taken, HEAD), freed = plain_free(had),
             in_order = free_in_order(had, CU_STREAM_LEGACY),
             alloc_in_order = cuMemAllocAsync(&taken, HEAD, CU_STREAM_LEGACY),
             info = cuMemGetInfo_v2(&available, &total);
    if (alloc != right || freed != right || in_order != right || alloc_in_order != right ||
        info != right)
        run_fail("calls in a host function answered %u, %u, %u, %u and %u", alloc, freed,
                 in_order, alloc_in_order, info);
}

static void call_back(CUstream stream, CUresult result, void *argument) {
    (void)stream;
    if (result)
        run_fail("a callback is told of error %u", result);
    call_inside(argument);
}

RUN(HOST) {
    uint32_t on = c->op->at[0];
    return BY(on, cuLaunchHostFunc)(handle(on), call_inside, some_memory());
}

RUN(CALLBACK) {
    uint32_t on = c->op->at[0];
    return BY(on, cuStreamAddCallback)(handle(on), call_back, some_memory(), 0);
}

/* ---- events and waiting ---- */

static CUresult event(const call_t *c) {
    return cuEventCreate(&run.event[c->op->at[0]], CU_EVENT_DISABLE_TIMING);
}

RUN(EVENT) {
    return with_context((int)c->op->at[1], event, c);
}

RUN(DROPEVENT) {
    return cuEventDestroy_v2(run.event[c->op->at[0]]);
}

RUN(RECORD) {
    uint32_t on = c->op->at[1];
    return BY(on, cuEventRecord)(run.event[c->op->at[0]], handle(on));
}

RUN(WAIT) {
    uint32_t on = c->op->at[0];
    return BY(on, cuStreamWaitEvent)(handle(on), run.event[c->op->at[1]], 0);
}

/* Accepts both answers of a query, and adds the answer to the hash. */
static CUresult asked(CUresult result) {
    run_note(result);
    return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
}

RUN(QUERY) {
    return asked(cuEventQuery(run.event[c->op->at[0]]));
}

RUN(SYNCEVENT) {
    return cuEventSynchronize(run.event[c->op->at[0]]);
}

RUN(SYNC) {
    return BY(c->op->at[0], cuStreamSynchronize)(handle(c->op->at[0]));
}

RUN(POLL) {
    return asked(BY(c->op->at[0], cuStreamQuery)(handle(c->op->at[0])));
}

RUN(SYNCCTX) {
    (void)c;
    return cuCtxSynchronize();
}

/* ---- graphs ---- */

RUN(CAPTURE) {
    uint32_t on = c->op->at[0];
    run.captured[run.model->lane[c->lane].capture].count = 0;
    return BY(on, cuStreamBeginCapture_v2)(handle(on), c->op->at[1]);
}

RUN(ENDCAPTURE) {
    uint32_t on = c->op->at[0];
    made_graph_t *made = &run.graph[c->op->at[1]];
    CUgraph graph;
    CUresult result = BY(on, cuStreamEndCapture)(handle(on), &graph);
    made->exec = NULL;
    if (result)
        return result;
    made->changes = run.captured[c->capture];
    result = cuGraphInstantiateWithFlags(&made->exec, graph, 0);
    if (result)
        made->exec = NULL;
    CUresult gone = cuGraphDestroy(graph);
    return result ? result : gone;
}

RUN(LAUNCH) {
    made_graph_t *made = &run.graph[c->op->at[0]];
    uint32_t on = c->op->at[1];
    if (!made->exec)
        return skipped;
    CUresult result = BY(on, cuGraphLaunch)(made->exec, handle(on));
    if (!result)
        change_now(&made->changes);
    return result;
}

RUN(DROPGRAPH) {
    made_graph_t *made = &run.graph[c->op->at[0]];
    CUresult result = made->exec ? cuGraphExecDestroy(made->exec) : skipped;
    made->exec = NULL;
    return result;
}

/* ---- the rest ---- */

/* The thread does this itself, after the operation. */
RUN(RENEW) {
    run.stale[c->op->thread] = CUDA_SUCCESS;
    return CUDA_SUCCESS;
}

RUN(ADVANCE) {
    simcuda_advance(1000ull * c->op->at[0]);
    return CUDA_SUCCESS;
}

RUN(EMPTY) {
    (void)c;
    return run.empty ? (CUresult)run.empty() : skipped;
}

RUN(INFO) {
    size_t available = 0, total = 0;
    (void)c;
    CUresult result = cuMemGetInfo_v2(&available, &total);
    if (!result && available > total)
        run_fail("operation %zu: %zu of %zu bytes are free", run.next, available, total);
    return result;
}

RUN(TRIMPOOL) {
    CUmemoryPool pool;
    CUresult result = cuDeviceGetDefaultMemPool(&pool, (int)c->op->at[0]);
    return result ? result : cuMemPoolTrimTo(pool, 0);
}

/* ---- all operations ---- */

/* Returns false if an operand is a block without memory, because its allocation failed. */
static bool blocks_live(const op_t *op) {
    const char *kinds = op_operands(op->code);
    if (op_allocates(op->code))
        return true;
    for (unsigned i = 0; kinds[i]; i++)
        if (kinds[i] == 'B' && !run.memory[op->at[i]].live)
            return false;
    return true;
}

static bool may_lack_memory(unsigned code) {
    return run.limited && (op_allocates(code) || code == OP_ENDCAPTURE || code == OP_LAUNCH);
}

/* Submits an empty callback in place of a skipped operation. The model orders other work by the
 * operation's place in its stream, because work of the legacy stream orders others. */
static CUresult in_place(const op_t *op) {
    const char *kinds = op_operands(op->code), *found = strchr(kinds, 'S');
    if (!found || op_allocates(op->code) || op->code == OP_FREEASYNC)
        return skipped;
    uint32_t on = op->at[found - kinds];
    CUresult result = BY(on, cuLaunchHostFunc)(handle(on), nothing, NULL);
    if (!result && op->code == OP_GETNOW)
        result = BY(on, cuStreamSynchronize)(handle(on));
    return result ? result : skipped;
}

void run_op(const op_t *op, int lane, int capture) {
    static CUresult (*const table[])(const call_t *) = {
#define OP(symbol, name, operands, doc) run_##symbol,
#include "ops.def"
#undef OP
    };
    call_t call = {op, lane, capture};
    CUresult result = blocks_live(op) ? table[op->code](&call) : skipped;
    if (result == CUDA_ERROR_OUT_OF_MEMORY && may_lack_memory(op->code))
        result = skipped;
    if (result == skipped)
        result = in_place(op);
    run_note(result);
    if (result == skipped)
        run.skipped++;
    else
        run.executed++;
    if (result && result != skipped)
        run_fail("operation %zu (%s) answered %u", run.next, op_name(op->code), result);
}

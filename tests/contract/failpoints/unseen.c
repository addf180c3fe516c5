/* Work that the library cannot see, or cannot assign to a context: it counts for all memory of
 * all contexts. */
#include <dlfcn.h>
#include <stdint.h>

#include "failpoints.h"

enum { MIB = 1 << 20, BUSY_MIB = 64 };

void *raw_function(void *handle, const char *name);

/* The driver's own function: its calls pass no hook. */
#define RAW(symbol)                                                                              \
    (__extension__(CUresult(*)()) raw_function(dlopen("libcuda.so.1", RTLD_NOW), #symbol))

/* One more device and stream: `memory` lies there, `old_owner` and `here` are of the first. */
typedef struct {
    CUfunction old_owner, new_owner;
    CUstream stream;
    CUdeviceptr beside;
} side_t;

static side_t side_of(const failpoint_run_t *t) {
    return (side_t){t->old_owner, t->new_owner, t->stream[0], t->beside};
}

/* Runs a long kernel on other memory than `memory`. The library sees this kernel. */
static void keep_busy(failpoint_run_t *t, const side_t *side) {
    CUfunction own = t->old_owner;
    CUdeviceptr memory = t->memory;
    t->old_owner = side->old_owner;
    t->memory = side->beside;
    failpoint_old(t, side->stream);
    t->old_owner = own;
    t->memory = memory;
}

/* --- streams of a context that the driver does not report --- */

static void refuse(const char *what) {
    if (simcuda_fail(what))
        test_stop(TEST_WRONG, "the fault plan");
}

/* The old owner's stream is of a context that is not current. */
void failpoint_stream_of_current_context(failpoint_run_t *t) {
    failpoint_take(t, MIB);
    failpoint_second_device(t);
    failpoint_take(t, MIB);
    MUST(cuCtxSetCurrent(t->ctx[0]));
    refuse("cuStreamGetCtx>=1");
    failpoint_old(t, t->stream[0]);
    MUST(cuCtxSetCurrent(t->ctx[1]));
    failpoint_hand_over(t);
    failpoint_new(t, t->stream[1]);
}

/* A context of `t->ctx[0]`'s device, current; what is freed there waits for the whole device. */
static CUcontext beside_first(failpoint_run_t *t) {
    CUcontext made;
    MUST(cuCtxCreate_v2(&made, 0, 0));
    failpoint_take(t, MIB);
    return made;
}

/* `memory`, of `owner`, is written to by a copy in `stream` of `from`, behind other work
 * there. */
static void late_copy(failpoint_run_t *t, CUcontext owner, CUcontext from, CUstream stream) {
    CUdeviceptr there;
    MUST(RAW(cuMemAlloc_v2)(&there, (size_t)BUSY_MIB * MIB));
    MUST(RAW(cuMemsetD8Async)(there, 1, (size_t)BUSY_MIB * MIB, stream));
    MUST(RAW(cuCtxSetCurrent)(owner));
    MUST(cuMemcpyPeerAsync(t->memory, owner, there, from, MIB, stream));
}

static void new_owner_fills(failpoint_run_t *t) {
    CUstream stream;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    failpoint_hand_over(t);
    MUST(cuMemsetD32Async(t->memory, 2, 1, stream));
}

/* The stream's context is unknown, and the library never served it: the copy is its first
 * work. */
void failpoint_stream_of_strange_context(failpoint_run_t *t) {
    CUcontext owner = beside_first(t);
    MUST(RAW(cuCtxSetCurrent)(t->ctx[0]));
    refuse("cuStreamGetCtx>=1");
    late_copy(t, owner, t->ctx[0], t->stream[0]);
    new_owner_fills(t);
    t->ctx[1] = owner;
}

/* The driver may refuse this free, and does not. */
void failpoint_freed_on_untold_stream(failpoint_run_t *t) {
    failpoint_take(t, MIB);
    MUST(cuMemAllocAsync(&t->memory, MIB, NULL));
    MUST(cuCtxSynchronize());
    refuse("cuStreamGetCtx>=1");
    failpoint_old(t, t->stream[0]);
    MUST(cuMemFreeAsync(t->memory, t->stream[0]));
    failpoint_seek(t, FAILPOINT_SOME);
    failpoint_new(t, t->stream[1]);
}

/* The driver refuses an unknown handle, and nothing else happens. */
void failpoint_no_stream(failpoint_run_t *t) {
    CUdeviceptr before;
    failpoint_take(t, MIB);
    failpoint_old(t, t->stream[0]);
    if (cuMemsetD8Async(t->memory, 1, 16, (CUstream)(uintptr_t)0x7770) == CUDA_SUCCESS)
        test_stop(TEST_WRONG, "a stream that is none took work");
    MUST(cuCtxSynchronize());
    before = t->memory;
    failpoint_give(t);
    failpoint_seek(t, 1);
    if (t->memory != before)
        test_stop(TEST_WRONG, "freed memory was not served at once");
    failpoint_new(t, t->stream[1]);
}

/* A launch has more attributes than the library copies, on a stream of unknown context. */
void failpoint_many_attributes(failpoint_run_t *t) {
    enum { MANY = 100 };
    CUlaunchAttribute attribute[MANY] = {{0}}; /* they are ignored, but for one */
    unsigned value = 1;
    failpoint_take(t, MIB);
    void *params[] = {&t->memory, &value};
    attribute[MANY - 1].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute[MANY - 1].value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, t->stream[0], attribute, MANY};
    refuse("cuStreamGetCtx>=1");
    MUST(cuLaunchKernelEx(&config, t->new_owner, params, NULL));
    failpoint_new(t, t->stream[0]);
}

/* --- ways into the driver that no table has --- */

static const side_t *near_side;
static failpoint_run_t *of_table;

/* A function that a newer driver could have: copies from the other device into `memory`. */
static CUresult future_copy(void) {
    failpoint_run_t *t = of_table;
    return RAW(cuMemcpyPeerAsync)(t->memory, t->ctx[1], near_side->beside, t->ctx[0], (size_t)MIB,
                                  near_side->stream);
}

static CUresult (*look_up(const char *name))(void) {
    void *found = NULL;
    CUdriverProcAddressQueryResult status;
    MUST(cuGetProcAddress_v2(name, &found, 99000, 0, &status));
    return __extension__(CUresult(*)(void)) found;
}

/* `memory` is freed and served again only in its own context. */
static void by_future_copy(failpoint_run_t *t, bool early) {
    CUresult (*copy)(void) = NULL;
    if (simcuda_offer_function("cuFutureCopy", __extension__(void *) future_copy))
        test_stop(TEST_WRONG, "the driver takes no function");
    if (early)
        copy = look_up("cuFutureCopy");
    failpoint_take(t, MIB);
    side_t side = side_of(t);
    near_side = &side;
    of_table = t;
    failpoint_second_device(t);
    failpoint_take(t, MIB);
    if (!early)
        copy = look_up("cuFutureCopy");
    MUST(cuCtxSetCurrent(t->ctx[0]));
    keep_busy(t, &side);
    MUST(copy());
    MUST(cuCtxSetCurrent(t->ctx[1]));
    failpoint_hand_over(t);
    failpoint_new(t, t->stream[1]);
}

void failpoint_unseen_in_one_context(failpoint_run_t *t) {
    by_future_copy(t, false);
}

/* The library has not served any context when the function is found. */
void failpoint_found_before_contexts(failpoint_run_t *t) {
    by_future_copy(t, true);
}

/* A runtime looks up functions that it never calls. Freed memory still serves at once. */
void failpoint_found_and_not_called(failpoint_run_t *t) {
    CUdeviceptr before;
    if (simcuda_offer_function("cuFutureCopy", __extension__(void *) future_copy))
        test_stop(TEST_WRONG, "the driver takes no function");
    look_up("cuFutureCopy");
    failpoint_take(t, MIB);
    failpoint_old(t, t->stream[0]);
    MUST(cuCtxSynchronize());
    before = t->memory;
    failpoint_give(t);
    failpoint_seek(t, 1);
    if (t->memory != before)
        test_stop(TEST_WRONG, "freed memory was not served at once");
    failpoint_new(t, t->stream[0]);
}

/* The old owner's launch, called through a table. */
static CUresult table_old(void) {
    failpoint_run_t *t = of_table;
    unsigned value = 1;
    void *params[] = {&t->memory, &value};
    return RAW(cuLaunchKernel)(t->old_owner, 1, 1, 1, 1, 1, 1, 0, t->stream[0], params, NULL);
}

static const struct {
    size_t bytes;
    CUresult (*old)(void);
} table = {sizeof table, table_old};
static const CUuuid table_id = {"accelcache test"};

void failpoint_unknown_table_harmless(failpoint_run_t *t) {
    const void *found = NULL;
    failpoint_take(t, MIB);
    of_table = t;
    if (simcuda_offer_table(&table_id, &table))
        test_stop(TEST_WRONG, "the driver takes no table");
    MUST(cuGetExportTable(&found, &table_id));
    if (found != &table)
        test_stop(TEST_WRONG, "the driver's table came back changed");
    MUST(table.old());
    failpoint_hand_over(t);
    failpoint_new(t, t->stream[1]);
}

/* --- more contexts than there are records --- */

void failpoint_too_many_contexts(failpoint_run_t *t) {
    enum { CONTEXTS = 300 };
    CUcontext owner = beside_first(t), last = NULL;
    CUstream stream;
    for (int i = 0; i < CONTEXTS; i++)
        MUST(cuCtxCreate_v2(&last, 0, 0));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    late_copy(t, owner, last, stream);
    MUST(cuCtxSetCurrent(owner));
    new_owner_fills(t);
    MUST(cuCtxSetCurrent(last));
    MUST(cuCtxSynchronize());
    t->ctx[1] = owner;
}

/* Every symbol that libcuda.so.1 exports, generated from the tables: count, gate, lock, body,
 * cost.  Bodies are sim_do_<symbol>, see sim.h. */
#include <string.h>

#include "state.h"

#define EXPORT __attribute__((visibility("default")))

static const unsigned char call_traits[SIM_FN_COUNT] = {
#define SIM_TRAIT(symbol, traits) [SIM_FN_##symbol] = (traits),
#include "calls.def"
#undef SIM_TRAIT
#define CU_NAME(symbol, name, since, mode, behaviour) [SIM_FN_##symbol] = SIM_PREINIT,
#include "extra_names.def"
#undef CU_NAME
};

static inline CUresult call_begin(sim_fn_t fn, unsigned traits) {
    atomic_fetch_add_explicit(&sim_counts[fn], 1, memory_order_relaxed);
    if (__builtin_expect(atomic_load_explicit(&sim_gate, memory_order_acquire) != 0 ||
                             (sim_self && sim_self->in_host_function),
                         0)) {
        CUresult refused = sim_call_refused(fn, traits);
        if (refused)
            return refused;
    }
    if (traits & SIM_LOCKLESS)
        return CUDA_SUCCESS;
    sim_lock();
    if (traits & SIM_UNSAFE && sim_captures) {
        CUresult refused = sim_capture_unsafe(fn);
        if (refused) {
            sim_unlock();
            return refused;
        }
    }
    return CUDA_SUCCESS;
}

static inline void call_end(sim_fn_t fn, unsigned traits) {
    if (!(traits & SIM_LOCKLESS))
        sim_unlock();
    if (__builtin_expect(atomic_load_explicit(&sim_timed, memory_order_relaxed), 0))
        sim_call_pay(fn, traits);
}

#define CU_FN(symbol, name, since, mode, params, args)                                           \
    EXPORT CUresult symbol params;                                                               \
    EXPORT CUresult symbol params {                                                              \
        CUresult result = call_begin(SIM_FN_##symbol, call_traits[SIM_FN_##symbol]);             \
        if (result)                                                                              \
            return result == SIM_NOTHING ? CUDA_SUCCESS : result;                                \
        result = sim_do_##symbol args;                                                           \
        call_end(SIM_FN_##symbol, call_traits[SIM_FN_##symbol]);                                 \
        return result;                                                                           \
    }
#include "device/cuda_functions.def"
#undef CU_FN

/* Answers for CU_NAME rows.  Their parameters are unknown here, so arguments are never read. */
static CUresult extra_FAIL(sim_fn_t fn) {
    sim_log("%s is not simulated", sim_fn_symbol(fn));
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult extra_SUCCEED(SIM_UNUSED sim_fn_t fn) {
    return CUDA_SUCCESS;
}

#define CU_NAME(symbol, name, since, mode, behaviour)                                            \
    EXPORT CUresult symbol(void);                                                                \
    EXPORT CUresult symbol(void) {                                                               \
        atomic_fetch_add_explicit(&sim_counts[SIM_FN_##symbol], 1, memory_order_relaxed);        \
        return extra_##behaviour(SIM_FN_##symbol);                                               \
    }
#include "extra_names.def"
#undef CU_NAME

typedef void any_fn(void); /* casts to this type are exempt from type checks */

enum { LEGACY = 0, PTDS = 1 };

static const struct {
    const char *symbol, *name;
    int since, mode;
    any_fn *address;
} functions[SIM_FN_COUNT] = {
#define CU_FN(symbol, name, since, mode, params, args)                                           \
    {#symbol, #name, since, mode, (any_fn *)symbol},
#include "device/cuda_functions.def"
#undef CU_FN
#define CU_NAME(symbol, name, since, mode, behaviour)                                            \
    {#symbol, #name, since, mode, (any_fn *)symbol},
#include "extra_names.def"
#undef CU_NAME
};

const char *sim_fn_symbol(sim_fn_t fn) {
    return functions[fn].symbol;
}

const char *sim_fn_name(sim_fn_t fn) {
    return functions[fn].name;
}

int sim_fn_since(sim_fn_t fn) {
    return functions[fn].since;
}

bool sim_fn_per_thread(sim_fn_t fn) {
    return functions[fn].mode == PTDS;
}

void *sim_fn_address(sim_fn_t fn) {
    void *address;
    memcpy(&address, &functions[fn].address, sizeof address);
    return address;
}

sim_fn_t sim_fn_by_symbol(const char *symbol) {
    for (unsigned i = 0; i < SIM_FN_COUNT; i++)
        if (!strcmp(functions[i].symbol, symbol))
            return i;
    return SIM_FN_COUNT;
}

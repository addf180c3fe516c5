/* The functions of simcuda.h.  They bypass the gate: they are not counted, never fail by plan, and
 * cost nothing. */
#include <stdlib.h>
#include <string.h>

#include "state.h"

#define EXPORT __attribute__((visibility("default")))

static uint64_t kernel_ns = UINT64_MAX; /* simcuda_set_kernel_ns, else the setting */

uint64_t sim_kernel_ns(void) {
    return kernel_ns != UINT64_MAX ? kernel_ns : sim_config.kernel_us * 1000;
}

/* Returns false in the child of a fork, which must not take the lock; see state.c. */
static bool usable(void) {
    sim_config_ensure();
    return !(atomic_load(&sim_gate) & (SIM_GATE_FORKED | SIM_GATE_EXITING));
}

EXPORT int simcuda_version(void) {
    return 1;
}

EXPORT int simcuda_configure(const char *text) {
    if (!usable() || !text)
        return -1;
    sim_lock();
    bool good = sim_config_apply(text, !(atomic_load(&sim_gate) & SIM_GATE_INIT));
    sim_unlock();
    return good ? 0 : -1;
}

EXPORT size_t simcuda_describe(char *out, size_t room) {
    return sim_config_describe(out, room);
}

EXPORT unsigned long long simcuda_calls(const char *symbol) {
    sim_fn_t fn = symbol ? sim_fn_by_symbol(symbol) : SIM_FN_COUNT;
    return fn == SIM_FN_COUNT ? 0 : atomic_load(&sim_counts[fn]);
}

EXPORT int simcuda_writable(unsigned long long address, int device) {
    sim_lock();
    const sim_alloc_t *record = sim_alloc_around(address);
    bool may = record && record->kind == SIM_MEM_VMM && sim_vmm_allows(record, device, true);
    sim_unlock();
    return may;
}

EXPORT unsigned long long simcuda_calls_total(void) {
    unsigned long long total = 0;
    for (unsigned i = 0; i < SIM_FN_COUNT; i++)
        total += atomic_load(&sim_counts[i]);
    return total;
}

EXPORT void simcuda_reset_calls(void) {
    for (unsigned i = 0; i < SIM_FN_COUNT; i++)
        atomic_store(&sim_counts[i], 0);
}

EXPORT int simcuda_supported(const char *symbol) {
    sim_fn_t fn = symbol ? sim_fn_by_symbol(symbol) : SIM_FN_COUNT;
    return fn == SIM_FN_COUNT ? -1 : sim_fn_supported(fn);
}

EXPORT unsigned long long simcuda_now(void) {
    return sim_now();
}

EXPORT void simcuda_advance(unsigned long long ns) {
    if (usable() && sim_config.virtual_clock)
        sim_spend(ns);
}

EXPORT int simcuda_fail(const char *plan) {
    if (!usable() || !plan)
        return -1;
    sim_lock();
    bool good = sim_faults_add(plan);
    sim_unlock();
    return good ? 0 : -1;
}

EXPORT void simcuda_clear_faults(void) {
    if (!usable())
        return;
    sim_lock();
    sim_faults_clear();
    sim_unlock();
}

EXPORT void simcuda_sticky(unsigned long long nth) {
    if (!usable())
        return;
    sim_lock();
    sim_work_faults(nth);
    sim_unlock();
}

EXPORT unsigned long long simcuda_live_allocations(unsigned long long *bytes) {
    unsigned long long count = 0, sum = 0;
    if (usable()) {
        sim_lock();
        for (sim_alloc_t *record = NULL; (record = sim_alloc_next(record));) {
            if (record->host && !record->managed)
                continue;
            count++;
            sum += record->size;
        }
        sim_unlock();
    }
    if (bytes)
        *bytes = sum;
    return count;
}

EXPORT unsigned long long simcuda_used_memory(int device) {
    unsigned long long used = 0;
    if (usable()) {
        sim_lock();
        if (!sim_device_check(device))
            used = sim_devices[device].used;
        sim_unlock();
    }
    return used;
}

EXPORT unsigned long long simcuda_pending_work(void) {
    if (!usable())
        return 0;
    sim_lock();
    unsigned long long pending = sim_pending;
    sim_unlock();
    return pending;
}

/* Kernels call this in any lock state.  Records may be read only with the lock, so the answer
 * depends on the address alone if the space is ours. */
EXPORT void *simcuda_host(CUdeviceptr address) {
    bool ours = sim_space_holds(address);
    if (ours && !sim_multicast_mapped)
        return sim_bytes(address);
    if (!usable())
        return NULL;
    sim_lock();
    bool known = ours ? !sim_multicast_at(address) : sim_alloc_around(address) != NULL;
    sim_unlock();
    return known ? sim_bytes(address) : NULL;
}

EXPORT int simcuda_register_kernel(const simcuda_kernel_t *kernel) {
    if (!usable() || !kernel || !kernel->name)
        return -1;
    sim_lock();
    bool good = sim_kernel_register(kernel);
    sim_unlock();
    return good ? 0 : -1;
}

EXPORT void simcuda_set_kernel_ns(unsigned long long ns) {
    if (!usable())
        return;
    sim_lock();
    kernel_ns = ns;
    sim_unlock();
}

EXPORT void simcuda_keep_order(int on) {
    if (!usable())
        return;
    sim_lock();
    sim_order_on = on || (sim_config.record && *sim_config.record);
    sim_unlock();
}

EXPORT int simcuda_dump_order(const char *path) {
    if (!usable() || !path)
        return -1;
    sim_lock();
    bool good = sim_order_dump(path);
    sim_unlock();
    return good ? 0 : -1;
}

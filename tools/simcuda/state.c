/* Start and end of the simulator: cuInit, the global lock, forks, process exit, threads.
 *
 * The lock is one plain mutex, held for the time of a body and dropped while device time
 * passes or user code runs.  Nothing here waits at exit: the destructor only turns calls
 * away, and the simulator's own threads are detached. */
#include <stdlib.h>
#include <string.h>

#include "race.h"
#include "state.h"

atomic_uint sim_gate = SIM_GATE_CONFIG | SIM_GATE_INIT;
atomic_ullong sim_counts[SIM_FN_COUNT];
atomic_bool sim_timed;
_Thread_local sim_thread_t *sim_self;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t config_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;
static bool config_good;
static pthread_key_t thread_key;
static bool thread_key_made;

pthread_mutex_t *sim_lock_mutex(void);

void sim_lock(void) {
    pthread_mutex_lock(&lock);
}

void sim_unlock(void) {
    pthread_mutex_unlock(&lock);
}

/* For the condition variables of clock.c. */
pthread_mutex_t *sim_lock_mutex(void) {
    return &lock;
}

/* A forked child has one thread and no worker.  Another thread may have held the lock at the fork,
 * so the child never takes the lock: every call is refused at the gate. */
static void forked(void) {
    atomic_fetch_or(&sim_gate, SIM_GATE_FORKED);
}

__attribute__((destructor)) static void leave(void) {
    atomic_fetch_or(&sim_gate, SIM_GATE_EXITING);
}

static void read_config(void) {
    config_good = sim_config_load();
    atomic_fetch_and(&sim_gate, ~(unsigned)SIM_GATE_CONFIG);
}

void sim_config_ensure(void) {
    if (atomic_load(&sim_gate) & SIM_GATE_CONFIG)
        pthread_once(&config_once, read_config);
}

CUresult sim_call_refused(sim_fn_t fn, unsigned traits) {
    unsigned gate = atomic_load(&sim_gate);
    if (gate & SIM_GATE_EXITING)
        return traits & SIM_PREINIT && fn != SIM_FN_cuInit ? CUDA_SUCCESS
                                                           : CUDA_ERROR_DEINITIALIZED;
    if (gate & SIM_GATE_FORKED)
        return traits & SIM_PREINIT && fn != SIM_FN_cuInit ? CUDA_SUCCESS
                                                           : CUDA_ERROR_NOT_INITIALIZED;
    sim_config_ensure();
    gate = atomic_load(&sim_gate);
    if (gate & SIM_GATE_FAULTS) {
        sim_lock();
        CUresult planned = sim_fault_hit(fn, traits);
        sim_unlock();
        if (planned)
            return planned;
    }
    if (traits & SIM_PREINIT)
        return CUDA_SUCCESS;
    if (gate & SIM_GATE_INIT)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (sim_self && sim_self->in_host_function)
        return CUDA_ERROR_NOT_PERMITTED;
    return CUDA_SUCCESS;
}

static CUresult start(void) {
    if (!config_good)
        return CUDA_ERROR_UNKNOWN;
    if (!sim_space_start())
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!thread_key_made && pthread_key_create(&thread_key, sim_thread_gone))
        return CUDA_ERROR_OPERATING_SYSTEM;
    thread_key_made = true;
    if (!sim_costs_load(sim_config.costs))
        return CUDA_ERROR_UNKNOWN;
    if (sim_config.record && *sim_config.record && !sim_order_open(sim_config.record))
        return CUDA_ERROR_UNKNOWN;
    if (!sim_race_open(sim_config.race_detector))
        return CUDA_ERROR_UNKNOWN;
    if (pthread_atfork(NULL, NULL, forked))
        return CUDA_ERROR_OPERATING_SYSTEM;
    sim_devices_start();
    sim_clock_start();
    atomic_store(&sim_timed, sim_config.virtual_clock || sim_costs_any());
    return CUDA_SUCCESS;
}

SIM_API(cuInit)(unsigned flags) {
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&init_lock);
    if (atomic_load(&sim_gate) & SIM_GATE_INIT) {
        sim_lock();
        result = start();
        if (!result && sim_config.devices == 0)
            result = CUDA_ERROR_NO_DEVICE;
        sim_unlock();
        if (!result)
            atomic_fetch_and(&sim_gate, ~(unsigned)SIM_GATE_INIT);
    }
    pthread_mutex_unlock(&init_lock);
    return result;
}

sim_thread_t *sim_thread(void) {
    if (!sim_self) {
        sim_thread_t *thread = calloc(1, sizeof *thread);
        if (!thread || (thread_key_made && pthread_setspecific(thread_key, thread))) {
            free(thread);
            return NULL;
        }
        sim_self = thread;
    }
    return sim_self;
}

SIM_API(cuDriverGetVersion)(int *version) {
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = (int)sim_config.driver;
    return CUDA_SUCCESS;
}

/* Private tables of the driver are not imitated: only tables that a test added are known. */
SIM_API(cuGetExportTable)(const void **table, const CUuuid *id) {
    if (!table || !id)
        return CUDA_ERROR_INVALID_VALUE;
    *table = sim_offered_table(id);
    if (*table)
        return CUDA_SUCCESS;
    const unsigned char *b = (const unsigned char *)id->bytes;
    sim_log(
        "cuGetExportTable %02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x"
        ": not found",
        b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
        b[14], b[15]);
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}

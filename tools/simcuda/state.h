/* Process-wide state that only the core files of the simulator share: the gate that each call
 * passes, call counters, time.  All other files use sim.h. */
#ifndef SIM_STATE_H
#define SIM_STATE_H

#include <stdatomic.h>

#include "sim.h"

/* Bits of sim_gate: 0 means a call may go straight to its body. */
enum {
    SIM_GATE_CONFIG = 1,  /* ACCEL_SIM not read yet */
    SIM_GATE_INIT = 2,    /* cuInit has not succeeded */
    SIM_GATE_FORKED = 4,  /* child of a process that had initialised */
    SIM_GATE_EXITING = 8, /* the library's destructor ran */
    SIM_GATE_FAULTS = 16, /* a fault plan is active */
};
extern atomic_uint sim_gate;
extern atomic_ullong sim_counts[SIM_FN_COUNT];
/* True while calls take time: clock:virtual or a cost table. */
extern atomic_bool sim_timed;

extern _Thread_local sim_thread_t *sim_self __attribute__((tls_model("initial-exec")));

/* Slow path at the beginning of a call: handles everything that the gate or the thread objects
 * to. */
CUresult sim_call_refused(sim_fn_t fn, unsigned traits);
/* Lets the cost of the finished call pass; lock not held. */
void sim_call_pay(sim_fn_t fn, unsigned traits);

const char *sim_fn_name(sim_fn_t fn); /* queried name */
int sim_fn_since(sim_fn_t fn);
bool sim_fn_per_thread(sim_fn_t fn);
void *sim_fn_address(sim_fn_t fn);
bool sim_fn_supported(sim_fn_t fn);
sim_fn_t sim_fn_by_symbol(const char *symbol); /* SIM_FN_COUNT: none */

/* config.c: reads ACCEL_SIM once; false if it was wrong. */
bool sim_config_load(void);
bool sim_config_apply(const char *text, bool live);
size_t sim_config_describe(char *out, size_t room);

/* faults.c */
bool sim_faults_add(const char *plan);
void sim_faults_clear(void);
/* lookup.c: returns the private table that a test added, NULL: none. */
const void *sim_offered_table(const void *id);

/* Counts the call.  SIM_NOTHING: the call succeeds without doing anything. */
CUresult sim_fault_hit(sim_fn_t fn, unsigned traits);
#define SIM_NOTHING ((CUresult)0x7fffffff)

/* costs.c */
bool sim_costs_load(const char *which);
bool sim_costs_any(void);
uint64_t sim_cost_fixed(sim_fn_t fn);
uint64_t sim_cost_per_mib(sim_fn_t fn);
uint64_t sim_cost_per_page(sim_fn_t fn);

/* clock.c */
void sim_clock_start(void);
uint64_t sim_wall_ns(void);
void sim_spend(uint64_t ns); /* lock not held */

/* work.c */
extern size_t sim_pending; /* items submitted and not complete */
void sim_pump(uint64_t until);
void sim_pump_no_kernel(uint64_t until); /* up to a kernel that has a function to run */
bool sim_pump_next(void);    /* clock:virtual: jump to the next item; false: none */
uint64_t sim_next_due(void); /* UINT64_MAX: nothing */
bool sim_has_gated(void);
extern size_t sim_effects;       /* pending items that do something */
sim_work_t *sim_host_take(void); /* clock:real: next host function to run, or NULL */
void sim_host_run(sim_work_t *work);
void sim_work_faults(uint64_t nth); /* key `sticky` */
/* clock.c, told by work.c */
void sim_clock_kick(uint64_t due, bool effect);
void sim_clock_host_kick(void);
void sim_clock_hand_over(void); /* clock:real: this thread is about to run long work */
/* clock:virtual: runs body(work) in the host thread.  It drops the lock while user code runs. */
void sim_clock_host_call(void (*body)(sim_work_t *), sim_work_t *work);
void sim_clock_done(void);

/* order.c */
void sim_order_note(const sim_work_t *work);
bool sim_order_open(const char *path);
bool sim_order_dump(const char *path);
extern bool sim_order_on;

/* launch.c, control.c, state.c */
bool sim_kernel_register(const simcuda_kernel_t *kernel);
uint64_t sim_kernel_ns(void);
void sim_config_ensure(void); /* reads ACCEL_SIM if nothing has yet */

/* device.c, space.c, memory.c */
void sim_devices_start(void);
bool sim_space_start(void);

void sim_memory_ctx_gone(CUcontext ctx);
void sim_host_free(sim_alloc_t *record);    /* hostmem.c */
void sim_managed_free(sim_alloc_t *record); /* hostmem.c */

/* context.c, stream.c, event.c, module.c */
void sim_thread_gone(void *thread);
CUstream sim_stream_make(CUcontext home, unsigned flags, int priority);
void sim_stream_drop(CUstream stream); /* its work goes on */
void sim_streams_ctx_gone(CUcontext ctx);
void sim_events_ctx_gone(CUcontext ctx);
void sim_modules_ctx_gone(CUcontext ctx);
void sim_green_ctx_gone(CUcontext ctx);
CUstream sim_stream_own(CUcontext home); /* the thread's per-thread default stream */

#endif

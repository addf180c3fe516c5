/* Control interface of the simulated CUDA driver, for tests and tools.
 *
 * The simulator is a libcuda.so.1, which exports the driver API and these functions.  A program
 * that does not link it finds them with dlsym(RTLD_DEFAULT, "simcuda_...").  If simcuda_version is
 * there, the driver is the simulated one.  All functions may be called from any thread at any time,
 * even before cuInit, unless a comment says otherwise.  sim_config.def describes ACCEL_SIM, the
 * environment variable with the settings. */
#ifndef SIMCUDA_H
#define SIMCUDA_H

#include "device/cuda_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Arguments of a kernel's host function.  They belong to the simulator and last for the call. */
typedef struct simcuda_launch {
    const char *name;
    unsigned grid[3], block[3];
    unsigned shared_bytes;
    /* params[i] points to a copy, taken at launch, of argument i.  How many there are and
     * their sizes: from the registration if it gives any, else from the PTX text of the
     * module, else none are copied and param_count is 0. */
    void **params;
    unsigned param_count;
    unsigned long long stream_id, context_id;
    int device;
} simcuda_launch_t;

typedef void simcuda_kernel_fn(const simcuda_launch_t *launch);

/* One argument that is a device pointer, which the kernel reads or writes.  The length is `bytes`.
 * If count_param is not negative, it is `bytes` times the value of the (32- or 64-bit) argument of
 * that number.  Length 0 means to the end of the allocation. */
typedef struct {
    unsigned param;
    int count_param;
    unsigned long long bytes;
    int writes;
} simcuda_access_t;

typedef struct {
    const char *name;                  /* name that the program passes to cuModuleGetFunction */
    simcuda_kernel_fn *fn;             /* NULL: a timed no-op */
    long long duration_ns;             /* < 0: the setting kernel_us */
    unsigned param_count;              /* 0: sizes from PTX */
    const unsigned short *param_bytes; /* NULL: 8 each */
    unsigned access_count;
    const simcuda_access_t *access; /* declared, so that unmapped addresses fault */
} simcuda_kernel_t;

/* Interface version, 1. */
int simcuda_version(void);

/* Replaces the settings by `text` (syntax of ACCEL_SIM) before cuInit; afterwards only the
 * keys marked LIVE in sim_config.def.  0, or -1 after one line on stderr. */
int simcuda_configure(const char *text);

/* Writes the settings, one line each: key, default, START or LIVE, text, separated by tabs.
 * Writes at most `room` bytes with the final 0.  Returns the length of the whole text without
 * it. */
size_t simcuda_describe(char *out, size_t room);

/* Number of calls of the exported symbol (for example "cuMemAlloc_v2") so far, successful or
 * not. */
unsigned long long simcuda_calls(const char *symbol);

/* Returns true if the device may write to the memory mapped at `address`, by program or library. */
int simcuda_writable(unsigned long long address, int device);
/* Number of calls of all symbols together; the functions of this header do not count. */
unsigned long long simcuda_calls_total(void);
void simcuda_reset_calls(void);
/* Returns 1 if the simulator implements the symbol, 0 if it logs an error, -1 for no such
 * symbol. */
int simcuda_supported(const char *symbol);

/* The device clock in nanoseconds: virtual, or CLOCK_MONOTONIC with clock:real. */
unsigned long long simcuda_now(void);
/* Lets time pass with clock:virtual; work that becomes due runs before this returns. */
void simcuda_advance(unsigned long long ns);

/* Adds to the fault plan, in the syntax of the key `fail`; N counts from now on.  Returns 0 or
 * -1. */
int simcuda_fail(const char *plan);
void simcuda_clear_faults(void);
/* Makes the Nth launch from now fault with CUDA_ERROR_ILLEGAL_ADDRESS when it runs; 0: none. */
void simcuda_sticky(unsigned long long nth);

/* Number of live allocations of all devices and kinds (host memory excluded), and their
 * bytes. */
unsigned long long simcuda_live_allocations(unsigned long long *bytes);
/* Number of live objects of a kind of live.def ("events", "mappings"); ULLONG_MAX: unknown
 * kind. */
unsigned long long simcuda_live(const char *kind);
/* Name of kind number `at`, NULL after the last one. */
const char *simcuda_live_kind(size_t at);
/* Bytes of the device in use, as cuMemGetInfo would compute it; 0 for a bad ordinal. */
unsigned long long simcuda_used_memory(int device);
/* Number of work items submitted and not yet complete, over all contexts. */
unsigned long long simcuda_pending_work(void);

/* Host address of device memory; NULL if nothing is mapped.  Contents are valid only as far as the
 * work that writes them has completed. */
void *simcuda_host(CUdeviceptr address);
/* Host address of memory number `at` (0, 1, ...) behind an address of a mapped multicast object.
 * Each device of the team has one, in any order, memory of other processes included.  NULL: behind
 * the last one, or any other address.  simcuda_host returns NULL for an address of a multicast
 * object, which has no memory of its own.  Kernels treat these as multimem.st, .red and .ld_reduce
 * do. */
void *simcuda_multimem(CUdeviceptr address, unsigned at);

/* ---- functions and tables beyond the public API: none, unless a test adds one ---- */

/* Adds a function that cuGetProcAddress finds by `name`, for every version and mode, or a table
 * that cuGetExportTable finds by its identifier of 16 bytes.  There is room for a few of each.  The
 * name is kept, not copied.  Return 0 or -1. */
int simcuda_offer_function(const char *name, void *function);
int simcuda_offer_table(const void *id, const void *table);

/* ---- the race detector (key `race_detector`) ---- */

/* Number of reports so far. */
unsigned long long simcuda_race_reports(void);
/* Number of reports of one kind, a name of findings.def ("unordered"); ULLONG_MAX: unknown
 * name. */
unsigned long long simcuda_race_found(const char *finding);
/* Tells the race detector that the host read, at this address of host memory, a value that work
 * wrote. A program that polls memory knows then that the newest of this work is over, as after a
 * synchronisation with it. */
void simcuda_host_saw(const void *address);
/* Beginning and end of a lifetime of memory, as the program sees it, inside an allocation of the
 * driver.  A cache between the two gives memory out and takes it back.  Call begin after the
 * allocation returned, and end before the free is passed on.  end returns the bytes of the
 * lifetime, 0 if there is none.  Memory without lifetimes belongs to the driver's allocations. */
void simcuda_owner_begin(CUdeviceptr address, size_t bytes);
size_t simcuda_owner_end(CUdeviceptr address);

/* Registers a kernel as a host function; a second registration of a name replaces the first.  A
 * kernel without registration runs the program's symbol simcuda_kernel_<name>.  Without this symbol
 * it is a timed no-op.  Registered functions run on the thread that completes the work, and must
 * not call the driver.  Returns 0 or -1. */
int simcuda_register_kernel(const simcuda_kernel_t *kernel);
/* Returns the device address of the last fault of a kernel with a function; 0: none faulted.
 * Kernels fault at addresses that are reserved and not mapped.  A line of `log` reports each
 * fault. */
unsigned long long simcuda_fault_address(void);
/* Sets the duration of kernels that have no duration of their own. */
void simcuda_set_kernel_ns(unsigned long long ns);

/* Writes the order in which work completed so far, one line each, to a file: columns
 *   seq type stream-id context-id submitted start done name accesses
 * Only work after the first call of simcuda_keep_order(1), or with `record`, is kept. */
void simcuda_keep_order(int on);
int simcuda_dump_order(const char *path);

#ifdef __cplusplus
}
#endif
#endif

/* Interface between the files that run a program. */
#ifndef EXECUTE_INT_H
#define EXECUTE_INT_H

#include "execute.h"
#include "model.h"
#include "simcuda.h"

#include "agrees.h"
#include "harness.h"

enum { HEAD = 64, COPY_MOST = 65536, SLOTS = 512, KERNELS = 3 };
enum { KERNEL_FILL, KERNEL_CHECK, KERNEL_MIX };

/* A block and the content of its first HEAD bytes after all submitted work; 0: unknown. */
typedef struct {
    bool live;
    CUdeviceptr at;
    uint32_t bytes, value;
    unsigned sync;         /* SYNC_MEMOPS */
    unsigned long long id; /* 0: not queried yet */
    int pool; /* its pool, while that exists; -1: none of the program's */
} memory_t;

/* Effect of an operation on blocks. A captured operation has it at every launch. */
typedef enum { CHANGE_VALUE, CHANGE_COPY, CHANGE_MIX } change_kind_t;
typedef struct {
    change_kind_t kind;
    uint32_t to, from, value;  /* blocks */
    bool to_local, from_local; /* memory that the graph allocates */
} change_t;
enum { IDS = 8192 };
enum { CHANGES = 2 * NODES };
typedef struct {
    unsigned count;
    change_t change[CHANGES];
} changes_t;

typedef struct {
    CUgraphExec exec;
    changes_t changes;
} made_graph_t;

typedef struct {
    uint32_t *seen; /* pinned, of the context that copies */
    uint32_t expect;
    size_t at; /* the operation */
    bool busy;
} slot_t;

typedef struct {
    const program_t *program;
    model_t *model;
    size_t next;
    unsigned long executed, skipped;
    unsigned long late; /* operations that real time may have decided (execute.c) */
    uint64_t hash;
    bool limited; /* the program may run out of memory */
    CUcontext context[CONTEXTS];
    CUfunction function[CONTEXTS][KERNELS][LAUNCH_SPEEDS];
    uint32_t *pinned[CONTEXTS]; /* a head for each slot; ends with the context */
    CUgreenCtx green[GREENS];
    CUmemoryPool pool[POOLS];
    CUresult stale[THREADS]; /* result of calls while the current context is destroyed */
    CUstream stream[STREAMS];
    CUevent event[EVENTS];
    memory_t memory[BLOCKS];
    made_graph_t graph[GRAPHS];
    changes_t captured[CAPTURES];
    slot_t slot[SLOTS];
    unsigned next_slot;
    uint32_t next_value;
    unsigned long long id[IDS]; /* IDs of all lifetimes */
    unsigned ids;
    CUdeviceptr first;                        /* base of addresses in the hash */
    accel_status_t (*check)(char *message, size_t room); /* accel_check, or NULL */
    int (*empty)(void);
} run_t;

extern run_t run;

/* Prints the message and ends the process with status 1. */
#define run_fail(...) test_stop(TEST_WRONG, __VA_ARGS__)

/* Adds a value to the hash. */
void run_note(uint64_t what);

/* Loads the kernels and allocates the pinned memory of the context, which is current. */
void run_context_ready(int context);

/* Called before the context ends. Ends the owner of its pinned memory in the simulator. */
void run_context_ends(int context);

/* Executes one operation, which the model accepted. `lane` is its stream, or -1. `capture` is
 * the number of the capture in which the lane was before, or -1. */
void run_op(const op_t *op, int lane, int capture);

/* Kernels: their names and registration. A kernel that finds a wrong value calls
 * run_mismatch. */
extern const char run_ptx[];
void run_register_kernels(void);
uint32_t run_mixed(uint32_t value);
void run_check_mismatch(void); /* fails if a kernel or host function found a mismatch */
void run_mismatch(size_t at, uint32_t expect, uint32_t found);

#endif

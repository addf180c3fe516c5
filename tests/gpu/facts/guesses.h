/* Probes: one function for each row of tools/simcuda/guesses.def.  It asks the device of this
 * machine.
 *
 * guesses.c        processes for the probes, the new table
 * guess_memory.c   allocation, pointers, copies
 * guess_context.c  contexts, streams, events, processes
 * guess_pool.c     memory pools
 * guess_work.c     launches, host functions, modules
 * guess_graph.c    captures, graphs with memory, virtual memory management
 * guess_ipc.c      memory and events shared between processes
 * guess_multicast.c  multicast objects
 *
 * A probe says its answer in the words of the table.  Equal answers are equal texts, without
 * addresses and times. */
#ifndef GUESSES_H
#define GUESSES_H

#include "gpu.h"
#include "report.h"

#define SIM_GUESS(probe, function, situation, answer) void guess_##probe(void);
#include "guesses.def"
#undef SIM_GUESS

/* gpu_guesses --twin: the other process of the probes of guess_ipc.c. */
int guess_twin(void);
/* Adds to the answer of the running probe. */
void say(const char *format, ...) REPORT_PRINTF(1);
/* Adds a word to a list: "a, b". */
void say_also(const char *word);
/* Tests whether the call waits for a kernel in the stream.  Returns "waits", "does not wait",
 * "unclear", or the name of the call's error. */
const char *say_waits(CUstream stream, gpu_kernel_t slow, CUcontext other, gpu_call_t *call,
                      void *arg);
/* Says which work `call` waits for, as a list of streams and contexts.  Makes the call several
 * times. */
void say_waits_for(gpu_call_t *call, void *arg);

CUstream a_stream(unsigned flags);
CUevent an_event(void);
CUdeviceptr some_memory(size_t bytes);
/* Returns memory of cuMemMap and its size; 0 if it is not available. */
CUdeviceptr mapped_memory(size_t *bytes);
/* Returns a green context.  If there is none, says so and returns NULL. */
const gpu_green_t *a_green_context(void);

#endif

/* Probes: one function for each row of tools/simcuda/guesses.def, which says what the device at
 * hand answers.
 *
 * guesses.c        processes for the probes, the table anew
 * guess_memory.c   allocation, pointers, copies
 * guess_context.c  contexts, streams, events, processes
 * guess_pool.c     memory pools
 * guess_work.c     launches, host functions, modules
 * guess_graph.c    captures, graphs with memory, virtual memory management
 * guess_ipc.c      memory and events shared between processes
 * guess_multicast.c  multicast objects
 *
 * A probe says its answer in the words that the table uses; the same answer is always the same
 * text, without addresses and times. */
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
/* "waits", "does not wait", or "unclear": whether the call waits for a kernel in the stream. */
const char *say_waits(CUstream stream, gpu_kernel_t slow, CUcontext other, gpu_call_t *call,
                      void *arg);
/* Says for which work `call` waits: a list of streams and contexts.  A call is made several
 * times. */
void say_waits_for(gpu_call_t *call, void *arg);

CUstream a_stream(unsigned flags);
CUevent an_event(void);
CUdeviceptr some_memory(size_t bytes);
/* Memory of cuMemMap; 0: there is none to be had. */
CUdeviceptr mapped_memory(size_t *bytes);
/* NULL, with an answer said: there is none to be had. */
const gpu_green_t *a_green_context(void);

#endif

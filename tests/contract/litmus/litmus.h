/* Litmus programs: each tests one rule of CUDA's order, in two directions.
 *
 * A case uses a piece of memory (litmus_old), hands it to a new owner (litmus_hand_over) and
 * uses it again (litmus_new).  An ordered case has between the two uses the operation that the
 * rule says orders them; a racy case has one that does not.  The checks depend on the device:
 *
 *   simulated device       ordered cases: no report of the race detector, the new value is in
 *                          memory.
 *                          racy cases: at least one report.
 *   with LITMUS=allocator  handing over is a real free and a real allocation: no report and the
 *                          new value in every case, because the allocator has to provide the
 *                          order that the program left out.
 *   GPU                    ordered cases: the new value is in memory.  Racy cases do not run.
 *                          Cases for two devices run only if there are two.
 *
 * Exit status: 0 passed; 1 or 2 failed; 77 no device, or no case that can run. */
#ifndef LITMUS_H
#define LITMUS_H

#include <stdbool.h>
#include <stddef.h>

#include "harness.h"

typedef struct {
    CUdevice device[2];
    CUcontext ctx[2];        /* primary contexts; ctx[0] is current */
    CUfunction store[2][2];  /* [device][slow] */
    CUstream free_stream[3]; /* non-blocking, of ctx[0] */
    CUstream blocking[2];    /* of ctx[0] */
    CUstream there;          /* non-blocking, of ctx[1] */
    CUevent event[2];
    CUdeviceptr memory, other, peer; /* peer: of device 1 */
    void *pinned;
    size_t bytes, reused; /* size of `memory`; number of hand-overs that kept its address */
    int devices;
    bool simulated, allocator;
} litmus_t;

enum {
    ORDERED = 0,
    RACY = 1,        /* the race detector must object */
    DIRECT = 2,      /* makes no sense with a real free in between */
    TWO_DEVICES = 4, /* needs peer access */
};

typedef struct {
    const char *name;
    void (*run)(litmus_t *t);
    unsigned what;
} litmus_case_t;

/* Each program defines these. */
extern const litmus_case_t litmus_cases[];
extern const size_t litmus_case_count;

void litmus_old(litmus_t *t, CUstream stream); /* a long kernel that writes 1 */
void litmus_new(litmus_t *t, CUstream stream); /* a short kernel that writes 2 */
void litmus_launch(litmus_t *t, int on, CUstream stream, CUdeviceptr to, unsigned value,
                   bool slow, bool programmatic);
void litmus_hand_over(litmus_t *t);
/* Begin and end a lifetime of memory that a case got from the driver itself. Do nothing on a
 * GPU. */
void litmus_own(litmus_t *t, CUdeviceptr memory, size_t bytes);
void litmus_disown(litmus_t *t, CUdeviceptr memory);
/* Waits until the host reads `wanted` in memory that work writes. */
void litmus_poll(litmus_t *t, const volatile unsigned *at, unsigned wanted);
/* Reads the word once. */
unsigned litmus_look(litmus_t *t, const volatile unsigned *at);
/* Returns true if a racy case must run again: the work before `event` was over when the host had
 * submitted everything, so the host may have learnt of it in time. */
bool litmus_was_late(litmus_t *t, CUevent event);
/* Lets simulated time pass, or waits a moment in real time. */
void litmus_pause(litmus_t *t);

#define LITMUS_CASES(...)                                                                        \
    const litmus_case_t litmus_cases[] = {__VA_ARGS__};                                          \
    const size_t litmus_case_count = sizeof litmus_cases / sizeof *litmus_cases;

#endif

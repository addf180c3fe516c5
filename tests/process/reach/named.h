/* Variables with names of the driver's functions: the library that keeps them (named.c), one that only uses
 * them (named_user.c), and programs (named_host.c). */
#ifndef NAMED_H
#define NAMED_H

#include "reach.h"

/* Declared `extern` by those that only use them.  The last one begins with a value. */
#define NAMED(storage, initial)                                                                  \
    storage cuInit_fn *cuInit;                                                                   \
    storage cuDevicePrimaryCtxRetain_fn *cuDevicePrimaryCtxRetain;                               \
    storage cuCtxSetCurrent_fn *cuCtxSetCurrent;                                                 \
    storage cuMemAlloc_v2_fn *cuMemAlloc_v2;                                                     \
    storage cuMemFree_v2_fn *cuMemFree_v2 initial;

CUresult named_missing(CUdeviceptr address);
int named_load(void);
/* What an object sees of the variables, by its own words for them. */
#define NAMED_SAY(who)                                                                           \
    do {                                                                                         \
        static cuInit_fn **volatile words[] = {&cuInit};                                   \
        printf(who ": init %s, the word %s, free %s\n", cuInit ? "set" : "null",                 \
               words[0] == &cuInit && *words[0] == cuInit ? "agrees" : "differs",                \
               !cuMemFree_v2 ? "null" : cuMemFree_v2 == named_missing ? "missing" : "set");      \
        fflush(stdout);                                                                          \
    } while (0)
#define NAMED_DRIVER                                                                             \
    (driver_t) {                                                                                 \
        cuInit, cuDevicePrimaryCtxRetain, cuCtxSetCurrent, cuMemAlloc_v2, cuMemFree_v2           \
    }

#endif

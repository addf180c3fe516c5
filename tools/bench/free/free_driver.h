/* Shared declarations of the free driver (free_driver.c). */
#ifndef BENCH_FREE_DRIVER_H
#define BENCH_FREE_DRIVER_H

#include "device/cuda_abi.h"

#define FREE_PUBLIC  __attribute__((visibility("default")))
#define FREE(symbol) FREE_PUBLIC CUresult symbol
#define FREE_VERSION 13000
#define FREE_MEMORY  ((size_t)4 << 40)

/* Symbol by which a program recognises the free driver. */
extern FREE_PUBLIC const int free_driver;

#define CU_FN(symbol, name, since, mode, params, args) CUresult symbol params;
#include "device/cuda_functions.def"
#undef CU_FN

#endif

/* The driver's functions as a program that links libcuda.so.1 declares them. */
#ifndef SUPPORT_DRIVER_H
#define SUPPORT_DRIVER_H

#include "device/cuda_abi.h"

#define CU_FN(symbol, name, since, mode, params, args) extern symbol##_fn symbol;
#include "device/cuda_functions.def"
#undef CU_FN

#endif

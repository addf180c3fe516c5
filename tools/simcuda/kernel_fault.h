/* Calls of kernels that are host functions (kernel_fault.c). */
#ifndef SIM_KERNEL_FAULT_H
#define SIM_KERNEL_FAULT_H

#include "simcuda.h"

/* Installs the signal handler; called when addresses are reserved.  Any lock state. */
void sim_kernel_faults_start(void);

/* Runs the function.  CUDA_ERROR_ILLEGAL_ADDRESS: the function used an address without a mapping
 * and was left at that point.  The lock is not held. */
CUresult sim_kernel_call(simcuda_kernel_fn *fn, const simcuda_launch_t *launch);

#endif

/* The CUDA version this build of the simulator stands for unless ACCEL_SIM says otherwise;
 * the old-driver library is built with a lower one and without the newer exports. */
#include "sim.h"

#ifndef SIM_DRIVER_VERSION
#define SIM_DRIVER_VERSION 13000
#endif

const int sim_default_driver = SIM_DRIVER_VERSION;

/* The CUDA version of this build of the simulator, unless ACCEL_SIM sets another.  The old-driver
 * library is built with a lower one, and without the newer exports. */
#include "sim.h"

#ifndef SIM_DRIVER_VERSION
#define SIM_DRIVER_VERSION 13000
#endif

const int sim_default_driver = SIM_DRIVER_VERSION;

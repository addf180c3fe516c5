/* See raw.h. */
#include "observe/raw.h"

_Atomic(ac_raw_clock_fn *) ac_raw_clock;

/* A block that is freed when the library late.c is finalised, after main's exit handlers. */
#ifndef PROCESS_LATE_H
#define PROCESS_LATE_H

#include "driver.h"

void late_keep(CUdeviceptr block);

#endif

/* Start of the library at first use, and its handling of fork and exit. */
#ifndef AC_PROCESS_H
#define AC_PROCESS_H

#include <stdbool.h>

/* Wakes the library at the process's first use of CUDA: it reads the machine's defaults, opens the live page and
 * binds the driver.  Returns true if the cache serves.  Any thread. */
bool ac_process_active(void);

#endif

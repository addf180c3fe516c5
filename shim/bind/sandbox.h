/* Seccomp filters that the program installs for all its threads, including the library's threads.
 *
 * A filter may kill the process for a call that the program does not make.  The kernel does not tell
 * what a filter allows, so the library reads the filter when the program installs it: by syscall(2), since
 * prctl(2) binds the calling thread alone.  A filter that was installed in another way is unknown, and
 * counts as forbidding (filter.h). */
#ifndef AC_SANDBOX_H
#define AC_SANDBOX_H

#include "device/device.h"

/* Finds the next definition of syscall.  The constructor calls it before there are other threads. */
void ac_sandbox_start(void);

#endif

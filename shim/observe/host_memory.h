/* What the machine has of memory for pinned allocations, and where a thread's comes from.
 *
 * Files are read by system calls of our own, and only where no seccomp filter of the program's may
 * kill it for that (filter.h): what was last read holds then.  Any thread; no lock. */
#ifndef AC_HOST_MEMORY_H
#define AC_HOST_MEMORY_H

#include <stdint.h>

/* Bytes that could be had without taking any from others: the least of MemAvailable and of what
 * the control groups of the process have left, version 1 or 2.  At most as old as a tenth of a
 * second.  0: that cannot be told. */
uint64_t ac_host_memory_left(void);

/* The same of the files below `root`, read now; for tests. */
uint64_t ac_host_memory_below(const char *root);

/* A number that is the same for two moments of a thread, or two threads, only where the kernel takes
 * memory for them from the same NUMA node, or by the same policy; 0 on machines with one node. */
uint32_t ac_host_memory_node(void);

#endif

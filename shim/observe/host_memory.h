/* What the machine has of memory, for pinned allocations and devices that share it, and where a thread's comes from.
 *
 * Files are read by system calls of our own, and only where no seccomp filter of the program's may
 * kill it for that (filter.h): what was last read holds then.  Any thread; no lock. */
#ifndef AC_HOST_MEMORY_H
#define AC_HOST_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes that could be had without taking any from others: the least of MemAvailable and of what
 * the control groups of the process have left, version 1 or 2, pages of files that were not used of
 * late counted as free.  At most as old as a tenth of a second.  0: that cannot be told. */
uint64_t ac_host_memory_left(void);

/* The same of the files below `root`, read now; for tests. */
uint64_t ac_host_memory_below(const char *root);

enum { AC_HOST_GROUPS = 16 }; /* that are looked at: the process's own and those above it */

/* Microseconds in which some task waited for memory, as last read. */
typedef struct {
    int64_t asked_ns; /* CLOCK_MONOTONIC; 0: never */
    uint64_t us;
} ac_host_stall_t;

/* A control group as last read: how often it came to memory.high or memory.max. */
typedef struct {
    ac_host_stall_t stall;
    bool known;
    uint64_t events;
} ac_host_group_t;

/* What was seen of memory pressure; zeroed before the first look. */
typedef struct {
    ac_host_stall_t machine;
    ac_host_group_t group[AC_HOST_GROUPS];
} ac_host_pressure_t;

/* Whether memory got short since the last look: tasks of the machine waited for it in a twentieth of
 * the time (PSI), or tasks of a control group of the process did, and it came to a limit.  False at the
 * first look, and where the kernel tells neither.  By one thread, the library's own. */
bool ac_host_memory_pressed(void);

/* The same of the files below `root`; for tests. */
bool ac_host_pressure_below(const char *root, int64_t now_ns, ac_host_pressure_t *last);

/* A number that is the same for two moments of a thread, or two threads, only where the kernel takes
 * memory for them from the same NUMA node, or by the same policy; 0 on machines with one node. */
uint32_t ac_host_memory_node(void);

#endif

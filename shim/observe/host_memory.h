/* Free memory of the host, for pinned allocations and for devices that share it, and NUMA nodes of threads.
 *
 * The library reads files by its own system calls.  If a seccomp filter of the program may kill the process for
 * them (filter.h), it uses the values that it read last.  Any thread; no lock. */
#ifndef AC_HOST_MEMORY_H
#define AC_HOST_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* Returns the bytes that the process can obtain without taking memory from others: the minimum of MemAvailable
 * and of the rest of the process's control groups (version 1 or 2; inactive pages of files count as free).
 * At most a tenth of a second old.  0: not known. */
uint64_t ac_host_memory_left(void);

/* Returns the bytes according to the files below `root`, read now; for tests. */
uint64_t ac_host_memory_below(const char *root);

enum { AC_HOST_GROUPS = 16 }; /* control groups that are read: the process's own and its ancestors */

/* Microseconds during which some task waited for memory, as read last. */
typedef struct {
    int64_t asked_ns; /* CLOCK_MONOTONIC; 0: never */
    uint64_t us;
} ac_host_stall_t;

/* A control group as read last: `events` counts how often it reached memory.high or memory.max. */
typedef struct {
    ac_host_stall_t stall;
    bool known;
    uint64_t events;
} ac_host_group_t;

/* State of the pressure checks; zeroed before the first one. */
typedef struct {
    ac_host_stall_t machine;
    ac_host_group_t group[AC_HOST_GROUPS];
} ac_host_pressure_t;

/* Returns true if memory got short since the last call.  It is short if tasks of the machine waited for memory for a
 * twentieth of the time (PSI), or if tasks of a control group did and the group reached a limit.  Returns false
 * at the first call, and if the kernel reports neither.  Only the library's own thread calls it. */
bool ac_host_memory_pressed(void);

/* Checks the files below `root` in the same way; for tests. */
bool ac_host_pressure_below(const char *root, int64_t now_ns, ac_host_pressure_t *last);

/* Returns a number of the calling thread's NUMA node and memory policy: equal numbers mean that the kernel takes
 * memory from the same node or by the same policy.  0 on machines with one node. */
uint32_t ac_host_memory_node(void);

#endif

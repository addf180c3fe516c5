/* Descriptors of IPC that a fork child must not keep: it would keep an exporter's socket open after
 * its end, or device memory that others gave back.
 *
 * A stretch between ac_fds_enter and ac_fds_leave makes descriptors and registers them; a fork waits
 * for stretches to end, and a stretch for a fork, for a second at most.  The child closes
 * what is registered.  Any thread; no lock, no allocation; errno is kept. */
#ifndef AC_IPC_FDS_H
#define AC_IPC_FDS_H

#include <stdbool.h>

void ac_fds_enter(void);
void ac_fds_leave(void);

/* False: there is no room, and it was closed. */
bool ac_fds_add(int fd);

/* How many descriptors may be made at a time: a quarter of the numbers above `fd`, the newest one, so
 * that the program's other threads find some; at least 1. */
unsigned ac_fds_room(int fd);

/* Returns true if the number still is what was added: a program may close all that it does not know. */
bool ac_fds_has(int fd);

/* Close it, if it still is what was added. */
void ac_fds_close(int fd);

/* Before a fork, and after it in both processes. */
void ac_fds_fork_prepare(void);
void ac_fds_fork_parent(void);
void ac_fds_fork_child(void);

#endif

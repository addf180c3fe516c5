/* The thread that gives pages of this process to importers (share/ipc_socket.h). The first export of a
 * block on pages starts it, and it ends with the process. */
#ifndef AC_IPC_SERVE_H
#define AC_IPC_SERVE_H

/* Starts the thread, or checks that it answers. Returns 0 or an errno value. EPERM: a seccomp filter of
 * the program forbids it. Any thread, with no lock held. */
int ac_ipc_serve_start(void);

/* Notes in a fork child that the thread does not exist. */
void ac_ipc_serve_fork_child(void);

#endif

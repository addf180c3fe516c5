/* The thread of an exporter that gives its pages to importers (share/ipc_socket.h).  It is started
 * with the first export of a block on pages, and ends with the process. */
#ifndef AC_IPC_SERVE_H
#define AC_IPC_SERVE_H

/* Starts that thread, or tells whether it answers.  0 or an errno value; EPERM: a seccomp filter of the
 * program forbids it.  Any thread, with no lock held. */
int ac_ipc_serve_start(void);

/* In a fork child: there is no such thread. */
void ac_ipc_serve_fork_child(void);

#endif

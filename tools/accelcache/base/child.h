/* Programs that the command starts and waits for. */
#ifndef CMD_CHILD_H
#define CMD_CHILD_H

#include <sys/resource.h>
#include <sys/types.h>

/* Before anything is started: if SIGCHLD is ignored, as many daemons leave it, the kernel keeps no child's
 * status. */
void cmd_child_begin(void);
/* Before another program takes this process's place: it gets SIGCHLD as it came to us. */
void cmd_child_restore(void);

/* In a child that is not to outlive the command: SIGKILL ends it when the thread `parent` does, however
 * that ends.  `parent` is getpid() from before the fork; it holds beyond exec. */
void cmd_child_bind(pid_t parent);
/* cmd_child_wait for a child that a signal which removes the command's files ends first: see output.h. */
int cmd_child_wait_bound(pid_t pid, int *status, struct rusage *usage);
/* Ends the child that cmd_child_wait_bound waits for, and waits.  From a signal handler. */
void cmd_child_end_bound(void);

/* Waits for `pid` to end; `usage` may be NULL.  0, or an errno, and *status is then not set. */
int cmd_child_wait(pid_t pid, int *status, struct rusage *usage);
/* Waits like cmd_child_wait, for at most `ms`: ETIMEDOUT, it has not ended. */
int cmd_child_wait_for(pid_t pid, int *status, int ms);

#endif

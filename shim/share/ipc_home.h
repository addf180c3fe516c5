/* The folder of what this process shares with others: its table (ipc_table.h) and its socket
 * (ipc_socket.h). */
#ifndef AC_IPC_HOME_H
#define AC_IPC_HOME_H

/* Sets the live page's folder. If that page has no file, because ACCEL_LIVE_DIR names an unusable
 * folder, sets this user's folder in AC_LIVE_DIR; importers look there too (ipc_lookup.h). The first
 * call chooses and makes the folder, and removes tables and sockets of ended processes. Returns 0 or
 * an errno value.  Any thread; a lock of rank
 * IPC may be held. */
int ac_ipc_home(const char **home);

/* Called in a fork child: it has no folder. */
void ac_ipc_home_fork_child(void);

#endif

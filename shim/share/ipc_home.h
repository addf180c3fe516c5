/* The folder of what this process shares with others: its table (ipc_table.h) and its socket
 * (ipc_socket.h). */
#ifndef AC_IPC_HOME_H
#define AC_IPC_HOME_H

/* The live page's folder; where that page has no file, because ACCEL_LIVE_DIR names a folder that
 * cannot be used, the one of this user in AC_LIVE_DIR, where importers look as well (ipc_lookup.h).
 * It is chosen once, and made where it is not there; tables and sockets that processes left there which
 * have gone are removed then.  0 or an errno value.  Any thread; a lock of rank
 * IPC may be held. */
int ac_ipc_home(const char **home);

/* In a fork child: there is none. */
void ac_ipc_home_fork_child(void);

#endif

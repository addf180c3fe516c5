/* Requests of `accelcache ctl` to this process (share/control.h), with control:true. The thread that
 * serves the socket (ipc_serve.c) accepts a request. The thread that writes dumps (writer.c) carries
 * it out: a request may take long, and importers of memory must not wait for it. */
#ifndef AC_CONTROL_H
#define AC_CONTROL_H

/* Makes this process accept requests. Called at activation, when the live page is open and the writer
 * runs. */
void ac_control_start(void);

/* Carries out a pending request, if there is one. The writer calls it. */
void ac_control_run(void);

/* Drops the pending request in a fork child. */
void ac_control_fork_child(void);

#endif

/* What `accelcache ctl` asks of this process (share/control.h), with control:true.  The thread that
 * serves the socket (ipc_serve.c) takes a request, and the one that writes dumps (writer.c) does what
 * is asked: it may take long, and importers of memory must not wait for it. */
#ifndef AC_CONTROL_H
#define AC_CONTROL_H

/* Let this process be asked; from activation, when the live page is open and the writer runs. */
void ac_control_start(void);

/* Do what was asked, if anything was; by the writer. */
void ac_control_run(void);

/* In a fork child: nothing was asked. */
void ac_control_fork_child(void);

#endif

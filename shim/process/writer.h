/* Dumps while the program runs: on the signal, and every dump_interval seconds. */
#ifndef AC_WRITER_H
#define AC_WRITER_H

#include <stdbool.h>

/* Start the thread that writes and take the signal, as far as configured; from activation. */
void ac_writer_start(void);

/* Other settings are in force: the thread follows, and starts where they ask for it first.  Any thread;
 * no lock is held. */
void ac_writer_configured(void);

/* Have the thread call ac_control_run.  False: there is none.  Any thread. */
bool ac_writer_ask(void);

/* A thread of the program that used CUDA, or the main thread, is about to end. */
void ac_writer_thread_ended(bool is_main);

/* In a fork child: there is no writer. */
void ac_writer_fork_child(void);

#endif

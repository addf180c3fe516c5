/* Dumps while the program runs: on the signal, and every dump_interval seconds. */
#ifndef AC_WRITER_H
#define AC_WRITER_H

#include <stdbool.h>

/* Starts the thread that writes, and takes the signal, if the configuration needs them. Called at
 * activation. */
void ac_writer_start(void);

/* Makes the thread follow changed settings, and starts it if they need it for the first time. Any
 * thread, with no lock held. */
void ac_writer_configured(void);

/* Makes the thread call ac_control_run. Returns false if there is no thread. Any thread. */
bool ac_writer_ask(void);

/* Notes that a thread of the program that used CUDA, or the main thread, is about to end. */
void ac_writer_thread_ended(bool is_main);

/* Notes in a fork child that there is no writer. */
void ac_writer_fork_child(void);

#endif

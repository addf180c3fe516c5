/* Threads of the library's own: the writer (writer.c), and the one that answers importers
 * (ipc_serve.c).  They take none of the program's signals, and keep no process alive: a process whose
 * main thread has called pthread_exit ends with its last thread.  So from then on the library's threads
 * look whether any other thread is left, and end where none is. */
#ifndef AC_OWN_THREAD_H
#define AC_OWN_THREAD_H

#include <stdbool.h>
#include <stdint.h>

/* Start one.  0 or an errno value. */
int ac_own_thread_start(void *(*run)(void *));

/* How long it may sleep until its next look at the other threads, in ns; 0: there is no need.
 * `last`: what the function answered before, 0 at first; `quiet`: nothing happened meanwhile. */
int64_t ac_own_thread_look_ns(int64_t last, bool quiet);

/* Whether every other thread has ended, or is of the library. */
bool ac_own_thread_alone(void);

/* The last call of a thread that ends. */
void *ac_own_thread_end(void);

/* Promise that ac_own_thread_main_ended is called when the main thread ends; from the
 * constructor. */
void ac_own_thread_main_watched(void);
void ac_own_thread_main_ended(void);
bool ac_own_thread_main_has_ended(void);

/* In a fork child: there are none. */
void ac_own_thread_fork_child(void);

#endif

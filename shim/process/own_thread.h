/* The library's own threads: the writer (writer.c), and the thread that answers importers
 * (ipc_serve.c). They take none of the program's signals, and do not keep the process alive. If the
 * main thread calls pthread_exit, the process ends with its last thread. From then on the library's
 * threads check whether any other thread is left, and end if there is none. */
#ifndef AC_OWN_THREAD_H
#define AC_OWN_THREAD_H

#include <stdbool.h>
#include <stdint.h>

/* Starts a thread of the library. Returns 0 or an errno value. */
int ac_own_thread_start(void *(*run)(void *));

/* Returns the time in ns until the thread must check for other threads again; 0: it need not. `last` is
 * the previous result, 0 at first. `quiet` means that nothing happened since then. */
int64_t ac_own_thread_look_ns(int64_t last, bool quiet);

/* Returns true if every other thread has ended or belongs to the library. */
bool ac_own_thread_alone(void);

/* Prepares the end of a thread of the library. It is the thread's last call. */
void *ac_own_thread_end(void);

/* Promises that ac_own_thread_main_ended is called when the main thread ends. Called from the library's
 * constructor. */
void ac_own_thread_main_watched(void);

/* Notes that the main thread has ended. */
void ac_own_thread_main_ended(void);

/* Returns true if ac_own_thread_main_ended was called. */
bool ac_own_thread_main_has_ended(void);

/* Notes in a fork child that the library has no threads. */
void ac_own_thread_fork_child(void);

#endif

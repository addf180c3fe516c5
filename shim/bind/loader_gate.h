/* Forks and the loader's list of objects.
 *
 * dl_iterate_phdr holds a lock of the C library that fork does not reset in the child.  If another thread is
 * inside during the fork, the child's own dlopen waits for ever.  Threads of the library therefore record that
 * they are inside, and a fork waits until none is.  While a fork is under way, no other thread goes in.  Both
 * waits end after a second.
 *
 * Any thread, at any time, also in signal handlers and before constructors ran.  A thread that is inside, or that
 * forks, may go in again. */
#ifndef AC_LOADER_GATE_H
#define AC_LOADER_GATE_H

#include <pthread.h>
#include <stdint.h>

#include "bind/objects.h"

/* A number that differs between threads. */
#if defined(__has_builtin)
#if __has_builtin(__builtin_thread_pointer)
#define AC_THREAD_POINTER ((uintptr_t)__builtin_thread_pointer())
#endif
#endif
#ifndef AC_THREAD_POINTER
#define AC_THREAD_POINTER ((uintptr_t)pthread_self())
#endif

/* Enclose uses of dl_iterate_phdr.  `enter` and `try` return a place that the caller gives to `leave`.  `try`
 * does not wait; it returns a negative number while another thread forks, and then the caller must not go in. */
AC_EARLY int ac_loader_enter(void);
AC_EARLY int ac_loader_try(void);
AC_EARLY void ac_loader_leave(int place);

/* Handlers of a fork.  Call `start` once they are installed; before that, uses of dl_iterate_phdr are not
 * recorded. */
void ac_loader_start(void);
void ac_loader_fork_prepare(void);
void ac_loader_fork_parent(void);
void ac_loader_fork_child(void);

#endif

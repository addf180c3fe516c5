/* Forks and the loader's list of objects.
 *
 * dl_iterate_phdr holds a lock of the C library that fork does not reset in the child: if another thread is
 * inside then, the child's own dlopen waits for ever.  So threads of the library note that they are inside, and a
 * fork waits until none is; while it is under way no other one goes in.  Both waits end after a second.
 *
 * Any thread, at any time, also in signal handlers and before constructors ran.  A thread that is inside, or that
 * forks, may go in again. */
#ifndef AC_LOADER_GATE_H
#define AC_LOADER_GATE_H

#include <pthread.h>
#include <stdint.h>

#include "bind/objects.h"

/* A number that each thread has of its own. */
#if defined(__has_builtin)
#if __has_builtin(__builtin_thread_pointer)
#define AC_THREAD_POINTER ((uintptr_t)__builtin_thread_pointer())
#endif
#endif
#ifndef AC_THREAD_POINTER
#define AC_THREAD_POINTER ((uintptr_t)pthread_self())
#endif

/* Around uses of dl_iterate_phdr; what enter and try answer is for leave.  `try` does not wait, and is negative
 * while another thread forks: then the caller does without. */
AC_EARLY int ac_loader_enter(void);
AC_EARLY int ac_loader_try(void);
AC_EARLY void ac_loader_leave(int place);

/* Fork handlers; from `start` on they are called. */
void ac_loader_start(void);
void ac_loader_fork_prepare(void);
void ac_loader_fork_parent(void);
void ac_loader_fork_child(void);

#endif

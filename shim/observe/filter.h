/* Whether the process has put system calls of its own behind a seccomp filter since it first used
 * CUDA.  Such a filter may kill the process for any call that the program itself does not make.
 *
 * Asking must not be what kills it.  So a descriptor of /proc/self/status is opened at first use,
 * far above the numbers that programs see, and what is left to do later is to read it, after a
 * look at where it stands has told that it is still the one that was opened: lseek and read, which
 * the C library itself calls at exit for files that are open.  A filter from before the
 * first use (a container's, a service manager's) does not count: the files that first use opened
 * went through it.
 *
 * The figures are those of the thread that started the process; a filter that another thread puts
 * on itself alone is not seen.  A filter belongs to threads: without SECCOMP_FILTER_FLAG_TSYNC it does
 * not bind threads that run already.  A thread of the library that lasts asks for itself. */
#ifndef AC_FILTER_H
#define AC_FILTER_H

#include <stdbool.h>

/* From activation, once. */
void ac_filter_start(void);

/* For the exit handler, once: true when the number of filters has changed.  False where that
 * cannot be told.  Nothing but lseek(2) and read(2) is called. */
bool ac_filter_at_exit(void);

/* The same at any other time, from any thread (lseek(2) and pread(2) are called). */
bool ac_filter_now(void);

/* One thread of the library calls it when it starts: its own filters are watched from then on. */
void ac_filter_thread_start(void);

/* Returns true if a filter of the program binds that thread and may forbid what the thread does.  Any
 * thread.  If the program closed the descriptor, answers as ac_filter_now. */
bool ac_filter_thread_now(void);

/* Around the installation of a filter for all threads.  `allows`: it was installed, and allows what that
 * thread does (filter_rules.h).  No system call. */
void ac_filter_install_begin(void);
void ac_filter_install_end(bool allows);

#endif

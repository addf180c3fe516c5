/* Detection of seccomp filters that the process installed after it first used CUDA.  A filter may kill the
 * process for any system call that the program itself does not make.
 *
 * The check must not be the call that kills.  So the library opens /proc/self/status at first use, with a
 * descriptor number far above the numbers that programs see.  A later check first compares the file
 * position with the stored one, which shows that the descriptor is still the same.  Then it reads the file.
 * The C library itself calls lseek and read at exit for open files.  A filter from before the first use (a
 * container's, a service manager's) does not count, because it allowed the opens at first use.
 *
 * The file shows the thread that started the process.  A filter that another thread installs for itself
 * alone is not seen.  A filter belongs to threads: without SECCOMP_FILTER_FLAG_TSYNC it does not bind
 * threads that already run.  A long-lived thread of the library checks its own filters. */
#ifndef AC_FILTER_H
#define AC_FILTER_H

#include <stdbool.h>

/* Opens the descriptor and stores the current filters.  Called once, from activation. */
void ac_filter_start(void);

/* Returns true if the filters have changed, and false if that is unknown.  Called once, by the exit handler.
 * It calls only lseek(2) and read(2). */
bool ac_filter_at_exit(void);

/* Returns true if the filters have changed, and false if that is unknown.  Any thread may call it at any time
 * before exit.  It calls only lseek(2) and pread(2). */
bool ac_filter_now(void);

/* Watches the filters of the calling thread from now on.  One thread of the library calls it when it starts. */
void ac_filter_thread_start(void);

/* Returns true if a filter of the program binds the thread of ac_filter_thread_start and may forbid its calls.
 * Any thread may call it.  If the program closed the descriptor, it returns ac_filter_now. */
bool ac_filter_thread_now(void);

/* Called before and after the installation of a filter for all threads.  `allows`: the filter was installed and
 * allows the calls of the library's thread (filter_rules.h).  They make no system call. */
void ac_filter_install_begin(void);
void ac_filter_install_end(bool allows);

#endif

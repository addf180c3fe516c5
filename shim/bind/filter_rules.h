/* Evaluation of a seccomp filter for the system calls of the library's long-lived threads. */
#ifndef AC_FILTER_RULES_H
#define AC_FILTER_RULES_H

#include <stdbool.h>

struct sock_fprog;

/* Returns true if the filter allows all of these calls, whatever their arguments; false if the answer
 * is unknown.  Makes no system call.  Call it after the kernel has accepted the filter. */
bool ac_filter_rules_allow(const struct sock_fprog *filter);

#endif

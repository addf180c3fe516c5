/* What a seccomp filter does to the system calls that a lasting thread of the library makes. */
#ifndef AC_FILTER_RULES_H
#define AC_FILTER_RULES_H

#include <stdbool.h>

struct sock_fprog;

/* Returns true if the filter allows all of these calls, whatever their arguments.  False if that cannot
 * be told.  Makes no system call.  The kernel has accepted the filter. */
bool ac_filter_rules_allow(const struct sock_fprog *filter);

#endif

/* See sandbox.h. */
#include "bind/sandbox.h"

#include <dlfcn.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#include "bind/filter_rules.h"
#include "bind/resolve.h"
#include "observe/filter.h"
#include "observe/raw.h"
#include "observe/start.h"

typedef long next_fn(long number, ...);

/* For syscall.S. */
AC_HIDDEN long ac_sandbox_seccomp(long number, long operation, long flags, void *argument);
AC_HIDDEN long ac_sandbox_failed(long result);
extern AC_HIDDEN next_fn *ac_sandbox_next;

AC_START_DATA next_fn *ac_sandbox_next;

AC_START void ac_sandbox_start(void) {
    ac_dlsym_fn *real = ac_real_dlsym();
    void *next = real ? real(RTLD_NEXT, "syscall") : NULL;
    if (next && !ac_is_ours(next))
        ac_sandbox_next = __extension__(next_fn *) next;
}

long ac_sandbox_failed(long result) {
    return ac_raw_answer(result);
}

static long forward(long operation, long flags, void *argument) {
    if (ac_sandbox_next)
        return ac_sandbox_next(SYS_seccomp, operation, flags, argument);
    return ac_raw_answer(
        ac_raw_call(SYS_seccomp, operation, flags, AC_RAW_POINTER(argument), 0));
}

/* After the kernel's answer this code makes no system call: the new filter may forbid it. */
long ac_sandbox_seccomp(long number, long operation, long flags, void *argument) {
    (void)number;
    if ((unsigned)operation != SECCOMP_SET_MODE_FILTER || !(flags & SECCOMP_FILTER_FLAG_TSYNC))
        return forward(operation, flags, argument);
    ac_filter_install_begin();
    long result = forward(operation, flags, argument);
    ac_filter_install_end(result == 0 && ac_filter_rules_allow(argument));
    return result;
}

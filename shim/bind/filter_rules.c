/* See filter_rules.h.
 *
 * The filter runs here once for each call, on a number and an architecture alone.  A branch that depends
 * on an argument is unknown.  The whole filter counts as forbidding then. */
#include "bind/filter_rules.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
enum { ARCHITECTURE = AUDIT_ARCH_X86_64 };
#else
enum { ARCHITECTURE = AUDIT_ARCH_AARCH64 };
#endif

/* Calls of the library and of the C library, then the calls that a driver is known to make. */
static const int calls[] = {
    SYS_ppoll,     SYS_accept4,        SYS_recvmsg,        SYS_sendmsg,   SYS_getsockopt,
    SYS_close,     SYS_lseek,          SYS_pread64,        SYS_newfstatat, SYS_fcntl,
    SYS_openat,    SYS_geteuid,        SYS_getpid,         SYS_gettid,    SYS_clock_gettime,
    SYS_futex,     SYS_rt_sigprocmask, SYS_munmap,         SYS_madvise,   SYS_exit,
    SYS_ioctl,     SYS_mmap,           SYS_mprotect,       SYS_read,      SYS_write,
    SYS_dup,       SYS_fstat,          SYS_sched_yield,    SYS_brk,       SYS_mremap,
    SYS_nanosleep, SYS_clock_nanosleep, SYS_pwrite64,      SYS_getdents64,
#ifdef SYS_poll
    SYS_poll,      SYS_open,           SYS_stat,
#endif
};

/* Does one step of a filter. */
typedef struct {
    const struct sock_filter *at;
    uint32_t value; /* of the accumulator */
    bool known;     /* `value` is the one that a call would have */
} step_t;

static void load(step_t *step, int call) {
    uint32_t offset = step->at->k;
    step->known = offset == offsetof(struct seccomp_data, nr) ||
                  offset == offsetof(struct seccomp_data, arch);
    step->value = offset ? (uint32_t)ARCHITECTURE : (uint32_t)call;
}

/* Returns false for a branch that is unknown. */
static bool jump(step_t *step) {
    const struct sock_filter *at = step->at;
    uint32_t a = step->value, k = at->k;
    bool taken;
    switch (BPF_OP(at->code)) {
    case BPF_JA:
        step->at += k;
        return BPF_SRC(at->code) == BPF_K;
    case BPF_JEQ:
        taken = a == k;
        break;
    case BPF_JGT:
        taken = a > k;
        break;
    case BPF_JGE:
        taken = a >= k;
        break;
    case BPF_JSET:
        taken = a & k;
        break;
    default:
        return false;
    }
    step->at += taken ? at->jt : at->jf;
    return BPF_SRC(at->code) == BPF_K && (step->known || at->jt == at->jf);
}

static bool allows(const struct sock_fprog *filter, int call) {
    step_t step = {.at = filter->filter};
    for (const struct sock_filter *end = step.at + filter->len; step.at < end; step.at++) {
        switch (BPF_CLASS(step.at->code)) {
        case BPF_LD:
            load(&step, call);
            if (step.at->code != (BPF_LD | BPF_W | BPF_ABS))
                step.known = false;
            break;
        case BPF_ALU:
            step.known = false;
            break;
        case BPF_JMP:
            if (!jump(&step))
                return false;
            break;
        case BPF_RET:
            return step.at->code == (BPF_RET | BPF_K) &&
                   (step.at->k == SECCOMP_RET_ALLOW || step.at->k == SECCOMP_RET_LOG);
        default:
            return false;
        }
    }
    return false;
}

bool ac_filter_rules_allow(const struct sock_fprog *filter) {
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++)
        if (!allows(filter, calls[i]))
            return false;
    return true;
}

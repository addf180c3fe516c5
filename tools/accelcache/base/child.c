/* See child.h. */
#include "base/child.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct sigaction inherited;
static volatile pid_t bound;

void cmd_child_begin(void) {
    struct sigaction usual = {.sa_handler = SIG_DFL};
    sigemptyset(&usual.sa_mask);
    sigaction(SIGCHLD, &usual, &inherited);
}

void cmd_child_restore(void) {
    sigaction(SIGCHLD, &inherited, NULL);
}

int cmd_child_wait(pid_t pid, int *status, struct rusage *usage) {
    while (wait4(pid, status, 0, usage) < 0)
        if (errno != EINTR)
            return errno;
    return 0;
}

void cmd_child_bind(pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        raise(SIGKILL); /* it had ended before */
}

int cmd_child_wait_bound(pid_t pid, int *status, struct rusage *usage) {
    bound = pid;
    /* Without reaping it: its number must not be another process's before `bound` is cleared. */
    while (waitid(P_PID, (id_t)pid, &(siginfo_t){.si_pid = 0}, WEXITED | WNOWAIT) &&
           errno == EINTR)
        continue;
    bound = 0;
    return cmd_child_wait(pid, status, usage);
}

void cmd_child_end_bound(void) {
    pid_t pid = bound;
    if (pid > 0 && !kill(pid, SIGKILL))
        waitpid(pid, NULL, 0);
}

int cmd_child_wait_for(pid_t pid, int *status, int ms) {
    enum { STEP_MS = 2 };
    const struct timespec step = {0, STEP_MS * 1000000};
    for (int waited = 0;; waited += STEP_MS) {
        pid_t ended = waitpid(pid, status, WNOHANG);
        if (ended == pid)
            return 0;
        if (ended < 0 && errno != EINTR)
            return errno;
        if (waited >= ms)
            return ETIMEDOUT;
        nanosleep(&step, NULL);
    }
}

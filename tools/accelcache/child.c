/* See child.h. */
#include "child.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

static struct sigaction inherited;

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

/* ipc bare|library|pages [FILE|CASE...]: scripts of several processes that share memory and
 * events.
 *
 * A script expects the driver's answers without the library. `bare` checks them on the
 * simulated device, `library` under the library, and `pages` with expandable segments. A script
 * states its own exceptions for `pages`. Environment: IPC_LIBRARY and IPC_OWNERS name the files
 * preloaded into actors with and without the library. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actor.h"
#include "cases.h"
#include "harness.h"

enum { LIMIT_S = 50 };

static const struct {
    const char *file, *name, *what;
    void (*run)(void);
} cases[] = {
#define CASE(file, name, what) {#file, #name, what, case_##name},
    IPC_CASES
#undef CASE
};
enum { CASES = sizeof cases / sizeof *cases };

/* Actors are children of the process of their case, and end with it. */
static int run(size_t at) {
    int status = -1;
    pid_t process = fork();
    if (process == 0) {
        test_title = cases[at].name;
        alarm(getenv("AC_EMULATED") ? 10 * LIMIT_S : LIMIT_S);
        cases[at].run();
        _exit(TEST_GOOD);
    }
    if (process < 0 || waitpid(process, &status, 0) != process)
        return TEST_BROKEN;
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    fprintf(stderr, "not ok %s: signal %d\n", cases[at].name, WTERMSIG(status));
    return TEST_WRONG;
}

static bool is_chosen(size_t at, int count, char **names) {
    for (int i = 0; i < count; i++)
        if (!strcmp(names[i], cases[at].name) || !strcmp(names[i], cases[at].file))
            return true;
    return count == 0;
}

int main(int argc, char **argv) {
    int worst = TEST_GOOD, ran = 0;
    if (argc == 3 && !strcmp(argv[1], "actor"))
        return actor_main(atoi(argv[2]));
    on_pages = argc > 1 && !strcmp(argv[1], "pages");
    under_library = on_pages || (argc > 1 && !strcmp(argv[1], "library"));
    if (argc < 2 || (!under_library && strcmp(argv[1], "bare")) || !getenv("IPC_LIBRARY") ||
        !getenv("IPC_OWNERS") || !getenv("ACCEL_ALLOC_CONF")) {
        fprintf(stderr,
                "usage: ipc bare|library|pages [FILE|CASE...], with IPC_LIBRARY, IPC_OWNERS "
                "and ACCEL_ALLOC_CONF\n");
        return TEST_USAGE;
    }
    for (size_t at = 0; at < CASES; at++) {
        if (!is_chosen(at, argc - 2, argv + 2))
            continue;
        int status = run(at);
        ran++;
        printf("%s %s: %s\n", status ? "not ok" : "ok", cases[at].name, cases[at].what);
        fflush(stdout);
        worst = status > worst ? status : worst;
    }
    return ran ? worst : TEST_USAGE;
}

/* Fact 3: runs programs of the CUDA runtime (cudart.cu) under the library.  They are linked with
 * the shared and the static runtime, and print which calls arrived at the hooks. */
#include "facts.h"

#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINE = 1200, PATHS = 1024 };

typedef struct {
    char answer[2][LINE]; /* "yes" or "no", then the evidence */
    int status;
} said_t;

static const char *preload(char *path, size_t room, const char *folder) {
    const char *library = getenv("QUALIFY_LIBRARY"), *first = getenv("AC_SANITIZER_RUNTIME");
    char own[PATHS];
    snprintf(own, sizeof own, "%s/../../lib/libaccelcache.so", folder);
    snprintf(path, room, "%s:%s", first ? first : "", library ? library : own);
    return path;
}

static void run(const char *program, const char *libraries, said_t *said) {
    int pipes[2];
    char line[LINE];
    if (pipe(pipes))
        return;
    pid_t child = fork();
    if (child == 0) {
        dup2(pipes[1], STDOUT_FILENO);
        close(pipes[0]);
        setenv("LD_PRELOAD", libraries, 1);
        execl(program, program, (char *)NULL);
        _exit(127);
    }
    close(pipes[1]);
    FILE *from = fdopen(pipes[0], "r");
    while (from && fgets(line, sizeof line, from)) {
        line[strcspn(line, "\n")] = '\0';
        static const char *const names[] = {"allocations ", "submissions "};
        for (int i = 0; i < 2; i++)
            if (!strncmp(line, names[i], strlen(names[i])))
                snprintf(said->answer[i], LINE, "%s", line + strlen(names[i]));
    }
    if (from)
        fclose(from);
    if (child > 0 && waitpid(child, &said->status, 0) == child)
        said->status = WIFEXITED(said->status) ? WEXITSTATUS(said->status) : 128;
}

static void answer(claim_t claim, const said_t *said, int which) {
    const char *text = said->answer[which];
    if (said->status == 127 && !*text)
        fact_skip(claim, "not here: the shared runtime that the program was linked with");
    else if (said->status == 77)
        fact_skip(claim, "not here: %s", *text ? text : "a device for this runtime");
    else if (*text)
        fact_answer(claim, !strncmp(text, "yes", 3), "%s", text);
    else
        fact_answer(claim, false, "The program ended with status %d and said nothing.",
                    said->status);
}

static void runtime(const char *kind, claim_t allocations, claim_t submissions) {
    char self[PATHS] = "", program[2 * PATHS], libraries[4 * PATHS];
    said_t said = {.status = -1};
    if (readlink("/proc/self/exe", self, sizeof self - 1) <= 0)
        return;
    const char *folder = dirname(self);
    /* NVIDIA's runtime does not run on the simulated device: a stand-in replaces the static one. */
    snprintf(program, sizeof program, "%s/facts_cudart_%s%s", folder, kind,
             gpu.simulated && !strcmp(kind, "static") ? "_standin" : "");
    bool there = access(program, X_OK) == 0;
    fact_needs(allocations, there, "the program was not built (no nvcc)");
    if (!fact_needs(submissions, there, "the program was not built (no nvcc)"))
        return;
    run(program, preload(libraries, sizeof libraries, folder), &said);
    answer(allocations, &said, 0);
    answer(submissions, &said, 1);
}

void fact_3(void) {
    runtime("shared", CLAIM_3_shared_cudart_allocations, CLAIM_3_shared_cudart_submissions);
    runtime("static", CLAIM_3_static_cudart_allocations, CLAIM_3_static_cudart_submissions);
}

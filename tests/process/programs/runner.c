/* Runs each program in its own process: settings are read once per process, and a crash is a
 * result too. */
#include "runner.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PROGRAMS_OWNERS
#error "PROGRAMS_OWNERS: the library that tells the race detector of lifetimes"
#endif

/* Limit after which a program is killed as stuck. Sanitizers are slow. */
enum { STUCK_SECONDS = 120 };

/* Sets the environment in which the program's process starts. */
static void set_environment(const program_t *program, const char *library, const char *folder) {
    char text[2 * SETTINGS];
    setenv("ACCEL_LIVE_DIR", folder, 1);
    snprintf(text, sizeof text, "%s%s%s%s", PROGRAMS_SANITIZER, PROGRAMS_OWNERS,
             library ? ":" : "", library ? library : "");
    setenv("LD_PRELOAD", text, 1);
    snprintf(text, sizeof text, "clock:virtual,race_detector:on,log:none,devices:%u%s%s",
             program->devices, *program->sim ? "," : "", program->sim);
    setenv("ACCEL_SIM", text, 1);
    snprintf(text, sizeof text, "dump:none,background_trim:false%s%s", *program->conf ? "," : "",
             program->conf);
    setenv("ACCEL_ALLOC_CONF", text, 1);
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
}

static void child(const program_t *program, const char *library, const char *path,
                  const char *folder, const char *log) {
    int out = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (out < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
        _exit(2);
    set_environment(program, library, folder);
    alarm(STUCK_SECONDS);
    execl("/proc/self/exe", "programs", "execute", path, (char *)NULL);
    _exit(2);
}

static void read_end(const char *log, char *out, size_t room) {
    FILE *in = fopen(log, "r");
    size_t got = 0;
    if (in && !fseek(in, 0, SEEK_END) && ftell(in) >= (long)room)
        fseek(in, -(long)(room - 1), SEEK_END);
    else if (in)
        rewind(in);
    if (in) {
        got = fread(out, 1, room - 1, in);
        fclose(in);
    }
    out[got] = 0;
}

void runner_run(const program_t *program, const char *library, const char *folder,
                outcome_t *out) {
    char path[400], log[400];
    int status = 0;
    memset(out, 0, sizeof *out);
    snprintf(path, sizeof path, "%s/current.%d", folder, (int)getpid());
    snprintf(log, sizeof log, "%s/output.%d", folder, (int)getpid());
    if (!program_write(program, path, NULL))
        exit(2);
    fflush(NULL);
    pid_t pid = fork();
    if (!pid)
        child(program, library, path, folder, log);
    if (pid < 0 || waitpid(pid, &status, 0) < 0) {
        perror("programs");
        exit(2);
    }
    read_end(log, out->said, sizeof out->said - 100);
    const char *last = strstr(out->said, "passed: ");
    out->passed = WIFEXITED(status) && !WEXITSTATUS(status) && last &&
                  sscanf(last, "passed: %lu operations, %lu skipped, hash %llx, %lu late",
                         &out->executed, &out->skipped, &out->hash, &out->late) == 4;
    if (WIFSIGNALED(status))
        sprintf(out->said + strlen(out->said), "ended by signal %d (%s)\n", WTERMSIG(status),
                WTERMSIG(status) == SIGALRM ? "it is stuck" : strsignal(WTERMSIG(status)));
    unlink(path);
    unlink(log);
    /* Removes the counters of a failed program, which ended without removing them. */
    struct stat space = {0};
    stat("/proc/self/ns/pid", &space);
    snprintf(path, sizeof path, "%s/accelcache-%u/%llu-%d", folder, (unsigned)getuid(),
             (unsigned long long)space.st_ino, (int)pid);
    unlink(path);
}

/* See trial.h. */
#include "run/trial.h"
#include "base/child.h"
#include "command.h"
#include "base/conf.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Only the handler and cmd_trial_run touch these. */
static volatile sig_atomic_t child, stop_signal;

/* Signals of a terminal (Ctrl-C) reach the program, too: once is enough. */
static void pass_on(int number, siginfo_t *info, void *context) {
    (void)context;
    stop_signal = number;
    if (child > 0 && info->si_code != SI_KERNEL)
        kill(child, number);
}

static const int passed[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
enum { STOPPING = 3, PASSED = sizeof passed / sizeof passed[0] };

/* For the rest of the command: between two runs a signal must not leave files behind. */
static void catch_signals(int count) {
    struct sigaction action = {.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < count; i++) {
        struct sigaction before; /* ignored signals stay ignored, for the program, too */
        if (sigaction(passed[i], NULL, &before) == 0 &&
            ((before.sa_flags & SA_SIGINFO) || before.sa_handler != SIG_IGN))
            sigaction(passed[i], &action, NULL);
    }
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* In the child: descriptors and environment, then the program.  A descriptor below 0 stays. */
static void become(const char *program, char **command, const char *conf, const int fd[3]) {
    for (int i = 0; i < 3; i++)
        if (fd[i] >= 0 && dup2(fd[i], i) < 0)
            _exit(CMD_CANNOT_RUN);
    if (*conf)
        setenv("ACCEL_ALLOC_CONF", conf, 1);
    else
        unsetenv("ACCEL_ALLOC_CONF");
    cmd_child_restore();
    execvp(program, command);
    int error = errno;
    dprintf(STDERR_FILENO, "accelcache %s: %s: %s\n", cmd_name, program, strerror(error));
    _exit(error == ENOENT ? CMD_NOT_FOUND : CMD_CANNOT_RUN);
}

static int open_files(const cmd_trial_t *trial, const char *input, int fd[3]) {
    char *path[3] = {cmd_format("%s", input), cmd_format("%s/stdout", trial->folder),
                     cmd_format("%s/stderr", trial->folder)};
    int failed = 0;
    for (int i = 0; i < 3; i++) {
        int flags = i ? O_WRONLY | O_CREAT | O_TRUNC | O_APPEND : O_RDONLY;
        fd[i] = open(path[i], flags | O_CLOEXEC, 0600);
        if (fd[i] < 0) {
            cmd_say("%s: %s", path[i], strerror(errno));
            failed = -1;
        }
        free(path[i]);
    }
    return failed;
}

/* Start and wait; the wall time counts from the fork. */
static int run_child(cmd_trial_t *trial, const char *program, char **command, const char *conf,
                     const int fd[3]) {
    fflush(NULL);
    int64_t start = now_ns();
    pid_t pid = fork();
    if (pid < 0) {
        cmd_say("fork: %s", strerror(errno));
        return -1;
    }
    if (pid == 0) {
        for (int i = 0; i < PASSED; i++)
            if (signal(passed[i], SIG_DFL) == SIG_IGN)
                signal(passed[i], SIG_IGN);
        if (stop_signal) /* it came before the lines above, and our handler took it */
            raise(stop_signal);
        become(program, command, conf, fd);
    }
    child = trial->pid = pid;
    if (stop_signal)
        kill(pid, stop_signal);
    int status, error = cmd_child_wait(pid, &status, NULL);
    child = 0;
    if (error) {
        cmd_say("process %d: %s", (int)pid, strerror(error));
        return -1;
    }
    trial->wall = now_ns() - start;
    trial->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    trial->status = trial->signal ? 128 + trial->signal : WEXITSTATUS(status);
    return 0;
}

/* Writes the document of a page to the file of its process, over an earlier one: at an interval, say.  The page
 * of a process that is gone is not left behind. */
static void save_page(const ac_live_name_t *name, json_t *document, bool alive, const char *file,
                      void *arg) {
    cmd_trial_t *trial = arg;
    char *path = cmd_format("%s/%s", trial->folder, file);
    if (json_dump_file(document, path, JSON_PRESERVE_ORDER)) {
        cmd_say("%s: cannot be written; free space there, or name another folder with TMPDIR or "
                "--keep",
                path);
        trial->failed = true;
    } else {
        trial->left += !alive;
        trial->running += alive;
        if (!alive)
            ac_live_remove(name);
    }
    free(path);
    json_decref(document);
}

static int read_dumps(cmd_trial_t *trial) {
    cmd_pages_of_folder(trial->folder, save_page, trial);
    if (trial->failed)
        return -1;
    DIR *folder = opendir(trial->folder);
    if (!folder) {
        cmd_say("%s: %s", trial->folder, strerror(errno));
        return -1;
    }
    const struct dirent *entry;
    int failed = 0;
    while ((entry = readdir(folder))) {
        size_t length = strlen(entry->d_name);
        if (length < 5 || strcmp(entry->d_name + length - 5, ".json") != 0)
            continue;
        char *path = cmd_format("%s/%s", trial->folder, entry->d_name), *error;
        json_t *document = cmd_document_load(path, &error);
        if (document) {
            cmd_figures_add(&trial->figures, document);
            trial->dumps++;
            if (trial->visit)
                trial->visit(document, trial->arg);
            json_decref(document);
        } else {
            cmd_say("%s: %s", path, error);
            free(error);
            failed = -1;
        }
        free(path);
    }
    closedir(folder);
    return failed;
}

int cmd_trial_run(cmd_trial_t *trial, const char *program, char **command, const char *conf,
                  const char *input, int *stopped) {
    char *pattern = cmd_format("%s/%%h-%%p.json", trial->folder);
    char *readable = cmd_conf_set(conf, "dump_format", "json");
    char *with_dump = cmd_conf_set(readable, "dump", pattern);
    char *whole = trial->as_it_is
                      ? cmd_format("%s", with_dump)
                      : cmd_conf_set(with_dump, "enabled", trial->cached ? "true" : "false");
    int fd[3] = {-1, -1, -1}, failed = trial->as_it_is ? 0 : open_files(trial, input, fd);
    catch_signals(STOPPING);
    if (!failed && !stop_signal)
        failed = run_child(trial, program, command, whole, fd);
    for (int i = 0; i < 3; i++)
        if (fd[i] >= 0)
            close(fd[i]);
    *stopped = stop_signal;
    if (!failed && (!stop_signal || trial->as_it_is))
        failed = read_dumps(trial);
    free(whole);
    free(readable);
    free(with_dump);
    free(pattern);
    return failed;
}

int cmd_trial_plain(cmd_trial_t *trial, const char *program, char **command, const char *conf) {
    const int fd[3] = {-1, -1, -1};
    catch_signals(PASSED);
    return run_child(trial, program, command, conf, fd);
}

/* Nothing of an earlier run is in it, nor of anyone else. */
static char *new_folder(const char *all) {
    for (unsigned n = 1;; n++) {
        char *folder = cmd_format("%s/run-%u", all, n);
        if (!mkdir(folder, 0777))
            return folder;
        int error = errno;
        if (error != EEXIST)
            cmd_say("%s: %s", folder, strerror(error));
        free(folder);
        if (error != EEXIST)
            return NULL;
    }
}

char *cmd_trial_folder(const char *keep) {
    if (keep) {
        if (mkdir(keep, 0777) && errno != EEXIST) {
            cmd_say("--keep %s: %s", keep, strerror(errno));
            return NULL;
        }
        char *all = realpath(keep, NULL), *folder = NULL;
        if (!all)
            cmd_say("--keep %s: %s", keep, strerror(errno));
        else if (strpbrk(all, ",%"))
            cmd_say("--keep %s: the path may hold no comma and no percent sign", keep);
        else
            folder = new_folder(all);
        free(all);
        return folder;
    }
    const char *base = getenv("TMPDIR");
    if (!base || base[0] != '/' || strpbrk(base, ",%"))
        base = "/tmp";
    char *folder = cmd_format("%s/accelcache-XXXXXX", base);
    if (mkdtemp(folder))
        return folder;
    cmd_say("%s: %s", folder, strerror(errno));
    free(folder);
    return NULL;
}

bool cmd_trial_same(const cmd_trial_t *a, const cmd_trial_t *b, const char *name) {
    char *path_a = cmd_format("%s/%s", a->folder, name);
    char *path_b = cmd_format("%s/%s", b->folder, name);
    size_t length_a = 0, length_b = 0;
    char *text_a = cmd_file_read(path_a, &length_a), *text_b = cmd_file_read(path_b, &length_b);
    bool same = text_a && text_b && length_a == length_b && !memcmp(text_a, text_b, length_a);
    free(text_a);
    free(text_b);
    free(path_a);
    free(path_b);
    return same;
}

void cmd_folder_remove(const char *path) {
    DIR *folder = opendir(path);
    const struct dirent *entry;
    while (folder && (entry = readdir(folder))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        char *inner = cmd_format("%s/%s", path, entry->d_name);
        if (unlink(inner) && (errno == EISDIR || errno == EPERM))
            cmd_folder_remove(inner);
        free(inner);
    }
    if (folder)
        closedir(folder);
    rmdir(path);
}

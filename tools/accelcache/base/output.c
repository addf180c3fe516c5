/* See output.h. */
#include "base/output.h"
#include "base/child.h"
#include "command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The one output that has no final name yet: a signal must not leave it behind. */
static char *volatile unfinished;
static const char *volatile unfinished_folder;
static const int ending[] = {SIGINT, SIGTERM, SIGHUP};

/* A folder of files, by nothing but system calls. */
static void remove_in_handler(const char *path) {
    _Alignas(uint64_t) char room[4096];
    struct entry {
        uint64_t inode;
        int64_t next;
        uint16_t length;
        uint8_t type;
        char name[];
    };
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long count;
    while (folder >= 0 && (count = syscall(SYS_getdents64, folder, room, sizeof room)) > 0)
        for (long at = 0; at < count;) {
            const struct entry *entry = (const void *)(room + at);
            unlinkat(folder, entry->name, 0);
            at += entry->length;
        }
    rmdir(path);
}

static void on_end(int number) {
    cmd_child_end_bound(); /* or it may make another file in the folder */
    if (unfinished)
        unlink(unfinished);
    if (unfinished_folder)
        remove_in_handler(unfinished_folder);
    raise(number); /* with its usual action again */
}

static void watch_signals(void) {
    struct sigaction action = {.sa_handler = on_end, .sa_flags = (int)SA_RESETHAND}, now;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++)
        if (!sigaction(ending[i], NULL, &now) && now.sa_handler == SIG_DFL)
            sigaction(ending[i], &action, NULL);
}

void cmd_folder_guard(const char *folder) {
    unfinished_folder = folder;
    if (folder)
        watch_signals();
}

/* A temporary file in the folder of the wanted one, so that the rename stays on one file system. */
static int create_temporary(cmd_output_t *output) {
    enum { TRIES = 100 };
    int fd = -1;
    sigset_t ends, before;
    sigemptyset(&ends);
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++)
        sigaddset(&ends, ending[i]);
    sigprocmask(SIG_BLOCK, &ends, &before); /* between the file and its name in `unfinished` it would stay */
    for (int i = 0; i < TRIES && fd < 0; i++) {
        free(output->temporary);
        output->temporary = cmd_format("%s.%d-%d.tmp", output->path, (int)getpid(), i);
        fd = open(output->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    if (fd >= 0) {
        unfinished = output->temporary;
        watch_signals();
    }
    int error = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return fd;
}

bool cmd_output_open(cmd_output_t *output, const char *path, bool binary) {
    struct stat status;
    *output = (cmd_output_t){.path = NULL};
    if (!path || !strcmp(path, "-")) {
        output->file = stdout;
        if (binary && isatty(STDOUT_FILENO))
            cmd_say(
                "this format is not for terminals: give a file with -o, or redirect the output");
        return !binary || !isatty(STDOUT_FILENO);
    }
    bool there = stat(path, &status) == 0;
    char *real = there ? realpath(path, NULL) : NULL;
    output->path = real ? real : cmd_format("%s", path);
    int fd = there && S_ISDIR(status.st_mode)    ? (errno = EISDIR, -1)
             : there && !S_ISREG(status.st_mode) ? open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC)
                                                 : create_temporary(output);
    if (fd >= 0 && output->temporary && there && fchmod(fd, status.st_mode & 0777))
        errno = 0; /* a file system without modes */
    output->file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!output->file) {
        cmd_say("%s: cannot be written: %s; name another file with -o", path, strerror(errno));
        unfinished = NULL;
        free(output->temporary);
        free(output->path);
    }
    return output->file != NULL;
}

int cmd_output_close(cmd_output_t *output, bool keep) {
    int failure = 0;
    if (!output->path) /* main() looks whether all of it arrived */
        return keep ? CMD_OK : CMD_FAILED;
    errno = 0;
    if (fflush(output->file) || ferror(output->file))
        failure = errno ? errno : EIO;
    if (fclose(output->file) && !failure)
        failure = errno; /* network file systems report a full disk here */
    if (output->temporary && keep && !failure && rename(output->temporary, output->path) != 0)
        failure = errno;
    if (output->temporary && (!keep || failure))
        unlink(output->temporary);
    unfinished = NULL;
    free(output->temporary);
    if (keep && failure)
        cmd_say("%s: not written: %s; nothing of it was kept", output->path, strerror(failure));
    free(output->path);
    *output = (cmd_output_t){.path = NULL};
    return keep && !failure ? CMD_OK : CMD_FAILED;
}

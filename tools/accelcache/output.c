/* See output.h. */
#include "output.h"
#include "command.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file of ours beside the one that is wanted, so that the rename stays on one file system. */
static int create_temporary(cmd_output_t *output) {
    enum { TRIES = 100 };
    int fd = -1;
    for (int i = 0; i < TRIES && fd < 0; i++) {
        free(output->temporary);
        output->temporary = cmd_format("%s.%d-%d.tmp", output->path, (int)getpid(), i);
        fd = open(output->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    return fd;
}

bool cmd_output_open(cmd_output_t *output, const char *path, bool binary) {
    struct stat status;
    *output = (cmd_output_t){.path = path && strcmp(path, "-") != 0 ? path : NULL};
    if (!output->path) {
        output->file = stdout;
        if (binary && isatty(STDOUT_FILENO))
            cmd_say(
                "this format is not for terminals: give a file with -o, or redirect the output");
        return !binary || !isatty(STDOUT_FILENO);
    }
    bool there = stat(path, &status) == 0;
    int fd = there && S_ISDIR(status.st_mode)    ? (errno = EISDIR, -1)
             : there && !S_ISREG(status.st_mode) ? open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC)
                                                 : create_temporary(output);
    output->file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!output->file) {
        cmd_say("%s: cannot be written: %s; name another file with -o", path, strerror(errno));
        free(output->temporary);
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
    free(output->temporary);
    if (keep && failure)
        cmd_say("%s: not written: %s; nothing of it was kept", output->path, strerror(failure));
    return keep && !failure ? CMD_OK : CMD_FAILED;
}

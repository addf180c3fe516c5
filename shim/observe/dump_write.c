/* Output files of dumps: the name's pattern, the temporary file, the rename; see dump.h. */
#include "observe/dump.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "observe/folder.h"
#include "observe/raw.h"
#include "observe/scratch.h"
#include "observe/write.h"

/* Returns the expansion of a letter.  An unknown rank is empty and not 0, because a launcher that uses CUDA would
 * otherwise replace the file of rank 0. */
static const char *expansion(char letter, const ac_live_t *page, char text[AC_LIVE_EXE]) {
    switch (letter) {
    case 'p':
        snprintf(text, AC_LIVE_EXE, "%d", (int)page->pid);
        return text;
    case 'h':
        return *page->host ? page->host : "localhost";
    case 'r':
        return *page->rank ? page->rank : "none";
    case 'e': {
        ac_live_exe(page, text);
        const char *slash = strrchr(text, '/');
        const char *name = slash ? slash + 1 : text;
        return *name ? name : "unknown";
    }
    default:
        return "%";
    }
}

int ac_dump_path(const char *pattern, const ac_live_t *page, char *path, size_t size) {
    size_t used = 0;
    if (size == 0)
        return ENAMETOOLONG;
    for (; *pattern; pattern++) {
        char room[AC_LIVE_EXE], letter[2] = {*pattern, '\0'};
        const char *text = letter;
        if (*pattern == '%' && pattern[1]) {
            pattern++;
            text = expansion(*pattern, page, room);
        }
        size_t n = strlen(text);
        if (n >= size - used) {
            path[used] = '\0';
            return ENAMETOOLONG;
        }
        memcpy(path + used, text, n);
        used += n;
    }
    path[used] = '\0';
    return 0;
}

/* Creates a temporary file in the same folder, so that the rename cannot cross file systems. */
static int create_temporary(const char *path, char *name, size_t size, int *fd) {
    static atomic_uint serial;
    for (int attempt = 0; attempt < 16; attempt++) {
        int n = snprintf(name, size, "%s.%d-%u.tmp", path, (int)ac_raw_getpid(),
                         atomic_fetch_add(&serial, 1));
        if (n < 0 || (size_t)n >= size)
            return ENAMETOOLONG;
        *fd = ac_open_above(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
        if (*fd >= 0)
            return 0;
        if (errno != EEXIST) /* left by a killed process of the same pid: take the next */
            return errno;
    }
    return EEXIST;
}

/* Writes the text to a temporary file and renames it to `path`.  *placed, unless NULL: the new file. */
static int replace_by(char *name, const char *path, const char *text, size_t length,
                      struct stat *placed) {
    int fd, failure = create_temporary(path, name, AC_SCRATCH, &fd);
    if (failure)
        return failure;
    failure = ac_write_all(fd, text, length);
    if (failure == 0 && placed && ac_raw_fstat(fd, placed) != 0)
        failure = errno;
    if (ac_raw_close(fd) != 0 && failure == 0 && errno != EINTR)
        failure = errno; /* network file systems report a full disk here */
    if (failure == 0 && ac_raw_rename(name, path) != 0)
        failure = errno;
    if (failure)
        ac_raw_unlink(name);
    return failure;
}

static int replace_file(const char *path, const char *text, size_t length, struct stat *placed) {
    char *name = ac_scratch_take();
    int failure = name ? replace_by(name, path, text, length, placed) : ENOMEM;
    ac_scratch_give(name);
    return failure;
}

/* Appends the text to /dev/stderr, a pipe or a link, because a rename would replace the device by a file.  O_NONBLOCK:
 * a pipe without a reader must not block the program. */
static int append_to(const char *path, const char *text, size_t length) {
    int fd = ac_open_above(path, O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    int failure = ac_write_all(fd, text, length);
    ac_raw_close(fd);
    return failure;
}

/* Returns true if the target belongs to another user than root, and is not a device.  In a folder with write permission
 * for all, another user may put a link to a file of this user under the expected name. */
static bool is_strange(const struct stat *st) {
    return !S_ISCHR(st->st_mode) && st->st_uid != 0 && st->st_uid != ac_raw_geteuid();
}

/* Writes the text to `path` and frees it. */
static int write_to(const char *path, char *text, size_t length, struct stat *placed) {
    struct stat st;
    int failure;
    if (!text)
        return ENOMEM;
    if (ac_raw_lstat(path, &st) == 0 && !S_ISREG(st.st_mode))
        failure = S_ISDIR(st.st_mode) ? EISDIR
                  : is_strange(&st)   ? EPERM
                                      : append_to(path, text, length);
    else
        failure = replace_file(path, text, length, placed);
    free(text);
    return failure;
}

int ac_dump_write(const char *pattern, const char *reason, const ac_dump_more_t *more, char *path,
                  size_t size) {
    int failure = ac_dump_path(pattern, ac_live, path, size);
    if (failure)
        return failure;
    size_t length;
    char *text = ac_dump_text_with(ac_live, reason, more, &length);
    return write_to(path, text, length, NULL);
}

static int resolve(const char *pattern, char *path, size_t size) {
    char *name = ac_scratch_take();
    int failure = name ? ac_dump_path(pattern, ac_live, name, AC_FOLDER_PATH) : ENOMEM;
    if (failure == 0)
        failure = ac_folder_resolve(name, false, path, size);
    if (failure)
        snprintf(path, size, "%s", name ? name : pattern);
    ac_scratch_give(name);
    return failure;
}

int ac_dump_write_from_start(const char *pattern, const char *reason, const ac_dump_more_t *more,
                             char *path, size_t size) {
    int failure = resolve(pattern, path, size);
    if (failure)
        return failure;
    size_t length;
    char *text = ac_dump_text_with(ac_live, reason, more, &length);
    return write_to(path, text, length, NULL);
}

/* The passing metrics file of this process; path "": none. */
static struct {
    char path[AC_FOLDER_PATH];
    dev_t device;
    ino_t inode;
} passing_file;

int ac_dump_write_metrics(const char *pattern, bool passing, char *path, size_t size) {
    struct stat placed = {.st_ino = 0};
    int failure = resolve(pattern, path, size);
    if (failure || strcmp(path, passing_file.path) != 0)
        ac_dump_remove_metrics();
    if (failure)
        return failure;
    size_t length;
    char *text = ac_dump_metrics(&length);
    failure = write_to(path, text, length, &placed);
    if (failure)
        return failure;
    *passing_file.path = '\0';
    if (passing && placed.st_ino) { /* otherwise the text was appended */
        snprintf(passing_file.path, sizeof passing_file.path, "%s", path);
        passing_file.device = placed.st_dev;
        passing_file.inode = placed.st_ino;
    }
    return 0;
}

/* Checks device and inode, because another process or the user may have put another file there. */
void ac_dump_remove_metrics(void) {
    struct stat st;
    if (*passing_file.path && ac_raw_lstat(passing_file.path, &st) == 0 &&
        st.st_dev == passing_file.device && st.st_ino == passing_file.inode)
        ac_raw_unlink(passing_file.path);
    *passing_file.path = '\0';
}

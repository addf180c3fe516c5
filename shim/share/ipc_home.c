/* See ipc_home.h. */
#include "share/ipc_home.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lock.h"
#include "observe/live_file.h"
#include "observe/write.h"

static ac_mutex_t lock = AC_MUTEX(LEAF);
static char other[sizeof ac_live_file.home]; /* empty: not in use */
static bool forked;

/* ---- what killed processes left ----
 *
 * If a process has a live page, ac_live_tidy removes its table and socket with that page. Files
 * without a page are removed here. */

/* A process of another pid namespace is alive if it has its table mapped; other files tell nothing. */
static bool is_gone(int folder, const char *file, uint64_t space, int pid, bool is_table) {
    struct stat st;
    if (space && space == (uint32_t)ac_live_space())
        return kill(pid, 0) != 0 && errno == ESRCH;
    int fd = is_table ? ac_live_file_open(folder, file, geteuid(), &st) : -1;
    bool gone = fd >= 0 && ac_live_gone(fd, false, 0, 0);
    if (fd >= 0)
        close(fd);
    return gone;
}

static void tidy_file(int folder, const char *file) {
    const char *end = strrchr(file, '.');
    char stem[64];
    uint64_t space;
    int pid;
    bool is_table = end && !strcmp(end, ".ipc");
    if (!end || (!is_table && strcmp(end, ".sock") != 0) || (size_t)(end - file) >= sizeof stem)
        return;
    memcpy(stem, file, (size_t)(end - file));
    stem[end - file] = '\0';
    if (ac_live_parse(stem, &space, &pid) && is_gone(folder, file, space, pid, is_table))
        unlinkat(folder, file, 0);
}

static void tidy(const char *path) {
    enum { MOST_SEEN = 4096 }; /* the user's own files, but there may be any number of them */
    const struct dirent *entry;
    int fd = ac_open_above(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (int i = 0; i < MOST_SEEN && (entry = readdir(dir)); i++)
        tidy_file(fd, entry->d_name);
    closedir(dir);
}

/* ---- the folder ---- */

int ac_ipc_home(const char **home) {
    char path[sizeof other];
    int saved = errno, failure = 0;
    bool first = false;
    *home = ac_live_file.home;
    if (ac_live_file.name[0])
        return 0;
    if (forked || !strcmp(ac_live_dir(), AC_LIVE_DIR))
        return ENOENT; /* that one cannot be used either */
    ac_lock(&lock);
    if (!other[0]) {
        int n = snprintf(path, sizeof path, "%s/accelcache-%u", AC_LIVE_DIR, (unsigned)geteuid());
        failure = n < 0 || (size_t)n >= sizeof path ? ENAMETOOLONG : ac_live_home_make(path);
        if (!failure) {
            memcpy(other, path, sizeof other);
            first = true;
        }
    } else {
        failure = ac_live_home_make(other); /* another process removes it where it is empty */
    }
    *home = other;
    ac_unlock(&lock);
    if (first)
        tidy(other);
    errno = saved;
    return failure;
}

void ac_ipc_home_fork_child(void) {
    lock = (ac_mutex_t)AC_MUTEX(LEAF);
    forked = true;
}

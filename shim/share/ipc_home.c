/* See ipc_home.h. */
#include "share/ipc_home.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lock.h"
#include "observe/live_file.h"

static ac_mutex_t lock = AC_MUTEX(LEAF);
static char other[sizeof ac_live_file.home]; /* empty: not in use */
static bool forked;

int ac_ipc_home(const char **home) {
    char path[sizeof other];
    int saved = errno, failure = 0;
    *home = ac_live_file.home;
    if (ac_live_file.name[0])
        return 0;
    if (forked || !strcmp(ac_live_dir(), AC_LIVE_DIR))
        return ENOENT; /* that one cannot be used either */
    ac_lock(&lock);
    if (!other[0]) {
        int n = snprintf(path, sizeof path, "%s/accelcache-%u", AC_LIVE_DIR, (unsigned)geteuid());
        failure = n < 0 || (size_t)n >= sizeof path ? ENAMETOOLONG : ac_live_home_make(path);
        if (!failure)
            memcpy(other, path, sizeof other);
    } else {
        failure = ac_live_home_make(other); /* another process removes it where it is empty */
    }
    *home = other;
    ac_unlock(&lock);
    errno = saved;
    return failure;
}

void ac_ipc_home_fork_child(void) {
    lock = (ac_mutex_t)AC_MUTEX(LEAF);
    forked = true;
}

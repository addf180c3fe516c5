/* Fixture of the tests of live pages: a separate folder of pages. Check runs each test in a
 * process of its own, so each starts with the page as the loader made it. */
#ifndef LIVE_FRAME_H
#define LIVE_FRAME_H

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "observe/dump.h"
#include "observe/live.h"
#include "observe/log.h"

static const char hooks[] = "cuMemAlloc_v2\0cuMemFree_v2\0cudaMalloc";
enum { HOOKS = 3 };
static char dir[64];
static char home[128]; /* folder of this user in `dir` */
static char error[512];
static bool alive;

static inline void enter_dir(void) {
    strcpy(dir, "/tmp/accelcache-live-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    setenv("ACCEL_LIVE_DIR", dir, 1);
    snprintf(home, sizeof home, "%s/accelcache-%u", dir, (unsigned)geteuid());
}

static inline void leave_dir(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    ck_assert_int_eq(system(command), 0);
}

static inline uint64_t space_here(void) {
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

static inline const char *page_name(int pid) {
    static char name[256];
    snprintf(name, sizeof name, "%s/%llu-%d", home, (unsigned long long)space_here(), pid);
    return name;
}

/* Returns a copy of the page of `pid`; NULL, and sets `error`, if there is none. */
static inline const ac_live_t *copy_of(int pid) {
    ac_live_name_t name;
    if (ac_live_find(pid, 0, &name))
        return ac_live_read(&name, &alive, error, sizeof error);
    strcpy(error, "no live page");
    return NULL;
}

static inline int remove_page(int pid) {
    ac_live_name_t name;
    return ac_live_find(pid, 0, &name) ? ac_live_remove(&name) : ENOENT;
}

/* Makes the folder with mode 0700 whatever the umask is, because others must not write to
 * it. */
static inline void make_home(void) {
    ck_assert(mkdir(home, 0700) == 0 || errno == EEXIST);
}

static inline bool exists(const char *name) {
    struct stat st;
    return lstat(name, &st) == 0;
}

static inline void count(ac_live_row_t *row, unsigned counter, uint64_t n) {
    row->counter[counter] += n;
}

static inline int wait_for(pid_t child) {
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return status;
}

#endif

/* What the writer (live.c, live_open.c) and the readers (live_read.c) of live pages share: names
 * and the file.  Internal to observe/.  Nothing here allocates. */
#ifndef AC_LIVE_FILE_H
#define AC_LIVE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "observe/live.h"
#include "observe/live_room.h"

/* The folder of live pages: ACCEL_LIVE_DIR where set (never for setuid programs), else
 * AC_LIVE_DIR. */
const char *ac_live_dir(void);

/* Name of the page of process `pid` of this user. Returns 0 or ENAMETOOLONG. */
int ac_live_file_name(int pid, char *path, size_t size);

/* The address range of the page; what of it a file fills. */
extern char ac_live_storage[AC_LIVE_ROOM];
enum {
    AC_LIVE_BYTES =
        (sizeof(ac_live_t) + AC_LIVE_ALIGNMENT - 1) / AC_LIVE_ALIGNMENT * AC_LIVE_ALIGNMENT
};
_Static_assert(AC_LIVE_BYTES <= AC_LIVE_ROOM, "the live page has outgrown its room");

/* The page's file while it is mapped; an empty name otherwise. */
typedef struct {
    char name[512];
    dev_t device;
    ino_t inode;
} ac_live_file_t;
extern ac_live_file_t ac_live_file;

/* Whether rows and devices have to be given memory before they are touched (live_back). */
extern _Atomic bool ac_live_sparse;

/* Give memory to all of [at, at + size) of a shared page, so that no touch of it can fail.
 * False: there is none, or the kernel (before 5.14) knows no way to ask.  errno is kept. */
bool ac_live_back(const void *at, size_t size);

#endif

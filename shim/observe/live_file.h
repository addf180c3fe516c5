/* What the writer (live.c) and the readers (live_read.c) of live pages share: names and the
 * identity of a process.  Internal to observe/.  Nothing here allocates. */
#ifndef AC_LIVE_FILE_H
#define AC_LIVE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The folder of live pages: ACCEL_LIVE_DIR where set (never for setuid programs), else
 * AC_LIVE_DIR. */
const char *ac_live_dir(void);

/* Name of the page of process `pid` of this user. Returns 0 or ENAMETOOLONG. */
int ac_live_file_name(int pid, char *path, size_t size);

/* Read /proc/<pid>/stat (pid 0: of this process): when it started, in clock ticks since boot,
 * and its state letter.  False when there is no such process. */
bool ac_process_identity(int pid, uint64_t *start_ticks, char *state);

#endif

/* Names and files of live pages, for the writer (live.c, live_open.c) and the readers (live_read.c).
 * Internal to observe/.  The functions do not allocate. */
#ifndef AC_LIVE_FILE_H
#define AC_LIVE_FILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "observe/live.h"
#include "observe/live_room.h"

/* Returns the inode number of the caller's pid namespace; 0 if /proc does not tell it. */
uint64_t ac_live_space(void);

/* Parses the name of a page, "<space>-<pid>".  Returns false if it is malformed. */
bool ac_live_parse(const char *file, uint64_t *space, int *pid);

/* Opens the folder `home` below the folder of pages for reading its entries.  Returns -1 and errno if it is not a
 * folder of `user`, or if others may write to it. */
int ac_live_home_open(const char *home, unsigned user);

/* Opens a page's file for reading.  Returns -1 and errno on failure; EPERM if it is not a regular file of `user`.
 * It never waits and follows no link. */
int ac_live_file_open(int home, const char *file, unsigned user, struct stat *st);

/* Removes a page's file, its rows (live_rows.c), and its process's export table and socket (share/ipc_table.h,
 * ipc_socket.h).  Returns false and errno if the page's file stays. */
bool ac_live_file_remove(int home, const char *file);

/* Returns true if the process of a page has certainly ended.  `fd`: the page, open for reading.  `here`: the pid is
 * of the caller's pid namespace.  `opened_ns`: the page's field, 0 if unknown. */
bool ac_live_gone(int fd, bool here, int pid, uint64_t opened_ns);

/* Returns true if /proc shows the caller's pid namespace. */
bool ac_live_proc_is_ours(void);

/* Returns true if process `pid` runs and is the one that existed at `opened_ns` (CLOCK_BOOTTIME).  A process with a
 * later start has reused the pid.  A zombie does not run. */
bool ac_process_runs(int pid, uint64_t opened_ns);

/* Returns true if the process of that pid is seen to be stopped, by a signal or a debugger. */
bool ac_process_stopped(int pid);

/* The address range of the page.  Its file fills the first AC_LIVE_BYTES bytes. */
extern char ac_live_storage[AC_LIVE_ROOM];
enum {
    AC_LIVE_BYTES =
        (sizeof(ac_live_t) + AC_LIVE_ALIGNMENT - 1) / AC_LIVE_ALIGNMENT * AC_LIVE_ALIGNMENT
};
_Static_assert(AC_LIVE_BYTES <= AC_LIVE_ROOM, "the live page has outgrown its room");

/* Number of rows with memory from the start: the common row, and one thread's row. */
enum { AC_LIVE_ROWS_READY = 2 };

/* Finds or makes the user's folder at `path`.  Returns 0 or an errno value; EEXIST if the name belongs to something
 * else. */
int ac_live_home_make(const char *path);

/* The page's file while it is mapped; an empty name otherwise. */
typedef struct {
    char home[480]; /* the folder of the user */
    char name[512]; /* the file in it */
    dev_t device;
    ino_t inode;
} ac_live_file_t;
extern ac_live_file_t ac_live_file;

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/* A second mapping of the whole file if the file has holes; NULL if the whole page has memory. */
extern _Atomic(char *) ac_live_whole;

/* True if the private page has counts or messages that the shared page must take over.  The flag avoids reading the
 * private page, because each first access to one of its pages would cost a page fault. */
extern _Atomic bool ac_live_used;

/* Allocates memory for [at, at + size) of the page, and maps the file there if it has holes.  Returns false if there
 * is no memory.  Keeps errno. */
bool ac_live_back(const void *at, size_t size);

#endif

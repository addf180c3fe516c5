/* What the writer (live.c, live_open.c) and the readers (live_read.c) of live pages share: names
 * and the file.  Internal to observe/.  Nothing here allocates. */
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

/* The caller's pid namespace: its inode number, 0 where /proc does not tell. */
uint64_t ac_live_space(void);

/* Read the name of a page, "<space>-<pid>". */
bool ac_live_parse(const char *file, uint64_t *space, int *pid);

/* Open the folder `home` below the folder of pages for reading its entries; -1 where it is not a
 * folder that belongs to `user`, or that others may write to. */
int ac_live_home_open(const char *home, unsigned user);

/* Open a page's file for reading. -1 and errno; EPERM where it is no regular file of `user`.
 * Never waits and follows no link. */
int ac_live_file_open(int home, const char *file, unsigned user, struct stat *st);

/* Remove a page's file, its rows (live_rows.c), and the table and the socket of what its process exported
 * (share/ipc_table.h, ipc_socket.h).  False and errno: the page stays. */
bool ac_live_file_remove(int home, const char *file);

/* Returns true if the process of the page that `fd` has open for reading is surely gone.  `here`: it is
 * of the caller's pid namespace; `opened_ns` as in the page, 0 when unknown. */
bool ac_live_gone(int fd, bool here, int pid, uint64_t opened_ns);

/* Returns true if /proc shows the caller's pid namespace. */
bool ac_live_proc_is_ours(void);

/* Returns true if the very process of that pid still runs that was there at `opened_ns` (CLOCK_BOOTTIME):
 * one that started later is another, and a zombie does not run. */
bool ac_process_runs(int pid, uint64_t opened_ns);

/* Returns true if the process of that pid is seen to be stopped, by a signal or a debugger. */
bool ac_process_stopped(int pid);

/* The address range of the page; what of it a file fills. */
extern char ac_live_storage[AC_LIVE_ROOM];
enum {
    AC_LIVE_BYTES =
        (sizeof(ac_live_t) + AC_LIVE_ALIGNMENT - 1) / AC_LIVE_ALIGNMENT * AC_LIVE_ALIGNMENT
};
_Static_assert(AC_LIVE_BYTES <= AC_LIVE_ROOM, "the live page has outgrown its room");

/* Rows that a shared page has memory for from the start: the common one, and one thread's. */
enum { AC_LIVE_ROWS_READY = 2 };

/* Find or make the user's folder at `path`: 0 or an errno value; EEXIST where something else has the
 * name. */
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

/* All of a file that has holes, mapped once more; NULL where the page has memory everywhere. */
extern _Atomic(char *) ac_live_whole;

/* True if anything was counted or said that the shared page must take over: asked without a look
 * at the private one, most of whose pages are never touched. */
extern _Atomic bool ac_live_used;

/* Give memory to all of [at, at + size) of the page, and map the file there if that has holes.
 * False: there is none.  errno is kept. */
bool ac_live_back(const void *at, size_t size);

#endif

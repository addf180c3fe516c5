/* What a token means: the entry in the table of the process that made it (ipc_table.h).
 *
 * The table is looked for in the folder of live pages that this process has, in the default one,
 * and, for a process of the same pid namespace, in both as that process sees them
 * (/proc/<pid>/root), which serves containers with a /dev/shm each.  It is another process's file:
 * nothing is opened that is no regular file of this user, no link is followed, no open waits, and
 * nothing of it is mapped. */
#ifndef AC_IPC_LOOKUP_H
#define AC_IPC_LOOKUP_H

#include <stdbool.h>

#include "share/ipc_table.h"

typedef enum {
    AC_IPC_FOUND,
    AC_IPC_FREED,  /* the table is there, and the block's lifetime is over */
    AC_IPC_ENDED,  /* no such table, and no such process, or another image has its pid */
    AC_IPC_HIDDEN, /* no such table: the process cannot be seen from here */
    AC_IPC_BAD     /* it is there, and cannot be read: cut short, or of a newer version */
} ac_ipc_answer_t;

typedef struct {
    int fd; /* of the table, for reading */
    char name[576];
} ac_ipc_source_t;

/* AC_IPC_FOUND sets *entry and leaves *source open; any other answer leaves nothing open. */
ac_ipc_answer_t ac_ipc_lookup(const ac_ipc_token_t *token, ac_ipc_source_t *source,
                              ac_ipc_entry_t *entry);

/* Whether the entry's lifetime still lasts, by one more look. */
bool ac_ipc_lookup_again(const ac_ipc_source_t *source, const ac_ipc_token_t *token);

/* Close.  With `tidy` the file goes if no process has the exporter's pid. */
void ac_ipc_lookup_end(ac_ipc_source_t *source, const ac_ipc_token_t *token, bool tidy);

#endif

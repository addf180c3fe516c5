/* Finds the entry of a token in the table of the process that made it (ipc_table.h).
 *
 * Places: this process's folder of live pages, and the default folder. For a process of the same pid
 * namespace also both folders as that process sees them (/proc/<pid>/root), for containers with a
 * /dev/shm each. The file belongs to another process. So only a regular file of this user is opened,
 * without following links and without waiting, and it is not mapped. */
#ifndef AC_IPC_LOOKUP_H
#define AC_IPC_LOOKUP_H

#include <stdbool.h>

#include "share/ipc_table.h"

typedef enum {
    AC_IPC_FOUND,
    AC_IPC_FREED,  /* the table is there, and the block's lifetime is over */
    AC_IPC_ENDED,  /* no table, and the process has ended, or another image has its pid */
    AC_IPC_HIDDEN, /* no table: the process cannot be seen from here */
    AC_IPC_BAD     /* it is there, and cannot be read: cut short, or of a newer version */
} ac_ipc_answer_t;

typedef struct {
    int fd; /* of the table, for reading */
    char name[576];
} ac_ipc_source_t;

/* AC_IPC_FOUND sets *entry and leaves *source open; any other answer leaves nothing open. */
ac_ipc_answer_t ac_ipc_lookup(const ac_ipc_token_t *token, ac_ipc_source_t *source,
                              ac_ipc_entry_t *entry);

/* Reads the entry again. Returns true if its lifetime still lasts. */
bool ac_ipc_lookup_again(const ac_ipc_source_t *source, const ac_ipc_token_t *token);

/* Close.  With `tidy` the file goes if no process has the exporter's pid. */
void ac_ipc_lookup_end(ac_ipc_source_t *source, const ac_ipc_token_t *token, bool tidy);

#endif

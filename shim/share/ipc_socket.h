/* How pages of a block go from their exporter to an importer: as descriptors, over the socket
 * <space>-<pid>.sock beside the exporter's table (ipc_table.h).
 *
 * The socket is there from the first export of a block on pages on, or from activation with
 * control:true, when it takes the requests of control.h as well.  Only processes of the same user
 * are listened to, and both sides ask the kernel who the other one is.  An importer asks for the pages
 * of one lifetime a few at a time (AC_IPC_BATCH), and gets a descriptor and the bytes of each.
 *
 * No side waits for the other without a limit.  The exporter never waits for an importer, and
 * hears the newest ones if there are too many; an importer has one limit for all.
 *
 * The socket goes at exit; that of a killed process goes with its live page, or with the next process
 * of its pid.  Its descriptors are closed on exec and in a fork child (ipc_fds.h).  None of the system
 * calls here is a point where a thread is cancelled. */
#ifndef AC_IPC_SOCKET_H
#define AC_IPC_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AC_IPC_BATCH = 8 };

/* One request: pages of the block at `address`, from `from` bytes behind the first one's begin on. */
typedef struct {
    uint64_t magic, nonce, address, serial, from;
} ac_ipc_ask_t;

typedef struct {
    uint64_t magic;
    uint64_t count; /* 0: refused; else so many descriptors come with it */
    uint64_t bytes[AC_IPC_BATCH];
} ac_ipc_pages_t;

/* ---- the importer: any thread ---- */

/* Connect to the exporter whose table has the name `table`; pid 0: not known.  A descriptor for
 * ac_fds_close, or -1: no process of this user answers until `until` (CLOCK_MONOTONIC, ns). */
int ac_ipc_connect(const char *table, int pid, int64_t until);

/* Ask, and wait for the answer until `until`.  True: pages->count descriptors are the caller's, who
 * gives each to ac_fds_close. */
bool ac_ipc_request(int fd, const ac_ipc_ask_t *ask, ac_ipc_pages_t *pages,
                    int page[AC_IPC_BATCH], int64_t until);

/* ---- the exporter ---- */

/* Make the socket.  0 or an errno value.  One thread at a time. */
int ac_ipc_listen(void);

/* Answer a request: fill pages and page, whose descriptors the caller closes by ac_fds_close; count 0
 * refuses. */
typedef void ac_ipc_grant_fn(const ac_ipc_ask_t *ask, ac_ipc_pages_t *pages,
                             int page[AC_IPC_BATCH]);

/* Wait for requests for `wait_ns` at the most, and answer those that came.  One thread.  False: the
 * program closed the socket, and ac_ipc_listen has to make another. */
bool ac_ipc_answer(int64_t wait_ns, ac_ipc_grant_fn *grant);

/* At exit: remove the socket.  No allocation, no lock, no function of the C library that asks the
 * kernel (observe/raw.h). */
void ac_ipc_socket_close(void);

/* In a fork child: there is none; after ac_fds_fork_child. */
void ac_ipc_socket_fork_child(void);

#endif

/* Passes pages of a block from their exporter to an importer, as descriptors, over the socket
 * <space>-<pid>.sock next to the exporter's table (ipc_table.h).
 *
 * The socket exists from the first export of a block on pages, or from activation with control:true;
 * it then takes the requests of control.h too. Both sides ask the kernel for the other's user, and
 * answer only the same user.  An importer asks for the pages
 * of one lifetime, AC_IPC_BATCH at a time, and gets a descriptor and the bytes of each.
 *
 * Both sides wait for the other with a limit.  The exporter never waits for an importer, and closes
 * connections that were silent for a second.  If all its places are taken, new importers wait in the
 * listener's queue.  An importer gives each answer a limit.
 *
 * The socket is removed at exit; after a kill it is removed with the live page, or by the next process
 * with the pid. Its descriptors are closed on exec and in a fork child (ipc_fds.h). The system calls
 * here are no cancellation points. */
#ifndef AC_IPC_SOCKET_H
#define AC_IPC_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Linux takes at most 253 descriptors in a message. */
enum { AC_IPC_BATCH = 128 };

/* One request: at most `most` pages of the block at `address`, from `from` bytes behind the first
 * one's begin on. */
typedef struct {
    uint64_t magic, nonce, address, serial, from, most;
} ac_ipc_ask_t;

/* An answer ends with the bytes of its last page. */
typedef struct {
    uint64_t magic;
    uint32_t count; /* of descriptors that come with it */
    int32_t error;  /* an errno value if there is none */
    uint64_t bytes[AC_IPC_BATCH];
} ac_ipc_pages_t;

/* ---- the importer: any thread ---- */

/* Connects to the exporter with the table `table`; pid 0: not known.  Returns a descriptor
 * for ac_fds_close, or a negative errno value: ECONNREFUSED if nothing of that process listens,
 * ETIMEDOUT if its queue was full until `until` (CLOCK_MONOTONIC, ns), EMFILE. */
int ac_ipc_connect(const char *table, int pid, int64_t until);

/* Asks, and waits for the answer until `until`.  0: pages->count descriptors, at least one, belong to
 * the caller, which gives each to ac_fds_close.  pages->error is EMFILE if this process has too few
 * descriptors for all that were sent.  Otherwise an errno value, and after EMFILE and ETOOMANYREFS the
 * caller may ask again at once, because this function has slept:
 *   ETIMEDOUT     no answer
 *   ECONNRESET    the connection ended, or the answer cannot be read
 *   EMFILE        no descriptor is left in this process
 *   ETOOMANYREFS  too many descriptors of this user are in flight: ask for fewer
 *   others        the exporter's reason to refuse: ENOENT (freed), EIO (the driver gave none) */
int ac_ipc_request(int fd, const ac_ipc_ask_t *ask, ac_ipc_pages_t *pages, int page[AC_IPC_BATCH],
                   int64_t until);

/* ---- the exporter ---- */

/* Make the socket.  0 or an errno value.  One thread at a time. */
int ac_ipc_listen(void);

/* Answers a request: fills pages and page. The caller closes the descriptors by ac_fds_close.  With
 * none it sets pages->error.  ask->most is from 1 to AC_IPC_BATCH. */
typedef void ac_ipc_grant_fn(const ac_ipc_ask_t *ask, ac_ipc_pages_t *pages,
                             int page[AC_IPC_BATCH]);

/* Waits for requests, at most `wait_ns`; ppoll(2) is the only system call. */
void ac_ipc_await(int64_t wait_ns);

/* Answers the requests that _await found, in the same thread.  False: the program closed the socket,
 * and
 * ac_ipc_listen has to make another. */
bool ac_ipc_answer(ac_ipc_grant_fn *grant);

/* At exit: remove the socket.  No allocation, no lock, no function of the C library that asks the
 * kernel (observe/raw.h). */
void ac_ipc_socket_close(void);

/* In a fork child: there is none; after ac_fds_fork_child. */
void ac_ipc_socket_fork_child(void);

#endif

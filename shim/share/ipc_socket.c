/* See ipc_socket.h. */
#include "share/ipc_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "observe/live_file.h"
#include "observe/raw.h"
#include "observe/write.h"
#include "share/control.h"
#include "share/ipc_fds.h"
#include "share/ipc_home.h"

#define ASK_MAGIC     ((uint64_t)0x3253415049434143) /* "CACIPAS2" */
#define PAGES_MAGIC   ((uint64_t)0x3245504950434143) /* "CACPIPE2" */
#define CONTROL_MAGIC ((uint64_t)0x314c544343414341) /* "ACACCTL1" */

enum { CLIENTS = 64, PATIENCE_NS = 1000000000, NAP_NS = 2000000, REFUSED_NS = 100000000 };

static int64_t now(void) {
    return ac_raw_ns(CLOCK_MONOTONIC);
}

/* Waits until there is something to read; false: not until that time. */
static bool wait_for(struct pollfd *set, unsigned count, int64_t until) {
    for (;;) {
        int64_t left = until - now();
        left = left > 0 ? left : 0;
        struct timespec time = {(time_t)(left / 1000000000), (long)(left % 1000000000)};
        long ready = ac_raw_call(SYS_ppoll, AC_RAW_POINTER(set), count, AC_RAW_POINTER(&time), 0);
        if (ready > 0)
            return true;
        if (ready != -EINTR || !left)
            return false;
    }
}

static void nap(int64_t until) {
    int64_t end = now() + NAP_NS;
    wait_for(NULL, 0, end < until ? end : until);
}

static int new_socket(void) {
    int held[AC_LOW];
    ac_low_hold(held);
    long fd =
        ac_raw_call(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, 0);
    ac_low_release(held);
    return (int)ac_raw_answer(fd);
}

/* Makes the address of a socket.  An address has room for few characters, so a longer path goes through its folder:
 * *fd is open on it (-1: not needed).  Returns 0 or an errno value. */
static int address_of(const char *path, struct sockaddr_un *address, int *fd) {
    char folder[576];
    size_t length = strlen(path);
    const char *name = strrchr(path, '/');
    *fd = -1;
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (length < sizeof address->sun_path) {
        memcpy(address->sun_path, path, length + 1);
        return 0;
    }
    if (!name || (size_t)(name - path) >= sizeof folder)
        return ENAMETOOLONG;
    memcpy(folder, path, (size_t)(name - path));
    folder[name - path] = '\0';
    *fd = ac_open_above(folder, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
    if (*fd < 0)
        return errno;
    /* "self" has no descriptors if the main thread has ended. */
    int n = snprintf(address->sun_path, sizeof address->sun_path, "/proc/thread-self/fd/%d%s",
                     *fd, name);
    return n > 0 && (size_t)n < sizeof address->sun_path ? 0 : ENAMETOOLONG;
}

static long with_address(const char *path, long call, int fd) {
    struct sockaddr_un address;
    int folder, failure = address_of(path, &address, &folder);
    long result = -failure;
    if (!failure)
        result = ac_raw_call(call, fd, AC_RAW_POINTER(&address), sizeof address, 0);
    if (folder >= 0)
        ac_raw_close(folder);
    return result;
}

/* Returns true if the other side is of this user, and that process if `pid` is known. */
static bool is_trusted(int fd, int pid) {
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && size == sizeof peer &&
           peer.uid == ac_raw_geteuid() && (!pid || peer.pid == pid);
}

/* ---- messages ---- */

typedef union {
    struct cmsghdr head;
    unsigned char bytes[CMSG_SPACE(AC_IPC_BATCH * sizeof(int))];
} rights_t;

static size_t length_of(const ac_ipc_pages_t *pages) {
    return offsetof(ac_ipc_pages_t, bytes) + pages->count * sizeof pages->bytes[0];
}

/* 0 or an errno value. */
static int send_pages(int fd, const ac_ipc_pages_t *pages, const int *page) {
    rights_t rights;
    struct iovec data = {(void *)(uintptr_t)pages, length_of(pages)};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
    size_t bytes = (size_t)pages->count * sizeof *page;
    if (pages->count) {
        memset(&rights, 0, sizeof rights);
        message.msg_control = &rights;
        message.msg_controllen = CMSG_SPACE(bytes);
        rights.head.cmsg_level = SOL_SOCKET;
        rights.head.cmsg_type = SCM_RIGHTS;
        rights.head.cmsg_len = CMSG_LEN(bytes);
        memcpy(CMSG_DATA(&rights.head), page, bytes);
    }
    long sent =
        ac_raw_call(SYS_sendmsg, fd, AC_RAW_POINTER(&message), MSG_NOSIGNAL | MSG_DONTWAIT, 0);
    return sent >= 0 ? 0 : (int)-sent;
}

/* Takes the descriptors that came with a message, registers them and returns how many there are.
 * After the first one without a place it takes none: pages stay in order. */
static unsigned take_rights(struct msghdr *message, int page[AC_IPC_BATCH]) {
    unsigned count = 0;
    bool room = true;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head; head = CMSG_NXTHDR(message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        size_t fds = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < fds; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(head) + i * sizeof fd, sizeof fd);
            if (!room || count == AC_IPC_BATCH)
                ac_raw_close(fd);
            else if ((room = ac_fds_add(fd)))
                page[count++] = fd;
        }
    }
    return count;
}

/* Returns the length of the message if it is positive.  The kernel leaves out descriptors that this process may not
 * have. */
static long receive_pages(int fd, ac_ipc_pages_t *pages, int page[AC_IPC_BATCH],
                          unsigned *count) {
    rights_t rights;
    int held[AC_LOW];
    struct iovec data = {pages, sizeof *pages};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = &rights,
                             .msg_controllen = sizeof rights};
    memset(&rights, 0, sizeof rights);
    ac_fds_enter();
    ac_low_hold(held);
    long length = ac_raw_call(SYS_recvmsg, fd, AC_RAW_POINTER(&message),
                              MSG_DONTWAIT | MSG_CMSG_CLOEXEC, 0);
    ac_low_release(held);
    *count = length >= 0 ? take_rights(&message, page) : 0;
    ac_fds_leave();
    return length >= 0 && message.msg_flags & MSG_TRUNC ? -EMSGSIZE : length;
}

/* ---- the importer ---- */

/* Makes the address of the socket next to the table; false: the name is no name of a table. */
static bool beside(const char *table, char *name, size_t size) {
    size_t length = strlen(table), stem = length - strlen(".ipc");
    if (length < 5 || strcmp(table + stem, ".ipc") != 0 || stem + sizeof ".sock" > size)
        return false;
    memcpy(name, table, stem);
    memcpy(name + stem, ".sock", sizeof ".sock");
    return true;
}

int ac_ipc_connect(const char *table, int pid, int64_t until) {
    char name[584];
    int64_t refused = now() + REFUSED_NS;
    if (!beside(table, name, sizeof name))
        return -ECONNREFUSED;
    ac_fds_enter();
    int fd = new_socket();
    bool kept = fd >= 0 && ac_fds_add(fd);
    ac_fds_leave();
    if (!kept)
        return -EMFILE;
    for (;;) {
        long result = with_address(name, SYS_connect, fd);
        if (result == 0 && is_trusted(fd, pid))
            return fd;
        /* No room in its queue: it may be stopped.  None there: it may be making another. */
        bool full = result == -EAGAIN || result == -EINTR;
        bool none = result == -ECONNREFUSED || result == -ENOENT;
        if ((!full && !none) || (none && now() >= refused) || now() >= until) {
            ac_fds_close(fd);
            return full ? -ETIMEDOUT : -ECONNREFUSED;
        }
        nap(until);
    }
}

/* 0 or an errno value: what came with `count` descriptors. */
static int judge(ac_ipc_pages_t *pages, long length, unsigned count) {
    if (length < (long)offsetof(ac_ipc_pages_t, bytes) || pages->magic != PAGES_MAGIC ||
        pages->count > AC_IPC_BATCH || length < (long)length_of(pages) || count > pages->count)
        return ECONNRESET;
    if (!pages->count)
        return pages->error > 0 ? pages->error : ECONNRESET;
    pages->error = count < pages->count ? EMFILE : 0; /* the kernel left some out */
    pages->count = count;
    return count ? 0 : EMFILE;
}

int ac_ipc_request(int fd, const ac_ipc_ask_t *ask, ac_ipc_pages_t *pages, int page[AC_IPC_BATCH],
                   int64_t until) {
    ac_ipc_ask_t sent = *ask;
    struct pollfd set = {.fd = fd, .events = POLLIN};
    unsigned count = 0;
    sent.magic = ASK_MAGIC;
    struct iovec data = {&sent, sizeof sent};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
    if (ac_raw_call(SYS_sendmsg, fd, AC_RAW_POINTER(&message), MSG_NOSIGNAL | MSG_DONTWAIT, 0) !=
        sizeof sent)
        return ECONNRESET;
    long length = -EAGAIN;
    while (length == -EAGAIN || length == -EINTR) {
        if (!wait_for(&set, 1, until))
            return ETIMEDOUT;
        length = receive_pages(fd, pages, page, &count);
    }
    int error = judge(pages, length, count);
    while (error && count > 0)
        ac_fds_close(page[--count]);
    if (error == EMFILE || error == ETOOMANYREFS)
        nap(until);
    return error;
}

/* ---- the exporter ---- */

static struct {
    char name[512];
    dev_t device;
    ino_t inode;
    pid_t pid; /* 0: there is none */
} file;

/* As poll has them: the listener first, then the clients, newest last. */
static struct pollfd set[1 + CLIENTS] = {{.fd = -1}};
static int64_t client_until[1 + CLIENTS];
static unsigned set_count = 1;

/* No process listens behind a name of ours: a dead process's, which had our pid. */
static bool is_stale(uint64_t space) {
    int fd = space ? -1 : new_socket();
    bool stale = space || (fd >= 0 && with_address(file.name, SYS_connect, fd) == -ECONNREFUSED);
    if (fd >= 0)
        ac_raw_close(fd);
    return stale;
}

static int make_name(int fd) {
    struct stat st;
    uint64_t space = ac_live_space();
    const char *home;
    int none = ac_ipc_home(&home);
    if (none)
        return none;
    int n = snprintf(file.name, sizeof file.name, "%s/%u-%d.sock", home, (unsigned)space,
                     (int)getpid());
    if (n < 0 || (size_t)n >= sizeof file.name)
        return ENAMETOOLONG;
    fchmod(fd, 0600); /* what bind makes has the rights of the socket, as far as umask lets it */
    long result = with_address(file.name, SYS_bind, fd);
    if (result == -EADDRINUSE && is_stale(space) && unlink(file.name) == 0)
        result = with_address(file.name, SYS_bind, fd);
    if (result < 0)
        return (int)-result;
    if (lstat(file.name, &st) != 0)
        return errno;
    file.device = st.st_dev;
    file.inode = st.st_ino;
    file.pid = getpid();
    return 0;
}

int ac_ipc_listen(void) {
    int saved = errno;
    if (set[0].fd >= 0) /* the program closed it */
        ac_fds_close(set[0].fd);
    set[0].fd = -1;
    ac_fds_enter();
    int fd = new_socket();
    if (fd >= 0)
        fd = ac_move_up(fd);
    int failure = fd < 0 ? errno : ac_fds_add(fd) ? 0 : EMFILE;
    ac_fds_leave();
    if (!failure) {
        failure = make_name(fd);
        if (!failure && listen(fd, 4 * CLIENTS) != 0)
            failure = errno;
        if (failure)
            ac_fds_close(fd);
    }
    if (!failure)
        set[0] = (struct pollfd){.fd = fd, .events = POLLIN};
    errno = saved;
    return failure;
}

static void drop_client(unsigned at, bool close_it) {
    if (close_it)
        ac_fds_close(set[at].fd);
    set_count--;
    memmove(&set[at], &set[at + 1], (set_count - at) * sizeof set[0]);
    memmove(&client_until[at], &client_until[at + 1], (set_count - at) * sizeof client_until[0]);
}

/* While all places are taken, new clients wait in the listener's queue. */
static void accept_clients(void) {
    while (set_count < 1 + CLIENTS && ac_fds_has(set[0].fd)) {
        int held[AC_LOW];
        ac_fds_enter();
        ac_low_hold(held);
        long fd = ac_raw_call(SYS_accept4, set[0].fd, 0, 0, SOCK_CLOEXEC | SOCK_NONBLOCK);
        ac_low_release(held);
        bool kept = fd >= 0 && ac_fds_add((int)fd);
        ac_fds_leave();
        if (fd < 0) {
            if (fd != -EAGAIN) /* out of descriptors, and it stays ready */
                nap(now() + NAP_NS);
            return;
        }
        if (kept && !is_trusted((int)fd, 0))
            ac_fds_close((int)fd);
        else if (kept) {
            client_until[set_count] = now() + PATIENCE_NS;
            set[set_count++] = (struct pollfd){.fd = (int)fd, .events = POLLIN};
        }
    }
}

static ac_control_take_fn *control_take;

void ac_control_serve(ac_control_take_fn *take) {
    control_take = take;
}

/* What a client may send. */
typedef union {
    ac_ipc_ask_t pages;
    ac_control_ask_t control;
} request_t;

static bool is_control(const request_t *request, long length) {
    return control_take && length == sizeof request->control &&
           request->control.magic == CONTROL_MAGIC &&
           memchr(request->control.text, '\0', sizeof request->control.text);
}

typedef enum { CLIENT_OVER, CLIENT_STAYS, CLIENT_TAKEN } client_t;

/* False: the client is gone, or does not read. */
static bool give_pages(int fd, ac_ipc_ask_t *ask, ac_ipc_grant_fn *grant) {
    ac_ipc_pages_t pages = {.error = ENOENT};
    int page[AC_IPC_BATCH];
    unsigned room = ac_fds_room(fd);
    room = room < AC_IPC_BATCH ? room : AC_IPC_BATCH;
    if (!ask->most || ask->most > room)
        ask->most = room;
    grant(ask, &pages, page);
    pages.magic = PAGES_MAGIC;
    int failure = send_pages(fd, &pages, page);
    for (unsigned i = 0; i < pages.count; i++)
        ac_fds_close(page[i]);
    if (failure == ETOOMANYREFS) {
        pages.count = 0;
        pages.error = ETOOMANYREFS;
        failure = send_pages(fd, &pages, page);
    }
    return !failure;
}

/* OVER: it is done, or does not ask as it should.  TAKEN: another thread answers it. */
static client_t answer_client(int fd, ac_ipc_grant_fn *grant) {
    static request_t request; /* of the one thread that answers */
    struct iovec data = {&request, sizeof request};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
    if (!ac_fds_has(fd))
        return CLIENT_OVER;
    /* Without room for them, no descriptor of another process comes in. */
    long length = ac_raw_call(SYS_recvmsg, fd, AC_RAW_POINTER(&message),
                              MSG_DONTWAIT | MSG_CMSG_CLOEXEC, 0);
    if (length == -EAGAIN || length == -EINTR)
        return CLIENT_STAYS;
    if (message.msg_flags & MSG_TRUNC)
        return CLIENT_OVER;
    if (is_control(&request, length))
        return control_take(fd, &request.control) ? CLIENT_TAKEN : CLIENT_OVER;
    if (length != sizeof request.pages || request.pages.magic != ASK_MAGIC)
        return CLIENT_OVER;
    return give_pages(fd, &request.pages, grant) ? CLIENT_STAYS : CLIENT_OVER;
}

/* When the first client is out of patience, at `until` at the latest. */
static int64_t first_limit(int64_t until) {
    for (unsigned i = 1; i < set_count; i++)
        until = client_until[i] < until ? client_until[i] : until;
    return until;
}

static int64_t awaited; /* the time at the end of ac_ipc_await */

void ac_ipc_await(int64_t wait_ns) {
    for (unsigned i = 0; i < set_count; i++)
        set[i].revents = 0; /* which stay if ppoll fails */
    set[0].events = set_count < 1 + CLIENTS ? POLLIN : 0;
    wait_for(set, set_count, first_limit(now() + wait_ns));
    awaited = now();
}

/* If all places are taken and others wait for one, a client leaves its place with each answer and connects again for
 * the next. */
bool ac_ipc_answer(ac_ipc_grant_fn *grant) {
    struct pollfd listener = {.fd = set[0].fd, .events = POLLIN};
    bool crowded = set_count == 1 + CLIENTS && wait_for(&listener, 1, 0);
    for (unsigned i = set_count; i-- > 1;) {
        client_t client = CLIENT_STAYS;
        if (set[i].revents) {
            client = answer_client(set[i].fd, grant);
            if (crowded && client == CLIENT_STAYS)
                client = CLIENT_OVER;
            client_until[i] = now() + PATIENCE_NS;
        } else if (awaited >= client_until[i]) {
            client = CLIENT_OVER;
        }
        if (client != CLIENT_STAYS)
            drop_client(i, client != CLIENT_TAKEN);
    }
    if (set[0].revents & POLLIN)
        accept_clients();
    return ac_fds_has(set[0].fd);
}

/* ---- control ---- */

static bool send_whole(int fd, const void *data, size_t size) {
    struct iovec part = {(void *)(uintptr_t)data, size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    return ac_raw_call(SYS_sendmsg, fd, AC_RAW_POINTER(&message), MSG_NOSIGNAL | MSG_DONTWAIT,
                       0) == (long)size;
}

int ac_control_request(int fd, ac_control_ask_t *ask, ac_control_answer_t *answer,
                       int64_t until) {
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    struct iovec data = {answer, sizeof *answer};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
    ask->magic = CONTROL_MAGIC;
    if (!send_whole(fd, ask, sizeof *ask))
        return ECONNRESET;
    long length = -EAGAIN;
    while (length == -EAGAIN || length == -EINTR) {
        if (!wait_for(&wait, 1, until))
            return ETIMEDOUT;
        length = ac_raw_call(SYS_recvmsg, fd, AC_RAW_POINTER(&message),
                             MSG_DONTWAIT | MSG_CMSG_CLOEXEC, 0);
    }
    bool good = length == sizeof *answer && answer->magic == CONTROL_MAGIC &&
                memchr(answer->text, '\0', sizeof answer->text);
    return good ? 0 : ECONNRESET;
}

void ac_control_reply(int fd, ac_control_answer_t *answer) {
    answer->magic = CONTROL_MAGIC;
    if (ac_fds_has(fd))
        send_whole(fd, answer, sizeof *answer);
    ac_fds_close(fd);
}

/* ---- the end ---- */

void ac_ipc_socket_close(void) {
    struct stat st;
    if (file.pid && file.pid == ac_raw_getpid() && ac_raw_lstat(file.name, &st) == 0 &&
        st.st_dev == file.device && st.st_ino == file.inode)
        ac_raw_unlink(file.name);
}

void ac_ipc_socket_fork_child(void) {
    set[0].fd = -1;
    set_count = 1;
    file.pid = 0;
}

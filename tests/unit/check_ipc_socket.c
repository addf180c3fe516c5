/* File descriptors of pages on their way to an importer (share/ipc_socket.h), and the closing of descriptors in
 * a fork child (share/ipc_fds.h). A pipe stands for a page. */
#include "live_frame.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "observe/raw.h"
#include "share/ipc_fds.h"
#include "share/ipc_socket.h"
#include "run_suite.h"

enum { MS = 1000000, UNIT = 2 << 20, PAGES = 3 * AC_IPC_BATCH - 10 };
#define PATIENCE ((int64_t)20000 * MS) /* generous, for a busy machine */

static char table[512];
static ac_ipc_ask_t asked; /* written by the server's thread, under the lock */
static pthread_mutex_t asked_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool over;
static pthread_t server;
static bool refusing;

static int64_t in(int64_t ns) {
    return ac_raw_ns(CLOCK_MONOTONIC) + ns;
}

/* Returns the pages of a block, as an exporter of real pages would. */
static void grant(const ac_ipc_ask_t *ask, ac_ipc_pages_t *pages, int page[AC_IPC_BATCH]) {
    pthread_mutex_lock(&asked_lock);
    asked = *ask;
    pthread_mutex_unlock(&asked_lock);
    for (uint64_t at = ask->from / UNIT; !refusing && at < PAGES && pages->count < ask->most;
         at++) {
        int ends[2];
        ck_assert_int_eq(pipe(ends), 0);
        ck_assert_int_eq(write(ends[1], &at, sizeof at), sizeof at);
        close(ends[1]);
        ck_assert(ac_fds_add(ends[0]));
        page[pages->count] = ends[0];
        pages->bytes[pages->count++] = UNIT;
    }
}

static void *serve(void *arg) {
    (void)arg;
    while (!over) {
        ac_ipc_await(20 * MS);
        if (!ac_ipc_answer(grant))
            ck_assert_int_eq(ac_ipc_listen(), 0);
    }
    return NULL;
}

static void open_page(void) {
    ck_assert_int_eq(ac_live_open(NULL, hooks, sizeof hooks, HOOKS), 0);
    snprintf(table, sizeof table, "%s.ipc", page_name((int)getpid()));
    ck_assert_int_eq(ac_ipc_listen(), 0);
}

static void start(void) {
    open_page();
    ck_assert_int_eq(pthread_create(&server, NULL, serve, NULL), 0);
}

static void stop(void) {
    over = true;
    pthread_join(server, NULL);
    ac_ipc_socket_close();
    ac_live_close();
}

static int connected(void) {
    int fd = ac_ipc_connect(table, (int)getpid(), in(PATIENCE));
    ck_assert_int_ge(fd, 0);
    return fd;
}

static unsigned descriptors(void) {
    unsigned count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* Fetches all pages of the block, each once and in order. */
static void get_all(void) {
    int fd = connected();
    uint64_t at = 0;
    while (at < PAGES) {
        ac_ipc_ask_t ask = {.nonce = 1, .address = 2, .serial = 3, .from = at * UNIT};
        ac_ipc_pages_t pages;
        int page[AC_IPC_BATCH];
        ck_assert_int_eq(ac_ipc_request(fd, &ask, &pages, page, in(PATIENCE)), 0);
        pthread_mutex_lock(&asked_lock);
        ac_ipc_ask_t last = asked;
        pthread_mutex_unlock(&asked_lock);
        ck_assert(last.nonce == 1 && last.address == 2 && last.serial == 3);
        ck_assert_uint_eq(last.from, at * UNIT);
        for (unsigned i = 0; i < pages.count; i++, at++) {
            uint64_t number;
            ck_assert_uint_eq(pages.bytes[i], UNIT);
            ck_assert_int_eq(read(page[i], &number, sizeof number), sizeof number);
            ck_assert_uint_eq(number, at);
            ck_assert(fcntl(page[i], F_GETFD) & FD_CLOEXEC);
            ac_fds_close(page[i]);
        }
    }
    ac_fds_close(fd);
}

static bool is_answered(void) {
    int fd = ac_ipc_connect(table, (int)getpid(), in(PATIENCE)), page[AC_IPC_BATCH];
    ac_ipc_ask_t ask = {.nonce = 1};
    ac_ipc_pages_t pages;
    bool good = fd >= 0 && !ac_ipc_request(fd, &ask, &pages, page, in(PATIENCE));
    for (unsigned i = 0; good && i < pages.count; i++)
        ac_fds_close(page[i]);
    if (fd >= 0)
        ac_fds_close(fd);
    return good;
}

START_TEST(all_pages_arrive) {
    start();
    unsigned before = descriptors();
    for (int i = 0; i < 20; i++)
        get_all();
    while (descriptors() !=
           before) /* the other side drops its client, or the test's time limit ends the test */
        usleep(1000);
    stop();
    snprintf(table, sizeof table, "%s.sock", page_name((int)getpid()));
    ck_assert(!exists(table));
}
END_TEST

/* Returns the nanoseconds that a request without an answer took; its limit is 200 ms. */
static int64_t unanswered(void) {
    int fd = connected(), page[AC_IPC_BATCH];
    ac_ipc_ask_t ask = {.nonce = 1};
    ac_ipc_pages_t pages;
    int64_t begin = in(0);
    ck_assert_int_eq(ac_ipc_request(fd, &ask, &pages, page, in(200 * MS)), ETIMEDOUT);
    int64_t spent = in(0) - begin;
    ck_assert(spent >= 200 * MS);
    ac_fds_close(fd);
    return spent;
}

/* Connects until the queue is full and a connection times out after 300 ms. Returns the nanoseconds of that;
 * *made: connections before it. */
static int64_t until_full(int *made) {
    int fd[400], count = 0;
    int64_t begin = in(0);
    while (count < 400 && (fd[count] = ac_ipc_connect(table, 0, begin + 300 * MS)) >= 0)
        count++;
    ck_assert_int_lt(count, 400);
    *made += count;
    int64_t spent = in(0) - begin;
    while (count > 0)
        ac_fds_close(fd[--count]);
    return spent;
}

/* The importer's limit holds whatever the exporter does, and no descriptor stays open. One fast try of a few is
 * enough, because the machine may be busy. */
START_TEST(no_answer_is_no_wait) {
    enum { TIMES = 5, SOON_MS = 2000 };
    open_page();
    unsigned before = descriptors();
    int times = 1, made = 0;
    while (unanswered() >= (int64_t)SOON_MS * MS)
        ck_assert_int_lt(times++, TIMES);
    ck_assert_uint_eq(descriptors(), before);
    times = 1;
    while (until_full(&made) >= (int64_t)SOON_MS * MS)
        ck_assert_int_lt(times++, TIMES);
    ck_assert_int_gt(made, 0);
    ck_assert_uint_eq(descriptors(), before);
    ac_ipc_socket_close();
    ck_assert_int_lt(ac_ipc_connect(table, 0, in(PATIENCE)), 0);
    ac_live_close();
}
END_TEST

START_TEST(a_refusal_is_an_answer) {
    start();
    refusing = true;
    int fd = connected(), page[AC_IPC_BATCH];
    ac_ipc_ask_t ask = {.nonce = 1};
    ac_ipc_pages_t pages;
    int64_t begin = in(0);
    ck_assert_int_eq(ac_ipc_request(fd, &ask, &pages, page, in(2 * PATIENCE)), ENOENT);
    ck_assert(in(0) - begin < PATIENCE);
    ac_fds_close(fd);
    stop();
}
END_TEST

/* Sends more descriptors than this process may have or requested. The importer gets the ones that fit, in order,
 * and leaves none open. */
static void *send_many(void *arg) {
    enum { MANY = 100 };
    struct {
        uint64_t magic;
        uint32_t count, error;
        uint64_t bytes[MANY];
    } answer = {.magic = 0x3245504950434143, .count = MANY};
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(MANY * sizeof(int))];
    } rights;
    struct iovec data = {&answer, sizeof answer};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = &rights,
                             .msg_controllen = sizeof rights};
    int client = accept(*(int *)arg, NULL, NULL);
    memset(&rights, 0, sizeof rights); /* standard input, repeatedly */
    rights.head.cmsg_level = SOL_SOCKET;
    rights.head.cmsg_type = SCM_RIGHTS;
    rights.head.cmsg_len = CMSG_LEN(MANY * sizeof(int));
    while (recv(client, &answer.bytes, sizeof answer.bytes, 0) > 0)
        ck_assert_int_gt(sendmsg(client, &message, MSG_NOSIGNAL), 0);
    close(client);
    return NULL;
}

START_TEST(descriptors_may_be_few) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    open_page();
    ac_ipc_socket_close();
    ck_assert_uint_lt(strlen(table) + 1, sizeof address.sun_path);
    snprintf(address.sun_path, sizeof address.sun_path, "%.*s.sock", (int)strlen(table) - 4,
             table);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    ck_assert_int_eq(pthread_create(&server, NULL, send_many, &listener), 0);
    int fd = connected(), page[AC_IPC_BATCH];
    ac_ipc_ask_t ask = {.nonce = 1, .most = 100};
    ac_ipc_pages_t pages;
    struct rlimit limit, few;
    ck_assert_int_eq(ac_ipc_request(fd, &ask, &pages, page, in(PATIENCE)), 0);
    ck_assert(pages.count == 100 && pages.error == 0);
    for (unsigned i = 0; i < pages.count; i++)
        ac_fds_close(page[i]);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    unsigned before = descriptors();
    int end = 0; /* of the numbers allowed for descriptors */
    for (unsigned may = 0; may < 5; may++, end++) {
        while (fcntl(end, F_GETFD) >= 0)
            end++;
        few = (struct rlimit){(rlim_t)end, limit.rlim_max};
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
        int error = ac_ipc_request(fd, &ask, &pages, page, in(PATIENCE));
        ck_assert_int_eq(error, may ? 0 : EMFILE);
        ck_assert(error || (pages.count == may && pages.error == EMFILE));
        for (unsigned i = 0; i < may; i++)
            ac_fds_close(page[i]);
        ck_assert_uint_eq(descriptors(), before);
    }
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ac_fds_close(fd);
    pthread_join(server, NULL);
    ac_live_close();
}
END_TEST

/* Silent clients and clients that send other data delay no other client, although each is dropped only after a
 * second. */
START_TEST(others_are_heard) {
    enum { MANY = 100, SOON = 5000 }; /* more than the server handles at a time */
    start();
    int fd[MANY];
    char nonsense[100] = "nonsense";
    for (int i = 0; i < MANY; i++) {
        fd[i] = connected();
        if (i % 2)
            ck_assert(send(fd[i], nonsense, (size_t)i + 1, MSG_NOSIGNAL) > 0);
    }
    int64_t begin = in(0);
    get_all();
    ck_assert_int_lt(in(0) - begin, SOON * (int64_t)MS);
    for (int i = 0; i < MANY; i++)
        ac_fds_close(fd[i]);
    stop();
}
END_TEST

static _Atomic bool asking = true;

static void *ask_on(void *fds) {
    int *fd = fds, page[AC_IPC_BATCH];
    ac_ipc_ask_t ask = {.nonce = 1, .most = 1};
    ac_ipc_pages_t pages;
    for (int i = 0; asking; i = (i + 1) % 64)
        if (ac_ipc_request(fd[i], &ask, &pages, page, in(PATIENCE)) == 0)
            ac_fds_close(page[0]);
    return NULL;
}

/* Clients that always ask for more take all places. One further client is still served. */
START_TEST(all_take_turns) {
    int fd[64];
    pthread_t asker;
    start();
    for (int i = 0; i < 64; i++)
        fd[i] = connected();
    ck_assert_int_eq(pthread_create(&asker, NULL, ask_on, fd), 0);
    ck_assert(is_answered());
    asking = false;
    pthread_join(asker, NULL);
    stop();
    for (int i = 0; i < 64; i++)
        ac_fds_close(fd[i]);
}
END_TEST

START_TEST(another_process_is_not_asked) {
    open_page();
    ck_assert_int_lt(ac_ipc_connect(table, 1, in(PATIENCE)), 0);
    ac_ipc_socket_close();
    ac_live_close();
}
END_TEST

/* The program closes all descriptors that it does not know, and opens its own files under these numbers. */
START_TEST(lost_socket_is_made_again) {
    start();
    get_all();
    struct stat st;
    for (int fd = 3; fd < 1024; fd++)
        if (fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode)) {
            int other = open("/dev/null", O_RDONLY);
            ck_assert_int_eq(dup2(other, fd), fd);
            close(other);
        }
    while (!is_answered())
        usleep(1000);
    get_all();
    ck_assert(!ac_fds_has(1000));
    stop();
}
END_TEST

/* The folder has a longer path than a socket's address can hold. */
START_TEST(long_paths_are_reached) {
    char longer[sizeof dir + 200];
    snprintf(longer, sizeof longer, "%s/%0*d", dir, 150, 7);
    ck_assert_int_eq(mkdir(longer, 0700), 0);
    setenv("ACCEL_LIVE_DIR", longer, 1);
    ck_assert_int_eq(ac_live_open(NULL, hooks, sizeof hooks, HOOKS), 0);
    snprintf(table, sizeof table, "%s/accelcache-%u/%llu-%d.ipc", longer, (unsigned)geteuid(),
             (unsigned long long)space_here(), (int)getpid());
    ck_assert_int_eq(ac_ipc_listen(), 0);
    ck_assert_int_eq(pthread_create(&server, NULL, serve, NULL), 0);
    get_all();
    stop();
}
END_TEST

/* A dead process left a socket under the name. */
START_TEST(stale_socket_is_replaced) {
    open_page();
    ac_ipc_socket_fork_child(); /* forgets the socket without removing its file */
    ck_assert_int_eq(ac_ipc_listen(), 0);
    ac_fds_close(connected());
    ac_ipc_socket_close();
    ac_live_close();
}
END_TEST

/* ---- fork ---- */

static unsigned pipes_and_sockets(void) {
    unsigned count = 0;
    struct stat st;
    for (int fd = 3; fd < 1024; fd++)
        count += fstat(fd, &st) == 0 && (S_ISSOCK(st.st_mode) || S_ISFIFO(st.st_mode));
    return count;
}

/* A connection has both ends in this process. A fork child keeps neither. */
START_TEST(fork_child_keeps_nothing) {
    unsigned others = pipes_and_sockets();
    pthread_atfork(ac_fds_fork_prepare, ac_fds_fork_parent, ac_fds_fork_child);
    start();
    for (int i = 0; i < 300; i++) {
        int fd = connected();
        pid_t child = fork();
        if (child == 0)
            _exit((int)(pipes_and_sockets() - others));
        ck_assert_int_eq(wait_for(child), 0);
        ac_fds_close(fd);
    }
    stop();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ipc_socket");
    TCase *tcase = tcase_create("socket");
    tcase_add_checked_fixture(tcase, enter_dir, leave_dir);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, all_pages_arrive);
    tcase_add_test(tcase, no_answer_is_no_wait);
    tcase_add_test(tcase, a_refusal_is_an_answer);
    tcase_add_test(tcase, descriptors_may_be_few);
    tcase_add_test(tcase, others_are_heard);
    tcase_add_test(tcase, all_take_turns);
    tcase_add_test(tcase, another_process_is_not_asked);
    tcase_add_test(tcase, lost_socket_is_made_again);
    tcase_add_test(tcase, long_paths_are_reached);
    tcase_add_test(tcase, stale_socket_is_replaced);
    tcase_add_test(tcase, fork_child_keeps_nothing);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}

/* The recorder of allocations and the reader of its files, without a driver. Each test runs in
 * its own process (Check forks) and records to a file in its working folder. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "observe/live.h"
#include "observe/trace.h"
#include "read/trace_read.h"
#include "run_suite.h"

/* ck_assert logs each passed check, which is too slow for checks of many events. */
#define NEED(condition)                                                                          \
    do {                                                                                         \
        if (!(condition))                                                                        \
            ck_abort_msg("%s", #condition);                                                      \
    } while (0)

static char path[4096], name[4096]; /* the file under test; the file that end() removes */

/* Starts recording to a file of this test. */
static void begin(const char *pattern) {
    static const char hooks[] = "none";
    int other;
    setenv("ACCEL_LIVE_DIR", ".", 1);
    ck_assert_int_eq(ac_live_open("trace:here", hooks, sizeof hooks, 1), 0);
    ck_assert_int_eq(ac_trace_open(pattern, path, sizeof path, &other), 0);
    ck_assert_int_eq(other, 0);
    memcpy(name, path, sizeof name);
}

static void end(void) {
    ac_trace_close();
    ac_live_close();
    unlink(name);
}

static cmd_trace_t *reading(const char *file) {
    char *error;
    cmd_trace_t *trace = cmd_trace_open(file, &error);
    ck_assert_msg(trace != NULL, "%s", error);
    return trace;
}

static ac_trace_place_t at(unsigned device, unsigned context, uint64_t stream) {
    return (ac_trace_place_t){(uint16_t)device, (uint16_t)context, stream};
}

static cmd_trace_event_t next(cmd_trace_t *trace) {
    cmd_trace_event_t event;
    NEED(cmd_trace_next(trace, &event));
    return event;
}

static void ended(cmd_trace_t *trace) {
    cmd_trace_event_t event;
    ck_assert(!cmd_trace_next(trace, &event));
    ck_assert_uint_eq(cmd_trace_counts(trace).damaged_lanes, 0);
}

static bool is_alloc(cmd_trace_event_t e, uint64_t id, uint64_t address, uint64_t bytes,
                     unsigned stream) {
    return e.kind == CMD_TRACE_ALLOC && e.id == id && e.address == address && e.bytes == bytes &&
           e.stream == stream && !e.implied;
}

static bool is_free(cmd_trace_event_t e, uint64_t id, uint64_t address, uint64_t bytes,
                    unsigned stream) {
    return e.kind == CMD_TRACE_FREE && e.id == id && e.address == address && e.bytes == bytes &&
           e.stream == stream;
}

START_TEST(every_kind_arrives) {
    begin("kinds-%p.trace");
    ac_trace_lane_t *lane = ac_trace_lane_take(7);
    ac_trace_write_alloc(lane, AC_TRACE_ALLOC, 0x7f0000000200, 1000, at(0, 0, 0));
    ac_trace_write_alloc(lane, AC_TRACE_MANAGED, 0x7f0000010000, 1ull << 47, at(1, 3, 0x5550));
    ac_trace_write_alloc(lane, AC_TRACE_FAILED, 2, UINT64_MAX, at(0, 0, 0));
    ac_trace_write_at(lane, AC_TRACE_SYNC, at(1, 3, 0));
    ac_trace_write_at(lane, AC_TRACE_SYNC_STREAM, at(1, 3, 0x5550));
    ac_trace_write_event_sync(lane, 0xabcdef);
    ac_trace_write_free(lane, 0x7f0000000200); /* refused */
    ac_trace_write_unfree(lane);
    ac_trace_write_free(lane, 0x999); /* never allocated */
    ac_trace_write_free_on(lane, 0x7f0000000200, at(0, 0, 1));
    ac_trace_write_at(lane, AC_TRACE_GONE, at(1, 3, 0));
    ac_trace_write_alloc(lane, AC_TRACE_ALLOC, 0x7f0000010000, 5, at(1, 3, 0));
    ac_trace_write_alloc(lane, AC_TRACE_ALLOC, 0x7f0000010000, 6,
                         at(AC_TRACE_NOWHERE, AC_TRACE_NOWHERE, 0));
    ac_trace_lane_return(lane);
    ac_trace_close();

    ck_assert(cmd_trace_is(path));
    cmd_trace_t *trace = reading(path);
    const ac_trace_header_t *header = cmd_trace_header(trace);
    ck_assert_int_eq(header->pid, getpid());
    ck_assert_uint_eq(header->state, AC_TRACE_COMPLETE);
    ck_assert_str_eq(header->conf, "trace:here");
    cmd_trace_event_t e = next(trace);
    ck_assert(is_alloc(e, 0, 0x7f0000000200, 1000, 0));
    ck_assert(e.device == 0 && e.context == 1 && e.thread == 7 && !e.managed);
    int64_t first = e.time_ns;
    e = next(trace);
    ck_assert(is_alloc(e, 1, 0x7f0000010000, 1ull << 47, 1));
    ck_assert(e.device == 1 && e.context == 2 && e.managed && e.time_ns >= first);
    e = next(trace);
    ck_assert(e.kind == CMD_TRACE_FAILED && e.error == 2 && e.bytes == (1ull << 48) - 1);
    e = next(trace);
    ck_assert(e.kind == CMD_TRACE_SYNC && e.context == 2 && e.device == 1);
    e = next(trace);
    ck_assert(e.kind == CMD_TRACE_SYNC_STREAM && e.context == 2 && e.stream == 1);
    e = next(trace);
    ck_assert(e.kind == CMD_TRACE_SYNC_EVENT && e.address == 0xabcdef);
    e = next(trace);
    ck_assert(is_free(e, 0, 0x7f0000000200, 1000, 2) && !e.implied);
    e = next(trace);
    ck_assert(is_free(e, 1, 0x7f0000010000, 1ull << 47, 0) && e.implied && e.managed);
    e = next(trace);
    ck_assert(is_alloc(e, 2, 0x7f0000010000, 5, 0));
    ck_assert_uint_eq(e.context, 3); /* a new context with the number of an old one */
    e = next(trace);
    ck_assert(is_free(e, 2, 0x7f0000010000, 5, 0) && e.implied);
    e = next(trace);
    ck_assert(is_alloc(e, 3, 0x7f0000010000, 6, 0) && e.device == -1 && e.context == 0);
    ended(trace);
    cmd_trace_counts_t counts = cmd_trace_counts(trace);
    ck_assert_uint_eq(counts.unknown_frees, 1);
    ck_assert_uint_eq(counts.refused_frees, 1);
    ck_assert_uint_eq(counts.implied_frees, 2);
    cmd_trace_close(trace);
    end();
}
END_TEST

/* The streams outnumber the places of a lane and take turns, so that places are redefined all
 * the time. */
START_TEST(streams_beyond_the_places) {
    enum { STREAMS = 5000, ROUNDS = 3 };
    begin("places-%p.trace");
    ac_trace_lane_t *lane = ac_trace_lane_take(1);
    for (uint64_t i = 0; i < (uint64_t)STREAMS * ROUNDS; i++)
        ac_trace_write_alloc(lane, AC_TRACE_ALLOC, (i + 1) * 512, i + 1,
                             at(0, 0, (i % STREAMS + 1) * 64));
    ac_trace_close();
    cmd_trace_t *trace = reading(path);
    for (uint64_t i = 0; i < (uint64_t)STREAMS * ROUNDS; i++)
        NEED(is_alloc(next(trace), i, (i + 1) * 512, i + 1, (unsigned)(i % STREAMS) + 1));
    ended(trace);
    cmd_trace_close(trace);
    end();
}
END_TEST

START_TEST(many_chunks_and_their_size) {
    enum { PAIRS = 100000 };
    struct stat st;
    begin("chunks-%p.trace");
    ac_trace_lane_t *lane = ac_trace_lane_take(1);
    for (uint64_t i = 0; i < PAIRS; i++) {
        ac_trace_write_alloc(lane, AC_TRACE_ALLOC, (i % 100 + 1) << 20, i + 1, at(0, 0, 64));
        ac_trace_write_free(lane, (i % 100 + 1) << 20);
    }
    ac_trace_close();
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_le(st.st_size, 24 * 2 * PAIRS);
    cmd_trace_t *trace = reading(path);
    for (uint64_t i = 0; i < PAIRS; i++) {
        NEED(is_alloc(next(trace), i, (i % 100 + 1) << 20, i + 1, 1));
        NEED(is_free(next(trace), i, (i % 100 + 1) << 20, i + 1, 0));
    }
    ended(trace);
    cmd_trace_close(trace);
    end();
}
END_TEST

/* --- threads --- */

enum { HANDS = 4, TURNS = 20000 };
static _Atomic uint64_t mailbox; /* 0 if a thread has the block */

/* A thread that finds the block allocates it, frees it, and puts it back for another thread. */
static void *hand(void *arg) {
    uint64_t thread = (uint64_t)(uintptr_t)arg;
    ac_trace_lane_t *lane = ac_trace_lane_take(thread);
    for (int i = 0; i < TURNS; i++) {
        uint64_t block;
        while ((block = atomic_exchange(&mailbox, 0)) == 0)
            sched_yield();
        ac_trace_write_alloc(lane, AC_TRACE_ALLOC, block, thread, at(0, 0, 0));
        ac_trace_write_free(lane, block);
        atomic_store(&mailbox, block);
    }
    ac_trace_lane_return(lane);
    return NULL;
}

START_TEST(order_of_one_address) {
    pthread_t thread[HANDS];
    uint64_t sequence = 0;
    begin("order-%p.trace");
    for (uintptr_t i = 0; i < HANDS; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, hand, (void *)(i + 1)), 0);
    atomic_store(&mailbox, 0x1000);
    for (int i = 0; i < HANDS; i++)
        pthread_join(thread[i], NULL);
    ac_trace_close();
    cmd_trace_t *trace = reading(path);
    for (uint64_t i = 0; i < HANDS * TURNS; i++) {
        cmd_trace_event_t alloc = next(trace), gone = next(trace);
        NEED(is_alloc(alloc, i, 0x1000, alloc.thread, 0));
        NEED(is_free(gone, i, 0x1000, alloc.thread, 0) && !gone.implied);
        NEED(gone.thread == alloc.thread);
        NEED(i == 0 || alloc.sequence > sequence);
        sequence = gone.sequence;
        NEED(sequence > alloc.sequence);
    }
    ended(trace);
    cmd_trace_close(trace);
    end();
}
END_TEST

/* Consecutive threads use one lane, so that the file does not grow with each thread. */
START_TEST(lanes_are_taken_over) {
    enum { THREADS = 300 };
    struct stat st;
    begin("lanes-%p.trace");
    for (uint64_t i = 1; i <= THREADS; i++) {
        ac_trace_lane_t *lane = ac_trace_lane_take(i);
        ac_trace_write_alloc(lane, AC_TRACE_ALLOC, i << 10, i, at(0, 0, i << 2 | 2));
        ac_trace_lane_return(lane);
    }
    ac_trace_close();
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(st.st_size, 2 * AC_TRACE_UNIT);
    cmd_trace_t *trace = reading(path);
    for (uint64_t i = 1; i <= THREADS; i++) {
        cmd_trace_event_t e = next(trace);
        NEED(is_alloc(e, i - 1, i << 10, i, (unsigned)i));
        ck_assert_uint_eq(e.thread, i);
    }
    ended(trace);
    cmd_trace_close(trace);
    end();
}
END_TEST

/* Only the last of many threads writes an event. The reader finds it. */
START_TEST(lanes_that_write_nothing) {
    enum { THREADS = 300 };
    ac_trace_lane_t *lane = NULL;
    begin("idle-%p.trace");
    for (uint64_t i = 1; i <= THREADS; i++)
        lane = ac_trace_lane_take(i);
    ac_trace_write_alloc(lane, AC_TRACE_ALLOC, 0x1000, 5, at(0, 0, 0));
    ac_trace_close();
    cmd_trace_t *trace = reading(path);
    cmd_trace_event_t e = next(trace);
    ck_assert(is_alloc(e, 0, 0x1000, 5, 0));
    ck_assert_uint_eq(e.thread, THREADS);
    ended(trace);
    cmd_trace_close(trace);
    end();
}
END_TEST

/* --- kills and failures --- */

/* Number of events that each thread of the child had written before the kill. */
typedef struct {
    _Atomic uint64_t events[2];
    _Atomic bool ready;
} progress_t;

static progress_t *progress;

static void *write_for_ever(void *arg) {
    uint64_t which = (uint64_t)(uintptr_t)arg;
    ac_trace_lane_t *lane = ac_trace_lane_take(which + 1);
    for (uint64_t i = 0;; i++) {
        ac_trace_write_alloc(lane, AC_TRACE_ALLOC, (which << 40 | i) + 1, i, at(0, 0, 0));
        atomic_store(&progress->events[which], i + 1);
        if (which == 0 && i == 100)
            atomic_store(&progress->ready, true);
    }
    return NULL;
}

/* Checks that the trace has all events that each thread reported, in order. A few more are
 * allowed. */
static void check_killed(void) {
    uint64_t seen[2] = {0, 0};
    cmd_trace_event_t e;
    cmd_trace_t *trace = reading(path);
    ck_assert_uint_eq(cmd_trace_header(trace)->state, AC_TRACE_OPEN);
    while (cmd_trace_next(trace, &e)) {
        uint64_t which = e.thread - 1;
        NEED(which < 2 && e.kind == CMD_TRACE_ALLOC);
        NEED(e.address == (which << 40 | seen[which]) + 1);
        NEED(e.bytes == seen[which]);
        seen[which]++;
    }
    ended(trace);
    cmd_trace_close(trace);
    for (int i = 0; i < 2; i++) {
        uint64_t written = atomic_load(&progress->events[i]);
        ck_assert_uint_ge(seen[i], written);
        ck_assert_uint_le(seen[i], written + 1);
    }
}

START_TEST(killed_at_any_point) {
    progress =
        mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(progress != MAP_FAILED);
    srand((unsigned)getpid());
    for (int round = 0; round < 12; round++) {
        memset((void *)progress, 0, sizeof *progress);
        snprintf(path, sizeof path, "killed-%d.trace", (int)getpid());
        pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0) {
            pthread_t thread;
            begin(path);
            pthread_create(&thread, NULL, write_for_ever, (void *)1);
            write_for_ever(NULL);
        }
        while (!atomic_load(&progress->ready))
            sched_yield();
        uint64_t until = (uint64_t)rand() % 20000;
        while (atomic_load(&progress->events[0]) < until)
            sched_yield();
        ck_assert_int_eq(kill(child, SIGKILL), 0);
        ck_assert_int_eq(waitpid(child, NULL, 0), child);
        check_killed();
        ac_live_name_t page;
        if (ac_live_find(child, 0, &page))
            ck_assert_int_eq(ac_live_remove(&page), 0);
    }
    unlink(path);
}
END_TEST

/* Returns true if `count` allocations fill `chunks` chunks, except for the room that one call
 * may need. */
enum { A_CHUNK = (AC_TRACE_UNIT - sizeof(ac_trace_chunk_t)) / 24 };
static bool fills(uint64_t count, unsigned chunks) {
    enum { ROOM = 5 };
    return count <= chunks * A_CHUNK && count >= chunks * (A_CHUNK - ROOM);
}

/* A kill after a full front was copied, but before the front got its next ordinal, leaves the
 * chunk twice. */
START_TEST(copied_and_still_in_front) {
    enum { EVENTS = 4000 };
    uint64_t ordinal = 0;
    cmd_trace_event_t e;
    begin("twice-%p.trace");
    ac_trace_lane_t *lane = ac_trace_lane_take(1);
    for (uint64_t i = 0; i < EVENTS; i++)
        ac_trace_write_alloc(lane, AC_TRACE_ALLOC, i + 1, i, at(0, 0, 0));
    int fd = open(path, O_RDWR | O_CLOEXEC);
    const off_t field = AC_TRACE_UNIT + (off_t)offsetof(ac_trace_chunk_t, ordinal);
    ck_assert_int_eq(pread(fd, &ordinal, sizeof ordinal, field), sizeof ordinal);
    ck_assert_uint_eq(ordinal, 1);
    ordinal = 0;
    ck_assert_int_eq(pwrite(fd, &ordinal, sizeof ordinal, field), sizeof ordinal);
    close(fd);
    cmd_trace_t *trace = reading(path);
    uint64_t count = 0;
    while (cmd_trace_next(trace, &e))
        NEED(is_alloc(e, count, count + 1, count, 0) && ++count);
    ck_assert(fills(count, 1));
    ended(trace);
    cmd_trace_close(trace);
    end();
}
END_TEST

static uint64_t count_events(void) {
    cmd_trace_event_t e;
    uint64_t count = 0;
    cmd_trace_t *trace = reading(path);
    while (cmd_trace_next(trace, &e))
        NEED(is_alloc(e, count, count + 1, count, 0) && ++count);
    ended(trace);
    cmd_trace_close(trace);
    return count;
}

/* Writes events under a limit of the file size. The limit must not apply to files of Check
 * itself, so it ends here. */
static void write_limited(rlim_t bytes, uint64_t events) {
    struct rlimit limit, before;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = bytes;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ac_trace_lane_t *lane = ac_trace_lane_take(1);
    for (uint64_t i = 0; i < events; i++)
        ac_trace_write_alloc(lane, AC_TRACE_ALLOC, i + 1, i, at(0, 0, 0));
    setrlimit(RLIMIT_FSIZE, &before);
}

/* If the file cannot grow, the process gets no signal, and earlier events stay readable. */
START_TEST(no_more_room) {
    begin("full-%p.trace");
    write_limited(4 * AC_TRACE_UNIT, 10 * A_CHUNK); /* header, front, two copies */
    ck_assert(fills(count_events(), 3));
    ck_assert_ptr_null(ac_trace_lane_take(2));
    cmd_trace_t *trace = reading(path);
    ck_assert_uint_eq(cmd_trace_header(trace)->state, AC_TRACE_STOPPED);
    ck_assert_int_eq(cmd_trace_header(trace)->stop_error, EFBIG);
    cmd_trace_close(trace);
    ck_assert_uint_eq(ac_live->warning_count, 1);
    end();
}
END_TEST

START_TEST(no_room_for_a_front) {
    begin("front-%p.trace");
    write_limited(AC_TRACE_UNIT, 1);
    ck_assert_uint_eq(count_events(), 0);
    ck_assert_uint_eq(ac_live->warning_count, 1);
    end();
}
END_TEST

START_TEST(file_was_moved) {
    char moved[sizeof path] = "";
    begin("moved-%p.trace");
    ac_trace_lane_t *lane = ac_trace_lane_take(1);
    ac_trace_write_alloc(lane, AC_TRACE_ALLOC, 1, 0, at(0, 0, 0));
    snprintf(moved, sizeof moved, "moved-%d", (int)getpid());
    ck_assert_int_eq(rename(path, moved), 0);
    for (uint64_t i = 1; i < 10000; i++)
        ac_trace_write_alloc(lane, AC_TRACE_ALLOC, i + 1, i, at(0, 0, 0));
    ck_assert_int_ne(access(path, F_OK), 0);
    memcpy(path, moved, sizeof path);
    ck_assert(fills(count_events(), 1));
    ck_assert_uint_eq(ac_live->warning_count, 1);
    unlink(moved);
    end();
}
END_TEST

START_TEST(fork_child_writes_nothing) {
    begin("fork-%p.trace");
    ac_trace_lane_t *lane = ac_trace_lane_take(1);
    ac_trace_write_alloc(lane, AC_TRACE_ALLOC, 1, 0, at(0, 0, 0));
    pid_t child = fork();
    if (child == 0) {
        ac_live_fork_child();
        ac_trace_fork_child();
        for (uint64_t i = 0; i < 10000; i++)
            ac_trace_write_alloc(lane, AC_TRACE_ALLOC, 99, 99, at(0, 0, 0));
        ac_trace_lane_return(lane);
        bool none = ac_trace_lane_take(2) == NULL;
        ac_trace_close();
        _exit(none ? 0 : 1);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ac_trace_write_alloc(lane, AC_TRACE_ALLOC, 2, 1, at(0, 0, 0));
    ck_assert_uint_eq(count_events(), 2);
    end();
}
END_TEST

/* --- names --- */

/* Starts a process that records to `file` until the caller closes `go_on`. */
static pid_t recorder(const char *file, int *go_on) {
    int said[2], told[2];
    char byte;
    ck_assert(pipe(said) == 0 && pipe(told) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(told[1]);
        begin(file);
        ac_trace_lane_t *lane = ac_trace_lane_take(1);
        ac_trace_write_alloc(lane, AC_TRACE_ALLOC, 1, 0, at(0, 0, 0));
        if (write(said[1], "", 1) != 1 || read(told[0], &byte, 1) != 0)
            _exit(1);
        ac_trace_write_alloc(lane, AC_TRACE_ALLOC, 2, 1, at(0, 0, 0));
        ac_trace_close();
        ac_live_close();
        _exit(0);
    }
    ck_assert_int_eq(read(said[0], &byte, 1), 1);
    close(said[0]);
    close(said[1]);
    close(told[0]);
    *go_on = told[1];
    return child;
}

START_TEST(a_name_in_use_is_left_alone) {
    char own[64], expected[128], other_path[4096];
    int go_on, other, status;
    snprintf(own, sizeof own, "shared-%d.trace", (int)getpid());
    pid_t child = recorder(own, &go_on);
    setenv("ACCEL_LIVE_DIR", ".", 1);
    ck_assert_int_eq(ac_live_open(NULL, "", 0, 0), 0);
    ck_assert_int_eq(ac_trace_open(own, path, sizeof path, &other), 0);
    ck_assert_int_eq(other, child);
    snprintf(expected, sizeof expected, "/%s.%d", own, (int)getpid());
    ck_assert_str_eq(strrchr(path, '/'), expected);
    ck_assert_uint_eq(count_events(), 0);
    memcpy(other_path, path, sizeof other_path);
    close(go_on);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    snprintf(path, sizeof path, "%s", own);
    ck_assert_uint_eq(count_events(), 2);
    snprintf(name, sizeof name, "%s", own);
    unlink(other_path);
    end();
}
END_TEST

START_TEST(a_name_of_the_dead_is_taken) {
    char own[64];
    int go_on, status;
    snprintf(own, sizeof own, "again-%d.trace", (int)getpid());
    pid_t child = recorder(own, &go_on);
    close(go_on);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    int fd = open(own, O_RDONLY | O_CLOEXEC);
    struct stat st;
    begin(own);
    ck_assert_uint_eq(count_events(), 0);
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_int_ge(st.st_size, 2 * AC_TRACE_UNIT); /* readers keep the old file */
    close(fd);
    end();
}
END_TEST

START_TEST(names_that_cannot_be) {
    int other;
    setenv("ACCEL_LIVE_DIR", ".", 1);
    ck_assert_int_eq(ac_live_open(NULL, "", 0, 0), 0);
    ck_assert_int_eq(ac_trace_open("none", path, sizeof path, &other), 0);
    ck_assert_ptr_null(ac_trace_lane_take(1));
    ck_assert_int_eq(ac_trace_open("no/such/folder/x", path, sizeof path, &other), ENOENT);
    ck_assert_ptr_nonnull(strstr(path, "no/such/folder/x"));
    ck_assert_int_eq(ac_trace_open(".", path, sizeof path, &other), EISDIR);
    snprintf(name, sizeof name, "pipe-%d", (int)getpid());
    ck_assert_int_eq(mkfifo(name, 0600), 0);
    ck_assert_int_eq(ac_trace_open(name, path, sizeof path, &other), ENOTSUP);
    unlink(name);
    ck_assert_ptr_null(ac_trace_lane_take(1));
    ac_live_close();
}
END_TEST

/* --- files that are none --- */

/* The reader ends for all changed or truncated files, without a report by a sanitizer. */
START_TEST(damaged_files) {
    enum { EVENTS = 6000, ROUNDS = 400 };
    char broken[64];
    begin("damaged-%p.trace");
    ac_trace_lane_t *lane = ac_trace_lane_take(1);
    for (uint64_t i = 0; i < EVENTS; i++) {
        ac_trace_write_alloc(lane, AC_TRACE_ALLOC, i % 97 + 1, i, at(0, i % 3, i % 7));
        ac_trace_write_free(lane, i % 89 + 1);
        if (i % 1000 == 999)
            ac_trace_write_at(lane, AC_TRACE_GONE, at(0, 1, 0));
    }
    ac_trace_close();
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    size_t size = (size_t)st.st_size;
    unsigned char *whole = malloc(size), *copy = malloc(size);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_eq(read(fd, whole, size), (ssize_t)size);
    close(fd);
    snprintf(broken, sizeof broken, "broken-%d", (int)getpid());
    srand(1);
    for (int round = 0; round < ROUNDS; round++) {
        memcpy(copy, whole, size);
        for (int i = 0; i < 1 + round % 5; i++) {
            size_t where = (size_t)rand() % size;
            if (round % 2) /* sensitive places: headers of file and chunks, first events */
                where = where / AC_TRACE_UNIT * AC_TRACE_UNIT + where % 160;
            copy[where % size] = (unsigned char)rand();
        }
        fd = open(broken, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        size_t length = round % 3 ? size : (size_t)rand() % size;
        ck_assert_int_eq(write(fd, copy, length), (ssize_t)length);
        close(fd);
        char *error;
        cmd_trace_event_t e;
        cmd_trace_t *trace = cmd_trace_open(broken, &error);
        if (!trace) {
            ck_assert_ptr_nonnull(strstr(error, broken));
            free(error);
            continue;
        }
        uint64_t count = 0;
        while (cmd_trace_next(trace, &e))
            count++;
        ck_assert_uint_le(count, 3 * EVENTS);
        cmd_trace_close(trace);
    }
    free(whole);
    free(copy);
    unlink(broken);
    end();
}
END_TEST

static Suite *suite(void) {
    Suite *s = suite_create("trace");
    TCase *t = tcase_create("trace");
    tcase_add_test(t, every_kind_arrives);
    tcase_add_test(t, streams_beyond_the_places);
    tcase_add_test(t, many_chunks_and_their_size);
    tcase_add_test(t, order_of_one_address);
    tcase_add_test(t, lanes_are_taken_over);
    tcase_add_test(t, lanes_that_write_nothing);
    tcase_add_test(t, killed_at_any_point);
    tcase_add_test(t, copied_and_still_in_front);
    tcase_add_test(t, no_more_room);
    tcase_add_test(t, no_room_for_a_front);
    tcase_add_test(t, file_was_moved);
    tcase_add_test(t, fork_child_writes_nothing);
    tcase_add_test(t, a_name_in_use_is_left_alone);
    tcase_add_test(t, a_name_of_the_dead_is_taken);
    tcase_add_test(t, names_that_cannot_be);
    tcase_add_test(t, damaged_files);
    suite_add_tcase(s, t);
    return s;
}

int main(void) {
    return run_suite(suite());
}

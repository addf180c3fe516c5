/* See trace_file.h. */
#include "observe/trace_file.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "observe/dump.h"
#include "observe/folder.h"
#include "observe/live_file.h"
#include "observe/raw.h"
#include "observe/scratch.h"
#include "observe/start.h"
#include "observe/write.h"

AC_START_DATA ac_trace_header_t *ac_trace_header;
bool ac_trace_counter;
uint32_t ac_trace_shift;

static struct {
    char path[AC_FOLDER_PATH]; /* absolute if the working folder has a name */
    dev_t device;
    ino_t inode;
} file;

const char *ac_trace_file_path(void) {
    return file.path;
}

/* --- the clock --- */

/* Returns true if the processor's counter runs at one rate for ever, and this process may read it. */
static bool counter_is_steady(void) {
#if defined(__x86_64__)
    unsigned a, b, c, d;
    int allowed = 0;
    enum { INVARIANT = 1 << 8 };
    if (!__get_cpuid(0x80000007, &a, &b, &c, &d) || !(d & INVARIANT))
        return false;
    return prctl(PR_GET_TSC, &allowed) == 0 && allowed == PR_TSC_ENABLE;
#elif defined(__aarch64__)
    return true;
#else
    return false;
#endif
}

static uint64_t clock_ns(clockid_t clock) {
    return (uint64_t)ac_raw_ns(clock);
}

uint64_t ac_trace_coarse_ns(void) {
    return clock_ns(CLOCK_MONOTONIC_COARSE);
}

/* Reads both clocks at nearly the same moment, the best of a few tries. */
static ac_trace_time_t time_pair(void) {
    enum { TRIES = 5 };
    ac_trace_time_t best = {0, 0};
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        uint64_t before = clock_ns(CLOCK_MONOTONIC), ticks = ac_trace_ticks();
        uint64_t after = clock_ns(CLOCK_MONOTONIC);
        if (after - before < least) {
            least = after - before;
            best = (ac_trace_time_t){ticks, ac_trace_counter ? before + least / 2 : ticks};
        }
    }
    return best;
}

/* Stores the new pair before the turn, so that a kill in between leaves the former pair valid. */
void ac_trace_file_time(void) {
    ac_trace_header_t *header = ac_trace_header;
    uint32_t turn = header->latest_turn + 1;
    header->latest[turn & 1] = time_pair();
    __atomic_store_n(&header->latest_turn, turn, __ATOMIC_RELEASE);
}

/* Chooses a unit of at least 16 ns, so that 32 bits last for a minute. */
static uint32_t shift_for(const ac_trace_header_t *header) {
    enum { UNIT_NS = 16 };
    uint64_t ticks = header->latest[0].ticks - header->start.ticks;
    uint64_t ns = header->latest[0].monotonic_ns - header->start.monotonic_ns;
    uint32_t shift = 0;
    while (shift < 16 && ns << shift < UNIT_NS * ticks)
        shift++;
    return shift;
}

/* Measures the clock's rate for one millisecond, to a ten-thousandth, because the process may be killed at once. */
static void start_clock(ac_trace_header_t *header) {
    enum { MEASURED_NS = 1000000 };
    ac_trace_counter = counter_is_steady();
    header->clock = ac_trace_counter ? AC_TRACE_CLOCK_TICKS : AC_TRACE_CLOCK_NS;
    header->start = time_pair();
    header->start_time_ns = (int64_t)clock_ns(CLOCK_REALTIME);
    header->latest[0] =
        (ac_trace_time_t){header->start.ticks + 1, header->start.monotonic_ns + 1};
    if (ac_trace_counter) {
        while (clock_ns(CLOCK_MONOTONIC) - header->start.monotonic_ns < MEASURED_NS) {
        }
        header->latest[0] = time_pair();
    }
    header->time_shift = ac_trace_shift = shift_for(header);
}

/* --- the header --- */

static void describe_process(ac_trace_header_t *header) {
    const ac_live_t *page = ac_live;
    header->version = AC_TRACE_VERSION;
    header->byte_order = AC_TRACE_BYTE_ORDER;
    header->header_size = sizeof *header;
    header->unit = AC_TRACE_UNIT;
    header->state = AC_TRACE_OPEN;
    header->pid = page->pid;
    header->ppid = page->ppid;
    header->opened_ns = page->opened_ns;
    header->driver_version = page->driver_version;
    _Static_assert(
        sizeof header->host == sizeof page->host && sizeof header->exe == sizeof page->exe &&
            sizeof header->argv == sizeof page->argv &&
            sizeof header->rank == sizeof page->rank && sizeof header->conf == sizeof page->conf,
        "texts are copied whole");
    memcpy(header->host, page->host, sizeof header->host);
    ac_live_exe(page, header->exe);
    memcpy(header->argv, page->argv, sizeof header->argv);
    memcpy(header->rank, page->rank, sizeof header->rank);
    ac_live_conf(page, header->conf);
    __atomic_store_n(&header->magic, AC_TRACE_MAGIC, __ATOMIC_RELEASE);
}

/* --- names --- */

static int process_of(const ac_trace_header_t *header) {
    if (header->magic != AC_TRACE_MAGIC || header->version < AC_TRACE_VERSION ||
        header->version > AC_TRACE_VERSION_SITES || header->state != AC_TRACE_OPEN ||
        header->pid <= 0)
        return 0;
    if (strncmp(header->host, ac_live->host, sizeof header->host) != 0)
        return header->pid; /* processes of another machine cannot be checked */
    return ac_process_runs(header->pid, header->opened_ns) ? header->pid : 0;
}

/* Returns the living process that records to the file `path`; 0 if there is none; -1 if host memory is short. */
static int recording_process(const char *path) {
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ac_trace_header_t *header = ac_scratch_take();
    _Static_assert(sizeof *header <= AC_SCRATCH, "a header has no room");
    ssize_t n = header ? read(fd, header, sizeof *header) : 0;
    ac_raw_close(fd);
    int process = !header ? -1 : n == (ssize_t)sizeof *header ? process_of(header) : 0;
    ac_scratch_give(header);
    return process;
}

/* Gives the finished file its name.  Returns EEXIST if the living process *other records to that name. */
static int publish(const char *temporary, const char *path, int *other) {
    struct stat st;
    *other = 0;
    if (link(temporary, path) == 0)
        return unlink(temporary) == 0 ? 0 : errno;
    int failure = errno;
    bool there = lstat(path, &st) == 0;
    if (there && !S_ISREG(st.st_mode))
        return S_ISDIR(st.st_mode) ? EISDIR : ENOTSUP;
    int process = there ? recording_process(path) : 0;
    if (process < 0)
        return ENOMEM;
    *other = process;
    if (process)
        return EEXIST;
    /* The old file is of an ended process, or the file system has no links.  A rename does not cut the old file
     * short, so that a reader that has it open keeps its contents. */
    if (failure == EEXIST || failure == EPERM || failure == ENOTSUP || failure == ENOSYS)
        return rename(temporary, path) == 0 ? 0 : errno;
    return failure;
}

/* Tries the wanted name, then that name with the process's id, then with a further number.  The number is for a
 * process that called exec. */
static int publish_somewhere(const char *temporary, const char *wanted, int *other) {
    enum { TRIES = 100 };
    int failure = 0, first = 0;
    for (int i = 0; i < TRIES; i++) {
        int n = i == 0 ? snprintf(file.path, sizeof file.path, "%s", wanted)
                : i == 1
                    ? snprintf(file.path, sizeof file.path, "%s.%d", wanted, (int)ac_raw_getpid())
                    : snprintf(file.path, sizeof file.path, "%s.%d.%d", wanted,
                               (int)ac_raw_getpid(), i);
        if (n < 0 || (size_t)n >= sizeof file.path)
            return ENAMETOOLONG;
        failure = publish(temporary, file.path, other);
        first = first ? first : *other;
        if (failure != EEXIST)
            break;
    }
    *other = first;
    return failure;
}

/* --- creation, growth, end --- */

/* Without the reservation a full file system would answer the first write to a page of the
 * mapping with SIGBUS. */
static int reserve_and_map(int fd, uint64_t offset, void **memory) {
    int failure;
    do
        failure = posix_fallocate(fd, (off_t)offset, AC_TRACE_UNIT);
    while (failure == EINTR);
    if (failure)
        return failure;
    void *at = mmap(NULL, AC_TRACE_UNIT, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
    if (at == MAP_FAILED)
        return errno;
    *memory = at;
    return 0;
}

static int create(const char *wanted, const char *temporary, int *other) {
    struct stat st;
    void *memory = NULL;
    int fd = ac_open_above(temporary, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return errno;
    int failure = ac_raw_fstat(fd, &st) == 0 ? reserve_and_map(fd, 0, &memory) : errno;
    ac_raw_close(fd);
    if (failure == 0 && memory) {
        start_clock(memory);
        describe_process(memory);
        failure = publish_somewhere(temporary, wanted, other);
    }
    if (failure) {
        unlink(temporary);
        if (memory)
            munmap(memory, AC_TRACE_UNIT);
        return failure;
    }
    file.device = st.st_dev;
    file.inode = st.st_ino;
    ac_trace_header = memory;
    return 0;
}

typedef struct {
    char name[sizeof file.path], wanted[sizeof file.path], temporary[sizeof file.path + 32];
} names_t;
_Static_assert(sizeof(names_t) <= AC_SCRATCH, "names have no room");

static int create_as(names_t *as, const char *pattern, char *path, size_t size, int *other) {
    int failure = ac_dump_path(pattern, ac_live, as->name, sizeof as->name);
    if (failure == 0)
        failure = ac_folder_resolve(as->name, true, as->wanted, sizeof as->wanted);
    snprintf(path, size, "%s", failure ? pattern : as->wanted);
    if (failure)
        return failure;
    snprintf(as->temporary, sizeof as->temporary, "%s.%d.tmp", as->wanted, (int)ac_raw_getpid());
    ac_signal_hold_t hold;
    ac_signals_hold(&hold);
    failure = create(as->wanted, as->temporary, other);
    if (failure == EEXIST && !*other && unlink(as->temporary) == 0) /* of a killed process with our pid */
        failure = create(as->wanted, as->temporary, other);
    ac_signals_release(&hold);
    if (failure == 0)
        snprintf(path, size, "%s", file.path);
    return failure;
}

int ac_trace_file_create(const char *pattern, char *path, size_t size, int *other) {
    names_t *as = ac_scratch_take();
    *other = 0;
    if (!as && path != pattern)
        snprintf(path, size, "%s", pattern);
    int failure = as ? create_as(as, pattern, path, size, other) : ENOMEM;
    ac_scratch_give(as);
    return failure;
}

/* Opens the file again if it is still the one under its name; returns -1 and errno otherwise. */
static int reopen(void) {
    struct stat st;
    int fd = ac_open_above(file.path, O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (ac_raw_fstat(fd, &st) == 0 && st.st_dev == file.device && st.st_ino == file.inode)
        return fd;
    ac_raw_close(fd);
    errno = ESTALE;
    return -1;
}

int ac_trace_file_front(uint64_t offset, ac_trace_chunk_t **front) {
    ac_signal_hold_t hold;
    void *memory = NULL;
    ac_signals_hold(&hold);
    int fd = reopen(), failure = fd < 0 ? errno : reserve_and_map(fd, offset, &memory);
    if (fd >= 0)
        ac_raw_close(fd);
    ac_signals_release(&hold);
    if (failure == 0)
        *front = memory;
    return failure == ENOENT ? ESTALE : failure;
}

static int write_at(int fd, const void *data, size_t bytes, uint64_t offset) {
    while (bytes > 0) {
        ssize_t n = ac_raw_pwrite(fd, data, bytes, offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : ENOSPC;
        data = (const char *)data + n;
        bytes -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

/* Writes the header last, so that readers ignore a copy that a kill or a full disk cut short. */
int ac_trace_file_copy(uint64_t offset, const ac_trace_chunk_t *front) {
    ac_trace_chunk_t header = *front;
    ac_signal_hold_t hold;
    ac_signals_hold(&hold);
    int fd = reopen(), failure = fd < 0 ? errno : 0;
    if (!failure)
        failure = write_at(fd, front + 1, AC_TRACE_UNIT - sizeof header, offset + sizeof header);
    header.magic = AC_TRACE_CHUNK;
    if (!failure)
        failure = write_at(fd, &header, sizeof header, offset);
    if (fd >= 0)
        ac_raw_close(fd);
    ac_signals_release(&hold);
    return failure == ENOENT ? ESTALE : failure;
}

void ac_trace_file_fork_child(void) {
    if (ac_trace_header)
        munmap(ac_trace_header, AC_TRACE_UNIT);
    ac_trace_header = NULL;
}

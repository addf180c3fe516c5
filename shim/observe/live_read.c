/* Readers of live pages: the command maps pages of running and of dead processes; see live.h.
 * The preload library asks for the program's name (ac_live_exe) and for the number of pages. */
#include "observe/live.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "observe/live_file.h"
#include "observe/raw.h"

/* From /proc/<pid>/stat: when the process started, in clock ticks since boot, and its state
 * letter. False when there is no such process. */
static bool read_identity(int pid, uint64_t *start_ticks, char *state) {
    char name[32], text[1024];
    snprintf(name, sizeof name, "/proc/%d/stat", pid);
    FILE *file = fopen(name, "re");
    if (!file)
        return false;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    /* Field 2 is the program's name in parentheses and may hold anything, parentheses as well. */
    const char *at = strrchr(text, ')');
    if (!at || at[1] != ' ' || !at[2])
        return false;
    *state = at[2];
    at++;
    for (int field = 3; field <= 22; field++) {
        at = strchr(at, ' ');
        if (!at)
            return false;
        at++;
    }
    *start_ticks = strtoull(at, NULL, 10);
    return true;
}

bool ac_process_runs(int pid, uint64_t opened_ns) {
    uint64_t start_ticks, tick_ns = 1000000000u / (uint64_t)sysconf(_SC_CLK_TCK);
    char state;
    return read_identity(pid, &start_ticks, &state) && start_ticks * tick_ns <= opened_ns &&
           state != 'Z' && state != 'X';
}

static bool writer_runs(const ac_live_t *page) {
    return ac_process_runs(page->pid, page->opened_ns);
}

void ac_live_exe(const ac_live_t *page, char exe[AC_LIVE_EXE]) {
    static const char deleted[] = " (deleted)"; /* the kernel's word for it */
    char link[32];
    ssize_t n = -1;
    snprintf(link, sizeof link, "/proc/%d/exe", (int)page->pid);
    if (page->pid == (int32_t)ac_raw_getpid())
        n = ac_raw_readlink("/proc/self/exe", exe, AC_LIVE_EXE - 1);
    else if (page->state == AC_LIVE_RUNNING && writer_runs(page))
        n = readlink(link, exe, AC_LIVE_EXE - 1);
    if (n <= 0) {
        n = (ssize_t)strnlen(page->exe, AC_LIVE_EXE - 1);
        memcpy(exe, page->exe, (size_t)n);
    }
    exe[n] = '\0';
    ssize_t name = n - (ssize_t)sizeof deleted + 1;
    if (name > 0 && strcmp(exe + name, deleted) == 0 && ac_raw_access(exe, F_OK) != 0)
        exe[name] = '\0';
}

const ac_live_t *ac_live_map(int pid, bool *alive, char *error, size_t error_size) {
    char path[1024];
    struct stat st;
    if (ac_live_file_name(pid, path, sizeof path) != 0) {
        snprintf(error, error_size, "the name of the folder of live pages is too long");
        return NULL;
    }
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        if (errno == ENOENT)
            snprintf(
                error, error_size,
                "process %d has no live page: it does not run under accelcache, has not used "
                "CUDA, or has ended and written its dump",
                pid);
        else
            snprintf(error, error_size, "%s: %s", path, strerror(errno));
        return NULL;
    }
    const ac_live_t *page = NULL;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid()) {
        snprintf(error, error_size, "%s: not a file of this user", path);
    } else if ((size_t)st.st_size < sizeof *page) {
        snprintf(error, error_size, "%s: written by another version of accelcache, or not yet",
                 path);
    } else {
        void *at = mmap(NULL, sizeof *page, PROT_READ, MAP_SHARED, fd, 0);
        if (at == MAP_FAILED)
            snprintf(error, error_size, "%s: %s", path, strerror(errno));
        else
            page = at;
    }
    close(fd);
    if (!page)
        return NULL;
    if (page->magic != AC_LIVE_MAGIC || page->version != AC_LIVE_VERSION ||
        page->size != sizeof *page || page->pid != pid) {
        snprintf(error, error_size, "%s: written by another version of accelcache, or not yet",
                 path);
        ac_live_unmap(page);
        return NULL;
    }
    *alive = writer_runs(page);
    return page;
}

void ac_live_unmap(const ac_live_t *page) {
    munmap((void *)(uintptr_t)page, sizeof *page);
}

/* The process whose page a file of this name is; 0: it is no page of this user. */
static int page_of(const char *name, const char *prefix) {
    size_t length = strlen(prefix);
    const char *digits = name + length;
    char *end;
    if (strncmp(name, prefix, length) != 0 || *digits < '1' || *digits > '9')
        return 0;
    long pid = strtol(digits, &end, 10);
    return *end || pid > INT32_MAX ? 0 : (int)pid;
}

/* Not by opendir: it is asked at exit as well (raw.h). */
int ac_live_each(void (*visit)(int pid, void *arg), void *arg) {
    struct entry { /* the kernel's */
        uint64_t inode;
        int64_t offset;
        uint16_t bytes;
        unsigned char type;
        char name[];
    };
    _Alignas(struct entry) char entries[8192];
    char prefix[32];
    snprintf(prefix, sizeof prefix, "accelcache-%u-", (unsigned)ac_raw_geteuid());
    int fd = ac_raw_open(ac_live_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0)
        return 0;
    int visited = 0;
    long length;
    while ((length = ac_raw_call(SYS_getdents64, fd, AC_RAW_POINTER(entries), sizeof entries,
                                 0)) > 0) {
        const struct entry *entry;
        for (long at = 0; at < length; at += entry->bytes) {
            entry = (const struct entry *)(const void *)(entries + at);
            int pid = page_of(entry->name, prefix);
            if (pid)
                visit(pid, arg);
            visited += pid != 0;
        }
    }
    ac_raw_close(fd);
    return visited;
}

int ac_live_collect(int pid) {
    char path[1024], error[256];
    bool alive;
    const ac_live_t *page = ac_live_map(pid, &alive, error, sizeof error);
    if (page) {
        ac_live_unmap(page);
        if (alive)
            return EBUSY;
    } else {
        /* Torn or of another version: a leftover unless its process, old or new, is there. */
        uint64_t start_ticks;
        char state;
        if (read_identity(pid, &start_ticks, &state) && state != 'Z')
            return EBUSY;
    }
    int failure = ac_live_file_name(pid, path, sizeof path);
    if (failure)
        return failure;
    return unlink(path) == 0 ? 0 : errno;
}

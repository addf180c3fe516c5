/* Readers of live pages.  The command copies pages of running and killed processes; see live.h.  The preload
 * library uses ac_live_exe.  After an out-of-memory failure it also reads the memory of other processes
 * (tell/oom_report.c). */
#include "observe/live.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "observe/live_file.h"
#include "observe/raw.h"

static void cut_deleted(char *exe, size_t length) {
    static const char deleted[] = " (deleted)"; /* the kernel's word for it */
    size_t end = sizeof deleted - 1;
    if (length > end && strcmp(exe + length - end, deleted) == 0 && ac_raw_access(exe, F_OK) != 0)
        exe[length - end] = '\0';
}

void ac_live_exe(const ac_live_t *page, char exe[AC_LIVE_EXE]) {
    ssize_t n = -1;
    if (page == ac_live)
        n = ac_raw_readlink("/proc/self/exe", exe, AC_LIVE_EXE - 1);
    if (n <= 0) {
        n = (ssize_t)strnlen(page->exe, AC_LIVE_EXE - 1);
        memcpy(exe, page->exe, (size_t)n);
    }
    exe[n] = '\0';
    cut_deleted(exe, (size_t)n);
}

/* ---- names ---- */

/* Returns true if the process `pid` belongs to `user`.  Otherwise a page of `user` cannot be of that process: a page's
 * pid is only a claim of its writer. */
static bool owns_process(unsigned user, int pid) {
    char path[32];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%d", pid);
    return ac_live_proc_is_ours() && stat(path, &st) == 0 && st.st_uid == user;
}

typedef struct {
    void (*visit)(const ac_live_name_t *name, void *arg);
    void *arg;
    uint64_t space; /* of the caller */
    int visited;
} walk_t;

/* "accelcache-<uid>" and "accelcache-<uid>.XXXXXX". */
static bool parse_home(const char *home, unsigned *user) {
    static const char prefix[] = "accelcache-";
    enum { LENGTH = sizeof prefix - 1, RANDOM = 6 };
    char *end;
    if (strncmp(home, prefix, LENGTH) != 0 || home[LENGTH] < '0' || home[LENGTH] > '9')
        return false;
    unsigned long number = strtoul(home + LENGTH, &end, 10);
    *user = (unsigned)number;
    return number <= UINT32_MAX && (!*end || (*end == '.' && strlen(end + 1) == RANDOM));
}

static void walk_home(walk_t *walk, const char *home, unsigned user) {
    ac_live_name_t name = {.user = user};
    int fd = ac_live_home_open(home, user);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return;
    }
    strcpy(name.home, home); /* its caller has measured it */
    while ((entry = readdir(dir))) {
        if (strlen(entry->d_name) >= sizeof name.file ||
            !ac_live_parse(entry->d_name, &name.space, &name.pid))
            continue;
        strcpy(name.file, entry->d_name);
        name.here = name.space && name.space == walk->space;
        walk->visit(&name, walk->arg);
        walk->visited++;
    }
    closedir(dir);
}

int ac_live_each(void (*visit)(const ac_live_name_t *name, void *arg), void *arg) {
    walk_t walk = {visit, arg, ac_live_space(), 0};
    unsigned own = geteuid(), user;
    DIR *dir = opendir(ac_live_dir());
    const struct dirent *entry;
    while (dir && (entry = readdir(dir)))
        if (strlen(entry->d_name) < sizeof((ac_live_name_t *)NULL)->home &&
            parse_home(entry->d_name, &user) && (user == own || own == 0))
            walk_home(&walk, entry->d_name, user);
    if (dir)
        closedir(dir);
    return walk.visited;
}

/* Opens the page's file and fills `st`. */
static int open_name(const ac_live_name_t *name, struct stat *st) {
    int home = ac_live_home_open(name->home, name->user);
    if (home < 0)
        return -1;
    int fd = ac_live_file_open(home, name->file, name->user, st), saved = errno;
    close(home);
    errno = saved;
    return fd;
}

/* Reads `opened_ns` of the page; 0 if unknown. */
static uint64_t opened_at(int fd) {
    uint64_t opened_ns = 0;
    return pread(fd, &opened_ns, sizeof opened_ns, offsetof(ac_live_t, opened_ns)) ==
                   (ssize_t)sizeof opened_ns
               ? opened_ns
               : 0;
}

typedef struct {
    int pid;
    uint64_t space;
    int rank;
    struct timespec time;
    ac_live_name_t *best;
} search_t;

static void consider(const ac_live_name_t *name, void *arg) {
    enum { HERE = 4, ALIVE = 2, OWNER = 1 };
    search_t *search = arg;
    struct stat st;
    int fd, rank = 0;
    if (name->pid != search->pid || (search->space && name->space != search->space) ||
        (fd = open_name(name, &st)) < 0)
        return;
    if (name->here)
        rank |= HERE | (owns_process(name->user, name->pid) ? OWNER : 0);
    if (!ac_live_gone(fd, name->here, name->pid, opened_at(fd)))
        rank |= ALIVE;
    close(fd);
    if (rank < search->rank ||
        (rank == search->rank && (st.st_mtim.tv_sec < search->time.tv_sec ||
                                  (st.st_mtim.tv_sec == search->time.tv_sec &&
                                   st.st_mtim.tv_nsec <= search->time.tv_nsec))))
        return;
    search->rank = rank;
    search->time = st.st_mtim;
    *search->best = *name;
}

bool ac_live_find(int pid, uint64_t space, ac_live_name_t *name) {
    search_t search = {pid, space, -1, {0, 0}, name};
    ac_live_each(consider, &search);
    return search.rank >= 0;
}

/* ---- pages ---- */

/* Reads up to `size` bytes from `offset`.  Returns their number. */
static size_t read_at(int fd, void *data, size_t size, size_t offset) {
    size_t length = 0;
    while (length < size) {
        ssize_t n = pread(fd, (char *)data + length, size - length, (off_t)(offset + length));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        length += (size_t)n;
    }
    return length;
}

/* Reads the configuration again until no change is in progress; see ac_live_conf. */
static void read_conf(int fd, ac_live_t *page) {
    enum { TRIES = 200, PAUSE_NS = 50000 };
    uint32_t before = 1, after = 0;
    for (int i = 0; i < TRIES && ((before & 1) || before != after); i++) {
        if (i)
            nanosleep(&(struct timespec){0, PAUSE_NS}, NULL);
        if (read_at(fd, &before, sizeof before, offsetof(ac_live_t, conf_turn)) !=
                sizeof before ||
            read_at(fd, page->conf, sizeof page->conf, offsetof(ac_live_t, conf)) !=
                sizeof page->conf ||
            read_at(fd, &after, sizeof after, offsetof(ac_live_t, conf_turn)) != sizeof after)
            break;
    }
    page->conf_turn = 0;
}

/* Ends all texts with a NUL, because the file may contain any bytes. */
static void end_texts(ac_live_t *page) {
    page->rank[sizeof page->rank - 1] = '\0';
    page->host[sizeof page->host - 1] = '\0';
    page->exe[sizeof page->exe - 1] = '\0';
    memset(page->argv + sizeof page->argv - 2, 0, 2);
    page->hook_names[sizeof page->hook_names - 1] = '\0';
    page->conf[sizeof page->conf - 1] = '\0';
    for (int i = 0; i < AC_MODULES; i++)
        page->module[i][AC_LIVE_MODULE - 1] = '\0';
    for (int i = 0; i < AC_LIVE_WARNINGS; i++)
        page->warning[i][AC_LIVE_TEXT - 1] = '\0';
}

/* Appends the rows of the second file to the copy of the page.  Rows that cannot be read are added to `rows_beside`,
 * which readers report as missing.  Returns the page alone if memory is short. */
static ac_live_t *add_rows(const ac_live_name_t *name, ac_live_t *page) {
    struct stat st;
    char file[sizeof name->file + sizeof ".rows"];
    uint32_t count = page->rows_more < AC_LIVE_MORE ? page->rows_more : AC_LIVE_MORE;
    if (!count)
        return page;
    page->rows_more = 0;
    page->rows_beside += count;
    ac_live_t *whole = realloc(page, sizeof *page + count * sizeof(ac_live_row_t));
    int home = ac_live_home_open(name->home, name->user);
    snprintf(file, sizeof file, "%s.rows", name->file);
    int fd = home < 0 ? -1 : ac_live_file_open(home, file, name->user, &st);
    if (whole && fd >= 0 &&
        read_at(fd, whole + 1, count * sizeof(ac_live_row_t), 0) == count * sizeof(ac_live_row_t)) {
        whole->rows_more = count;
        whole->rows_beside -= count;
    }
    if (fd >= 0)
        close(fd);
    if (home >= 0)
        close(home);
    return whole ? whole : page;
}

static void find_exe(const ac_live_name_t *name, ac_live_t *page) {
    char link[32], exe[AC_LIVE_EXE];
    if (!name->here || page->state != AC_LIVE_RUNNING || !owns_process(name->user, name->pid))
        return;
    snprintf(link, sizeof link, "/proc/%d/exe", name->pid);
    ssize_t n = readlink(link, exe, sizeof exe - 1);
    if (n <= 0)
        return;
    exe[n] = '\0';
    cut_deleted(exe, (size_t)n);
    memcpy(page->exe, exe, (size_t)n + 1);
}

const ac_live_t *ac_live_read(const ac_live_name_t *name, bool *alive, char *error,
                              size_t error_size) {
    struct stat st;
    char path[1024];
    snprintf(path, sizeof path, "%s/%s/%s", ac_live_dir(), name->home, name->file);
    int fd = open_name(name, &st);
    if (fd < 0) {
        snprintf(error, error_size, "%s: %s", path,
                 errno == EPERM ? "not a file of its folder's user, skipped" : strerror(errno));
        return NULL;
    }
    ac_live_t *page = malloc(sizeof *page);
    if (!page) {
        snprintf(error, error_size, "out of memory");
    } else if (st.st_size != AC_LIVE_BYTES ||
               read_at(fd, page, sizeof *page, 0) != sizeof *page ||
               page->magic != AC_LIVE_MAGIC || page->version != ac_live_version() ||
               page->size != sizeof *page || page->pid != name->pid ||
               page->space != name->space) {
        snprintf(error, error_size,
                 "%s: cut short, written by another version of accelcache, or not yet", path);
        free(page);
        page = NULL;
    } else {
        page = add_rows(name, page);
        read_conf(fd, page);
        end_texts(page);
        *alive = !ac_live_gone(fd, name->here, name->pid, page->opened_ns);
        if (*alive)
            find_exe(name, page);
    }
    close(fd);
    return page;
}

void ac_live_free(const ac_live_t *page) {
    free((void *)(uintptr_t)page);
}

int ac_live_remove(const ac_live_name_t *name) {
    struct stat st;
    int home = ac_live_home_open(name->home, name->user);
    if (home < 0)
        return errno;
    int fd = ac_live_file_open(home, name->file, name->user, &st);
    int failure = fd < 0 ? errno : 0;
    if (fd >= 0) {
        if (!ac_live_gone(fd, name->here, name->pid, opened_at(fd)))
            failure = EBUSY;
        close(fd);
    }
    if (!failure && !ac_live_file_remove(home, name->file))
        failure = errno;
    close(home);
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", ac_live_dir(), name->home);
    rmdir(path); /* fails unless the folder is empty */
    return failure;
}

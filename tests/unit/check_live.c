/* The live page: one address for life, nothing lost by SIGKILL, nothing inherited by fork,
 * and no failure of the folder that hurts the process.  Check runs each test in a process of its
 * own, so each starts with the page as the loader made it. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "observe/dump.h"
#include "observe/live.h"
#include "observe/log.h"

static const char hooks[] = "cuMemAlloc_v2\0cuMemFree_v2\0cudaMalloc";
enum { HOOKS = 3 };
static char dir[64];
static char home[128]; /* this user's folder in it */
static char error[512];
static bool alive;

static void enter_dir(void) {
    strcpy(dir, "/tmp/accelcache-live-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    setenv("ACCEL_LIVE_DIR", dir, 1);
    snprintf(home, sizeof home, "%s/accelcache-%u", dir, (unsigned)geteuid());
}

static void leave_dir(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    ck_assert_int_eq(system(command), 0);
}

static uint64_t space_here(void) {
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

static const char *page_name(int pid) {
    static char name[256];
    snprintf(name, sizeof name, "%s/%llu-%d", home, (unsigned long long)space_here(), pid);
    return name;
}

/* A copy of the page of `pid`; NULL and `error`. */
static const ac_live_t *copy_of(int pid) {
    ac_live_name_t name;
    if (ac_live_find(pid, 0, &name))
        return ac_live_read(&name, &alive, error, sizeof error);
    strcpy(error, "no live page");
    return NULL;
}

static int remove_page(int pid) {
    ac_live_name_t name;
    return ac_live_find(pid, 0, &name) ? ac_live_remove(&name) : ENOENT;
}

/* The caller's umask may be anything, and the folder must not be writable by others. */
static void make_home(void) {
    ck_assert(mkdir(home, 0700) == 0 || errno == EEXIST);
}

static bool exists(const char *name) {
    struct stat st;
    return lstat(name, &st) == 0;
}

static void count(ac_live_row_t *row, unsigned counter, uint64_t n) {
    row->counter[counter] += n;
}

static int wait_for(pid_t child) {
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return status;
}

START_TEST(counts_before_and_after_opening) {
    bool shared;
    const ac_live_t *address = ac_live;
    ac_live_row_t *row = ac_live_row_take(&shared);
    ck_assert(!shared);
    count(row, AC_COUNT_lookups, 3);
    ac_live_warn("said early");
    ck_assert_int_eq(ac_live_open("fence:ctx", hooks, sizeof hooks, HOOKS), 0);
    ck_assert_ptr_eq(address, ac_live);
    count(row, AC_COUNT_lookups, 4);
    count(row, AC_COUNT_HOOKS + 2, 1);

    const ac_live_t *page = copy_of(getpid());
    ck_assert_msg(page != NULL, "%s", error);
    ck_assert(alive && page != ac_live);
    ck_assert_uint_eq(ac_live_sum(page, AC_COUNT_lookups), 7);
    ck_assert_uint_eq(ac_live_sum(page, AC_COUNT_HOOKS + 2), 1);
    ck_assert_str_eq(page->warning[0], "said early");
    ck_assert_str_eq(page->conf, "fence:ctx");
    ck_assert_uint_eq(page->hook_count, HOOKS);
    ck_assert_mem_eq(page->hook_names, hooks, sizeof hooks);
    ck_assert_int_eq(page->pid, getpid());
    ck_assert_int_eq(page->ppid, getppid());
    ck_assert_uint_ne(page->opened_ns, 0);
    ck_assert_ptr_nonnull(strstr(page->exe, program_invocation_short_name));
    char exe[AC_LIVE_EXE], link[AC_LIVE_EXE] = "";
    ck_assert_int_gt(readlink("/proc/self/exe", link, sizeof link - 1), 0);
    ac_live_exe(page, exe);
    ck_assert_str_eq(exe, link);
    ck_assert_ptr_nonnull(strstr(page->argv, program_invocation_short_name));
    ck_assert_int_gt(page->start_time_ns, 1700000000000000000);
    ck_assert_uint_eq(page->state, AC_LIVE_RUNNING);
    ac_live_set_conf("fence:sync");
    ck_assert_str_eq(ac_live->conf, "fence:sync");

    struct stat st;
    ck_assert_int_eq(stat(page_name(getpid()), &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0400);
    ck_assert_int_eq(stat(home, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0700);
    ck_assert_int_eq(stat(page_name(getpid()), &st), 0);
    ck_assert_msg((size_t)st.st_blocks * 512 >= offsetof(ac_live_t, row[2]),
                  "what is used at once has no memory");
    ck_assert_int_eq(remove_page(getpid()), EBUSY);
    ac_live_close();
    ck_assert(!exists(page_name(getpid())));
    ck_assert_uint_eq(ac_live->state, AC_LIVE_EXITED);
    count(row, AC_COUNT_lookups, 1); /* a thread that outlives exit must not crash */
    ac_live_free(page);
    ck_assert_ptr_null(copy_of(getpid()));
    ck_assert_ptr_nonnull(strstr(error, "no live page"));
}
END_TEST

START_TEST(arguments_where_the_kernel_put_them) {
    static char text[AC_LIVE_CONF] = "app\0-x\0\0end";
    char *moved[] = {text, text + 8, text + 4, text + 7},
         *as_they_lie[] = {text, text + 4, text + 7};
    char *both[] = {text, text + 4, text + 7, text + 8};
    ac_live_arguments(4, moved);
    ck_assert_int_eq(ac_live_open("", hooks, sizeof hooks, HOOKS), 0);
    ck_assert_ptr_nonnull(strstr(ac_live->argv, program_invocation_short_name));
    ac_live_close();
    ac_live_arguments(3, as_they_lie);
    ck_assert_int_eq(ac_live_open("", hooks, sizeof hooks, HOOKS), 0);
    ck_assert_mem_eq(ac_live->argv, "app\0-x\0\0\0\0\0", 12);
    ac_live_close();
    memset(text + 8, 'l', sizeof text - 9);
    ac_live_arguments(4, both);
    ck_assert_int_eq(ac_live_open("", hooks, sizeof hooks, HOOKS), 0);
    ck_assert_uint_eq(strlen(ac_live->argv + 8), sizeof ac_live->argv - 2 - 8);
    ac_live_close();
}
END_TEST

START_TEST(long_texts_are_cut) {
    static char text[AC_LIVE_CONF + 100], names[AC_LIVE_NAMES + 10];
    memset(text, 'c', sizeof text - 1);
    memset(names, 'n', sizeof names - 1);
    names[4] = '\0';
    ck_assert_int_eq(ac_live_open(text, names, sizeof names, 2), 0);
    ck_assert_uint_eq(strlen(ac_live->conf), AC_LIVE_CONF - 1);
    ck_assert_uint_eq(ac_live->hook_count, 1);
    ck_assert_str_eq(ac_live->hook_names, "nnnn");
    ck_assert_int_eq(ac_live->hook_names[5], 0);
    ac_live_close();
}
END_TEST

START_TEST(survives_sigkill) {
    int ready[2];
    char byte;
    ck_assert_int_eq(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        bool shared;
        if (ac_live_open(NULL, hooks, sizeof hooks, HOOKS) != 0)
            _exit(1);
        count(ac_live_row_take(&shared), AC_COUNT_submissions, 41);
        ac_live_device_take(60, &shared)->stats.num_ooms = 5;
        ac_live_device_publish(60);
        count(ac_live_row_take(&shared), AC_COUNT_submissions, 1);
        strcpy(ac_live->exe, "./started");
        if (write(ready[1], "x", 1) != 1)
            _exit(1);
        pause();
        _exit(1);
    }
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    ck_assert_int_eq(remove_page(child), EBUSY);
    const ac_live_t *page = copy_of(child);
    ck_assert_msg(page != NULL, "%s", error);
    char exe[AC_LIVE_EXE], link[AC_LIVE_EXE] = "";
    ck_assert_int_gt(readlink("/proc/self/exe", link, sizeof link - 1), 0);
    ac_live_exe(page, exe);
    ck_assert_str_eq(exe, link);
    ac_live_free(page);
    kill(child, SIGKILL);
    siginfo_t info;
    ck_assert_int_eq(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    page = copy_of(child);
    ck_assert_msg(page != NULL, "%s", error);
    ac_live_exe(page, exe); /* all that is left of it */
    ck_assert_str_eq(exe, "./started");
    ck_assert_msg(!alive, "a zombie is dead");
    ck_assert_uint_eq(ac_live_sum(page, AC_COUNT_submissions), 42);
    ck_assert(ac_live_device(page, 60) && !ac_live_device(page, 0));
    ck_assert_int_eq(page->device[60].stats.num_ooms, 5);
    ck_assert_uint_eq(page->state, AC_LIVE_RUNNING);
    ac_live_free(page);
    ck_assert(WIFSIGNALED(wait_for(child)));
    ck_assert_int_eq(remove_page(child), 0);
    ck_assert(!exists(page_name(child)));
    ck_assert_int_eq(remove_page(child), ENOENT);
}
END_TEST

static void *wait_long(void *arg) {
    (void)arg;
    pause();
    return NULL;
}

/* To /proc such a process is a zombie. */
START_TEST(a_process_outlives_its_main_thread) {
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        if (ac_live_open(NULL, hooks, sizeof hooks, HOOKS) != 0 ||
            pthread_create(&thread, NULL, wait_long, NULL) != 0)
            _exit(1);
        pthread_exit(NULL);
    }
    char name[64], text[256] = "";
    snprintf(name, sizeof name, "/proc/%d/stat", (int)child);
    while (!strstr(text, ") Z ")) {
        int fd = open(name, O_RDONLY);
        ck_assert_int_gt(read(fd, text, sizeof text - 1), 0);
        close(fd);
        sched_yield();
    }
    const ac_live_t *page = copy_of(child);
    ck_assert_msg(page && alive, "%s", error);
    ac_live_free(page);
    ck_assert_int_eq(remove_page(child), EBUSY);
    kill(child, SIGKILL);
    wait_for(child);
    ck_assert_int_eq(remove_page(child), 0);
}
END_TEST

START_TEST(fork_child_is_apart) {
    bool shared;
    ac_live_row_t *row = ac_live_row_take(&shared);
    ck_assert_int_eq(ac_live_open("", hooks, sizeof hooks, HOOKS), 0);
    count(row, AC_COUNT_submissions, 10);
    pid_t child = fork();
    if (child == 0) {
        ac_live_fork_child();
        if (ac_live_sum(ac_live, AC_COUNT_submissions) != 0 || ac_live->pid != 0)
            _exit(1);
        count(row, AC_COUNT_submissions, 7); /* the forking thread keeps its row */
        ac_live_row_t *other = ac_live_row_take(&shared);
        if (other == row || shared)
            _exit(2);
        ac_live_close(); /* not the child's to remove */
        if (!exists(page_name(getppid())))
            _exit(3);
        if (ac_live_open("", hooks, sizeof hooks, HOOKS) != 0 || !exists(page_name(getpid())))
            _exit(4);
        const ac_live_t *page = copy_of(getpid());
        if (!page || !alive || ac_live_sum(page, AC_COUNT_submissions) != 7)
            _exit(5);
        ac_live_close();
        _exit(exists(page_name(getpid())) ? 6 : 0);
    }
    ck_assert_int_eq(wait_for(child), 0);
    ck_assert_uint_eq(ac_live_sum(ac_live, AC_COUNT_submissions), 10);
    ck_assert(exists(page_name(getpid())));
    /* without ac_live_fork_child a child still does not remove the file */
    child = fork();
    if (child == 0) {
        ac_live_close();
        _exit(0);
    }
    ck_assert_int_eq(wait_for(child), 0);
    ck_assert(exists(page_name(getpid())));
    ck_assert_uint_eq(ac_live->state, AC_LIVE_RUNNING);
    ac_live_close();
}
END_TEST

START_TEST(fork_child_of_a_private_page) {
    bool shared;
    ac_live_row_t *row = ac_live_row_take(&shared);
    count(row, AC_COUNT_lookups, 3);
    pid_t child = fork();
    if (child == 0) {
        ac_live_fork_child();
        _exit(ac_live_sum(ac_live, AC_COUNT_lookups) != 0);
    }
    ck_assert_int_eq(wait_for(child), 0);
    ck_assert_uint_eq(ac_live_sum(ac_live, AC_COUNT_lookups), 3);
}
END_TEST

START_TEST(stale_files_are_replaced) {
    const char *name = page_name(getpid());
    make_home();
    FILE *old = fopen(name, "w");
    fputs("left by another process", old);
    fclose(old);
    ck_assert_ptr_null(copy_of(getpid()));
    ck_assert_ptr_nonnull(strstr(error, "another version"));
    ck_assert_int_eq(ac_live_open("", hooks, sizeof hooks, HOOKS), 0);
    const ac_live_t *page = copy_of(getpid());
    ck_assert_msg(page && alive, "%s", error);
    ac_live_free(page);
    /* a later page of the same name is not ours to remove */
    ck_assert_int_eq(unlink(name), 0);
    fclose(fopen(name, "w"));
    ac_live_close();
    ck_assert(exists(name));
}
END_TEST

/* A copy of the own page under the parent's name; `change` is applied to it. */
static void copy_page(void (*change)(ac_live_t *page)) {
    static ac_live_t page;
    int fd = open(page_name(getpid()), O_RDONLY);
    ck_assert_int_eq(pread(fd, &page, sizeof page, 0), sizeof page);
    close(fd);
    change(&page);
    fd = open(page_name(getppid()), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ck_assert_int_eq(write(fd, &page, sizeof page), sizeof page);
    ck_assert_int_eq(ftruncate(fd, (sizeof page + 4095) / 4096 * 4096), 0);
    close(fd);
}

static void of_another_size(ac_live_t *page) {
    page->size--;
}
static void of_parent(ac_live_t *page) {
    page->pid = getppid();
}

/* No process has the file of a dead one mapped, whatever runs under that pid today. */
START_TEST(reused_pid_is_dead) {
    ck_assert_int_eq(ac_live_open("", hooks, sizeof hooks, HOOKS), 0);
    copy_page(of_parent);
    const ac_live_t *page = copy_of(getppid());
    ck_assert_msg(page && !alive, "%s", error);
    ac_live_free(page);
    copy_page(of_another_size);
    ck_assert_ptr_null(copy_of(getppid()));
    ck_assert_ptr_nonnull(strstr(error, "another version"));
    ck_assert_int_eq(remove_page(getppid()), 0);
    ck_assert(!exists(page_name(getppid())));
    ac_live_close();
}
END_TEST

static void garble(ac_live_t *page) {
    memset((char *)page + offsetof(ac_live_t, opened_ns), 'x',
           sizeof *page - offsetof(ac_live_t, opened_ns));
    page->pid = getppid();
    page->state = AC_LIVE_RUNNING;
}

/* Whatever a page holds that says it is one, a reader stays within it. */
START_TEST(any_content_is_read) {
    size_t length;
    ck_assert_int_eq(ac_live_open("", hooks, sizeof hooks, HOOKS), 0);
    copy_page(garble);
    const ac_live_t *page = copy_of(getppid());
    ck_assert_msg(page != NULL, "%s", error);
    ck_assert_uint_eq(strlen(page->host), sizeof page->host - 1);
    ck_assert_uint_eq(strlen(page->exe), sizeof page->exe - 1);
    char *text = ac_dump_text(page, "killed", &length);
    ck_assert_ptr_nonnull(text);
    free(text);
    ac_live_free(page);
    ac_live_close();
}
END_TEST

static void visited(const ac_live_name_t *name, void *arg) {
    int *sum = arg;
    *sum += name->pid;
}

/* What is no file of this user is not opened, for some of it keeps who opens it waiting. */
START_TEST(what_is_no_page_is_left_alone) {
    char name[512];
    int sum = 0;
    make_home();
    for (int pid = 1; pid <= 70; pid++)
        ck_assert_int_eq(mkfifo(page_name(pid), 0666), 0);
    ck_assert_int_eq(symlink("/dev/zero", page_name(71)), 0);
    ck_assert_int_eq(mkdir(page_name(72), 0700), 0);
    fclose(fopen(page_name(73), "w"));
    ck_assert_int_eq(truncate(page_name(73), (off_t)1 << 40), 0);
    alarm(20);
    ck_assert_int_eq(ac_live_open("", hooks, sizeof hooks, HOOKS), 0);
    ac_live_tidy(); /* there are too many files */
    ck_assert_int_eq(ac_live_each(visited, &sum), 74);
    for (int pid = 1; pid <= 73; pid++) {
        ck_assert_ptr_null(copy_of(pid));
        ck_assert_msg(strstr(error, pid < 73 ? "no live page" : "cut short"), "%d: %s", pid,
                      error);
    }
    ac_live_name_t fifo = {.pid = 1, .user = geteuid()};
    snprintf(fifo.home, sizeof fifo.home, "accelcache-%u", (unsigned)geteuid());
    snprintf(fifo.file, sizeof fifo.file, "%llu-1", (unsigned long long)space_here());
    ck_assert_ptr_null(ac_live_read(&fifo, &alive, error, sizeof error));
    ck_assert_ptr_nonnull(strstr(error, "not a file of its folder's user"));
    ck_assert_int_eq(ac_live_remove(&fifo), EPERM);
    ac_live_close();
    /* the like in the folder above, where all users write */
    for (int i = 0; i < 70; i++) {
        snprintf(name, sizeof name, "%s/accelcache-%u.%06d", dir, (unsigned)geteuid(), i);
        ck_assert_int_eq(mkfifo(name, 0666), 0);
    }
    ck_assert_int_eq(ac_live_open("", hooks, sizeof hooks, HOOKS), 0);
    ck_assert_int_eq(ac_live_each(visited, &sum), 74);
    ac_live_close();
}
END_TEST

/* Another user who has taken the name of the folder gets nothing by it. */
START_TEST(name_of_the_folder_is_taken) {
    enum { LINK, FIFO, FILE_, FOREIGN, OPEN, KINDS };
    for (int kind = 0; kind < KINDS; kind++) {
        int sum = 0;
        if (kind == LINK)
            ck_assert_int_eq(symlink("/tmp", home), 0);
        else if (kind == FIFO)
            ck_assert_int_eq(mkfifo(home, 0666), 0);
        else if (kind == FILE_)
            fclose(fopen(home, "w"));
        else
            make_home();
        if (kind == OPEN)
            ck_assert_int_eq(chmod(home, 0777), 0);
        if (kind == FOREIGN && (geteuid() != 0 || chown(home, 12345, 12345) != 0))
            continue;
        alarm(20);
        ac_live_strayed = false;
        ck_assert_int_eq(ac_live_open("", hooks, sizeof hooks, HOOKS), 0);
        ck_assert_msg(ac_live_strayed, "kind %d", kind);
        ck_assert_int_eq(ac_live_each(visited, &sum), 1);
        ck_assert_int_eq(sum, getpid());
        const ac_live_t *page = copy_of(getpid());
        ck_assert_msg(page && alive, "%s", error);
        ac_live_free(page);
        ac_live_close();
        ck_assert_int_eq(ac_live_each(visited, &sum), 0);
        ck_assert(remove(home) == 0);
        ck_assert_msg(rmdir(dir) == 0, "a folder that nothing will use is left");
        ck_assert_int_eq(mkdir(dir, 0700), 0);
    }
}
END_TEST

/* Root sees the pages of all users, others their own. */
START_TEST(root_sees_all_users) {
    char name[512];
    int sum = 0;
    if (geteuid() != 0)
        return;
    ck_assert_int_eq(ac_live_open("", hooks, sizeof hooks, HOOKS), 0);
    copy_page(of_parent);
    strcpy(name, page_name(getppid()));
    strcpy(home + strlen(dir), "/accelcache-12345");
    make_home();
    ck_assert_int_eq(rename(name, page_name(getppid())), 0);
    strcpy(name, page_name(getppid()));
    ck_assert_int_eq(chmod(dir, 0755), 0);
    const ac_live_t *page = copy_of(getppid());
    ck_assert_msg(!page, "a folder of root with the name of another");
    ck_assert_int_eq(chown(home, 12345, 12345), 0);
    ck_assert_msg(!copy_of(getppid()), "a file of root in the folder of another");
    ck_assert_int_eq(chown(name, 12345, 12345), 0);
    page = copy_of(getppid());
    ck_assert_msg(page && !alive, "%s", error);
    ac_live_free(page);
    ck_assert_int_eq(ac_live_each(visited, &sum), 2);
    pid_t child = fork();
    if (child == 0) {
        if (setuid(12345) != 0)
            _exit(1);
        page = copy_of(getppid()); /* root's */
        if (page || ac_live_each(visited, &sum) != 1)
            _exit(2);
        _exit(remove_page(getppid()) == ENOENT ? 0 : 3);
    }
    ck_assert_int_eq(wait_for(child), 0);
    ck_assert_int_eq(remove_page(getppid()), 0);
    strcpy(home + strlen(dir), "/accelcache-0");
    ac_live_close();
}
END_TEST

/* Cut short again and again under a reader, which must meet an error at most. */
START_TEST(page_cut_short_under_a_reader) {
    static ac_live_t whole;
    make_home();
    ck_assert_int_eq(ac_live_open("", hooks, sizeof hooks, HOOKS), 0);
    copy_page(of_parent);
    int fd = open(page_name(getppid()), O_RDWR), seen = 0, failed = 0;
    off_t bytes = lseek(fd, 0, SEEK_END);
    ck_assert_int_eq(pread(fd, &whole, sizeof whole, 0), sizeof whole);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0;; i++) {
            if (ftruncate(fd, i % 2 ? 4096 : 0) || pwrite(fd, &whole, sizeof whole, 0) < 0 ||
                ftruncate(fd, bytes))
                _exit(1);
            nanosleep(&(struct timespec){0, i % 16 ? 1000 : 1000000}, NULL);
        }
    }
    close(fd);
    for (int i = 0; i < 1000000 && (i < 2000 || !seen || !failed); i++) {
        const ac_live_t *page = copy_of(getppid());
        seen += page != NULL;
        failed += !page;
        if (page) {
            size_t length;
            free(ac_dump_text(page, "running", &length));
        }
        ac_live_free(page);
    }
    kill(child, SIGKILL);
    wait_for(child);
    ck_assert_msg(seen > 0 && failed > 0, "%d whole, %d not", seen, failed);
    ac_live_close();
}
END_TEST

/* Opening fails with `expected`; everything goes on in private memory. */
static void open_fails(int expected) {
    bool shared;
    ac_live_row_t *row = ac_live_row_take(&shared);
    count(row, AC_COUNT_lookups, 2);
    ck_assert_int_eq(ac_live_open("dump:none", hooks, sizeof hooks, HOOKS), expected);
    count(row, AC_COUNT_lookups, 2);
    ck_assert_uint_eq(ac_live_sum(ac_live, AC_COUNT_lookups), 4);
    ck_assert_int_eq(ac_live->pid, getpid());
    ck_assert_str_eq(ac_live->conf, "dump:none");
    ac_live_close();
}

START_TEST(link_in_the_way) {
    char target[128];
    snprintf(target, sizeof target, "%s/target", dir);
    fclose(fopen(target, "w"));
    make_home();
    ck_assert_int_eq(symlink(target, page_name(getpid())), 0);
    open_fails(EEXIST);
    struct stat st;
    ck_assert_int_eq(stat(target, &st), 0);
    ck_assert_int_eq(st.st_size, 0);
    ck_assert(exists(page_name(getpid())));
}
END_TEST

START_TEST(missing_folder) {
    setenv("ACCEL_LIVE_DIR", "/nonexistent/folder", 1);
    open_fails(ENOENT);
    ck_assert_int_eq(ac_live_each(visited, NULL), 0);
}
END_TEST

START_TEST(file_size_limit_sends_no_signal) {
    struct rlimit limit = {4096, 4096};
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    /* SIGXFSZ has its default action: it would kill this process now or at the end */
    open_fails(EFBIG);
    sigset_t pending;
    sigpending(&pending);
    ck_assert_int_eq(sigismember(&pending, SIGXFSZ), 0);
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    ck_assert_int_eq(sigismember(&mask, SIGXFSZ), 0);
    ck_assert(!exists(page_name(getpid())));
}
END_TEST

/* Needs root, or a kernel that lets users mount in a namespace of their own. */
static bool mount_small(const char *size) {
    if (unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
        mount("tmpfs", dir, "tmpfs", 0, size) == 0)
        return true;
    fprintf(stderr, "%s: may not mount, not tested\n", size);
    return false;
}

/* With and without reading the folder. */
static void count_files(void) {
    ck_assert_int_eq(ac_live_open("", hooks, sizeof hooks, HOOKS), 0);
    for (int pid = 1; pid <= 5; pid++)
        fclose(fopen(page_name(pid), "w"));
    for (int most = 4; most <= 8; most++)
        ck_assert_int_eq(ac_live_count(most), most == 4 ? 5 : 6);
    ac_live_close();
}

START_TEST(files_are_counted) {
    count_files();
    if (!mount_small("size=2m"))
        return;
    count_files();
    ck_assert_int_eq(umount2(dir, MNT_DETACH), 0);
}
END_TEST

START_TEST(full_file_system) {
    if (!mount_small("size=16k"))
        return;
    open_fails(ENOSPC);
    ck_assert(!exists(page_name(getpid())));
    ck_assert_int_eq(umount(dir), 0);
}
END_TEST

static void fill_folder(void) {
    char name[128], data[4096] = "";
    snprintf(name, sizeof name, "%s/filler", dir);
    int fd = open(name, O_WRONLY | O_CREAT, 0600);
    while (write(fd, data, sizeof data) > 0) {
    }
    close(fd);
}

/* What is used later finds no memory: whoever asks is told, and nobody dies of a touch, neither
 * here nor in a reader. */
START_TEST(file_system_that_fills_later) {
    bool shared;
    if (!mount_small("size=1m"))
        return;
    ck_assert_int_eq(ac_live_open("", hooks, sizeof hooks, HOOKS), 0);
    fill_folder();
    ac_live_row_t *row = ac_live_row_take(&shared);
    ck_assert(!shared && row == &ac_live->row[1]);
    count(row, AC_COUNT_lookups, 3);
    while (!shared) { /* rows that lie in the same page of memory may be there */
        row = ac_live_row_take(&shared);
        __atomic_fetch_add(&row->counter[AC_COUNT_lookups], 1, __ATOMIC_RELAXED);
    }
    ck_assert_ptr_eq(row, &ac_live->row[0]);
    ac_live_device_t *device = ac_live_device_take(AC_LIVE_DEVICES - 1, &shared);
    ck_assert(shared && device);
    device->stats.num_ooms = 5;
    ac_live_device_publish(AC_LIVE_DEVICES - 1);
    ck_assert_ptr_eq(ac_live_device(ac_live, AC_LIVE_DEVICES - 1), device);
    ck_assert_ptr_eq(ac_live_device_take(AC_LIVE_DEVICES - 1, &shared), device);
    ac_live_warn("warnings have room");
    ac_live_set_conf("enabled:false");
    uint64_t sum = ac_live_sum(ac_live, AC_COUNT_lookups);
    ck_assert_uint_ge(sum, 4);
    const ac_live_t *page = copy_of(getpid());
    ck_assert(page && alive);
    ck_assert_uint_eq(ac_live_sum(page, AC_COUNT_lookups), sum);
    ck_assert_ptr_null(ac_live_device(page, AC_LIVE_DEVICES - 1));
    ac_live_free(page);
    ac_live_close();
    ck_assert_int_eq(umount2(dir, MNT_DETACH), 0);
}
END_TEST

START_TEST(each_visits_this_users_pages) {
    static const int pids[] = {17, 400000};
    char name[512];
    int sum = 0;
    make_home();
    for (int i = 0; i < 2; i++)
        fclose(fopen(page_name(pids[i]), "w"));
    snprintf(name, sizeof name, "%s/5x", home);
    fclose(fopen(name, "w"));
    snprintf(name, sizeof name, "%s/7-5x", home);
    fclose(fopen(name, "w"));
    snprintf(name, sizeof name, "%s/accelcache-%u-5", dir, (unsigned)geteuid());
    fclose(fopen(name, "w"));
    ck_assert_int_eq(ac_live_each(visited, &sum), 2);
    ck_assert_int_eq(sum, 400017);
    /* leftovers that are no pages can be removed as well */
    ck_assert_int_eq(remove_page(400000), 0);
    ck_assert(!exists(page_name(400000)));
}
END_TEST

enum { THREADS = 100, ADDITIONS = 2000 };

static void *count_in_thread(void *arg) {
    pthread_barrier_t *barrier = arg;
    bool shared;
    ac_live_row_t *row = ac_live_row_take(&shared);
    pthread_barrier_wait(barrier); /* more threads than rows hold one at once */
    for (int i = 0; i < ADDITIONS; i++) {
        if (shared)
            __atomic_fetch_add(&row->counter[AC_COUNT_full_syncs], 1, __ATOMIC_RELAXED);
        else
            __atomic_store_n(&row->counter[AC_COUNT_full_syncs],
                             row->counter[AC_COUNT_full_syncs] + 1, __ATOMIC_RELAXED);
    }
    ac_live_warn("said by every thread");
    ac_live_row_return(row);
    return (void *)(uintptr_t)shared;
}

START_TEST(rows_of_many_threads) {
    pthread_t thread[THREADS];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, THREADS);
    int shared = 0;
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, count_in_thread, &barrier), 0);
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(thread[i], &result);
        shared += result != NULL;
    }
    ck_assert_int_eq(shared, THREADS - (AC_LIVE_ROWS - 1));
    ck_assert_uint_eq(ac_live_sum(ac_live, AC_COUNT_full_syncs), THREADS * ADDITIONS);
    ck_assert_uint_eq(ac_live->row[0].counter[AC_COUNT_full_syncs], THREADS * ADDITIONS);
    for (int i = 0; i < AC_LIVE_ROWS; i++)
        ck_assert_uint_ne(ac_live->row_owner[i], AC_LIVE_TAKEN);
}
END_TEST

START_TEST(warnings_are_kept_once) {
    char text[2 * AC_LIVE_TEXT];
    memset(text, 'w', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (int round = 0; round < 2; round++) {
        ac_live_warn("one");
        ac_live_warn("one and more");
        ac_live_warn(text);
    }
    ck_assert_uint_eq(ac_live->warning_count, 3);
    ck_assert_str_eq(ac_live->warning[0], "one");
    ck_assert_str_eq(ac_live->warning[1], "one and more");
    ck_assert_uint_eq(strlen(ac_live->warning[2]), AC_LIVE_TEXT - 1);
    for (int i = 0; i < AC_LIVE_WARNINGS; i++) {
        snprintf(text, sizeof text, "number %d", i);
        ac_live_warn(text);
    }
    ck_assert_uint_eq(ac_live->warning_count, AC_LIVE_WARNINGS + 3);
    ck_assert_str_eq(ac_live->warning[AC_LIVE_WARNINGS - 1], "number 12");
}
END_TEST

START_TEST(rank_comes_from_the_launcher) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
                                        "SLURM_PROCID", "RANK"};
    for (int i = 0; i < 5; i++)
        unsetenv(names[i]);
    ck_assert_int_eq(ac_live_open("", hooks, sizeof hooks, HOOKS), 0);
    ck_assert_str_eq(ac_live->rank, "");
    ac_live_close();
    for (int i = 4; i >= 0; i--) { /* the earlier name wins */
        char value[16];
        snprintf(value, sizeof value, "%d", 10 + i);
        setenv(names[i], value, 1);
        ck_assert_int_eq(ac_live_open("", hooks, sizeof hooks, HOOKS), 0);
        ck_assert_str_eq(ac_live->rank, value);
        ac_live_close();
    }
    memset(ac_live->rank, 0, sizeof ac_live->rank);
    setenv("OMPI_COMM_WORLD_RANK", "../../x", 1); /* goes into file names */
    ck_assert_int_eq(ac_live_open("", hooks, sizeof hooks, HOOKS), 0);
    ck_assert_str_eq(ac_live->rank, "");
    ac_live_close();
}
END_TEST

/* What `speak` wrote to stderr. */
static const char *heard(void (*speak)(void)) {
    static char text[8192];
    int ends[2], saved = dup(STDERR_FILENO);
    ck_assert_int_eq(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    speak();
    dup2(saved, STDERR_FILENO);
    close(saved);
    ssize_t n = read(ends[0], text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    close(ends[0]);
    return text;
}

static void speak_levels(void) {
    errno = EDOM;
    ac_log(AC_LOG_ERROR, "error %d", 1);
    ac_log(AC_LOG_WARNING, "two\nlines");
    ac_log(AC_LOG_INFO, "info");
    for (int i = 0; i < 3; i++)
        ac_log_once(AC_LOG_WARNING, "once %s", "only");
    ck_assert_int_eq(errno, EDOM);
}

static void speak_long(void) {
    char text[4000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    ac_log(AC_LOG_ERROR, "%s", text);
}

enum { CONF_CHANGES = 4000 };

static void *change_conf(void *arg) {
    char letters[2][AC_LIVE_CONF];
    for (int i = 0; i < 2; i++) {
        memset(letters[i], 'a' + i, AC_LIVE_CONF - 1);
        letters[i][AC_LIVE_CONF - 1] = '\0';
    }
    for (int i = 0; i < CONF_CHANGES; i++)
        ac_live_set_conf(letters[i % 2]);
    __atomic_store_n((bool *)arg, true, __ATOMIC_RELAXED);
    return NULL;
}

START_TEST(conf_is_read_whole) {
    pthread_t writer;
    bool over = false;
    char conf[AC_LIVE_CONF];
    ck_assert_int_eq(pthread_create(&writer, NULL, change_conf, &over), 0);
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
        ac_live_conf(ac_live, conf);
        ck_assert_msg(strspn(conf, conf[0] == 'a' ? "a" : "b") == strlen(conf),
                      "parts of two strings");
    }
    pthread_join(writer, NULL);
    ac_live_conf(ac_live, conf);
    ck_assert_int_eq(conf[0], 'b');
    /* A writer that was killed in the middle keeps no reader. */
    ac_live->conf_turn |= 1;
    ac_live_conf(ac_live, conf);
    ck_assert_uint_eq(strlen(conf), AC_LIVE_CONF - 1);
}
END_TEST

START_TEST(log_lines) {
    ck_assert_str_eq(heard(speak_levels),
                     "accelcache: error 1\naccelcache: two lines\naccelcache: once only\n");
    ck_assert_uint_eq(ac_live->warning_count, 3);
    ck_assert_str_eq(ac_live->warning[1], "two lines");
    atomic_store(&ac_log_level, AC_LOG_NONE);
    ck_assert_str_eq(heard(speak_levels), "");
    atomic_store(&ac_log_level, AC_LOG_INFO);
    ck_assert_ptr_nonnull(strstr(heard(speak_levels), "accelcache: info\n"));
    const char *text = heard(speak_long);
    ck_assert_uint_lt(strlen(text), 1100);
    ck_assert_int_eq(text[strlen(text) - 1], '\n');
    ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1);
}
END_TEST

START_TEST(log_to_a_closed_pipe_or_nowhere) {
    int ends[2], saved = dup(STDERR_FILENO);
    ck_assert_int_eq(pipe(ends), 0);
    close(ends[0]);
    dup2(ends[1], STDERR_FILENO);
    ac_log(AC_LOG_ERROR, "nobody reads this"); /* SIGPIPE would kill the test */
    close(STDERR_FILENO);
    ac_log(AC_LOG_ERROR, "nor this");
    dup2(saved, STDERR_FILENO);
    ck_assert_uint_eq(ac_live->warning_count, 2);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("live");
    TCase *cases = tcase_create("live");
    tcase_add_checked_fixture(cases, enter_dir, leave_dir);
    tcase_add_test(cases, counts_before_and_after_opening);
    tcase_add_test(cases, arguments_where_the_kernel_put_them);
    tcase_add_test(cases, long_texts_are_cut);
    tcase_add_test(cases, survives_sigkill);
    tcase_add_test(cases, a_process_outlives_its_main_thread);
    tcase_add_test(cases, fork_child_is_apart);
    tcase_add_test(cases, fork_child_of_a_private_page);
    tcase_add_test(cases, stale_files_are_replaced);
    tcase_add_test(cases, reused_pid_is_dead);
    tcase_add_test(cases, any_content_is_read);
    tcase_add_test(cases, what_is_no_page_is_left_alone);
    tcase_add_test(cases, name_of_the_folder_is_taken);
    tcase_add_test(cases, root_sees_all_users);
    tcase_add_test(cases, page_cut_short_under_a_reader);
    tcase_add_test(cases, link_in_the_way);
    tcase_add_test(cases, missing_folder);
    tcase_add_test(cases, file_size_limit_sends_no_signal);
    tcase_add_test(cases, files_are_counted);
    tcase_add_test(cases, full_file_system);
    tcase_add_test(cases, file_system_that_fills_later);
    tcase_add_test(cases, each_visits_this_users_pages);
    tcase_add_test(cases, rows_of_many_threads);
    tcase_add_test(cases, warnings_are_kept_once);
    tcase_add_test(cases, rank_comes_from_the_launcher);
    tcase_add_test(cases, conf_is_read_whole);
    tcase_add_test(cases, log_lines);
    tcase_add_test(cases, log_to_a_closed_pipe_or_nowhere);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}

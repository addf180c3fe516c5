/* The folder of live pages: files that are no pages, truncated and stale files. A failure of the
 * folder must not harm the process. */
#include "live_frame.h"
#include "observe/live_file.h"
#include "run_suite.h"

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
    /* a later page of the same name is not this process's to remove */
    ck_assert_int_eq(unlink(name), 0);
    fclose(fopen(name, "w"));
    ac_live_close();
    ck_assert(exists(name));
}
END_TEST

/* Writes a copy of the process's page under the parent's name, after `change` was applied. */
static void copy_page(void (*change)(ac_live_t *page)) {
    static ac_live_t page;
    int fd = open(page_name(getpid()), O_RDONLY);
    ck_assert_int_eq(pread(fd, &page, sizeof page, 0), sizeof page);
    close(fd);
    change(&page);
    fd = open(page_name(getppid()), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ck_assert_int_eq(write(fd, &page, sizeof page), sizeof page);
    ck_assert_int_eq(ftruncate(fd, AC_LIVE_BYTES), 0);
    close(fd);
}

static void of_another_size(ac_live_t *page) {
    page->size--;
}
static void of_parent(ac_live_t *page) {
    page->pid = getppid();
}

/* A dead process has no file mapped, even if its pid runs again. */
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

/* A file may claim to be a page and hold anything. A reader stays within its bounds. */
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

/* Files that cannot be live pages are not opened, because an open of some of them would block. */
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
    /* FIFOs in the parent folder, which all users can write */
    for (int i = 0; i < 70; i++) {
        snprintf(name, sizeof name, "%s/accelcache-%u.%06d", dir, (unsigned)geteuid(), i);
        ck_assert_int_eq(mkfifo(name, 0666), 0);
    }
    ck_assert_int_eq(ac_live_open("", hooks, sizeof hooks, HOOKS), 0);
    ck_assert_int_eq(ac_live_each(visited, &sum), 74);
    ac_live_close();
}
END_TEST

/* Another user owns the folder's name, and gains nothing by it. */
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

/* Root sees all users' pages, others see their own. */
START_TEST(root_sees_all_users) {
    char name[512];
    int sum = 0;
    if (geteuid() != 0 || chown(dir, 12345, 12345) || chown(dir, 0, 0))
        return; /* or root of a namespace without other users */
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

/* The file is truncated repeatedly under a reader, which gets an error at most. */
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

/* Expects opening to fail with `expected`, and the process to go on in private memory. */
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

START_TEST(unusable_folder) {
    setenv("ACCEL_LIVE_DIR", "/proc", 1);
    open_fails(ENOENT);
    ck_assert_int_eq(ac_live_each(visited, NULL), 0);
}
END_TEST

START_TEST(missing_folder) {
    static const char *const missing[] = {"/nonexistent/folder", "/dev/null", "/dev/null/folder"};
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++) {
        setenv("ACCEL_LIVE_DIR", missing[i], 1);
        ck_assert_str_eq(ac_live_dir(), AC_LIVE_DIR);
        ck_assert_str_eq(ac_live_dir_missing(), missing[i]);
    }
    setenv("ACCEL_LIVE_DIR", "/proc", 1);
    ck_assert_str_eq(ac_live_dir(), "/proc");
    ck_assert_ptr_null(ac_live_dir_missing());
    setenv("ACCEL_LIVE_DIR", "", 1);
    ck_assert_str_eq(ac_live_dir(), AC_LIVE_DIR);
    ck_assert_ptr_null(ac_live_dir_missing());
}
END_TEST

START_TEST(file_size_limit_sends_no_signal) {
    struct rlimit limit = {4096, 4096};
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    /* SIGXFSZ has its default action: it would kill this process here or at the end */
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

/* Mounts a small file system. Needs root, or a kernel that lets users mount in a namespace of
 * their own. */
static bool mount_small(const char *size) {
    if (unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
        mount("tmpfs", dir, "tmpfs", 0, size) == 0)
        return true;
    fprintf(stderr, "%s: may not mount, not tested\n", size);
    return false;
}

/* Counts files with and without reading the folder. */
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

/* A part of the page that is used later finds no memory. The caller gets an error, and no access
 * crashes this process or a reader. */
START_TEST(file_system_that_fills_later) {
    bool shared;
    if (getenv("AC_EMULATED") || !mount_small("size=1m"))
        return; /* qemu returns 0 for MADV_POPULATE_WRITE without doing it */
    ck_assert_int_eq(ac_live_open("", hooks, sizeof hooks, HOOKS), 0);
    fill_folder();
    ac_live_row_t *row = ac_live_row_take(&shared);
    ck_assert(!shared && row == &ac_live->row[1]);
    count(row, AC_COUNT_lookups, 3);
    while (!shared) { /* rows in the same page of memory may exist */
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
    /* leftovers that are no pages can be removed too */
    ck_assert_int_eq(remove_page(400000), 0);
    ck_assert(!exists(page_name(400000)));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("live_folder");
    TCase *cases = tcase_create("live_folder");
    tcase_add_checked_fixture(cases, enter_dir, leave_dir);
    tcase_add_test(cases, stale_files_are_replaced);
    tcase_add_test(cases, reused_pid_is_dead);
    tcase_add_test(cases, any_content_is_read);
    tcase_add_test(cases, what_is_no_page_is_left_alone);
    tcase_add_test(cases, name_of_the_folder_is_taken);
    tcase_add_test(cases, root_sees_all_users);
    tcase_add_test(cases, page_cut_short_under_a_reader);
    tcase_add_test(cases, link_in_the_way);
    tcase_add_test(cases, unusable_folder);
    tcase_add_test(cases, missing_folder);
    tcase_add_test(cases, file_size_limit_sends_no_signal);
    tcase_add_test(cases, files_are_counted);
    tcase_add_test(cases, full_file_system);
    tcase_add_test(cases, file_system_that_fills_later);
    tcase_add_test(cases, each_visits_this_users_pages);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}

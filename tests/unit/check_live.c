/* The live page: one address for the process's life, nothing lost by SIGKILL, nothing inherited by fork. */
#include "live_frame.h"
#include "run_suite.h"

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
    char proc[32]; /* the child's path: an emulator hides it from the child */
    snprintf(proc, sizeof proc, "/proc/%d/exe", (int)child);
    ck_assert_int_gt(readlink(proc, link, sizeof link - 1), 0);
    ac_live_exe(page, exe);
    ck_assert_str_eq(exe, link);
    ac_live_free(page);
    kill(child, SIGKILL);
    siginfo_t info;
    ck_assert_int_eq(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    page = copy_of(child);
    ck_assert_msg(page != NULL, "%s", error);
    ac_live_exe(page, exe); /* only this much is left of it */
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

/* /proc shows this process as a zombie. */
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
        ac_live_close(); /* the child must not remove the file */
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

enum { THREADS = AC_LIVE_ROWS + 36, ADDITIONS = 2000 };

static _Atomic uint32_t beside;

static void most_beside(uint32_t n) {
    uint32_t before = atomic_load(&beside);
    while (n > before && !atomic_compare_exchange_weak(&beside, &before, n))
        continue;
}

static void *count_in_thread(void *arg) {
    pthread_barrier_t *barrier = arg;
    bool shared;
    ac_live_row_t *row = ac_live_row_take(&shared);
    pthread_barrier_wait(barrier); /* more threads than rows hold one row each at once */
    most_beside(__atomic_load_n(&ac_live->rows_beside, __ATOMIC_RELAXED));
    pthread_barrier_wait(barrier);
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
    ck_assert_int_eq(shared, 0); /* the page has fewer rows: the others are in a second file */
    ck_assert_uint_eq(atomic_load(&beside), THREADS - (AC_LIVE_ROWS - 1));
    ck_assert_uint_eq(ac_live->rows_beside, 0);
    ck_assert_uint_eq(ac_live_sum(ac_live, AC_COUNT_full_syncs), THREADS * ADDITIONS);
    ck_assert_uint_eq(ac_live->row[0].counter[AC_COUNT_full_syncs], THREADS * ADDITIONS);
    for (int i = 0; i < AC_LIVE_ROWS; i++)
        ck_assert_uint_ne(ac_live->row_owner[i], AC_LIVE_TAKEN);
}
END_TEST

enum { MANY = AC_LIVE_ROWS + 300 };

static bool take_many(ac_live_row_t *row[MANY]) {
    bool shared = false;
    for (int i = 0; i < MANY && !shared; i++) {
        row[i] = ac_live_row_take(&shared);
        count(row[i], AC_COUNT_submissions, (uint64_t)i);
        row[i]->cache[0].device = 1;
        row[i]->cache[0].fenced = 1;
    }
    return !shared;
}

/* Counts of threads beyond the page's rows outlive the threads and a kill, even if the page was used before it
 * was shared. */
START_TEST(more_rows_survive_sigkill) {
    ac_cache_sum_t sum;
    pid_t child = fork();
    if (child == 0) {
        ac_live_row_t *row[MANY];
        if (_i)
            ac_live_warn("said before there is a file");
        if (ac_live_open(NULL, hooks, sizeof hooks, HOOKS) != 0 || !take_many(row))
            _exit(1);
        ac_live_row_return(row[MANY - 1]);
        ac_live_row_return(row[3]);
        raise(SIGKILL);
    }
    ck_assert(WIFSIGNALED(wait_for(child)));
    const ac_live_t *page = copy_of(child);
    ck_assert_msg(page && !alive, "%s", error);
    ck_assert_uint_eq(page->rows_beside, 0);
    ck_assert_uint_eq(ac_live_sum(page, AC_COUNT_submissions), (uint64_t)MANY * (MANY - 1) / 2);
    ac_live_caches(page, 0, &sum);
    ck_assert_uint_eq(sum.fenced, MANY);
    ac_live_free(page);
    char rows[300];
    snprintf(rows, sizeof rows, "%s.rows", page_name(child));
    ck_assert(exists(rows));
    /* Without the second file the page can still be read, and reports the missing rows. */
    ck_assert_int_eq(chmod(rows, 0600), 0);
    ck_assert_int_eq(truncate(rows, 4096), 0);
    page = copy_of(child);
    ck_assert_msg(page, "%s", error);
    ck_assert_uint_eq(page->rows_beside, MANY - (AC_LIVE_ROWS - 1));
    ac_live_free(page);
    ck_assert_int_eq(remove_page(child), 0);
    ck_assert(!exists(rows));
}
END_TEST

static void *take_at_once(void *barrier) {
    bool shared;
    pthread_barrier_wait(barrier);
    return ac_live_row_take(&shared);
}

/* Threads start while one of them creates the second file. Each gets a row of it. The file is readable whatever
 * the umask is. */
START_TEST(more_rows_at_once) {
    enum { POOL = 16 };
    pthread_t thread[POOL];
    pthread_barrier_t barrier;
    struct stat st;
    bool shared;
    char rows[300];
    ck_assert_int_eq(ac_live_open(NULL, hooks, sizeof hooks, HOOKS), 0);
    for (int i = 0; i < AC_LIVE_ROWS - 1; i++)
        ac_live_row_take(&shared);
    snprintf(rows, sizeof rows, "%s.rows", page_name(getpid()));
    ck_assert(!exists(rows));
    umask(0777);
    pthread_barrier_init(&barrier, NULL, POOL);
    for (int i = 0; i < POOL; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, take_at_once, &barrier), 0);
    for (int i = 0; i < POOL; i++)
        ck_assert_int_eq(pthread_join(thread[i], NULL), 0);
    ck_assert_uint_eq(ac_live->rows_beside, 0);
    ck_assert_uint_eq(ac_live->rows_more, POOL);
    ck_assert_int_eq(stat(rows, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0400);
    ac_live_close();
    ck_assert(!exists(rows));
    ac_live_row_take(&shared); /* leaves no file */
    ck_assert(!exists(rows));
}
END_TEST

/* A fork child has its own rows. The file is removed together with the page. */
START_TEST(more_rows_of_a_fork_child) {
    ac_live_row_t *row[MANY];
    char rows[300];
    ck_assert_int_eq(ac_live_open(NULL, hooks, sizeof hooks, HOOKS), 0);
    ck_assert(take_many(row));
    uint64_t before = ac_live_sum(ac_live, AC_COUNT_submissions);
    pid_t child = fork();
    if (child == 0) {
        ac_live_fork_child();
        if (ac_live_sum(ac_live, AC_COUNT_submissions) != 0)
            _exit(1);
        count(row[MANY - 1], AC_COUNT_submissions, 7);
        ac_live_close();
        _exit(0);
    }
    ck_assert_int_eq(wait_for(child), 0);
    ck_assert_uint_eq(ac_live_sum(ac_live, AC_COUNT_submissions), before);
    snprintf(rows, sizeof rows, "%s.rows", page_name(getpid()));
    ck_assert(exists(rows));
    ac_live_close();
    ck_assert(!exists(rows));
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
    for (int i = 4; i >= 0; i--) { /* the variable that is earlier in the list wins */
        char value[16];
        snprintf(value, sizeof value, "%d", 10 + i);
        setenv(names[i], value, 1);
        ck_assert_int_eq(ac_live_open("", hooks, sizeof hooks, HOOKS), 0);
        ck_assert_str_eq(ac_live->rank, value);
        ac_live_close();
    }
    memset(ac_live->rank, 0, sizeof ac_live->rank);
    setenv("OMPI_COMM_WORLD_RANK", "../../x", 1); /* the rank becomes part of file names */
    ck_assert_int_eq(ac_live_open("", hooks, sizeof hooks, HOOKS), 0);
    ck_assert_str_eq(ac_live->rank, "");
    ac_live_close();
}
END_TEST

/* Returns the text that `speak` wrote to stderr. */
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
        /* The read may fail while a writer is suspended. */
        bool whole = ac_live_conf(ac_live, conf);
        ck_assert_msg(!whole || strspn(conf, conf[0] == 'a' ? "a" : "b") == strlen(conf),
                      "parts of two strings");
    }
    pthread_join(writer, NULL);
    ck_assert(ac_live_conf(ac_live, conf));
    ck_assert_int_eq(conf[0], 'b');
    /* A writer that was killed in the middle does not block readers. */
    ac_live->conf_turn |= 1;
    ck_assert(!ac_live_conf(ac_live, conf));
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
    ac_log(AC_LOG_ERROR, "no reader for this"); /* SIGPIPE would kill the test */
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
    tcase_add_loop_test(cases, more_rows_survive_sigkill, 0, 2);
    tcase_add_test(cases, more_rows_of_a_fork_child);
    tcase_add_test(cases, more_rows_at_once);
    tcase_add_test(cases, a_process_outlives_its_main_thread);
    tcase_add_test(cases, fork_child_is_apart);
    tcase_add_test(cases, fork_child_of_a_private_page);
    tcase_add_test(cases, rows_of_many_threads);
    tcase_add_test(cases, warnings_are_kept_once);
    tcase_add_test(cases, rank_comes_from_the_launcher);
    tcase_add_test(cases, conf_is_read_whole);
    tcase_add_test(cases, log_lines);
    tcase_add_test(cases, log_to_a_closed_pipe_or_nowhere);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}

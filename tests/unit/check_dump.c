/* The dump: names, atomic writing, targets that must not be replaced, full disks, short memory.
 * dump_schema.py checks its form. */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "observe/dump.h"
#include "observe/json.h"
#include "observe/live.h"
#include "run_suite.h"

static const char hooks[] = "cuMemAlloc_v2";
static char dir[64];
static char path[1024];

static void enter_dir(void) {
    strcpy(dir, "/tmp/accelcache-dump-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    ck_assert_int_eq(chdir(dir), 0);
}

static void leave_dir(void) {
    char command[128];
    ck_assert_int_eq(chdir("/"), 0);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    ck_assert_int_eq(system(command), 0);
}

static int files_here(void) {
    int count = 0;
    DIR *here = opendir(".");
    for (const struct dirent *entry; (entry = readdir(here));)
        count += entry->d_name[0] != '.';
    closedir(here);
    return count;
}

static json_t *load(const char *name) {
    json_error_t error;
    json_t *json = json_load_file(name, 0, &error);
    ck_assert_msg(json != NULL, "%s: line %d: %s", name, error.line, error.text);
    return json;
}

START_TEST(names) {
    static ac_live_t page;
    char name[64];
    page.pid = 4711;
    strcpy(page.host, "node7");
    strcpy(page.exe, "/usr/bin/app.x");
    ck_assert_int_eq(ac_dump_path("a-%p_%h.%r.%e%%%%p", &page, name, sizeof name), 0);
    ck_assert_str_eq(name, "a-4711_node7.none.app.x%%p");
    strcpy(page.rank, "12");
    ck_assert_int_eq(ac_dump_path("%r", &page, name, sizeof name), 0);
    ck_assert_str_eq(name, "12");
    ck_assert_int_eq(ac_dump_path("%e%e", &page, name, 10), ENAMETOOLONG);
    ck_assert_str_eq(name, "app.x");
    ck_assert_int_eq(ac_dump_path("%e%e", &page, name, 11), 0);
    ck_assert_int_eq(ac_dump_path("12345678", &page, name, 8), ENAMETOOLONG);
    page.exe[0] = '\0';
    ck_assert_int_eq(ac_dump_path("%e", &page, name, sizeof name), 0);
    ck_assert_str_eq(name, "unknown");
}
END_TEST

START_TEST(replaces_atomically) {
    ac_live_open("", hooks, sizeof hooks, 1);
    ck_assert_int_eq(ac_dump_write("d.json", "signal", NULL, path, sizeof path), 0);
    ck_assert_str_eq(path, "d.json");
    int old = open("d.json", O_RDONLY);
    struct stat before, after;
    fstat(old, &before);
    /* a killed process with this pid left a file, which does not matter */
    char leftover[64];
    snprintf(leftover, sizeof leftover, "d.json.%d-1.tmp", (int)getpid());
    fclose(fopen(leftover, "w"));
    ck_assert_int_eq(ac_dump_write("d.json", "exit", NULL, path, sizeof path), 0);
    ck_assert_int_eq(stat("d.json", &after), 0);
    ck_assert_msg(before.st_ino != after.st_ino, "written in place: a reader sees half a dump");
    ck_assert_int_eq(files_here(), 2);
    json_t *json = load("d.json");
    ck_assert_str_eq(json_string_value(json_object_get(json, "reason")), "exit");
    json_decref(json);
    close(old);
    ac_live_close();
}
END_TEST

START_TEST(failures_leave_nothing) {
    ck_assert_int_eq(ac_dump_write("missing/%%p.json", "exit", NULL, path, sizeof path), ENOENT);
    ck_assert_str_eq(path, "missing/%p.json");
    fclose(fopen("file", "w"));
    ck_assert_int_eq(ac_dump_write("file/d.json", "exit", NULL, path, sizeof path), ENOTDIR);
    ck_assert_int_eq(mkdir("folder", 0700), 0);
    ck_assert_int_eq(ac_dump_write("folder", "exit", NULL, path, sizeof path), EISDIR);
    char longest[300];
    memset(longest, 'n', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    ck_assert_int_eq(ac_dump_write(longest, "exit", NULL, path, sizeof path), ENAMETOOLONG);
    if (geteuid() != 0) { /* root may write anywhere */
        ck_assert_int_eq(chmod("folder", 0500), 0);
        ck_assert_int_eq(ac_dump_write("folder/d.json", "exit", NULL, path, sizeof path), EACCES);
    }
    ck_assert_int_eq(files_here(), 2);
    /* a full disk leaves an existing dump whole */
    ck_assert_int_eq(ac_dump_write("d.json", "exit", NULL, path, sizeof path), 0);
    struct rlimit limit = {1000, 1000};
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert_int_eq(ac_dump_write("d.json", "exit", NULL, path, sizeof path), EFBIG);
    ck_assert_int_eq(files_here(), 3);
    json_decref(load("d.json"));
}
END_TEST

START_TEST(devices_and_pipes_are_not_replaced) {
    struct stat st;
    char text[65536];
    ck_assert_int_eq(mkfifo("pipe", 0600), 0);
    ck_assert_int_eq(ac_dump_write("pipe", "exit", NULL, path, sizeof path), ENXIO);
    int reader = open("pipe", O_RDONLY | O_NONBLOCK);
    ck_assert_int_eq(ac_dump_write("pipe", "exit", NULL, path, sizeof path), 0);
    ssize_t n = read(reader, text, sizeof text - 1);
    ck_assert_int_gt(n, 1000);
    ck_assert_int_eq(text[n - 1], '\n');
    ck_assert(lstat("pipe", &st) == 0 && S_ISFIFO(st.st_mode));
    close(reader);
    /* a link stays, and its target gets the text */
    ck_assert_int_eq(symlink("target", "link"), 0);
    ck_assert_int_eq(ac_dump_write("link", "exit", NULL, path, sizeof path), ENOENT);
    fclose(fopen("target", "w"));
    ck_assert_int_eq(ac_dump_write("link", "exit", NULL, path, sizeof path), 0);
    ck_assert(lstat("link", &st) == 0 && S_ISLNK(st.st_mode));
    json_decref(load("target"));
    /* a full device returns ENOSPC */
    ck_assert_int_eq(ac_dump_write("/dev/full", "exit", NULL, path, sizeof path), ENOSPC);
    ck_assert(stat("/dev/full", &st) == 0 && S_ISCHR(st.st_mode));
    ck_assert_int_eq(files_here(), 3);
}
END_TEST

static void *write_often(void *arg) {
    char name[256];
    intptr_t failures = 0;
    for (int i = 0; i < 20; i++)
        failures += ac_dump_write(arg, "interval", NULL, name, sizeof name) != 0;
    return (void *)failures;
}

START_TEST(threads_write_at_once) {
    pthread_t thread[4];
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, write_often, (void *)"d.json"), 0);
    for (int i = 0; i < 4; i++) {
        void *failures;
        pthread_join(thread[i], &failures);
        ck_assert_ptr_null(failures);
    }
    ck_assert_int_eq(files_here(), 1);
    json_decref(load("d.json"));
}
END_TEST

/* jansson's allocations fail from the Nth on, for N = 0, 1, 2... until all succeed. */
static long allocations_left;

static void *failing_malloc(size_t size) {
    return allocations_left-- > 0 ? malloc(size) : NULL;
}

START_TEST(short_memory) {
    size_t length;
    ac_live_device_publish(0);
    ac_live->hook_count = 1;
    strcpy(ac_live->hook_names, "cuMemAlloc_v2");
    ac_live->row[0].counter[AC_COUNT_HOOKS] = 1;
    ac_live_warn("a warning");
    strcpy(ac_live->conf, "fence:wrong");
    memcpy(ac_live->argv, "app\0\0-x", 7);
    /* objects are seeded once, outside the failing allocations */
    json_object_seed(1);
    json_set_alloc_funcs(failing_malloc, free);
    long n = 0;
    for (;; n++) {
        allocations_left = n;
        char *text = ac_dump_text(ac_live, "exit", &length);
        if (text) {
            json_set_alloc_funcs(malloc, free);
            json_t *json = json_loads(text, 0, NULL);
            ck_assert_ptr_nonnull(json);
            ck_assert_uint_eq(strlen(text), length);
            const json_t *argv = json_object_get(json_object_get(json, "process"), "argv");
            ck_assert_uint_eq(json_array_size(argv), 3);
            ck_assert_str_eq(json_string_value(json_array_get(argv, 1)), "");
            json_decref(json);
            free(text);
            break;
        }
    }
    ck_assert_int_gt(n, 300);
}
END_TEST

static bool figures_to_be_had;

static bool give_figures(unsigned device, const struct timespec *deadline,
                         ac_device_stats_t *stats, ac_device_counters_t *counters) {
    ck_assert_uint_eq(device, 3);
    ck_assert_int_gt(deadline->tv_sec, 0);
    if (!figures_to_be_had)
        return false;
    *stats = (ac_device_stats_t){.num_ooms = 11};
    *counters = (ac_device_counters_t){.trims = 12};
    return true;
}

static json_int_t number(const json_t *device, const char *group, const char *name) {
    return json_integer_value(json_object_get(json_object_get(device, group), name));
}

static void figures_are(const ac_live_t *page, json_int_t ooms, json_int_t trims) {
    size_t length;
    char *text = ac_dump_text(page, "exit", &length);
    json_t *json = json_loads(text, 0, NULL);
    const json_t *device = json_array_get(json_object_get(json, "devices"), 0);
    ck_assert_int_eq(number(device, "stats", "num_ooms"), ooms);
    ck_assert_int_eq(number(device, "counters", "trims"), trims);
    json_decref(json);
    free(text);
}

START_TEST(figures_come_from_their_owner) {
    static ac_live_t another;
    ac_live->devices = another.devices = 1 << 3;
    ac_live->device[3].stats.num_ooms = another.device[3].stats.num_ooms = 21;
    ac_live->device[3].counters.trims = another.device[3].counters.trims = 22;
    figures_are(ac_live, 21, 22);
    atomic_store(&ac_dump_figures, give_figures);
    figures_are(ac_live, 21, 22); /* the lock is not available: unlocked figures */
    figures_to_be_had = true;
    figures_are(ac_live, 11, 12);
    figures_are(&another, 21, 22); /* another process: no thread here holds its lock */
}
END_TEST

/* The dump omits the list of blocks. A reader would take an empty list for a process without
 * blocks. */
START_TEST(figures_alone_have_no_blocks) {
    static const bool figures[] = {false, true};
    for (unsigned i = 0; i < 2; i++) {
        size_t length;
        const ac_dump_more_t more = {.figures = figures[i]};
        char *text = ac_dump_text_with(ac_live, "test", &more, &length);
        json_t *json = json_loads(text, 0, NULL);
        ck_assert_ptr_nonnull(json);
        ck_assert_int_eq(json_object_get(json, "layout") != NULL, !figures[i]);
        json_decref(json);
        free(text);
    }
}
END_TEST

static void text_becomes(const char *text, size_t length, const char *expected) {
    json_t *json = ac_json_text(text, length);
    ck_assert_ptr_nonnull(json);
    ck_assert_str_eq(json_string_value(json), expected);
    json_decref(json);
}

START_TEST(any_bytes_are_text) {
    text_becomes("", 0, "");
    text_becomes("a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80z", 11,
                 "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80z");
    text_becomes("\xff", 1, "\xef\xbf\xbd");
    text_becomes("\xc3", 1, "\xef\xbf\xbd");                                 /* cut */
    text_becomes("\xc0\x80", 2, "\xef\xbf\xbd\xef\xbf\xbd");                 /* overlong */
    text_becomes("\xed\xa0\x80", 3, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"); /* surrogate */
    text_becomes("x\0y", 3, "x\xef\xbf\xbdy");
    for (unsigned i = 0; i < 65536; i++) {
        char pair[4] = {(char)(i >> 8), (char)i, 'a', (char)(i * 7)};
        json_t *json = ac_json_text(pair, sizeof pair);
        ck_assert_msg(json != NULL, "%#x", i);
        json_decref(json);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("dump");
    TCase *cases = tcase_create("dump");
    setenv("ACCEL_LIVE_DIR", "/proc", 1); /* the private page works too */
    tcase_add_checked_fixture(cases, enter_dir, leave_dir);
    tcase_add_test(cases, names);
    tcase_add_test(cases, replaces_atomically);
    tcase_add_test(cases, failures_leave_nothing);
    tcase_add_test(cases, devices_and_pipes_are_not_replaced);
    tcase_add_test(cases, threads_write_at_once);
    tcase_add_test(cases, short_memory);
    tcase_add_test(cases, figures_come_from_their_owner);
    tcase_add_test(cases, figures_alone_have_no_blocks);
    tcase_add_test(cases, any_bytes_are_text);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}

/* Host memory left for pinned memory, read from folders of the test. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "observe/host_memory.h"
#include "run_suite.h"

static char root[] = "/tmp/accelcache-host_memory.XXXXXX";

static void put(const char *path, const char *text) {
    char whole[512];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    for (char *at = strchr(whole + strlen(root) + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        mkdir(whole, 0700);
        *at = '/';
    }
    FILE *file = fopen(whole, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    ck_assert_int_eq(fclose(file), 0);
}

static void begin(void) {
    ck_assert_ptr_nonnull(mkdtemp(root));
    put("/proc/meminfo", "MemTotal:  8000 kB\nMemFree: 10 kB\nMemAvailable:    4000 kB\n");
}

static void end(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", root);
    ck_assert_int_eq(system(command), 0);
}

START_TEST(the_machine) {
    ck_assert_uint_eq(ac_host_memory_below(root), 4000 * 1024);
    put("/proc/meminfo", "MemTotal:  8000 kB\n");
    ck_assert_uint_eq(ac_host_memory_below(root), 0);
    ck_assert_uint_eq(ac_host_memory_below("/nowhere"), 0);
    ck_assert_uint_gt(ac_host_memory_left(), 0); /* reads this machine's files */
}
END_TEST

enum { PROCESSES = 200, THREADS = 8 };

static void *look(void *begin) {
    pthread_barrier_wait(begin);
    errno = EXDEV;
    uint64_t left = ac_host_memory_left();
    ac_host_memory_node();
    return (void *)(uintptr_t)(left == 0 || errno != EXDEV);
}

/* Several threads make the first query of a process at the same time. */
static bool look_first(void) {
    pthread_barrier_t begin;
    pthread_t thread[THREADS];
    bool wrong = pthread_barrier_init(&begin, NULL, THREADS) != 0;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&thread[i], NULL, look, &begin) != 0)
            _exit(2);
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(thread[i], &result);
        wrong |= result != NULL;
    }
    return !wrong;
}

START_TEST(first_looks) {
    for (int i = 0; i < PROCESSES; i++) {
        int status = -1;
        pid_t child = fork();
        if (child == 0)
            _exit(!look_first());
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_int_eq(status, 0);
    }
}
END_TEST

/* The limit of a parent group applies too; "max" means no limit. */
START_TEST(version_two) {
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    put("/sys/fs/cgroup/a/b/memory.current", "5\n");
    ck_assert_uint_eq(ac_host_memory_below(root), 4000 * 1024);
    put("/sys/fs/cgroup/a/memory.max", "1000000\n");
    put("/sys/fs/cgroup/a/memory.current", "400000\n");
    ck_assert_uint_eq(ac_host_memory_below(root), 600000);
    put("/sys/fs/cgroup/a/memory.stat", "anon 7\nactive_file 50000\ninactive_file 300000\n");
    ck_assert_uint_eq(ac_host_memory_below(root), 900000);
    put("/sys/fs/cgroup/a/memory.stat", "inactive_file 500000\n"); /* read after the usage */
    ck_assert_uint_eq(ac_host_memory_below(root), 1000000);
    put("/sys/fs/cgroup/memory.max", "100\n"); /* a container sees its own limit like this */
    put("/sys/fs/cgroup/memory.current", "400000\n");
    ck_assert_uint_eq(ac_host_memory_below(root), 0);
}
END_TEST

START_TEST(version_one) {
    put("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/a\n1:name=systemd:/y\n0::/z\n");
    put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "4096\n");
    ck_assert_uint_eq(ac_host_memory_below(root), 4000 * 1024);
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1000\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "300\n");
    ck_assert_uint_eq(ac_host_memory_below(root), 700);
    put("/sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 200\n");
    ck_assert_uint_eq(ac_host_memory_below(root), 900);
}
END_TEST

/* Pressure that grew since the last query. */
START_TEST(pressure) {
    const int64_t second = 1000000000;
    ac_host_pressure_t last = {0};
    ck_assert(!ac_host_pressure_below(root, second, &last)); /* the kernel reports none */
    ck_assert(!ac_host_pressure_below(root, 2 * second, &last));
    put("/proc/pressure/memory", "some avg10=9.00 avg60=9.00 avg300=9.00 total=7000000\n"
                                 "full avg10=0.00 avg60=0.00 avg300=0.00 total=1\n");
    last = (ac_host_pressure_t){0};
    ck_assert(!ac_host_pressure_below(root, 3 * second, &last)); /* of before */
    ck_assert(!ac_host_pressure_below(root, 4 * second, &last));
    put("/proc/pressure/memory", "some avg10=9.00 avg60=9.00 avg300=9.00 total=7049999\n");
    ck_assert(!ac_host_pressure_below(root, 5 * second, &last)); /* less than a twentieth */
    put("/proc/pressure/memory", "some avg10=9.00 avg60=9.00 avg300=9.00 total=7099999\n");
    ck_assert(ac_host_pressure_below(root, 6 * second, &last));
    ck_assert(!ac_host_pressure_below(root, 7 * second, &last));
}
END_TEST

static void put_stall(const char *path, unsigned us) {
    char text[128];
    snprintf(text, sizeof text, "some avg10=0.00 avg60=0.00 avg300=0.00 total=%u\n", us);
    put(path, text);
}

static void put_events(const char *path, unsigned high, unsigned max) {
    char text[128];
    snprintf(text, sizeof text, "low 3\nhigh %u\nmax %u\noom 0\n", high, max);
    put(path, text);
}

/* A group at its limit drops pages of files, so its tasks have to wait. */
START_TEST(pressure_of_groups) {
    static const char own[] = "/sys/fs/cgroup/a/b/memory.events";
    static const char above[] = "/sys/fs/cgroup/a/memory.events";
    static const char stall[] = "/sys/fs/cgroup/a/memory.pressure";
    static const char own_stall[] = "/sys/fs/cgroup/a/b/memory.pressure";
    const int64_t second = 1000000000;
    ac_host_pressure_t last = {0};
    put("/proc/self/cgroup", "1:name=systemd:/y\n0::/a/b\n");
    put_events(own, 0, 2);
    put_events(above, 5, 2);
    put_stall(stall, 1000);
    ck_assert(!ac_host_pressure_below(root, second, &last));
    put_events(above, 6, 2);
    put_stall(stall, 2000);
    ck_assert(!ac_host_pressure_below(root, 2 * second, &last)); /* next to no waiting */
    put_stall(stall, 102000);
    ck_assert(!ac_host_pressure_below(root, 3 * second, &last)); /* not because of its limit */
    put_events(above, 6, 3);
    put_stall(stall, 202000);
    ck_assert(ac_host_pressure_below(root, 4 * second, &last));
    put_events(own, 1, 2);
    put_stall(stall, 302000);
    ck_assert(!ac_host_pressure_below(root, 5 * second, &last)); /* others wait */
    put_stall(own_stall, 7);
    ck_assert(!ac_host_pressure_below(root, 6 * second, &last));
    put_events(own, 2, 2);
    put_stall(own_stall, 100007);
    ck_assert(ac_host_pressure_below(root, 7 * second, &last));
}
END_TEST

/* A file that is unreadable for a while does not count as no pressure. */
START_TEST(pressure_unread) {
    static const char machine[] = "/proc/pressure/memory", groups[] = "/proc/self/cgroup";
    static const char events[] = "/sys/fs/cgroup/a/memory.events";
    static const char stall[] = "/sys/fs/cgroup/a/memory.pressure";
    const char *const file[] = {machine, groups, events, stall};
    const int64_t second = 1000000000;
    ac_host_pressure_t last = {0};
    char from[128], to[140];
    put(groups, "0::/a\n");
    put_events(events, 5, 2);
    put_stall(machine, 7000000);
    put_stall(stall, 5000000);
    ck_assert(!ac_host_pressure_below(root, second, &last));
    snprintf(from, sizeof from, "%s%s", root, file[_i]);
    snprintf(to, sizeof to, "%s.away", from);
    ck_assert_int_eq(rename(from, to), 0);
    ck_assert(!ac_host_pressure_below(root, 2 * second, &last));
    ck_assert_int_eq(rename(to, from), 0);
    if (file[_i] == machine)
        put_stall(machine, 7060000); /* since the last read, two seconds ago */
    else if (file[_i] == stall)
        put_events(events, 6, 2);
    put_stall(stall, file[_i] == stall ? 5060000 : 5200000);
    ck_assert(!ac_host_pressure_below(root, 3 * second, &last));
    put_events(events, 7, 2);
    put_stall(stall, 5300000);
    ck_assert(ac_host_pressure_below(root, 4 * second, &last));
}
END_TEST

START_TEST(nodes) {
    uint32_t node = ac_host_memory_node();
    for (int i = 0; i < 100; i++) /* the thread may move to another processor, but rarely */
        node = ac_host_memory_node() == node ? node : ac_host_memory_node();
    ck_assert(node < 1024 || node >> 31);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("host_memory");
    TCase *tests = tcase_create("host_memory");
    tcase_add_checked_fixture(tests, begin, end);
    tcase_add_test(tests, the_machine);
    tcase_add_test(tests, first_looks);
    tcase_add_test(tests, version_two);
    tcase_add_test(tests, version_one);
    tcase_add_test(tests, pressure);
    tcase_add_test(tests, pressure_of_groups);
    tcase_add_loop_test(tests, pressure_unread, 0, 4);
    tcase_add_test(tests, nodes);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}

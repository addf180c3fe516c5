/* Program with known figures for the tests of the command. It uses the library's own code.
 *
 *   fixture dump REASON   writes a dump to stdout
 *   fixture live          opens a live page, prints "ready", waits for the end of stdin, and exits
 *                         as a program does
 *   fixture app [WORD]    acts as a program under ACCEL_ALLOC_CONF: writes its dump to the file
 *                         that `dump` names, with more driver calls if `enabled` is false, and
 *                         prints WORD
 *
 * Some WORDs change the end of `app`. "setting" also prints whether caching is on. "fail" exits
 * with status 3. "leave" ends by _exit and "term" by SIGTERM, both after a dump with reason
 * "interval" that lacks the figures. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"
#include "observe/dump.h"
#include "observe/live.h"

static const char hooks[] = "cuMemAlloc_v2\0cuMemFree_v2\0cuLaunchKernel";

/* Fills device 1: 3 MiB in two blocks, 8 MiB reserved, 12 MiB at the peak. */
static void fill(ac_live_t *page) {
    bool private;
    ac_live_device_t *device = ac_live_device_take(1, &private);
    device->ordinal = 1;
    snprintf(device->name, sizeof device->name, "Fixture device");
    page->total_memory[1] = 16ull << 30;
    ac_device_stats_t *stats = &device->stats;
    stats->max_split_size = -1;
    stats->num_device_alloc = 3;
    ac_stat_pools_up(stats->reserved_bytes, AC_POOL_LARGE, 12 << 20);
    ac_stat_pools_down(stats->reserved_bytes, AC_POOL_LARGE, 4 << 20);
    ac_stat_pools_up(stats->allocated_bytes, AC_POOL_LARGE, 3 << 20);
    ac_stat_pools_up(stats->allocation, AC_POOL_LARGE, 2);
    device->counters.cached_allocs = 1234567;
    device->counters.driver_allocs = 3;
    device->counters.driver_alloc_ns = 4200000;
    ac_live_device_publish(1);
    page->row[0].counter[AC_COUNT_submissions] = 77;
    page->row[0].counter[AC_COUNT_HOOKS] = 5;
    page->row[0].counter[AC_COUNT_HOOKS + 2] = 9;
    ac_live_warn("a warning of the fixture");
}

static int write_dump(const char *reason) {
    size_t length;
    char *text = ac_dump_text(ac_live, reason, &length);
    if (!text)
        return 1;
    fwrite(text, 1, length, stdout);
    free(text);
    return fflush(stdout) ? 1 : 0;
}

static void on_signal(int number) {
    (void)number;
}

static int stay(void) {
    char byte;
    signal(SIGUSR2, on_signal);
    puts("ready");
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    ac_live_close();
    return 0;
}

static int be_program(const char *word) {
    ac_config_t config;
    ac_config_error_t error;
    char path[1024];
    if (ac_config_parse(getenv("ACCEL_ALLOC_CONF"), &config, &error, NULL)) {
        fprintf(stderr, "fixture: %s\n", error.text);
        return 1;
    }
    bool leaves = !strcmp(word, "leave") || !strcmp(word, "term");
    if (leaves && ac_dump_write(config.dump, "interval", NULL, path, sizeof path))
        return 1;
    ac_device_counters_t *counters = &ac_live->device[1].counters;
    counters->cached_allocs = config.enabled ? 990 : 0;
    counters->driver_allocs = config.enabled ? 10 : 0;
    counters->driver_alloc_ns = config.enabled ? 1000000 : 0;
    ac_live->row[0].counter[AC_COUNT_passed_allocs] = config.enabled ? 0 : 1000;
    ac_live->row[0].counter[AC_COUNT_passed_ns] = config.enabled ? 0 : 100000000;
    if (!strcmp(word, "setting"))
        printf("line one\ncaching is %s\n", config.enabled ? "on" : "off");
    else
        printf("%s\n", word);
    if (leaves) {
        fflush(stdout);
        if (!strcmp(word, "term"))
            raise(SIGTERM);
        _exit(0);
    }
    if (ac_dump_write(config.dump, "exit", NULL, path, sizeof path))
        return 1;
    ac_live_close();
    return strcmp(word, "fail") ? 0 : 3;
}

int main(int argc, char **argv) {
    if (argc < 2)
        return 2;
    if (ac_live_open(getenv("ACCEL_ALLOC_CONF"), hooks, sizeof hooks, 3)) {
        fputs("fixture: no live page\n", stderr);
        return 1;
    }
    fill(ac_live);
    int status = 2;
    if (!strcmp(argv[1], "dump"))
        status = write_dump(argc > 2 ? argv[2] : "exit");
    else if (!strcmp(argv[1], "live"))
        return stay();
    else if (!strcmp(argv[1], "app"))
        return be_program(argc > 2 ? argv[2] : "hello");
    ac_live_close();
    return status;
}

/* stream_stress: tests that freed and reused memory never has two users at once.
 *
 *   stream_stress [OPTION VALUE...]      --help lists them
 *
 * Threads allocate on both APIs.  A kernel fills every buffer with its owner's pattern, and another
 * kernel checks it.  The buffer is freed while this check is pending.  The program uses many
 * streams, per-thread default streams, captures and graph launches.  It needs only the driver
 * (libcuda.so.1, opened at run time).  Run it plain and with LD_PRELOAD=libaccelcache.so.
 *
 * Exit status: 0 no mismatch, 1 mismatches, 2 wrong usage or an error, 77 no driver or no device.
 */
#include "stress.h"

#include <dlfcn.h>
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "accelcache.h"
#include "simcuda.h"

enum { MOST_THREADS = 256 };

static struct {
    uint64_t ops, seconds, seed, streams, threads, live, max_bytes;
    uint64_t plain, async, header;
    const char *row;
} given = {10000000, 0, 1, 32, 8, 16, 1 << 20, 1, 1, 0, NULL};

static const struct {
    const char *name;
    uint64_t *value, least, most;
    const char *doc;
} rows[] = {
    {"ops", &given.ops, 1, UINT64_MAX, "allocations to make"},
    {"seconds", &given.seconds, 0, 1000000,
     "end after so many; 0: when the allocations are made"},
    {"streams", &given.streams, 1, 4096, "streams, shared out among the threads"},
    {"threads", &given.threads, 1, MOST_THREADS, "host threads"},
    {"live", &given.live, 1, 4096, "batches of up to 8 buffers that a thread keeps"},
    {"max-bytes", &given.max_bytes, 64, 1 << 30, "size of the largest buffer"},
    {"seed", &given.seed, 0, UINT64_MAX, "of the random choices"},
    {"plain", &given.plain, 0, 1, "use cuMemAlloc and cuMemFree"},
    {"async", &given.async, 0, 1, "use cuMemAllocAsync and cuMemFreeAsync"},
    {"header", &given.header, 0, 1, "print the heading of the table and do nothing else"},
};
enum { ROWS = sizeof rows / sizeof *rows, ROW_LABEL = ROWS, HELP };

/* ---------------------------------------------------------------- options */

static void usage(FILE *to) {
    fprintf(to, "usage: stream_stress [OPTION VALUE...]\n");
    for (int i = 0; i < ROWS; i++)
        fprintf(to, "  --%-10s %s (default %llu)\n", rows[i].name, rows[i].doc,
                (unsigned long long)*rows[i].value);
    fprintf(to, "  --%-10s print one row of a table, beginning with this label\n", "row");
}

/* Reads the options. Returns -1 to continue, else the exit status. */
static int read_options(int argc, char **argv) {
    struct option options[ROWS + 3] = {{0}};
    int option;
    for (int i = 0; i < ROWS; i++)
        options[i] = (struct option){rows[i].name, required_argument, NULL, i};
    options[ROW_LABEL] = (struct option){"row", required_argument, NULL, ROW_LABEL};
    options[HELP] = (struct option){"help", no_argument, NULL, HELP};
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        char *end = NULL;
        if (option == HELP) {
            usage(stdout);
            return 0;
        }
        if (option == ROW_LABEL) {
            given.row = optarg;
            continue;
        }
        uint64_t value = option < ROWS ? strtoull(optarg, &end, 10) : 0;
        if (option > HELP || *end || value < rows[option].least || value > rows[option].most) {
            usage(stderr);
            return 2;
        }
        *rows[option].value = value;
    }
    if (optind < argc || (!given.plain && !given.async)) {
        usage(stderr);
        return 2;
    }
    stress_options = (stress_options_t){.ops = given.ops,
                                        .seconds = (double)given.seconds,
                                        .seed = given.seed,
                                        .streams = (unsigned)given.streams,
                                        .threads = (unsigned)given.threads,
                                        .live = (unsigned)given.live,
                                        .max_bytes = (unsigned)given.max_bytes,
                                        .plain = given.plain,
                                        .async = given.async};
    return -1;
}

/* ---------------------------------------------------------------- the library's statistics */

typedef struct {
    bool loaded;
    unsigned long long cached, driver, fences, waits, peak;
} reuse_t;

/* Returns the number after "name": in a JSON text; 0 if the name is missing. */
static unsigned long long number(const char *json, const char *name) {
    char key[64];
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *found = json ? strstr(json, key) : NULL;
    return found ? strtoull(found + strlen(key), NULL, 10) : 0;
}

static void find(const char *name, void *slot) {
    void *found = dlsym(RTLD_DEFAULT, name);
    memcpy(slot, &found, sizeof found);
}

static reuse_t read_reuse(void) {
    __typeof__(&accel_stats_json) stats_json;
    __typeof__(&accel_get_device_stats) device_stats;
    reuse_t reuse = {0};
    accel_device_stats_t stats = {.size = sizeof stats};
    char *json = NULL;
    find("accel_stats_json", &stats_json);
    find("accel_get_device_stats", &device_stats);
    if (!stats_json || !device_stats || stats_json(&json) || device_stats(0, &stats))
        return reuse;
    reuse.loaded = true;
    reuse.cached = number(json, "cached_allocs");
    reuse.driver = number(json, "driver_allocs") + number(json, "passed_allocs");
    reuse.fences = number(json, "fences_ctx") + number(json, "fences_streams") +
                   number(json, "fences_legacy") + number(json, "fences_sync");
    reuse.waits = number(json, "fence_waits");
    reuse.peak = (unsigned long long)stats.reserved_bytes.all.peak;
    free(json);
    return reuse;
}

/* ---------------------------------------------------------------- verdict and report */

typedef struct {
    stress_result_t found;
    uint64_t checks, reports; /* launched checks; reports of the simulated device's race detector */
    double seconds;
} outcome_t;

static bool good(const outcome_t *o) {
    return !o->found.mismatches && o->found.checked == o->checks && !o->reports;
}

static void print_header(void) {
    printf("%-16s%12s%9s%11s%12s%13s%9s%11s%9s%10s\n", "", "allocations", "seconds", "per second",
           "mismatches", "checked", "cached", "fences", "waits", "peak MiB");
}

static void print_row(const outcome_t *o, const reuse_t *reuse) {
    uint64_t taken = atomic_load(&stress_taken);
    printf("%-16s%12llu%9.1f%11.0f%12llu%13llu", given.row, (unsigned long long)taken, o->seconds,
           (double)taken / o->seconds, (unsigned long long)o->found.mismatches,
           (unsigned long long)o->found.checked);
    if (reuse->loaded)
        printf("%8.2f%%%11llu%9llu%10llu",
               100.0 * (double)reuse->cached / (double)(reuse->cached + reuse->driver + 1),
               reuse->fences, reuse->waits, reuse->peak >> 20);
    printf("%s\n", good(o) ? "" : "   FAILED");
}

static void print_long(const outcome_t *o, const reuse_t *reuse, const char *device) {
    printf("device: %s\nallocations: %llu, seed %llu\nseconds: %.2f\n", device,
           (unsigned long long)atomic_load(&stress_taken), (unsigned long long)given.seed,
           o->seconds);
    printf("mismatches: %llu\nbuffers checked: %llu of %llu\n",
           (unsigned long long)o->found.mismatches, (unsigned long long)o->found.checked,
           (unsigned long long)o->checks);
    if (reuse->loaded)
        printf("cached: %llu, from the driver: %llu\nfences: %llu, waits: %llu\n"
               "peak reserved: %llu MiB\n",
               reuse->cached, reuse->driver, reuse->fences, reuse->waits, reuse->peak >> 20);
    else
        printf("the library is not loaded\n");
}

/* Explains failures on stderr, with or without a table. */
static void explain(const outcome_t *o) {
    for (unsigned i = 0; i < LOGGED && i < o->found.mismatches; i++)
        fprintf(stderr, "mismatch: owner %u, word %u holds %u\n", o->found.first[i].owner,
                o->found.first[i].word, o->found.first[i].found);
    if (o->found.checked != o->checks)
        fprintf(stderr, "%llu checks were launched, %llu ran\n", (unsigned long long)o->checks,
                (unsigned long long)o->found.checked);
    if (o->reports)
        fprintf(stderr, "the race detector reported %llu times\n",
                (unsigned long long)o->reports);
}

double stress_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void run(outcome_t *o) {
    pthread_t thread[MOST_THREADS];
    double begin = stress_clock();
    stress_begin();
    for (unsigned i = 0; i < stress_options.threads; i++)
        if (pthread_create(&thread[i], NULL, stress_work, (void *)(uintptr_t)i)) {
            fprintf(stderr, "stream_stress: cannot start thread %u\n", i);
            exit(1);
        }
    for (unsigned i = 0; i < stress_options.threads; i++)
        pthread_join(thread[i], NULL);
    stress_finish();
    MUST(cu.cuCtxSynchronize());
    o->seconds = stress_clock() - begin;
    o->checks = atomic_load(&stress_checks);
    stress_result(&o->found);
    __typeof__(&simcuda_race_reports) reports;
    find("simcuda_race_reports", &reports);
    o->reports = reports ? reports() : 0;
}

int main(int argc, char **argv) {
    char device[128];
    int status = read_options(argc, argv);
    if (status >= 0)
        return status;
    if (given.header) {
        print_header();
        return 0;
    }
    if (!stress_device_open(device, sizeof device)) {
        fprintf(stderr, "stream_stress: no CUDA driver, or no device\n");
        return 77;
    }
    outcome_t outcome = {0};
    run(&outcome);
    reuse_t reuse = read_reuse();
    if (given.row)
        print_row(&outcome, &reuse);
    else
        print_long(&outcome, &reuse, device);
    explain(&outcome);
    return good(&outcome) ? 0 : 1;
}

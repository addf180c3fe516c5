/* The programs behind `accelcache-dev bench`: command line, clocks and passes; see work.h. */
#include "work.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "accelcache.h"
#include PEER_HEADER

static double clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

double work_now(void) {
    return clock_ns(CLOCK_MONOTONIC);
}

double work_thread(void) {
    return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

double work_clock(const work_t *w) {
    return w->cpu ? work_thread() : work_now();
}

void work_fail(const char *what, unsigned code) {
    fflush(stdout);
    fprintf(stderr, "bench_" PEER_NAME ": %s (%u)\n", what, code);
    exit(1);
}

void *work_alloc(size_t bytes) {
    void *memory = calloc(1, bytes);
    if (!memory)
        work_fail("host memory is short", 0);
    return memory;
}

/* ---------------------------------------------------------------- passes */

/* Never inlined, and visible, so that callgrind finds it by name. */
__attribute__((noinline, visibility("default"))) void bench_mark(void) {
    __asm__ volatile("" : : : "memory");
}

static void count(const work_t *w, work_pass_fn *pass) {
    long pairs = w->pairs ? w->pairs : 8192;
    pairs += (w->count - pairs % w->count) % w->count; /* whole steps */
    for (int part = 0; part < 3; part++) {
        pass(w, part < 2 ? pairs : WORK_LONGER * pairs);
        bench_mark();
    }
    printf("\"pairs\": %ld, \"counted\": %ld", pairs, (WORK_LONGER - 1) * pairs);
}

void work_measure(const work_t *w, work_pass_fn *pass) {
    if (w->counted) {
        count(w, pass);
        return;
    }
    long pairs = w->pairs ? w->pairs : work_fit(w, pass);
    pass(w, pairs);
    printf("\"pairs\": %ld, \"ns\": [", pairs);
    for (long i = 0; i < w->passes; i++)
        printf("%s%.3f", i ? ", " : "", pass(w, pairs) / (double)pairs);
    printf("]");
}

const size_t *work_sizes(const work_t *w) {
    static size_t sizes[WORK_SIZES];
    uint64_t state = 88172645463325252u;
    double span = log2((double)w->high / (double)w->low), growth = log2(1 + (double)w->grow / 1000);
    for (int i = 0; i < WORK_SIZES; i++) {
        double u = (double)(work_random(&state) >> 11) / 9007199254740992.0;
        sizes[i] = (size_t)((double)w->low * exp2(w->grow ? fmod(i * growth, span) : u * span));
    }
    return sizes;
}

char *work_statistics(void) {
    __typeof__(&accel_stats_json) stats_json;
    char *text = NULL;
    void *found = dlsym(RTLD_DEFAULT, "accel_stats_json");
    memcpy(&stats_json, &found, sizeof stats_json);
    if (!found || stats_json(&text) != ACCEL_OK || !text)
        return strcpy(work_alloc(sizeof "null"), "null");
    return text;
}

/* ---------------------------------------------------------------- the peer */

void work_peer_open(void) {
    peer_open();
}

void work_peer_thread(void) {
    peer_thread();
}

void *work_peer_take(size_t bytes) {
    return peer_take(bytes, NULL);
}

void work_peer_give(void *pointer, size_t bytes) {
    peer_give(pointer, bytes, NULL);
}

bool work_peer_device(void) {
    return PEER_DEVICE;
}

/* ---------------------------------------------------------------- command line */

static const struct workload {
    const char *name;
    work_fn *run;
    const char *what;
} workloads[] = {
    {"hot", work_hot, "one block of `bytes` taken and given again and again, `live` others held"},
    {"replace", work_replace, "one of `live` blocks of random sizes given, another taken"},
    {"ring", work_ring, "the oldest of `live` blocks given, another taken before"},
    {"cycle", work_cycle, "one block of each of `count` random sizes in turn"},
    {"step", work_step, "`count` blocks of random sizes taken, then given in reverse order"},
    {"threads", work_threads, "`hot` by several threads: CPU time per pair"},
    {"brief", work_brief, "a thread that takes and gives a block ten times"},
    {"around", work_around, "`hot` with something around each pair"},
    {"cross", work_cross, "one thread takes, another gives: CPU time of both per pair"},
    {"tail", work_tail, "every call timed by itself, with work on `streams` streams"},
#if PEER_DEVICE
    {"launch", work_launch, "a kernel that does nothing, on `streams` streams in turn"},
    {"pair-launch", work_pair_launch, "such a launch between taking and giving a block"},
    {"copy", work_copy, "a copy or a fill of 16 bytes, or of rows of them"},
#endif
    {"start", work_start, "one block taken and given, then the end"},
    {"small", work_small, "the same; how much memory the process has"},
    {"held", work_held, "`live` blocks of `bytes`: host memory that they take"},
    {"info", work_info, "whether this peer works here, and on what"},
};
enum { WORKLOADS = sizeof workloads / sizeof *workloads };

static const struct key {
    const char *name;
    size_t offset;
    long fallback, least, most;
    const char *what;
} keys[] = {
#define WORK_KEY(name, fallback, least, most, what)                                              \
    {#name, offsetof(work_t, name), fallback, least, most, what},
    WORK_KEYS
#undef WORK_KEY
};
enum { KEYS = sizeof keys / sizeof *keys };

static int usage(void) {
    fputs("usage: bench_" PEER_NAME " WORKLOAD [KEY=VALUE...] [+ KEY=VALUE...]...\nworkloads:\n",
          stderr);
    for (int i = 0; i < WORKLOADS; i++)
        fprintf(stderr, "  %-12s %s\n", workloads[i].name, workloads[i].what);
    fputs("keys:\n", stderr);
    for (int i = 0; i < KEYS; i++)
        fprintf(stderr, "  %-12s %s (%ld; %ld to %ld)\n", keys[i].name, keys[i].what,
                keys[i].fallback, keys[i].least, keys[i].most);
    return 2;
}

static bool read_key(work_t *w, const char *argument) {
    for (int i = 0; i < KEYS; i++) {
        size_t length = strlen(keys[i].name);
        if (strncmp(argument, keys[i].name, length) != 0 || argument[length] != '=')
            continue;
        char *end;
        long value = strtol(argument + length + 1, &end, 10);
        if (*end || end == argument + length + 1 || value < keys[i].least || value > keys[i].most)
            return false;
        memcpy((char *)w + keys[i].offset, &value, sizeof value);
        return true;
    }
    return false;
}

/* Reads the arguments up to a + or the end as keys.  Returns their number; 0: one is no key. */
static int read_keys(work_t *w, char **argument, int count) {
    int i = 0;
    for (; i < count && strcmp(argument[i], "+") != 0; i++)
        if (!read_key(w, argument[i]))
            return 0;
    return w->low > w->high ? 0 : i + 1;
}

static void run(const struct workload *workload, const work_t *w) {
    printf("{\"peer\": \"" PEER_NAME "\", \"workload\": \"%s\", ", workload->name);
    workload->run(w);
    puts("}");
}

int main(int argc, char **argv) {
    work_t w;
    const struct workload *workload = NULL;
    for (int i = 0; i < KEYS; i++)
        memcpy((char *)&w + keys[i].offset, &keys[i].fallback, sizeof(long));
    for (int i = 0; argc > 1 && i < WORKLOADS; i++)
        if (!strcmp(argv[1], workloads[i].name))
            workload = &workloads[i];
    int at = 2, used = workload ? read_keys(&w, argv + at, argc - at) : 0;
    if (!used)
        return usage();
    work_peer_open();
    work_idle(&w);
    for (run(workload, &w); (at += used) <= argc; run(workload, &w))
        if (!(used = read_keys(&w, argv + at, argc - at)))
            return usage();
    return 0;
}

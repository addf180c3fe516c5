/* Replays a trace over the fake device and prints how well it used memory:
 *
 *   replay_pages [--page MIB] [--small MIB] [--budget SHARE] [--capacity RATIO] [--native]
 *                [--cache MIB] [--repeat N] [--most RATIO] [--check]
 *                FILE|rmm[:COUNT[:MIB[:SEED]]]
 *
 * FILE has one operation per line: `a ID BYTES STREAM` or `f ID`. `rmm` is a random trace with
 * sizes uniform up to MIB. 73 % of its operations are allocations, up to COUNT blocks and 16000
 * MiB. The others free a random block. No work is ever pending.
 *
 * Exit status 1 has three reasons. A request failed; the highest reserved memory in the last
 * round exceeded --most times the memory in use; or --check found an error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "allocator/allocator_int.h"
#include "fake_device.h"
#include "fake_settings.h"

#define MIB ((uint64_t)1 << 20)

typedef struct {
    uint32_t id;
    uint64_t bytes; /* 0: free */
} op_t;

static struct {
    op_t *op;
    size_t count, room, ids;
} trace;

static void push(uint32_t id, uint64_t bytes) {
    if (trace.count == trace.room) {
        trace.room = trace.room ? 2 * trace.room : 1 << 16;
        trace.op = realloc(trace.op, trace.room * sizeof *trace.op);
        if (!trace.op)
            exit(2);
    }
    trace.op[trace.count++] = (op_t){id, bytes};
    if (id >= trace.ids)
        trace.ids = id + 1;
}

static void load(const char *path) {
    FILE *file = fopen(path, "r");
    char line[256];
    if (!file) {
        perror(path);
        exit(2);
    }
    while (fgets(line, sizeof line, file)) {
        char *end;
        if (line[0] != 'a' && line[0] != 'f')
            continue;
        uint32_t id = (uint32_t)strtoul(line + 1, &end, 10);
        push(id, line[0] == 'a' ? strtoull(end, NULL, 10) : 0);
    }
    fclose(file);
}

static uint64_t state;

static uint64_t draw(uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint64_t)((double)((state ^ state >> 29) * 0xbf58476d1ce4e5b9u >> 11) * 0x1p-53 *
                      (double)below);
}

/* Generates the trace of RMM's benchmark of random allocations. */
static void generate(uint32_t count, uint64_t most, uint64_t seed) {
    const uint64_t cap = 16000 * MIB;
    uint32_t *live = malloc((count + 1) * sizeof *live), lives = 0, made = 0;
    uint64_t *size = calloc(count + 1, sizeof *size), bytes = 0;
    state = seed * 0x9e3779b97f4a7c15u + 1;
    for (uint32_t i = 0; i < 2 * count; i++) {
        uint64_t wanted = 1 + draw(most * MIB);
        if (!lives || (draw(100) < 73 && made < count && bytes + wanted < cap)) {
            if (made == count)
                break;
            size[made] = wanted;
            live[lives++] = made;
            bytes += wanted;
            push(made++, wanted);
            continue;
        }
        uint32_t at = (uint32_t)draw(lives);
        bytes -= size[live[at]];
        push(live[at], 0);
        live[at] = live[--lives];
    }
    while (lives)
        push(live[--lives], 0);
    free(live);
    free(size);
}

static void source(const char *text) {
    unsigned count = 100000, most = 1024, seed = 1;
    if (strncmp(text, "rmm", 3) != 0) {
        load(text);
        return;
    }
    sscanf(text, "rmm:%u:%u:%u", &count, &most, &seed);
    generate(count, most, seed);
}

static uint64_t peak_live(void) {
    uint64_t live = 0, peak = 0;
    uint64_t *size = calloc(trace.ids, sizeof *size);
    for (size_t i = 0; i < trace.count; i++) {
        const op_t *op = &trace.op[i];
        live += op->bytes - (op->bytes ? 0 : size[op->id]);
        size[op->id] = op->bytes;
        peak = live > peak ? live : peak;
    }
    free(size);
    return peak;
}

static fake_device_t device;
static fake_context_t context;
static ac_device_stats_t stats;
static ac_device_counters_t counters;

/* Returns the cost that the calls would have in milliseconds, by the table of expand.c. */
static double driver_ms(const unsigned from[FAKE_KINDS], uint64_t created_mib) {
    const unsigned *calls = device.calls;
    double us = 0;
    us += (calls[FAKE_PAGE_CREATE] - from[FAKE_PAGE_CREATE]) * 100.0 + (double)created_mib * 15.0;
    us += (calls[FAKE_PAGE_MAP] - from[FAKE_PAGE_MAP]) *
          4.5; /* includes its share of access and unmap */
    us += (calls[FAKE_PAGES_ALLOW] - from[FAKE_PAGES_ALLOW]) * 36.0;
    us += (calls[FAKE_PAGES_UNMAP] - from[FAKE_PAGES_UNMAP]) * 26.0;
    us += (calls[FAKE_SEGMENT_ALLOC] - from[FAKE_SEGMENT_ALLOC]) * 100.0;
    us += (calls[FAKE_SEGMENT_FREE] - from[FAKE_SEGMENT_FREE]) * 200.0;
    return us / 1000;
}

static ac_cache_t *cache; /* NULL: none */

static ac_status_t take(ac_arena_t *arena, uint64_t bytes, uint64_t *address) {
    if (cache)
        return ac_cache_take(cache, bytes, address, ac_fence_handout_alone)
                   ? AC_OK
                   : ac_cache_alloc(cache, bytes, false, address);
    return ac_arena_alloc(arena, bytes, false, address);
}

static void give(uint64_t address) {
    if (!cache)
        ac_block_free(address);
    else if (!ac_cache_give_handed(cache, address))
        ac_cache_free(cache, address);
}

static bool replay(ac_arena_t *arena, uint64_t *address) {
    for (size_t i = 0; i < trace.count; i++) {
        const op_t *op = &trace.op[i];
        if (!op->bytes) {
            give(address[op->id]);
            continue;
        }
        if (take(arena, op->bytes, &address[op->id]) != AC_OK) {
            printf("failed at operation %zu: %llu bytes\n", i, (unsigned long long)op->bytes);
            return false;
        }
    }
    return true;
}

/* Replays slowly, and checks that no two blocks overlap and that all lie on usable memory. */
static bool replay_checked(ac_allocator_t *allocator, ac_arena_t *arena, uint64_t *address) {
    for (size_t i = 0; i < trace.count; i++) {
        const op_t *op = &trace.op[i];
        const char *why = device.wrong;
        if (!op->bytes)
            give(address[op->id]);
        else if (take(arena, op->bytes, &address[op->id]) != AC_OK)
            return false;
        else if (!fake_usable(&device, address[op->id], op->bytes))
            why = "memory that may not be used";
        if (why || (i % 64 == 0 && ac_allocator_check(allocator, &why))) {
            printf("operation %zu: %s\n", i, why);
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv) {
    ac_settings_t settings = fake_settings("expandable_segments:true");
    double capacity = 0, most = 0;
    int repeat = 2;
    bool check = false;
    const char *what = "rmm";
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--native"))
            settings.expandable_segments = false;
        else if (!strcmp(argv[i], "--check"))
            check = true;
        else if (!strcmp(argv[i], "--page"))
            settings.page = strtoull(value, NULL, 10) * MIB, i++;
        else if (!strcmp(argv[i], "--small"))
            settings.small_page = strtoull(value, NULL, 10) * MIB, i++;
        else if (!strcmp(argv[i], "--cache"))
            settings.thread_cache = strtoull(value, NULL, 10) * MIB, i++;
        else if (!strcmp(argv[i], "--budget"))
            settings.page_budget = strtod(value, NULL), i++;
        else if (!strcmp(argv[i], "--capacity"))
            capacity = strtod(value, NULL), i++;
        else if (!strcmp(argv[i], "--most"))
            most = strtod(value, NULL), i++;
        else if (!strcmp(argv[i], "--repeat"))
            repeat = atoi(value), i++;
        else
            what = argv[i];
    }
    source(what);
    uint64_t live = peak_live(), *address = calloc(trace.ids, sizeof *address);
    fake_device_init(&device, capacity > 0 ? (uint64_t)((double)live * capacity) : 80ull << 30);
    fake_context_init(&context, &device);
    ac_allocator_t *allocator = ac_allocator_create(&settings, &stats, &counters);
    ac_arena_t *arena = ac_arena_create(allocator, &fake_ops, &context);
    bool good = address && allocator && arena;
    static ac_cache_tally_t tally;
    if (good && settings.thread_cache)
        cache = ac_cache_open(arena, &tally);
    for (int round = 0; good && round < repeat; round++) {
        unsigned from[FAKE_KINDS];
        memcpy(from, device.calls, sizeof from);
        uint64_t moved = counters.pages_moved, pages = device.pages;
        device.most_used = device.used;
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        good = check ? replay_checked(allocator, arena, address) : replay(arena, address);
        clock_gettime(CLOCK_MONOTONIC, &end);
        double ns =
            (double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec);
        uint64_t mib = 0;
        for (uint64_t i = pages; i < device.pages; i++)
            mib += device.page[i].bytes / MIB;
        printf("%s round %d: ops %zu, ns/op %.1f, live %.1f MiB, reserved %.1f MiB, ratio %.4f, "
               "moved %llu, created %llu, unmaps %u, driver ms per 1000 %.4f\n",
               what, round, trace.count, ns / (double)trace.count, (double)live / MIB,
               (double)device.most_used / MIB, (double)device.most_used / (double)live,
               (unsigned long long)(counters.pages_moved - moved),
               (unsigned long long)(device.pages - pages),
               device.calls[FAKE_PAGES_UNMAP] - from[FAKE_PAGES_UNMAP],
               driver_ms(from, mib) * 1000 / (double)trace.count);
    }
    double ratio = (double)device.most_used / (double)live;
    if (good && most > 0 && ratio > most) {
        printf("more than %.4f times what was in use\n", most);
        good = false;
    }
    const char *why = device.wrong;
    if (why || ac_allocator_check(allocator, &why)) {
        printf("wrong: %s\n", why);
        good = false;
    }
    free(address);
    return !good;
}

/* libFuzzer target for the allocator core on the fake device. The input bytes choose the
 * operations and their parameters. The oracle of tests/unit/model judges each step.
 *
 * The first byte holds switches: address reuse of the device, work that is not counted, a device
 * without fences, device failures allowed, thread caches. Each operation takes one byte (the
 * table below), and then the bytes for its parameters. The run ends with the input.
 *
 * The allocator never frees its records. Each run gets fresh ones (record_mmap), which are
 * unmapped at its end, so that fuzzing can go on for hours. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "oracle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
void *record_mmap(void *at, size_t size, int access, int flags, int file, off_t offset);
int record_munmap(void *at, size_t size);

enum { MAPPINGS = 1 << 14 };

static struct {
    void *at;
    size_t size;
} mapping[MAPPINGS];
static unsigned mappings;

void *record_mmap(void *at, size_t size, int access, int flags, int file, off_t offset) {
    if (mappings == MAPPINGS)
        return MAP_FAILED;
    void *made = mmap(at, size, access, flags, file, offset);
    if (made != MAP_FAILED) {
        mapping[mappings].at = made;
        mapping[mappings++].size = size;
    }
    return made;
}

/* Called only for the newest mapping, before it was handed out. */
int record_munmap(void *at, size_t size) {
    mappings--;
    return munmap(at, size);
}

static const uint8_t *next, *end;

/* Reads the number of bytes that the range needs; missing bytes are 0. */
uint64_t oracle_draw(uint64_t below) {
    uint64_t value = 0;
    for (uint64_t range = below - 1; range; range >>= 8)
        value = value << 8 | (next < end ? *next++ : 0);
    return value % below;
}

void oracle_wrong(const char *format, ...) {
    va_list list;
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fputc('\n', stderr);
    abort();
}

static bool failures;

static void alloc(void) {
    oracle_alloc(false);
}

static void alloc_cached(void) {
    oracle_alloc(true);
}

static void plan_failure(void) {
    if (failures)
        oracle_plan_failure(true);
}

/* The number of entries of an operation is its share. */
static void (*const operation[])(void) = {
    alloc,
    alloc,
    alloc,
    alloc,
    alloc,
    alloc,
    alloc,
    alloc_cached,
    oracle_free,
    oracle_free,
    oracle_free,
    oracle_free,
    oracle_free,
    oracle_free,
    oracle_bad_free,
    oracle_submit,
    oracle_submit,
    oracle_submit,
    oracle_submit,
    oracle_complete,
    oracle_cross,
    oracle_complete,
    oracle_complete,
    oracle_drop,
    oracle_synchronize,
    oracle_trim,
    oracle_settle,
    oracle_taint,
    oracle_identify,
    oracle_sync,
    oracle_capture,
    oracle_configure,
    oracle_reset,
    oracle_mark_used,
    plan_failure,
};

static void run(void) {
    uint8_t switches = next < end ? *next++ : 0;
    oracle_begin(switches & 1, switches & 128);
    oracle.untracked = switches & 2;
    oracle.device.no_fences = switches & 4;
    failures = switches & 8;
    for (int i = 0; i < ORACLE_CACHES && switches & 16; i++)
        oracle_cache();
    atomic_store(&ac_fence_untracked, oracle.untracked);
    for (oracle.step = 1; next < end; oracle.step++) {
        operation[*next++ % (sizeof operation / sizeof *operation)]();
        oracle_check();
    }
    oracle_end();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    next = data;
    end = data + size;
    run();
    while (mappings) {
        mappings--;
        munmap(mapping[mappings].at, mapping[mappings].size);
    }
    return 0;
}

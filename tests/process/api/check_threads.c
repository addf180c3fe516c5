/* Tests of threads that read while others work: the figures of a document match, and settings change
 * during requests. A ThreadSanitizer build finds races that a test run may miss. */
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"

enum { BLOCKS = 8, DOCUMENTS = 150, CHANGES = 600, CHECKS = 100 };

static _Atomic unsigned long rounds;

/* Allocates and frees memory of both pools, by plain calls and in the order of the default stream. */
static void *work(void *arg) {
    CUdeviceptr block[BLOCKS] = {0};
    size_t random = (size_t)(uintptr_t)arg;
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    while (!atomic_load(&over)) {
        next_random(&random);
        CUdeviceptr *at = &block[(random >> 33) % BLOCKS];
        size_t bytes = (size_t)512 << ((random >> 40) % 10);
        bool ordered = random >> 50 & 1;
        if (*at) {
            ck_assert_int_eq(ordered ? cuMemFreeAsync(*at, NULL) : cuMemFree_v2(*at),
                             CUDA_SUCCESS);
            *at = 0;
        } else {
            ck_assert_int_eq(ordered ? cuMemAllocAsync(at, bytes, NULL)
                                     : cuMemAlloc_v2(at, bytes),
                             CUDA_SUCCESS);
        }
        atomic_fetch_add(&rounds, 1);
    }
    return NULL;
}

static void start_all(void) {
    start(work);
    while (atomic_load(&rounds) < 100)
        sched_yield();
}

static json_t *document(void) {
    char *text;
    json_error_t error;
    ck_assert_int_eq(accel_stats_json(&text), ACCEL_OK);
    json_t *json = json_loads(text, 0, &error);
    ck_assert_msg(json != NULL, "line %d: %s", error.line, error.text);
    free(text);
    return json;
}

static json_int_t figure(const json_t *stats, const char *name, const char *pool,
                         const char *entry) {
    const json_t *value =
        json_object_get(json_object_get(json_object_get(stats, name), pool), entry);
    ck_assert_msg(json_is_integer(value), "%s.%s.%s", name, pool, entry);
    return json_integer_value(value);
}

/* Checks that the figures are from one moment between two requests. */
static void judge(const json_t *device) {
    static const char *const both[] = {"allocation",   "allocated_bytes", "active",
                                       "active_bytes", "requested_bytes", "reserved_bytes",
                                       "segment"};
    static const char *const entry[] = {"current", "allocated", "freed"};
    const json_t *stats = json_object_get(device, "stats");
    for (size_t i = 0; i < sizeof both / sizeof *both; i++) {
        for (size_t j = 0; j < sizeof entry / sizeof *entry; j++)
            ck_assert_msg(figure(stats, both[i], "all", entry[j]) ==
                              figure(stats, both[i], "small_pool", entry[j]) +
                                  figure(stats, both[i], "large_pool", entry[j]),
                          "%s.%s: the pools are not the whole", both[i], entry[j]);
        ck_assert_msg(figure(stats, both[i], "all", "current") ==
                          figure(stats, both[i], "all", "allocated") -
                              figure(stats, both[i], "all", "freed"),
                      "%s: current is not what is left", both[i]);
    }
    /* Statistics and counters are from the same moment. */
    const json_t *frees = json_object_get(json_object_get(device, "counters"), "cached_frees");
    ck_assert_int_eq(json_integer_value(frees), figure(stats, "allocation", "all", "freed"));
}

START_TEST(figures_match) {
    json_int_t freed = 0;
    start_all();
    for (int i = 0; i < DOCUMENTS; i++) {
        json_t *json = document();
        const json_t *device = json_array_get(json_object_get(json, "devices"), 0);
        judge(device);
        freed = figure(json_object_get(device, "stats"), "allocation", "all", "freed");
        json_decref(json);
    }
    stop();
    ck_assert_int_gt(freed, 0);
}
END_TEST

static const char *const settings[] = {
    "dump:none",
    "dump:none,free_sync:true,roundup_power2_divisions:4",
    "enabled:false,dump:none",
    "dump:none,max_split_size_mb:64,large_segment_size_mb:8,memory_limit:512M,free_sync:true",
};
enum { SETTINGS = sizeof settings / sizeof *settings };

static void *read_documents(void *arg) {
    (void)arg;
    while (!atomic_load(&over)) {
        json_t *json = document();
        const json_t *config = json_object_get(json, "config");
        const char *text = json_string_value(json_object_get(config, "string"));
        int known = 0;
        for (int i = 0; i < SETTINGS; i++)
            known += !strcmp(text, settings[i]);
        ck_assert_msg(known, "parts of two settings: %s", text);
        ck_assert(json_is_null(json_object_get(config, "error")));
        json_decref(json);
    }
    return NULL;
}

START_TEST(settings_change) {
    pthread_t reader;
    char message[256] = "";
    ck_assert_int_eq(accel_set_allocator_settings(settings[0], NULL, 0), ACCEL_OK);
    start_all();
    ck_assert_int_eq(pthread_create(&reader, NULL, read_documents, NULL), 0);
    for (int i = 0; i < CHANGES; i++) {
        int status =
            accel_set_allocator_settings(settings[i % SETTINGS], message, sizeof message);
        ck_assert_msg(status == ACCEL_OK, "%s", message);
    }
    stop();
    pthread_join(reader, NULL);
    ck_assert_msg(records_agree(accel_check, message, sizeof message) == ACCEL_OK, "%s", message);
}
END_TEST

/* Frees more than the budget: large blocks into a lane, and small blocks into the table. */
static void *fill_budget(void *arg) {
    enum { ORDERED = 6, PLAIN = 40 };
    CUdeviceptr ordered[ORDERED], plain[PLAIN];
    size_t random = (size_t)(uintptr_t)arg;
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    while (!atomic_load(&over)) {
        for (int i = 0; i < ORDERED; i++)
            ck_assert_int_eq(cuMemAllocAsync(&ordered[i], MIB, NULL), CUDA_SUCCESS);
        for (int i = 0; i < PLAIN; i++) {
            next_random(&random);
            ck_assert_int_eq(cuMemAlloc_v2(&plain[i], (size_t)512 << (random >> 40) % 8),
                             CUDA_SUCCESS);
        }
        for (int i = 0; i < ORDERED; i++)
            ck_assert_int_eq(cuMemFreeAsync(ordered[i], NULL), CUDA_SUCCESS);
        for (int i = 0; i < PLAIN; i++)
            ck_assert_int_eq(cuMemFree_v2(plain[i]), CUDA_SUCCESS);
        atomic_fetch_add(&rounds, 1);
    }
    return NULL;
}

START_TEST(records_agree_beside_requests) {
    char message[256] = "";
    ck_assert_int_eq(accel_set_allocator_settings("dump:none,thread_cache_mb:4", NULL, 0), ACCEL_OK);
    start(fill_budget);
    while (atomic_load(&rounds) < 100)
        sched_yield();
    for (int i = 0; i < CHECKS; i++)
        ck_assert_msg(records_agree(accel_check, message, sizeof message) == ACCEL_OK, "%s", message);
    stop();
}
END_TEST

/* Settings made before the first use of CUDA apply to it, and documents show them. */
START_TEST(settings_come_first) {
    CUdeviceptr pointer;
    ck_assert_int_eq(accel_set_allocator_settings(settings[3], NULL, 0), ACCEL_OK);
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    ck_assert_int_eq(cuMemAlloc_v2(&pointer, 600 << 20), CUDA_ERROR_OUT_OF_MEMORY);
    json_t *json = document();
    const json_t *config = json_object_get(json, "config");
    ck_assert_str_eq(json_string_value(json_object_get(config, "string")), settings[3]);
    json_decref(json);
}
END_TEST

int main(void) {
    const TTest *const tests[] = {figures_match, settings_change, records_agree_beside_requests,
                                  settings_come_first, NULL};
    return run_tests("threads", tests);
}

/* Tests of the history, and of snapshots of all memory and of one pool. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "simcuda.h"

static const accel_pool_id_t none = {0, 0};

static unsigned actions[ACCEL_TRACE_USER_DEFINED + 1];

static void on_trace(const accel_trace_entry_t *entry, void *arg) {
    ck_assert_ptr_eq(arg, actions);
    actions[entry->action] += entry->action != ACCEL_TRACE_SEGMENT_ALLOC || entry->pool.second;
}

static json_t *snapshot(accel_pool_id_t pool) {
    char *text;
    ck_assert_int_eq(accel_snapshot(pool, &text), ACCEL_OK);
    json_t *json = json_loads(text, 0, NULL);
    ck_assert_ptr_nonnull(json);
    free(text);
    return json;
}

static json_int_t number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_integer(value), "%s", key);
    return json_integer_value(value);
}

static const char *text_of(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

/* Checks that blocks tile their segment and that the sums agree. Returns the bytes that the program
 * holds. */
static json_int_t judge(const json_t *segments) {
    json_int_t held = 0;
    size_t i, j;
    json_t *segment, *block;
    json_array_foreach(segments, i, segment) {
        json_int_t at = number(segment, "address"), allocated = 0, requested = 0, active = 0;
        json_array_foreach(json_object_get(segment, "blocks"), j, block) {
            const char *state = text_of(block, "state");
            ck_assert_int_eq(number(block, "address"), at);
            at += number(block, "size");
            requested += number(block, "requested_size");
            allocated += strcmp(state, "active_allocated") ? 0 : number(block, "size");
            active += strcmp(state, "inactive") ? number(block, "size") : 0;
        }
        ck_assert_int_eq(at, number(segment, "address") + number(segment, "total_size"));
        ck_assert_int_eq(allocated, number(segment, "allocated_size"));
        ck_assert_int_eq(active, number(segment, "active_size"));
        ck_assert_int_eq(requested, number(segment, "requested_size"));
        held += allocated;
    }
    return held;
}

/* Checks that no two segments overlap and that `wanted` is one of them. Returns the bytes of all
 * segments. */
static json_int_t judge_places(const json_t *segments, const json_t *wanted) {
    json_int_t bytes = 0, found = 0;
    size_t i, j;
    json_t *segment, *other;
    json_array_foreach(segments, i, segment) {
        json_int_t address = number(segment, "address"), size = number(segment, "total_size");
        json_array_foreach(segments, j, other) {
            json_int_t at = number(other, "address");
            ck_assert(i == j || at >= address + size ||
                      at + number(other, "total_size") <= address);
        }
        bytes += size;
        found += json_equal(segment, wanted);
    }
    ck_assert_int_eq(found, 1);
    return bytes;
}

START_TEST(history_and_snapshot) {
    CUstream stream = new_stream(0);
    accel_pool_id_t pool = new_pool(0);
    size_t largest;
    ck_assert_int_eq(accel_is_history_enabled(), 0);
    ck_assert_int_eq(record(5), ACCEL_OK);
    ck_assert_int_eq(record((size_t)1 << 40), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_is_history_enabled(), 1);
    ck_assert_int_eq(accel_attach_trace_tracker(on_trace, actions), ACCEL_OK);
    void *plain[40], *a = alloc(3000, stream);
    for (int i = 0; i < 40; i++)
        ck_assert_int_eq(accel_malloc(&plain[i], 512u << i % 14), ACCEL_OK);
    for (int i = 0; i < 40; i += 2)
        ck_assert_int_eq(accel_free(plain[i]), ACCEL_OK);
    begin(pool, 0);
    void *b = alloc(2000, stream), *c = alloc(5000, stream);
    ck_assert_int_eq(accel_raw_delete(b), ACCEL_OK);
    void *d = NULL;
    ck_assert_int_eq(accel_raw_alloc_with_stream(&d, (size_t)8 << 30, stream),
                     ACCEL_ERROR_DEVICE_MEMORY);
    ck_assert_uint_eq(actions[ACCEL_TRACE_ALLOC], 3);
    ck_assert_uint_eq(actions[ACCEL_TRACE_SEGMENT_ALLOC], 1);
    ck_assert_uint_eq(actions[ACCEL_TRACE_FREE_REQUESTED], 1);
    ck_assert_uint_eq(actions[ACCEL_TRACE_FREE_COMPLETED], 1);
    ck_assert_uint_eq(actions[ACCEL_TRACE_OOM], 1);
    ck_assert_int_eq(accel_detach_trace_tracker(on_trace, actions), ACCEL_OK);

    json_t *all = snapshot(none), *one = snapshot(pool);
    ck_assert_uint_eq(actions[ACCEL_TRACE_SNAPSHOT], 0);
    /* The snapshot agrees with the cache's statistics. A pool's segment is one block of the cache, but
     * is listed once. */
    accel_device_stats_t stats = stats_of(0);
    json_int_t of_pool = judge(json_object_get(one, "segments"));
    ck_assert_int_eq(of_pool, 5120);
    const json_t *segment = json_array_get(json_object_get(one, "segments"), 0);
    ck_assert_int_eq(judge(json_object_get(all, "segments")),
                     stats.allocated_bytes.all.current - number(segment, "total_size") + of_pool);
    ck_assert_int_eq(judge_places(json_object_get(all, "segments"), segment),
                     stats.reserved_bytes.all.current);
    ck_assert_str_eq(text_of(segment, "segment_type"), "small");
    ck_assert_int_eq(number(segment, "stream"), (json_int_t)(uintptr_t)stream);
    ck_assert_int_eq(
        json_integer_value(json_array_get(json_object_get(segment, "segment_pool_id"), 1)),
        (json_int_t)pool.second);
    /* The ring wrapped, and holds the newest five entries. */
    const json_t *trace = json_array_get(json_object_get(all, "device_traces"), 0);
    ck_assert_uint_eq(json_array_size(trace), 5);
    ck_assert_str_eq(text_of(json_array_get(trace, 4), "action"), "snapshot");
    ck_assert_str_eq(text_of(json_array_get(trace, 3), "action"), "oom");
    ck_assert_str_eq(text_of(json_array_get(trace, 1), "action"), "free_requested");
    ck_assert_int_eq(number(json_array_get(trace, 1), "addr"), (json_int_t)(uintptr_t)b);
    ck_assert_int_eq(number(json_array_get(trace, 1), "size"), 2000);
    json_decref(all);
    json_decref(one);
    ck_assert_int_eq(record(0), ACCEL_OK);
    ck_assert_int_eq(accel_snapshot(pool, NULL), ACCEL_ERROR_INVALID);
    char *text;
    ck_assert_int_eq(accel_snapshot((accel_pool_id_t){5, 5}, &text), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_raw_delete(c), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(a), ACCEL_OK);

    /* The largest block is the device's free memory, or the cache's if the device is full. */
    ck_assert_int_eq(accel_cache_info(0, &largest), ACCEL_OK);
    ck_assert_uint_gt(largest, 900 * MIB);
    ck_assert_int_eq(accel_malloc(&d, (size_t)900 * MIB), ACCEL_OK);
    ck_assert_int_eq(accel_synchronize_device(0), ACCEL_OK);
    ck_assert_int_eq(accel_free(d), ACCEL_OK);
    ck_assert_int_eq(accel_cache_info(0, &largest), ACCEL_OK);
    ck_assert_uint_ge(largest, (size_t)900 * MIB);
    ck_assert_int_eq(accel_cache_info(0, NULL), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_cache_info(3, &largest), ACCEL_ERROR_INVALID);
}
END_TEST

int main(void) {
    const TTest *const tests[] = {history_and_snapshot, NULL};
    return run_tests("snapshot", tests);
}

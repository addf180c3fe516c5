/* Entries of the history, and events that trace trackers receive. */
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"

static const accel_pool_id_t none = {0, 0};

/* Returns a snapshot. The caller drops the reference. */
static json_t *snapshot(void) {
    char *text;
    ck_assert_int_eq(accel_snapshot(none, &text), ACCEL_OK);
    json_t *json = json_loads(text, 0, NULL);
    ck_assert_ptr_nonnull(json);
    free(text);
    return json;
}

static const json_t *trace_of(const json_t *snapshot, int device) {
    return json_array_get(json_object_get(snapshot, "device_traces"), (size_t)device);
}

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* Returns the name of the first frame, or "" if there is none. */
static const char *first_frame(const json_t *of) {
    ck_assert(json_is_array(json_object_get(of, "frames")));
    return text_of(json_array_get(json_object_get(of, "frames"), 0), "name");
}

static size_t count_of(const json_t *trace, const char *action) {
    size_t count = 0, i;
    json_t *entry;
    json_array_foreach(trace, i, entry)
        count += !strcmp(text_of(entry, "action"), action);
    return count;
}

static const json_t *newest(const json_t *trace, const char *action, json_int_t size) {
    for (size_t i = json_array_size(trace); i--;) {
        const json_t *entry = json_array_get(trace, i);
        if (!strcmp(text_of(entry, "action"), action) &&
            json_integer_value(json_object_get(entry, "size")) == size)
            return entry;
    }
    ck_abort_msg("no %s", action);
    return NULL;
}

static const json_t *block_at(const json_t *snapshot, const void *address) {
    size_t i, j;
    json_t *segment, *block;
    json_array_foreach(json_object_get(snapshot, "segments"), i, segment)
        json_array_foreach(json_object_get(segment, "blocks"), j, block)
            if (json_integer_value(json_object_get(block, "address")) == (json_int_t)(uintptr_t)address)
                return block;
    ck_abort_msg("no block");
    return NULL;
}

static _Atomic int asked;
static bool recorder_asks = true;
static char *recorder(void *arg) {
    char *text = malloc(64);
    void *pointer = NULL; /* the recorder may call the library, which does not call it again for that */
    if (recorder_asks)
        ck_assert_int_eq(accel_raw_alloc(&pointer, 512), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(pointer), ACCEL_OK);
    atomic_fetch_add(&asked, 1);
    strcpy(text, arg);
    return text;
}

static accel_history_t history_of(accel_context_when_t when, const char *text) {
    accel_history_t history = ACCEL_HISTORY_INIT;
    history.enabled = 1;
    history.most = 1000;
    history.when = when;
    history.recorder = text ? recorder : NULL;
    history.arg = (void *)(uintptr_t)text;
    return history;
}

START_TEST(arguments) {
    accel_history_t history = ACCEL_HISTORY_INIT;
    ck_assert_int_eq(accel_record_history(NULL), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_record_history(&history), ACCEL_OK);
    ck_assert_int_eq(accel_is_history_enabled(), 0);
    history.size = 4;
    ck_assert_int_eq(accel_record_history(&history), ACCEL_ERROR_INVALID);
    history = (accel_history_t)ACCEL_HISTORY_INIT;
    history.enabled = 1;
    history.when = (accel_context_when_t)4;
    ck_assert_int_eq(accel_record_history(&history), ACCEL_ERROR_INVALID);
    history.when = (accel_context_when_t)-1;
    ck_assert_int_eq(accel_record_history(&history), ACCEL_ERROR_INVALID);
    history.when = ACCEL_CONTEXT_ALL;
    history.most = (size_t)1 << 40;
    ck_assert_int_eq(accel_record_history(&history), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_is_history_enabled(), 0);
    /* 0 keeps one entry, as in PyTorch. */
    history.most = 0;
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    ck_assert_int_eq(accel_record_history(&history), ACCEL_OK);
    ck_assert_int_eq(accel_is_history_enabled(), 1);
    ck_assert_int_eq(accel_annotate("a"), ACCEL_OK);
    ck_assert_int_eq(accel_annotate(NULL), ACCEL_ERROR_INVALID);
    json_t *json = snapshot();
    ck_assert_uint_eq(json_array_size(trace_of(json, 0)), 1);
    json_decref(json);
}
END_TEST

/* A new setup of the history keeps the newest entries that fit. `clear` and the end of recording drop all. */
START_TEST(what_stays) {
    char text[16];
    accel_history_t history = history_of(ACCEL_CONTEXT_NEVER, NULL);
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    ck_assert_int_eq(accel_record_history(&history), ACCEL_OK);
    for (int i = 0; i < 7; i++) {
        snprintf(text, sizeof text, "%d", i);
        ck_assert_int_eq(accel_annotate(text), ACCEL_OK);
    }
    history.most = 4;
    ck_assert_int_eq(accel_record_history(&history), ACCEL_OK);
    history.most = 50;
    ck_assert_int_eq(accel_record_history(&history), ACCEL_OK);
    ck_assert_int_eq(accel_annotate("7"), ACCEL_OK);
    json_t *json = snapshot();
    const json_t *trace = trace_of(json, 0);
    ck_assert_uint_eq(json_array_size(trace), 6); /* with the snapshot's own entry */
    for (size_t i = 0; i < 5; i++) {
        snprintf(text, sizeof text, "%zu", i + 3);
        ck_assert_str_eq(text_of(json_array_get(trace, i), "action"), "user_defined");
        ck_assert_str_eq(text_of(json_array_get(trace, i), "user_metadata"), text);
    }
    json_decref(json);
    history.clear = 1;
    ck_assert_int_eq(accel_record_history(&history), ACCEL_OK);
    json = snapshot();
    ck_assert_uint_eq(json_array_size(trace_of(json, 0)), 1);
    json_decref(json);
    ck_assert_int_eq(record(0), ACCEL_OK);
    json = snapshot();
    ck_assert_uint_eq(json_array_size(trace_of(json, 0)), 0);
    json_decref(json);
}
END_TEST

/* Each level records everything that the previous level records, and more. */
START_TEST(levels) {
    CUstream stream = new_stream(0);
    static char text[16] = "who asks";
    for (int in_pool = 0; in_pool < 2; in_pool++) {
        accel_pool_id_t pool = in_pool ? open_pool(0) : none;
        for (int when = ACCEL_CONTEXT_NEVER; when <= ACCEL_CONTEXT_ALL; when++) {
            accel_history_t history = history_of((accel_context_when_t)when, text);
            history.clear = 1;
            ck_assert_int_eq(accel_record_history(&history), ACCEL_OK);
            atomic_store(&asked, 0);
            void *held = alloc(3000, stream), *freed = alloc(5000, stream);
            ck_assert_int_eq(accel_raw_delete(freed), ACCEL_OK);
            ck_assert_int_eq(accel_annotate("b"), ACCEL_OK);
            json_t *json = snapshot();
            const json_t *trace = trace_of(json, 0);
            const char *const name[] = {"", text};
            ck_assert_str_eq(first_frame(block_at(json, held)), name[when >= ACCEL_CONTEXT_STATE]);
            ck_assert_str_eq(first_frame(newest(trace, "alloc", 5000)), name[when >= ACCEL_CONTEXT_ALLOC]);
            ck_assert_str_eq(first_frame(newest(trace, "user_defined", 0)),
                             name[when >= ACCEL_CONTEXT_ALLOC]);
            ck_assert_str_eq(first_frame(newest(trace, "free_requested", 5000)),
                             name[when >= ACCEL_CONTEXT_ALL]);
            ck_assert_str_eq(first_frame(newest(trace, "free_completed", 5000)),
                             name[when >= ACCEL_CONTEXT_ALL]);
            ck_assert(when ? atomic_load(&asked) > 0 : !atomic_load(&asked));
            json_decref(json);
            ck_assert_int_eq(accel_raw_delete(held), ACCEL_OK);
        }
        if (in_pool)
            end_and_release(pool);
    }
    ck_assert_int_eq(record(0), ACCEL_OK);
    int before = atomic_load(&asked);
    ck_assert_int_eq(accel_raw_delete(alloc(3000, stream)), ACCEL_OK);
    ck_assert_int_eq(atomic_load(&asked), before); /* no call after the history is off */
}
END_TEST

static __attribute__((noinline)) void *ask_here(CUstream stream) {
    void *pointer = alloc(3000, stream);
    __asm__ volatile("" ::: "memory");
    return pointer;
}

/* With stacks:all the frames are the recorder's text and the stack. The innermost frames are the
 * program's. */
START_TEST(stacks) {
    CUstream stream = new_stream(0);
    static char text[16] = "line\ntwo";
    accel_history_t history = history_of(ACCEL_CONTEXT_ALL, text);
    ck_assert_int_eq(accel_record_history(&history), ACCEL_OK);
    void *held = ask_here(stream);
    json_t *json = snapshot();
    const json_t *entry = newest(trace_of(json, 0), "alloc", 3000),
                 *frames = json_object_get(entry, "frames");
    ck_assert_str_eq(first_frame(entry), text);
    ck_assert_uint_gt(json_array_size(frames), 2);
    const json_t *code = json_array_get(frames, 1);
    ck_assert_ptr_nonnull(strstr(text_of(code, "filename"), "check_records"));
    ck_assert_uint_gt(strlen(text_of(code, "name")), 0);
    ck_assert(json_is_integer(json_object_get(code, "line")));
    ck_assert(json_equal(frames, json_object_get(block_at(json, held), "frames")));
    json_decref(json);

    history = history_of(ACCEL_CONTEXT_ALL, NULL); /* the stack alone */
    ck_assert_int_eq(accel_record_history(&history), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(held), ACCEL_OK);
    json = snapshot();
    frames = json_object_get(newest(trace_of(json, 0), "free_requested", 3000), "frames");
    ck_assert_ptr_nonnull(strstr(text_of(json_array_get(frames, 0), "filename"), "check_records"));
    json_decref(json);
}
END_TEST

/* --- trackers --- */

static struct {
    _Atomic unsigned count[ACCEL_TRACE_USER_DEFINED + 1];
    _Atomic uint64_t bytes[ACCEL_TRACE_USER_DEFINED + 1];
} seen;

/* Counts the events of the cache, without private pools. It calls the library. */
static void on_trace(const accel_trace_entry_t *entry, void *arg) {
    void *pointer;
    (void)arg;
    if (entry->pool.second)
        return;
    ck_assert_int_eq(entry->device, 0);
    atomic_fetch_add(&seen.count[entry->action], 1);
    atomic_fetch_add(&seen.bytes[entry->action], entry->bytes);
    ck_assert_int_eq(accel_malloc(&pointer, 3 * MIB), ACCEL_OK);
    ck_assert_int_eq(accel_free(pointer), ACCEL_OK);
}

/* Allocated less freed segments equal the cache's size. The tracker gets no events for its own calls. */
START_TEST(segments) {
    bool pages = strstr(getenv("ACCEL_ALLOC_CONF"), "expandable");
    accel_trace_action_t come = pages ? ACCEL_TRACE_SEGMENT_MAP : ACCEL_TRACE_SEGMENT_ALLOC,
                         go = pages ? ACCEL_TRACE_SEGMENT_UNMAP : ACCEL_TRACE_SEGMENT_FREE;
    void *block[20], *spare;
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    ck_assert_int_eq(accel_malloc(&spare, 3 * MIB), ACCEL_OK); /* for the tracker */
    ck_assert_int_eq(accel_free(spare), ACCEL_OK);
    ck_assert_int_eq(accel_synchronize_device(0), ACCEL_OK);
    ck_assert_int_eq(record(100), ACCEL_OK);
    ck_assert_int_eq(accel_attach_trace_tracker(on_trace, NULL), ACCEL_OK);
    for (int i = 0; i < 20; i++)
        ck_assert_int_eq(accel_malloc(&block[i], (size_t)(i + 21) * MIB), ACCEL_OK);
    ck_assert_uint_gt(atomic_load(&seen.count[come]), 0);
    ck_assert_uint_gt(atomic_load(&seen.bytes[come]), (uint64_t)500 * MIB);
    for (int i = 0; i < 20; i++)
        ck_assert_int_eq(accel_free(block[i]), ACCEL_OK);
    ck_assert_int_eq(accel_synchronize_device(0), ACCEL_OK);
    ck_assert_int_eq(accel_detach_trace_tracker(on_trace, NULL), ACCEL_OK);
    json_t *json = snapshot();
    ck_assert_uint_gt(count_of(trace_of(json, 0), pages ? "segment_map" : "segment_alloc"), 0);
    json_decref(json);
    ck_assert_int_eq(accel_attach_trace_tracker(on_trace, NULL), ACCEL_OK);
    ck_assert_int_eq(accel_empty_cache(), ACCEL_OK);
    ck_assert_uint_gt(atomic_load(&seen.count[go]), 0);
    ck_assert_int_eq(accel_detach_trace_tracker(on_trace, NULL), ACCEL_OK);
    json = snapshot();
    ck_assert_uint_gt(count_of(trace_of(json, 0), pages ? "segment_unmap" : "segment_free"), 0);
    json_decref(json);
    nothing_left();
}
END_TEST

/* The tracker on_sum only sums bytes, and makes no request. */
static _Atomic int64_t reserved;
static void on_sum(const accel_trace_entry_t *entry, void *arg) {
    (void)arg;
    if (entry->pool.second || entry->device)
        return;
    if (entry->action == ACCEL_TRACE_SEGMENT_ALLOC || entry->action == ACCEL_TRACE_SEGMENT_MAP)
        atomic_fetch_add(&reserved, (int64_t)entry->bytes);
    if (entry->action == ACCEL_TRACE_SEGMENT_FREE || entry->action == ACCEL_TRACE_SEGMENT_UNMAP)
        atomic_fetch_sub(&reserved, (int64_t)entry->bytes);
}

static void *work(void *arg) {
    size_t random = (size_t)(uintptr_t)arg;
    CUstream stream = new_stream(0);
    void *block[4] = {NULL};
    while (!atomic_load(&over)) {
        next_random(&random);
        void **at = &block[random >> 33 & 3];
        if (*at)
            ck_assert_int_eq(accel_raw_delete(*at), ACCEL_OK);
        *at = *at ? NULL : alloc((size_t)4096 << (random >> 40) % 13, stream);
    }
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(accel_raw_delete(block[i]), ACCEL_OK);
    return NULL;
}

/* The sum of all segment events equals the reserved bytes while threads work and recorders change. */
START_TEST(threads) {
    static char text[16] = "at work";
    recorder_asks = false; /* the tracker gets no events for the recorder's calls */
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    ck_assert_int_eq(stats_of(0).reserved_bytes.all.current, 0);
    ck_assert_int_eq(accel_attach_trace_tracker(on_sum, NULL), ACCEL_OK);
    start(work);
    for (int i = 0; i < 200; i++) {
        accel_history_t history = history_of((accel_context_when_t)(i % 4), i % 3 ? text : NULL);
        history.enabled = i % 7 != 0;
        history.most = (size_t)(i % 5) * 20;
        ck_assert_int_eq(accel_record_history(&history), ACCEL_OK);
        ck_assert_int_eq(accel_annotate("round"), ACCEL_OK);
        if (i % 20 == 0)
            ck_assert_int_eq(accel_empty_cache(), ACCEL_OK);
        if (i % 40 == 0)
            json_decref(snapshot());
    }
    stop();
    ck_assert_int_eq(accel_synchronize_device(0), ACCEL_OK);
    ck_assert_int_eq(atomic_load(&reserved), stats_of(0).reserved_bytes.all.current);
    ck_assert_int_eq(accel_empty_cache(), ACCEL_OK);
    ck_assert_int_eq(atomic_load(&reserved), stats_of(0).reserved_bytes.all.current);
    nothing_left();
}
END_TEST

/* A fork child gets the calls again. */
START_TEST(forked) {
    int status;
    static char text[16] = "parent";
    accel_history_t history = history_of(ACCEL_CONTEXT_ALL, text);
    CUstream stream = new_stream(0);
    ck_assert_int_eq(accel_record_history(&history), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(alloc(3000, stream)), ACCEL_OK);
    pid_t child = fork();
    if (!child) {
        char *json = NULL;
        accel_annotate("child");
        accel_snapshot(none, &json);
        history.enabled = 0;
        _exit(accel_record_history(&history) != ACCEL_OK);
    }
    ck_assert(waitpid(child, &status, 0) == child && status == 0);
}
END_TEST

/* The tracker also receives segments that are allocated while a stream captures. */
START_TEST(captures) {
    CUstream stream = new_stream(0), captured = new_stream(0);
    CUgraph graph;
    void *block;
    ck_assert_int_eq(accel_attach_trace_tracker(on_sum, NULL), ACCEL_OK);
    ck_assert_int_eq(cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    ck_assert_int_eq(accel_raw_alloc_with_stream(&block, 30 * MIB, stream), ACCEL_OK);
    ck_assert_int_eq(cuStreamEndCapture(captured, &graph), CUDA_SUCCESS);
    ck_assert_int_eq(atomic_load(&reserved), stats_of(0).reserved_bytes.all.current);
    ck_assert_int_eq(accel_raw_delete(block), ACCEL_OK);
}
END_TEST

int main(void) {
    const TTest *const whole[] = {stacks, NULL};
    const TTest *const pages[] = {segments, threads, captures, NULL};
    const TTest *const tests[] = {arguments, what_stays, levels,  segments,
                                  threads,   forked,     captures, NULL};
    const char *conf = getenv("ACCEL_ALLOC_CONF");
    return run_tests("records", strstr(conf, "stacks")       ? whole
                                : strstr(conf, "expandable") ? pages
                                                             : tests);
}

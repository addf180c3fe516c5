/* Calls every function of accelcache.h once for its purpose, in a program that links the library.
 * complete.py fails if a function is not called. Builds with sanitizers run it too. The other suites
 * test wrong arguments.
 *
 * usage: api_complete */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "accelcache.h"
#include "accelcache_pools.h"
#include "accelcache_torch.h"
#include "agrees.h"
#include "harness.h"

enum { MIB = 1 << 20 };
static const accel_pool_id_t none = {0, 0};

#define OK(call) GIVES(call, ACCEL_OK)

static accel_device_stats_t stats_of(int device) {
    accel_device_stats_t stats = {.size = sizeof stats};
    OK(accel_get_device_stats(device, &stats));
    return stats;
}

static void *alloc(size_t bytes, void *stream) {
    void *pointer;
    OK(accel_raw_alloc_with_stream(&pointer, bytes, stream));
    return pointer;
}

static CUstream stream_on(int device) {
    OK(accel_set_device(device));
    return test_stream();
}

static void devices(void) {
    EXPECT(accel_version() == ACCEL_VERSION && !strcmp(accel_name(), "accelcache"));
    EXPECT(!strcmp(accel_status_string(ACCEL_OK), accel_status_string(0)));
    EXPECT(!accel_initialized()); /* the calls above start nothing, the next one does */
    EXPECT(!strcmp(accel_get_accelerator(), "cuda") && accel_initialized());
    EXPECT(accel_device_count() == 2 && accel_current_device() == 0);
    OK(accel_set_device(0));
    OK(accel_set_device(-1)); /* changes nothing */
    EXPECT(accel_maybe_exchange_device(-1) == -1 && accel_exchange_device(1) == 0);
    EXPECT(accel_maybe_exchange_device(0) == 1 && accel_current_device() == 0);
    OK(accel_synchronize_device(1));
    EXPECT(accel_current_device() == 0);
}

static void streams(void) {
    accel_stream_t now = {stream_on(1), 1}, got;
    OK(accel_set_device(0));
    OK(accel_set_stream(now)); /* the device follows */
    OK(accel_get_stream(-1, &got));
    EXPECT(got.stream == now.stream && accel_current_device() == 1);
    OK(accel_set_stream((accel_stream_t){NULL, 1}));
    accel_guard_t outer, inner;
    OK(accel_guard_enter(&outer, 0));
    OK(accel_guard_enter_stream(&inner, now));
    OK(accel_get_stream(1, &got));
    EXPECT(got.stream == now.stream && accel_current_device() == 1);
    accel_guard_leave(&inner);
    EXPECT(accel_current_device() == 0);
    accel_guard_leave(&outer);
    OK(accel_get_stream(-1, &got));
    EXPECT(!got.stream && got.device == 1);
    {
        ACCEL_GUARD(scoped, 0);
        EXPECT(accel_current_device() == 0);
    }
    EXPECT(accel_current_device() == 1);
    OK(accel_set_device(0));
}

static void memory(void) {
    CUstream mine = stream_on(0), other = test_stream();
    void *plain, *ordered, *raw, *base;
    size_t bytes;
    accel_pointer_info_t info = {.size = sizeof info};
    OK(accel_malloc(&plain, MIB));
    OK(accel_malloc_async(&ordered, MIB, mine));
    OK(accel_set_stream((accel_stream_t){mine, 0}));
    OK(accel_raw_alloc(&raw, 3000));
    OK(accel_pointer_info((char *)raw + 2999, &info));
    EXPECT(info.base == raw && info.bytes == 3000 && info.stream == mine && info.device == 0);
    OK(accel_get_base_allocation((char *)raw + 7, &base, &bytes));
    EXPECT(base == raw && bytes == 3000);
    OK(accel_record_stream((char *)raw + 1000, other)); /* inside the block */
    OK(accel_raw_delete(raw));
    accel_raw_deleter()(alloc(512, mine));
    accel_data_t data;
    OK(accel_allocate(512, &data));
    data.deleter(data.pointer);
    OK(accel_free(plain));
    OK(accel_free_async(ordered, mine));
    GIVES(accel_free(plain), ACCEL_ERROR_DOUBLE_FREE);
    OK(accel_set_stream((accel_stream_t){NULL, 0}));
}

static void copies(void) {
    char out[64] = "to the other device and back", back[64] = "";
    CUstream stream = stream_on(0);
    void *here = alloc(sizeof out, stream);
    OK(accel_set_device(1));
    void *there = alloc(sizeof out, NULL);
    OK(accel_set_device(0));
    OK(accel_enable_peer_access(0, 1));
    OK(accel_copy_data(here, out, sizeof out));
    OK(accel_memcpy_async(there, 1, here, 0, sizeof out, stream, 1));
    OK(accel_synchronize_device(0));
    OK(accel_copy_data(back, there, sizeof back));
    EXPECT(!strcmp(back, out));
    OK(accel_raw_delete(here));
    OK(accel_raw_delete(there));
}

static void state(void) {
    size_t free_bytes, total, left, all, largest;
    double fraction;
    void *pointer;
    char *json, path[] = "api_complete.XXXXXX", message[200];
    OK(accel_get_memory_info(0, &free_bytes, &total));
    OK(accel_get_device_memory_info(0, &left, &all));
    EXPECT(left <= free_bytes && all == total);
    OK(accel_cache_info(0, &largest));
    EXPECT(free_bytes <= total && largest && largest <= total);
    OK(accel_set_memory_fraction(0.25, 0));
    OK(accel_get_memory_fraction(&fraction, 0));
    GIVES(accel_malloc(&pointer, total / 2), ACCEL_ERROR_DEVICE_MEMORY);
    EXPECT(fraction == 0.25 && stats_of(0).num_ooms == 1);
    OK(accel_set_memory_fraction(1, 0));
    OK(accel_enable(0));
    EXPECT(!accel_is_enabled());
    OK(accel_enable(1));
    EXPECT(accel_is_enabled());
    OK(accel_set_allocator_settings("dump:none,history:0", message, sizeof message));
    GIVES(accel_set_allocator_settings("dump", message, sizeof message), ACCEL_ERROR_SETTINGS);
    OK(accel_stats_json(&json));
    EXPECT(strstr(json, "\"accelcache-dump\""));
    free(json);
    int file = mkstemp(path);
    NEED(file >= 0 && close(file) == 0);
    OK(accel_dump(path));
    NEED(unlink(path) == 0);
    OK(accel_reset_accumulated_stats(0));
    OK(accel_reset_peak_stats(0));
    EXPECT(!stats_of(0).num_ooms && !stats_of(0).allocation.all.allocated);
}

static int is_stream(void *stream, void *arg) {
    return stream == arg;
}

static void pools(void) {
    CUstream mine = stream_on(0), other = test_stream();
    accel_pool_id_t pool;
    accel_checkpoint_t *checkpoint;
    accel_checkpoint_delta_t delta = {.size = sizeof delta};
    size_t reserved, allocated;
    char *json;
    OK(accel_pool_create(0, NULL, &pool));
    OK(accel_pool_retain(pool));
    OK(accel_pool_set_flags(pool, ACCEL_POOL_NO_SPLIT | ACCEL_POOL_USE_ON_OOM));
    OK(accel_begin_allocate_to_pool(0, pool, is_stream, mine));
    EXPECT(accel_pool_use_count(pool) == 3);
    void *in = alloc(1000, mine), *out = alloc(1000, other);
    OK(accel_end_allocate_to_pool(0, pool));
    OK(accel_pool_check_live(pool, 0, &in, 1));
    OK(accel_pool_bytes(pool, 0, &reserved, &allocated));
    EXPECT(reserved == 2 * MIB && allocated == 2 * MIB); /* a block is a segment */
    OK(accel_get_checkpoint_state(0, pool, &checkpoint));
    OK(accel_raw_delete(in));
    OK(accel_set_checkpoint_pool_state(checkpoint, &delta));
    EXPECT(!delta.freed_count && delta.allocated_count == 1 && delta.allocated[0] == in);
    free(delta.freed);
    free(delta.allocated);
    accel_release_checkpoint_state(checkpoint);
    OK(accel_snapshot(pool, &json));
    EXPECT(strstr(json, "\"segments\""));
    free(json);
    OK(accel_raw_delete(in));
    OK(accel_raw_delete(out));
    OK(accel_pool_empty(pool));
    OK(accel_pool_bytes(pool, 0, &reserved, NULL));
    EXPECT(!reserved);
    for (int users = 3; users; users--)
        OK(accel_pool_release(pool));
    EXPECT(!accel_pool_use_count(pool));
}

static struct { int failures, asked, traced, said; } seen;
static void on_oom(int device, size_t bytes, size_t limit, size_t available, void *arg) {
    seen.failures += device == 0 && bytes > available && limit && arg == &seen;
}
static int on_shortage(int device, void *arg) {
    seen.asked += device == 0 && arg == &seen;
    return 0;
}
static void on_trace(const accel_trace_entry_t *entry, void *arg) {
    seen.traced += entry->device == 0 && arg == &seen;
    seen.said += entry->action == ACCEL_TRACE_USER_DEFINED && !strcmp(entry->text, "step 1");
}

static char *on_context(void *arg) {
    EXPECT(!arg);
    return strdup("the recorder");
}

static void observers(void) {
    void *pointer, *held;
    char *json;
    OK(accel_malloc(&held, 100 * MIB)); /* leaves too little memory for a request of 1 GiB */
    OK(accel_attach_oom_observer(on_oom, &seen));
    OK(accel_add_free_callback(on_shortage, &seen));
    OK(accel_attach_trace_tracker(on_trace, &seen));
    accel_history_t history = ACCEL_HISTORY_INIT;
    history.enabled = 1;
    history.most = 100;
    history.when = ACCEL_CONTEXT_ALL;
    history.recorder = on_context;
    OK(accel_record_history(&history));
    OK(accel_annotate("step 1"));
    OK(accel_phase_push("step"));
    OK(accel_phase_pop());
    GIVES(accel_phase_pop(), ACCEL_ERROR_INVALID);
    EXPECT(accel_is_history_enabled());
    OK(accel_raw_delete(alloc(1000, NULL)));
    GIVES(accel_raw_alloc(&pointer, 1024 * MIB), ACCEL_ERROR_DEVICE_MEMORY);
    EXPECT(seen.failures == 1 && seen.asked >= 1);
    EXPECT(seen.traced >= 5 && seen.said == 1); /* request, both free steps, OOM, the text */
    OK(accel_snapshot(none, &json));
    EXPECT(strstr(json, "\"free_requested\"") && strstr(json, "\"oom\""));
    EXPECT(strstr(json, "\"user_defined\"") && strstr(json, "\"the recorder\""));
    free(json);
    history.enabled = 0;
    OK(accel_record_history(&history));
    EXPECT(!accel_is_history_enabled());
    int traced = seen.traced;
    OK(accel_detach_trace_tracker(on_trace, &seen));
    OK(accel_remove_free_callback(on_shortage, &seen));
    OK(accel_detach_oom_observer(on_oom, &seen));
    GIVES(accel_raw_alloc(&pointer, 1024 * MIB), ACCEL_ERROR_DEVICE_MEMORY);
    EXPECT(seen.failures == 1 && seen.traced == traced);
    OK(accel_free(held));
}

/* ---- calls that must be the first in a process ---- */

/* Requests and frees start CUDA themselves. */
static void first(void) {
    void *pointer;
    GIVES(accel_free(&pointer), ACCEL_ERROR_NOT_OURS);
    OK(accel_malloc(&pointer, 1000));
    EXPECT(pointer);
    OK(accel_free(pointer));
}

static char arena[4096];
static void *arena_alloc(size_t bytes, int device, void *stream) {
    (void)device;
    (void)stream;
    return bytes <= sizeof arena ? arena : NULL;
}
static void arena_free(void *pointer, size_t bytes, int device, void *stream) {
    (void)stream;
    EXPECT(pointer == arena && bytes == 100 && device == 0);
}

static void allocator(void) {
    const accel_allocator_t functions = {
        .size = sizeof functions, .alloc_fn = arena_alloc, .free_fn = arena_free};
    accel_allocator_t now = {.size = sizeof now};
    void *pointer;
    OK(accel_set_allocator(&functions));
    OK(accel_get_allocator(&now));
    EXPECT(now.alloc_fn == arena_alloc);
    OK(accel_raw_alloc(&pointer, 100));
    EXPECT(pointer == arena);
    OK(accel_raw_delete(pointer));
}

static void pages(void) {
    accel_segment_size_t *sizes;
    size_t count, bytes = 0;
    OK(accel_set_allocator_settings("dump:none,expandable_segments:true", NULL, 0));
    CUstream stream = stream_on(0);
    void *pointer = alloc(4 * MIB, stream);
    OK(accel_get_expandable_segment_sizes(0, &sizes, &count));
    for (size_t i = 0; i < count; i++)
        bytes += sizes[i].stream == stream && !sizes[i].small ? sizes[i].bytes : 0;
    EXPECT(bytes == 4 * MIB);
    free(sizes);
    OK(accel_raw_delete(pointer));
}

static void torch(void) {
    const accel_pool_id_t pool = {4711, 0};
    size_t bytes;
    accel_torch_init(2);
    void *block = accel_torch_malloc(3000, 1, NULL);
    EXPECT(accel_torch_base_alloc((char *)block + 5, &bytes) == block && bytes == 3000);
    accel_torch_record_stream(block, stream_on(1));
    accel_torch_free(block, 3000, 1, NULL);
    accel_torch_begin_allocate_to_pool(1, pool, NULL); /* without a filter: all streams */
    block = accel_torch_malloc_or_throw(100, 1, NULL);
    accel_torch_end_allocate_to_pool(1, pool);
    EXPECT(block && accel_pool_use_count(pool) == 1);
    accel_torch_free(block, 100, 1, NULL);
    accel_torch_release_pool(1, pool);
    EXPECT(!accel_pool_use_count(pool));
    accel_torch_memory_fraction(0.01, 1);
    EXPECT(!accel_torch_malloc(900 << 20, 1, NULL));
    accel_torch_reset();
    EXPECT(!stats_of(1).reserved_bytes.all.current);
}

/* The child began before the first use of CUDA. It reads the memory behind the handle. */
static void importer(int in) {
    accel_ipc_handle_t handle;
    void *pointer;
    int value = 0;
    NEED(read(in, &handle, sizeof handle) == sizeof handle);
    OK(accel_get_ipc_ptr(&handle, &pointer));
    OK(accel_copy_data(&value, pointer, sizeof value));
    EXPECT(value == 4711);
    OK(accel_close_ipc_ptr(pointer));
}

static void sharing(void) {
    int ends[2], status, value = 4711;
    void *pointer;
    accel_ipc_handle_t handle;
    NEED(pipe(ends) == 0);
    pid_t child = fork();
    if (!child) {
        importer(ends[0]);
        _exit(TEST_GOOD);
    }
    OK(accel_raw_alloc(&pointer, 4096));
    OK(accel_copy_data((char *)pointer + 256, &value, sizeof value));
    OK(accel_share_ipc_handle((char *)pointer + 256, &handle));
    NEED(write(ends[1], &handle, sizeof handle) == sizeof handle);
    NEED(waitpid(child, &status, 0) == child);
    EXPECT(status == 0);
    OK(accel_raw_delete(pointer));
}

/* ---- */

/* Runs in two threads, each with its own pools and guards. */
static void *beside(void *arg) {
    memory();
    pools();
    return arg;
}

static void all(void) {
    devices();
    streams();
    memory();
    copies();
    state();
    pools();
    observers();
    pthread_t thread[2];
    for (int i = 0; i < 2; i++)
        NEED(pthread_create(&thread[i], NULL, beside, NULL) == 0);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
}

int main(void) {
    static void (*const parts[])(void) = {all, first, allocator, pages, torch, sharing};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        int status;
        pid_t child = fork(); /* so that the library starts fresh */
        NEED(child >= 0);
        if (!child) {
            char message[160] = "";
            parts[i]();
            OK(accel_empty_cache());
            if (records_agree(accel_check, message, sizeof message) != ACCEL_OK)
                test_stop(TEST_WRONG, "%s", message);
            EXPECT(!stats_of(0).allocation.all.current);
            exit(TEST_GOOD);
        }
        NEED(waitpid(child, &status, 0) == child);
        if (status)
            test_stop(TEST_WRONG, "part %zu ended with status %d", i, status);
    }
    return TEST_GOOD;
}

/* The device of fake_device.h. */
#include "fake_device_int.h"

#include "allocator/order/capture.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
    fake_context_t *context;
    uint64_t number; /* the last piece of work before it */
    unsigned magic;
    uint64_t stream; /* of a join event */
} fake_fence_t;

enum { FENCE_LIVE = 0x11fe, FENCE_GONE = 0xdead, SHORT_NS = 20000000 };

void fake_misuse(fake_device_t *device, const char *what) {
    if (!device->wrong)
        device->wrong = what;
}

static _Thread_local bool is_beside;

static bool beside(void *arg, void (*work)(void *), void *work_arg, uint64_t until) {
    (void)arg;
    (void)until;
    is_beside = true;
    work(work_arg);
    is_beside = false;
    return true;
}

/* Returns true if a capture forbids the call except in `beside`. */
static bool may_beside(fake_kind_t kind) {
    return is_beside && (kind == FAKE_SEGMENT_FREE || kind == FAKE_QUERY || kind == FAKE_WAIT ||
                         kind == FAKE_PAGES_UNMAP);
}

ac_status_t fake_enter(fake_context_t *context, fake_kind_t kind) {
    fake_device_t *device = context->device;
    if (device->before)
        device->before(device->arg, kind);
    pthread_mutex_lock(&device->lock);
    device->calls[kind]++;
    if (++device->total_calls == device->fail_at && device->fail_with[kind]) {
        device->failed++;
        return device->fail_with[kind];
    }
    if (atomic_load(&context->dead))
        return kind == FAKE_SEGMENT_ALLOC || kind == FAKE_RECORD ? AC_FAILED : AC_OK;
    /* A stream can be made to wait while another one captures. */
    return atomic_load(&context->capturing) && kind != FAKE_JOIN && !may_beside(kind) ? AC_BUSY
                                                                                      : AC_OK;
}

ac_status_t fake_leave(fake_context_t *context, ac_status_t status) {
    pthread_mutex_unlock(&context->device->lock);
    return status;
}

void fake_charge(fake_device_t *device, uint64_t bytes) {
    device->used += bytes;
    if (device->used > device->most_used)
        device->most_used = device->used;
}

void fake_device_init(fake_device_t *device, uint64_t capacity) {
    memset(device, 0, sizeof *device);
    pthread_mutex_init(&device->lock, NULL);
    device->capacity = capacity;
    device->next = FAKE_BASE;
}

void fake_context_init(fake_context_t *context, fake_device_t *device) {
    memset(context, 0, sizeof *context);
    context->device = device;
}

static void remove_range(fake_device_t *device, unsigned at) {
    device->used -= device->range[at].size;
    device->count--;
    memmove(&device->range[at], &device->range[at + 1],
            (device->count - at) * sizeof device->range[0]);
}

void fake_context_kill(fake_context_t *context) {
    fake_device_t *device = context->device;
    pthread_mutex_lock(&device->lock);
    atomic_store(&context->dead, true);
    atomic_store(&context->completed, atomic_load(&context->submitted));
    for (unsigned i = device->count; i-- > 0;)
        if (device->range[i].owner == context)
            remove_range(device, i);
    pthread_mutex_unlock(&device->lock);
}

uint64_t fake_submit(fake_context_t *context) {
    return atomic_fetch_add(&context->submitted, 1) + 1;
}

void fake_complete(fake_context_t *context, uint64_t until) {
    uint64_t seen = atomic_load(&context->completed);
    while (seen < until && !atomic_compare_exchange_weak(&context->completed, &seen, until))
        ;
}

static ac_status_t segment_alloc(void *arg, uint64_t bytes, uint64_t *address) {
    fake_context_t *context = arg;
    fake_device_t *device = context->device;
    ac_status_t status = fake_enter(context, FAKE_SEGMENT_ALLOC);
    if (status != AC_OK)
        return fake_leave(context, status);
    if (bytes == 0 || bytes % AC_SEGMENT_ALIGN)
        fake_misuse(device, "odd segment size");
    if (bytes > device->capacity - device->used || device->count == FAKE_RANGES)
        return fake_leave(context, AC_OOM);
    uint64_t start = device->bump ? device->next : FAKE_BASE;
    unsigned at = 0;
    while (at < device->count && device->range[at].address < start + bytes) {
        uint64_t end = device->range[at].address + device->range[at].size;
        start = end > start ? end : start;
        at++;
    }
    memmove(&device->range[at + 1], &device->range[at],
            (device->count - at) * sizeof device->range[0]);
    device->range[at] = (fake_range_t){start, bytes, context};
    device->count++;
    fake_charge(device, bytes);
    device->next = start + bytes;
    *address = start;
    return fake_leave(context, AC_OK);
}

static ac_status_t segment_free(void *arg, uint64_t address, uint64_t bytes) {
    (void)bytes;
    fake_context_t *context = arg;
    fake_device_t *device = context->device;
    ac_status_t status = fake_enter(context, FAKE_SEGMENT_FREE);
    if (status != AC_OK || atomic_load(&context->dead))
        return fake_leave(context, status);
    unsigned at = 0;
    while (at < device->count && device->range[at].address != address)
        at++;
    if (at == device->count || device->range[at].owner != context) {
        fake_misuse(device, "freed what was not handed out");
        return fake_leave(context, AC_FAILED);
    }
    if (device->freeing)
        device->freeing(device->arg, address, device->range[at].size);
    remove_range(device, at);
    return fake_leave(context, AC_OK);
}

static ac_status_t memory_free(void *arg, uint64_t *bytes) {
    fake_device_t *device = ((fake_context_t *)arg)->device;
    pthread_mutex_lock(&device->lock);
    *bytes = device->capacity - device->used;
    pthread_mutex_unlock(&device->lock);
    return AC_OK;
}

static ac_status_t fence_record(void *arg, bool unseen, void **out) {
    (void)unseen; /* its fences cover all work, seen or not */
    fake_context_t *context = arg;
    fake_device_t *device = context->device;
    ac_status_t status = fake_enter(context, FAKE_RECORD);
    if (status != AC_OK)
        return fake_leave(context, status);
    if (device->no_fences)
        return fake_leave(context, AC_UNSUPPORTED);
    fake_fence_t *fence = malloc(sizeof *fence);
    if (!fence)
        return fake_leave(context, AC_UNSUPPORTED);
    *fence = (fake_fence_t){context, atomic_load(&context->submitted), FENCE_LIVE, 0};
    device->live_fences++;
    *out = fence;
    return fake_leave(context, AC_OK);
}

/* Returns true if the fence is live and of this context; reports a misuse if not. Pre: the lock is
 * held. */
static bool is_live(fake_context_t *context, const fake_fence_t *fence) {
    bool good = fence->magic == FENCE_LIVE && fence->context == context;
    if (!good)
        fake_misuse(context->device, "a fence that is not one");
    return good;
}

static ac_status_t fence_query(void *arg, void *what) {
    fake_context_t *context = arg;
    fake_fence_t *fence = what;
    ac_status_t status = fake_enter(context, FAKE_QUERY);
    if (is_live(context, fence) && status == AC_OK)
        status = atomic_load(&context->completed) >= fence->number ? AC_OK : AC_BUSY;
    return fake_leave(context, status);
}

static ac_status_t out_of_time(uint64_t limit_ns) {
    if (limit_ns <= SHORT_NS)
        nanosleep(&(struct timespec){.tv_nsec = (long)limit_ns}, NULL);
    return AC_BUSY;
}

static ac_status_t fence_wait(void *arg, void *what, uint64_t limit_ns) {
    fake_context_t *context = arg;
    fake_fence_t *fence = what;
    ac_status_t status = fake_enter(context, FAKE_WAIT);
    if (status == AC_OK && limit_ns && context->device->endless) {
        fake_leave(context, AC_BUSY);
        return out_of_time(limit_ns);
    }
    if (is_live(context, fence) && status == AC_OK)
        fake_complete(context, fence->number);
    return fake_leave(context, status);
}

static void fence_release(void *arg, void *what) {
    fake_context_t *context = arg;
    fake_fence_t *fence = what;
    pthread_mutex_lock(&context->device->lock);
    if (is_live(context, fence))
        context->device->live_fences--;
    fence->magic = FENCE_GONE;
    pthread_mutex_unlock(&context->device->lock);
    free(fence);
}

/* The fake context does its work in the order of submission, like one stream. A stream that waits for
 * another one therefore only counts the wait and reports it. */
static ac_status_t join_record(void *arg, uint64_t stream, void **out) {
    ac_status_t status = fence_record(arg, false, out);
    if (status == AC_OK)
        ((fake_fence_t *)*out)->stream = stream;
    return status;
}

static ac_status_t join_wait(void *arg, void *what, uint64_t stream) {
    fake_context_t *context = arg;
    fake_fence_t *fence = what;
    if (stream == 0)
        return fence_wait(arg, what, 0);
    ac_status_t status = fake_enter(context, FAKE_JOIN);
    if (is_live(context, fence) && status == AC_OK) {
        context->join_events++;
        if (context->device->turned)
            context->device->turned(fence->stream, fence->number, stream);
    }
    return fake_leave(context, status);
}

static bool capturing(void *arg, bool any) {
    const fake_context_t *context = arg;
    return atomic_load(&context->capturing) || (ac_order_capturing() && (any || !context->bystander));
}

static ac_status_t synchronize(void *arg, uint64_t limit_ns) {
    fake_context_t *context = arg;
    ac_status_t status = fake_enter(context, FAKE_SYNCHRONIZE);
    if (status == AC_OK && limit_ns && context->device->endless) {
        fake_leave(context, AC_BUSY);
        return out_of_time(limit_ns);
    }
    if (status == AC_OK)
        fake_complete(context, atomic_load(&context->submitted));
    return fake_leave(context, status);
}

/* Only the test tracks streams. The device only decides if the call succeeds. */
static ac_status_t stream_order(void *arg, uint64_t from, uint64_t to) {
    fake_context_t *context = arg;
    ac_status_t status = fake_enter(context, FAKE_STREAM_ORDER);
    if (status == AC_OK && context->device->ordered)
        context->device->ordered(context, from, to);
    return fake_leave(context, status);
}

static ac_status_t stream_touch(void *arg, uint64_t stream) {
    fake_context_t *context = arg;
    ac_status_t status = fake_enter(context, FAKE_STREAM_ORDER);
    (void)stream;
    return fake_leave(context, status);
}

static void sync_memops_off(void *arg, uint64_t address) {
    fake_context_t *context = arg;
    ac_status_t status = fake_enter(context, FAKE_SYNC_MEMOPS_OFF);
    fake_device_t *device = context->device;
    fake_leave(context, status);
    if (status == AC_OK && device->sync_off)
        device->sync_off(address);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

const ac_device_ops_t fake_ops = {
    .segment_alloc = segment_alloc,
    .segment_alloc_aside = segment_alloc,
    .segment_free = segment_free,
    .memory_free = memory_free,
    .fence_record = fence_record,
    .fence_query = fence_query,
    .fence_wait = fence_wait,
    .fence_release = fence_release,
    .sync_memops_off = sync_memops_off,
    .join_record = join_record,
    .join_wait = join_wait,
    .capturing = capturing,
    .beside = beside,
    .synchronize = synchronize,
    .stream_order = stream_order,
    .stream_touch = stream_touch,
    .range_support = fake_range_support,
    .range_reserve = fake_range_reserve,
    .range_release = fake_range_release,
    .page_create = fake_page_create,
    .page_release = fake_page_release,
    .page_map = fake_page_map,
    .pages_allow = fake_pages_allow,
    .pages_unmap = fake_pages_unmap,
    .memory_fill = fake_memory_fill,
    .fills_over = fake_fills_over,
    .memory_differs = fake_memory_differs,
    .now_ns = now_ns,
};

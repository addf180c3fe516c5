/* Which frees wait for the device (free_sync.h). */
#include "track/free_sync.h"

#include "device/driver.h"
#include "track/running.h"
#include "track/observers.h"
#include "track/context.h"
#include "allocator/order/capture.h"
#include "lock.h"

_Atomic bool ac_shows, ac_holds_shown;

enum { EVENTS = 256, MEMORIES = 64 };

static ac_mutex_t lock = AC_MUTEX(LEAF);

/* Number of live contexts that the program has not awaited; number of them with visible work.
 * `lock` protects both. */
static unsigned unawaited, shown;
static uint64_t lives;

/* Events recorded behind visible work, each at the place of its hash. */
static struct {
    CUevent event;
    ac_context_t *context;
    uint64_t life;
} events[EVENTS];

static uint64_t memory[MEMORIES];
static unsigned memories;
static _Atomic bool memory_stays; /* the end of some memory will not be known */

static _Atomic uint64_t held_since; /* epoch: earlier work saw no visible memory */
static _Atomic bool graphs_show;

static unsigned place(uint64_t key, unsigned places) {
    return (unsigned)(key * 0x9e3779b97f4a7c15u >> 32) % places;
}

static _Atomic uint64_t *place_of(ac_context_t *context, uint64_t key) {
    return &context->shown.stream[place(key, AC_SHOWN_STREAMS)];
}

/* Called under the lock after a change. */
static void settle(void) {
    const ac_config_t *config = ac_process_config();
    bool wait = config->free_sync == AC_FREE_SYNC_ON || config->fill;
    bool follow = !wait && config->free_sync == AC_FREE_SYNC_AUTO && unawaited;
    int frees = wait ? AC_FREES_WAIT : follow && shown ? AC_FREES_LOOK : AC_FREES_GO_ON;
    if (atomic_exchange(&ac_shows, follow) && !follow)
        atomic_store(&graphs_show, true); /* captures go unseen meanwhile */
    if (atomic_exchange(&ac_free_sync, frees) == AC_FREES_GO_ON && frees != AC_FREES_GO_ON)
        ac_generation_grow(); /* hits do not look */
}

void ac_free_sync_configure(void) {
    ac_lock(&lock);
    settle();
    ac_unlock(&lock);
}

/* --- contexts --- */

void ac_shown_begin(ac_context_t *context) {
    ac_lock(&lock);
    for (unsigned i = 0; i < AC_SHOWN_STREAMS; i++)
        atomic_store(&context->shown.stream[i], 0);
    atomic_store(&context->shown.copied, 0);
    atomic_store(&context->shown.missed, 0);
    atomic_store(&context->shown.shown, false);
    atomic_store(&context->shown.awaited, false);
    context->shown.life = ++lives;
    unawaited++;
    settle();
    ac_unlock(&lock);
}

/* Called under the lock. */
static void leave(ac_context_t *context) {
    if (atomic_exchange(&context->shown.awaited, true))
        return;
    unawaited--;
    shown -= atomic_load(&context->shown.shown);
    settle();
}

void ac_shown_end(ac_context_t *context) {
    ac_lock(&lock);
    leave(context);
    ac_unlock(&lock);
}

/* --- memory and graphs --- */

static unsigned find_memory(uint64_t address) {
    unsigned i = 0;
    while (i < memories && memory[i] != address)
        i++;
    return i;
}

void ac_shown_memory(uint64_t address) {
    ac_lock(&lock);
    unsigned i = address ? find_memory(address) : MEMORIES;
    if (i == MEMORIES)
        memory_stays = true;
    else if (i == memories)
        memory[memories++] = address;
    if (!atomic_load(&ac_holds_shown)) {
        atomic_store(&ac_holds_shown, true);
        atomic_store(&held_since, ac_fence_stamp() + 1); /* the next launch in each stream looks */
    }
    ac_unlock(&lock);
}

void ac_shown_memory_gone(uint64_t address) {
    if (!atomic_load_explicit(&ac_holds_shown, memory_order_relaxed))
        return;
    ac_lock(&lock);
    unsigned i = find_memory(address);
    if (i < memories)
        memory[i] = memory[--memories];
    atomic_store(&ac_holds_shown, memories || memory_stays);
    ac_unlock(&lock);
}

void ac_shown_found(CUdeviceptr address) {
    unsigned managed = 0, type = 0;
    if (!ac_driver.cuPointerGetAttribute || memory_stays)
        return;
    ac_driver.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address);
    ac_driver.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    if (managed || type == CU_MEMORYTYPE_HOST)
        ac_shown_memory(0);
}

void ac_shown_physical(CUmemGenericAllocationHandle handle) {
    CUmemAllocationProp what;
    if (ac_driver.cuMemGetAllocationPropertiesFromHandle &&
        ac_driver.cuMemGetAllocationPropertiesFromHandle(&what, handle) == CUDA_SUCCESS &&
        what.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        ac_shown_memory(0);
}

void ac_shown_device(CUdevice device) {
    int reaches = 0;
    if (ac_driver.cuDeviceGetAttribute &&
        ac_driver.cuDeviceGetAttribute(&reaches, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
                                       device) == CUDA_SUCCESS &&
        reaches)
        ac_shown_memory(0);
}

void ac_graphs_show(void) {
    atomic_store(&graphs_show, true);
}

bool ac_graph_shows(void) {
    return atomic_load(&graphs_show) || atomic_load(&ac_holds_shown);
}

bool ac_address_shows(uint64_t address) {
    return !ac_block_arena(address);
}

/* --- work --- */

static bool captures(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return ac_cuda_is_capturing(NULL) && ac_driver.cuStreamIsCapturing &&
           ac_driver.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool ac_shown_knows(const ac_context_t *context, CUstream stream) {
    uint64_t key = ac_cuda_stream_key(stream);
    return atomic_load_explicit(&context->shown.awaited, memory_order_relaxed) ||
           atomic_load(place_of((ac_context_t *)context, key)) == key;
}

/* Called under the lock. */
static void add(ac_context_t *context, CUstream stream) {
    uint64_t key = ac_cuda_stream_key(stream);
    atomic_store(place_of(context, key), key);
    if (!atomic_exchange(&context->shown.shown, true)) {
        shown++;
        settle();
    }
}

void ac_shown_kernel(ac_context_t *context, CUstream stream) {
    if (!context || ac_shown_knows(context, stream) || captures(stream))
        return;
    ac_lock(&lock);
    if (!atomic_load(&context->shown.awaited))
        add(context, stream);
    ac_unlock(&lock);
}

void ac_shown_copy(ac_context_t *context, CUstream stream) {
    if (captures(stream)) {
        ac_graphs_show();
    } else if (context) {
        ac_fence_raise(&context->shown.copied, ac_fence_now());
        ac_shown_kernel(context, stream);
    }
}

void ac_shown_stream_gone(ac_context_t *context, CUstream stream) {
    uint64_t key = ac_cuda_stream_key(stream);
    ac_lock(&lock);
    if (atomic_load(place_of(context, key)) == key)
        atomic_store(place_of(context, key), 0);
    ac_unlock(&lock);
}

/* --- the program awaits it --- */

/* Returns true if the record still serves that context, and the program has not awaited its
 * visible work.  Called under the lock. */
static bool is_followed(const ac_context_t *context, uint64_t life) {
    return context && context->shown.life == life && atomic_load(&context->shown.shown) &&
           !atomic_load(&context->shown.awaited);
}

static unsigned place_of_event(CUevent event) {
    return place((uint64_t)(uintptr_t)event, EVENTS);
}

void ac_shown_recorded(ac_context_t *context, const CUstream *stream, CUevent event) {
    unsigned i = place_of_event(event);
    ac_lock(&lock);
    if (context && is_followed(context, context->shown.life) &&
        (!stream || ac_shown_knows(context, *stream))) {
        events[i].event = event;
        events[i].context = context;
        events[i].life = context->shown.life;
    } else if (events[i].event == event) {
        events[i].event = NULL;
    }
    ac_unlock(&lock);
}

/* Returns the context with visible work before the event; NULL: none.  Called under the lock. */
static ac_context_t *context_of_event(CUevent event) {
    unsigned i = place_of_event(event);
    return event && events[i].event == event && is_followed(events[i].context, events[i].life)
               ? events[i].context
               : NULL;
}

void ac_shown_joined(ac_context_t *context, CUstream stream, CUevent event) {
    ac_lock(&lock);
    if (context && context_of_event(event) == context)
        add(context, stream);
    ac_unlock(&lock);
}

void ac_shown_awaited(ac_context_t *context) {
    if (!atomic_load_explicit(&ac_shows, memory_order_relaxed))
        return;
    ac_lock(&lock);
    if (is_followed(context, context->shown.life))
        leave(context);
    ac_unlock(&lock);
}

/* With green contexts a default stream's handle stands for several streams. */
void ac_shown_awaited_stream(ac_context_t *context, CUstream stream) {
    if (!context)
        return;
    bool several = (uintptr_t)stream <= 2 && atomic_load(&context->cuda.green);
    if (!several && ac_shown_knows(context, stream))
        ac_shown_awaited(context);
}

void ac_shown_awaited_event(CUevent event) {
    ac_lock(&lock);
    ac_context_t *context = context_of_event(event);
    if (context)
        leave(context);
    ac_unlock(&lock);
}

/* --- frees --- */

/* Returns the newest epoch of pending visible work; 0: none. */
static uint64_t pending(const ac_context_t *context) {
    const ac_timeline_t *timeline = context->timeline;
    bool unseen = ac_fence_is_unseen();
    if (unseen)
        return ac_fence_now();
    if (!atomic_load(&context->shown.shown) || ac_timeline_idle(timeline))
        return 0;
    ac_moment_t last = {atomic_load(&timeline->last_submit), false};
    ac_moment_t copied = {atomic_load(&context->shown.copied), false};
    if (atomic_load(&ac_holds_shown) && last.clock >= atomic_load(&held_since) &&
        !ac_fence_is_over(timeline, last))
        return last.clock;
    return ac_fence_is_over(timeline, copied) ? 0 : copied.clock;
}

void ac_free_await_in(ac_thread_t *thread, ac_context_t *context) {
    uint64_t limit = (uint64_t)(ac_process_config()->oom_wait * 1e9);
    ac_timeline_t *timeline = context->timeline;
    if (!thread || atomic_load(&context->shown.awaited) || ac_fence_broken(timeline) ||
        ac_cuda_is_capturing(&context->cuda) || !limit)
        return;
    uint64_t newest = pending(context);
    if (!newest || newest <= atomic_load(&context->shown.missed))
        return;
    /* Also if all contexts count: the driver's free would wait for the work of this one. */
    const ac_moment_t moment = {ac_fence_moment(timeline).clock, false};
    if (ac_fence_await(timeline, moment, 0) || ac_timeline_idle(timeline))
        return;
    uint64_t begin = ac_cuda_ops.now_ns();
    ac_status_t status = ac_fence_wait(timeline, AC_REACH_OWN, moment.clock, limit);
    ac_count(thread, AC_COUNT_free_waits);
    ac_count_add(thread, AC_COUNT_free_wait_ns, ac_cuda_ops.now_ns() - begin);
    if (status == AC_BUSY && !ac_cuda_is_capturing(&context->cuda))
        ac_fence_raise(&context->shown.missed, moment.clock);
}

/* A free that will be refused does not wait. */
void ac_free_await(ac_thread_t *thread, uint64_t address) {
    ac_block_info_t block;
    if (!thread || atomic_load(&ac_state) != AC_STATE_ACTIVE ||
        !atomic_load_explicit(&ac_shows, memory_order_relaxed) || !ac_context_current(thread) ||
        ac_is_private(address) || ac_block_find(address, &block) != AC_OK || !block.allocated ||
        block.address != address)
        return;
    char *cuda = ac_arena_context(block.arena);
    ac_free_await_in(thread, (ac_context_t *)(void *)(cuda - offsetof(ac_context_t, cuda)));
}

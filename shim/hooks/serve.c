/* Requests for memory, plain and stream-ordered: one policy for all hooks. */
#include "hooks/body.h"

#include "allocator/cache/thread_cache.h"
#include "hooks/guard.h"
#include "track/mempools.h"
#include "track/observers.h"
#include "tell/oom_report.h"
#include "tell/recording.h"
#include "observe/log.h"
#include "hooks/serve.h"

static void say_refused(ac_context_t *context) {
    ac_refused_t what = ac_expand_refused(ac_arena_allocator(context->arena));
    if (what != AC_REFUSED_NOTHING)
        ac_log_once(AC_LOG_WARNING,
                    "expandable_segments:true has no effect on some memory of device %d: the "
                    "driver gives no %s, so native segments serve. A limit on the addresses of "
                    "the process does that: raise it (ulimit -v unlimited)",
                    (int)context->cuda.device,
                    what == AC_REFUSED_PAGES ? "pages, though it has memory"
                                             : "addresses for it");
}

static ac_status_t alloc(ac_thread_t *thread, ac_context_t *context, ac_cache_t *cache,
                         unsigned module, const ac_from_t *from, uint64_t bytes, ac_ask_t how,
                         uint64_t *address) {
    if (from)
        return ac_arena_alloc_from(context->arena, module, from->mempool, from->stream, bytes,
                                   how, address);
    if (!cache)
        return ac_arena_alloc_for(context->arena, module, bytes, how, address);
    ac_thread_ask_for(thread, cache, module);
    return ac_cache_alloc(cache, bytes, how, address);
}

void ac_serve_refused(ac_thread_t *thread, uint64_t bytes) {
    ac_context_t *context = thread->asked_too_much;
    if (thread->quiet)
        return;
    ac_allocator_t *allocator = ac_arena_allocator(context->arena);
    ac_allocator_count_oom(allocator);
    if (ac_observed(AC_OBSERVE_OOM))
        ac_observe_oom(context->cuda.device, allocator, bytes);
}

/* Serves a request that no free block at hand can serve. */
static ac_status_t search(ac_thread_t *thread, ac_context_t *context, ac_cache_t *cache,
                          unsigned module, const ac_from_t *from, uint64_t bytes,
                          uint64_t *address) {
    ac_status_t status = AC_BUSY;
    if (ac_observed(AC_OBSERVE_FREE) && ac_observe_shortage(context->cuda.device))
        status = alloc(thread, context, cache, module, from, bytes, AC_ASK_CACHED, address);
    if (status == AC_OK)
        return status;
    ac_record_missed(thread);
    if (ac_device_limited())
        ac_mempools_look(context->cuda.device);
    ac_ask_t how = thread->quiet ? AC_ASK_QUIETLY : AC_ASK_ALL;
    status = alloc(thread, context, cache, module, from, bytes, how, address);
    if (status == AC_OOM && !ac_is_rescued(thread) && (ac_observe_late() || ac_mempools_yield(context->cuda.device)))
        status = alloc(thread, context, cache, module, from, bytes, how, address);
    if (ac_process_config()->expandable_segments == AC_PAGES_ON)
        say_refused(context);
    return status;
}

ac_served_t ac_serve(ac_thread_t *thread, ac_context_t *context, unsigned module,
                     const void *caller, const ac_from_t *from, uint64_t bytes,
                     uint64_t *address) {
    uint64_t total = ac_live->total_memory[context->cuda.device];
    if (total && bytes > total) { /* some drivers serve it from the host's memory */
        thread->asked_too_much = context;
        return AC_SERVED_TOO_LARGE;
    }
    if (!from && bytes < AC_SEGMENT_ALIGN && ac_process_config()->ipc == AC_IPC_OWN_SEGMENTS)
        return AC_SERVED_BY_DRIVER; /* then the driver's handle can share the memory */
    thread->last_alloc = context;
    if (ac_guard_serve(thread, context, module, from, bytes, address))
        return AC_SERVED;
    uint64_t generation =
        ac_generation_now(); /* first: a later change makes the remembered cache outdated */
    uint64_t begin = ac_sample_begin(thread, ac_cuda_ops.now_ns);
    ac_cache_t *cache = from || thread->apart ? NULL : ac_thread_cache(thread, context);
    if (cache && thread->known == context && thread->generation == generation &&
        ac_process_config()->ipc != AC_IPC_OWN_SEGMENTS && ac_hits_are_simple())
        ac_thread_set_driver(thread, generation, cache);
    ac_status_t status = alloc(thread, context, cache, module, from, bytes, AC_ASK_CACHED, address);
    ac_sample_end(thread, begin, ac_cuda_ops.now_ns);
    if (status != AC_OK)
        status = search(thread, context, cache, module, from, bytes, address);
    if (status == AC_OK)
        return AC_SERVED;
    if (ac_is_rescued(thread))
        return AC_SERVED_LIMIT; /* the caller of the hook already has its memory */
    if (status == AC_FAILED)
        ac_count(thread, AC_COUNT_internal_failures);
    if (status != AC_OOM)
        return AC_SERVED_BY_DRIVER; /* AC_BUSY: during a capture the driver decides */
    ac_allocator_t *allocator = ac_arena_allocator(context->arena);
    if (!thread->quiet)
        ac_oom_report(thread, context, module, caller, from != NULL, bytes,
                      ac_allocator_room(allocator) < bytes);
    if (!thread->quiet && ac_observed(AC_OBSERVE_OOM))
        ac_observe_oom(context->cuda.device, allocator, bytes);
    return ac_allocator_room(allocator) < bytes ? AC_SERVED_LIMIT : AC_SERVED_BY_NOTHING;
}

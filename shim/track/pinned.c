/* The cache of pinned memory, without the hooks that serve requests: limits, give-back, and
 * contexts and captures that end (pinned.h). */
#include "track/pinned.h"

#include "observe/dump.h"
#include "observe/host_memory.h"
#include "observe/log.h"
#include "track/running.h"
#include "track/context.h"
#include "track/thread.h"

/* Idle time after which blocks go back if idle_trim_ms is off. */
#define IDLE_NS ((uint64_t)60000000000)

ac_host_t ac_pinned;

static bool figures(const struct timespec *deadline, ac_host_stats_t *stats) {
    return ac_host_figures(&ac_pinned, deadline, stats);
}

void ac_pinned_start(void) {
    ac_host_init(&ac_pinned, &ac_live->pinned);
    atomic_store(&ac_dump_pinned, figures);
}

uint64_t ac_pinned_limit(void) {
    uint64_t wanted = ac_is_enabled() ? ac_process_config()->pinned_cache : 0;
    if (!wanted)
        return 0;
    uint64_t left = ac_host_memory_left(), whole = left + ac_host_kept(&ac_pinned);
    if (!left)
        ac_log_once(AC_LOG_WARNING,
                    "pinned_cache keeps no more memory: the host has none left, or "
                    "/proc/meminfo, which tells, cannot be read");
    if (wanted == UINT64_MAX)
        return whole / 8;
    return wanted < whole / 2 ? wanted : whole / 2;
}

bool ac_pinned_find(uint64_t address, ac_host_info_t *info) {
    int state = atomic_load_explicit(&ac_state, memory_order_acquire);
    return atomic_load_explicit(&ac_pinned.blocks, memory_order_relaxed) &&
           (state == AC_STATE_ACTIVE || state == AC_STATE_EXITING) &&
           ac_host_find(&ac_pinned, address, info);
}

/* --- back to the driver --- */

uint64_t ac_pinned_give_back(uint64_t before, uint64_t limit) {
    uint64_t freed = 0, address, size;
    ac_host_block_t *block;
    while (!ac_cuda_is_capturing(NULL) &&
           (block = ac_host_leave(&ac_pinned, before, limit, ac_cuda_ops.now_ns()))) {
        ac_context_t *context = ac_host_leaving(block, &address, &size);
        bool gone = ac_cuda_host_free(&context->cuda, address) == AC_OK;
        ac_host_left(&ac_pinned, block, gone, ac_cuda_ops.now_ns());
        if (!gone)
            break;
        freed += size;
        atomic_fetch_add(&ac_given_back, size);
    }
    if (freed)
        ac_count_add(ac_thread_tls, AC_COUNT_pinned_trimmed_bytes, freed);
    return freed;
}

/* Waits until blocks that are pending now are ready, for at most oom_wait. */
static void wait_for_pending(ac_context_t *context) {
    uint64_t target = ac_host_target(&ac_pinned, NULL);
    if (target)
        ac_arena_await(context->arena, target, (uint64_t)(ac_process_config()->oom_wait * 1e9));
}

bool ac_pinned_make_room(ac_context_t *context, uint64_t size, bool wait) {
    if (!wait)
        return ac_pinned_give_back(UINT64_MAX, 0);
    uint64_t kept = ac_host_kept(&ac_pinned);
    if (!kept || size > ac_host_memory_left() + kept)
        return false;
    wait_for_pending(context);
    return ac_pinned_give_back(UINT64_MAX, 0);
}

static void any(ac_context_t *context, void *found) {
    *(ac_context_t **)found = context;
}

uint64_t ac_pinned_trim(bool wait) {
    ac_context_t *context = NULL;
    if (!atomic_load(&ac_pinned.blocks))
        return 0;
    ac_context_each(any, &context);
    if (wait && context)
        wait_for_pending(context);
    return ac_pinned_give_back(UINT64_MAX, 0);
}

/* The driver's free waits for the device, so the function calls it only while the device is
 * idle. */
void ac_pinned_decay(const ac_config_t *config) {
    uint64_t idle_ns = config->idle_trim_ms ? config->idle_trim_ms * 1000000 : IDLE_NS;
    uint64_t now = ac_cuda_ops.now_ns(), limit = ac_pinned_limit();
    uint64_t before = now > idle_ns ? now - idle_ns : 0;
    if (!ac_host_kept(&ac_pinned) || !ac_host_due(&ac_pinned, before, limit))
        return;
    if (ac_fence_calm(0)) { /* this also makes waiting blocks ready */
        ac_pinned_give_back(before, 0);
        ac_pinned_give_back(UINT64_MAX, limit);
    }
}

/* --- contexts, captures --- */

void ac_pinned_quiesce(ac_context_t *context, uint64_t limit_ns) {
    bool others = atomic_load(&ac_pinned.blocks) && ac_context_count() > 1;
    uint64_t target = others ? ac_host_target(&ac_pinned, context) : 0;
    if (target)
        ac_arena_await(context->arena, target, limit_ns);
}

void ac_pinned_context_gone(const ac_context_t *context) {
    if (atomic_load(&ac_pinned.blocks))
        ac_host_owner_gone(&ac_pinned, context);
}

bool ac_pinned_holds(uint64_t session) {
    return atomic_load(&ac_pinned.blocks) && ac_host_holds(&ac_pinned, session);
}

void ac_pinned_release(uint64_t session) {
    if (atomic_load(&ac_pinned.blocks))
        ac_host_release(&ac_pinned, session, ac_cuda_ops.now_ns());
}

int ac_pinned_check(const char **why) {
    return ac_host_check(&ac_pinned, why);
}

/* Guarded blocks, as requests and frees see them (space/guard_place.h, supply/guard.h). */
#include "allocator/guarded.h"

#include "allocator/allocator_int.h"
#include "allocator/space/guard_place.h"
#include "allocator/supply/guard.h"
#include "allocator/supply/supply.h"
#include "device/wait.h"
#include "failpoint.h"

typedef struct {
    ac_arena_t *arena;
    const ac_stream_t *stream; /* NULL: a plain request */
    unsigned module, mempool;
    uint64_t requested;
} request_t;

static void serve(void *arg, ac_block_t *block) {
    const request_t *request = arg;
    ac_allocator_t *allocator = request->arena->allocator;
    ac_segment_reuse(block, request->module, request->requested);
    AC_BLOCK_SET(block, ticket.epoch, ac_fence_handout(&request->arena->timeline));
    if (request->stream)
        ac_ordered_handed_out(block, request->mempool);
    allocator->counters->guarded_allocs++;
    ac_caches_check_peaks(allocator, NULL);
}

/* Unmaps pages of freed guarded blocks if the device is known to be idle: unmapping and looking at them
 * would wait for it.  Returns true if no freed block has pages left. */
static bool collect(ac_arena_t *arena) {
    if (!ac_guard_waits(arena))
        return true;
    if (!ac_fence_calm(0))
        return false;
    ac_lock(&arena->allocator->lock);
    if (!arena->dead)
        ac_retired_drain(arena);
    ac_unlock(&arena->allocator->lock);
    ac_guard_collect(arena);
    return !ac_guard_waits(arena);
}

ac_guard_answer_t ac_arena_alloc_guarded(ac_arena_t *arena, unsigned module, unsigned mempool,
                                         const ac_stream_t *stream, uint64_t bytes,
                                         uint64_t *address) {
    ac_allocator_t *allocator = arena->allocator;
    request_t request = {arena, stream, module, mempool, bytes};
    ac_guard_ask_t ask = {.arena = arena,
                          .requested = bytes,
                          .aside = stream != NULL,
                          .serve = serve,
                          .arg = &request};
    if (bytes == 0 || bytes >= (uint64_t)1 << 48)
        return AC_GUARD_NOT_NOW; /* no device has so much: the request fails as any other */
    ask.size = ac_size_up(bytes, AC_GRANULE);
    collect(arena);
    ac_guard_answer_t answer = ac_guard_grow(&ask);
    ac_lock(&allocator->lock);
    allocator->counters->guard_refusals += answer != AC_GUARD_SERVED;
    ac_unlock(&allocator->lock);
    if (answer == AC_GUARD_SERVED)
        *address = ask.address;
    return answer;
}

void ac_guard_freeing(uint64_t address, unsigned module) {
    ac_block_t *block;
    ac_allocator_t *allocator;
    if (ac_allocator_lock_block(address, &block, &allocator) != AC_OK)
        return;
    if (ac_segment_is_guarded(block->segment))
        ac_guard_record(block)->freed_by = (uint8_t)module;
    ac_unlock(&allocator->lock);
}

void ac_guard_note_freed(const ac_block_t *block) {
    ac_guard_record(block)->freed_ns = block->segment->arena->ops->now_ns();
    ac_guard_count(block, true);
}

/* For pages that other threads have claimed, and not yet unmapped. */
static void await_others(const ac_arena_t *arena) {
    ac_allocator_t *allocator = arena->allocator;
    uint64_t end = arena->ops->now_ns() + AC_PATIENCE_NS;
    const struct timespec until = {(time_t)(end / 1000000000), (long)(end % 1000000000)};
    const ac_range_t *range;
    int late = 0;
    ac_lock(&allocator->lock);
    while (!late && !arena->dead && (range = arena->guarded) &&
           range->guard->leaving && !AC_FAILPOINT(guard_not_awaited)) {
        AC_WINDOW(guard_awaited);
        late = ac_wait_until(&allocator->settled, &allocator->lock, &until);
    }
    ac_unlock(&allocator->lock);
}

void ac_guard_freed(ac_arena_t *arena, bool wait) {
    bool gone = collect(arena);
    if (!gone && wait && !arena->ops->capturing(arena->context, false)) {
        ac_fence_await(&arena->timeline, ac_fence_moment(&arena->timeline), AC_FREE_NS);
        gone = collect(arena);
    }
    if (wait)
        await_others(arena);
    if (!gone)
        ac_supply_postpone_trim(arena->allocator);
}

void ac_guard_settle(ac_arena_t *arena) {
    ac_guard_freed(arena, false);
    await_others(arena);
}

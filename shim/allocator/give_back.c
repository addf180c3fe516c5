/* Idle memory goes back to the device: after a while without use, when the device becomes idle, and on
 * demand (trim.c).
 *
 * Each way begins with the same steps: recall the caches of threads, ask the device whether it is idle,
 * add all that is ready to the free memory.  If the device works, giving back would wait for it; a trim
 * stays pending instead (supply.h).
 *
 * Decay: a segment notes the epoch in which it became idle, and every use takes it off the idle list.  A
 * segment that stayed on the list for the given number of whole epochs was not used in them.  The rest is
 * the high-water mark of recent use, by segments.  Holes of a range note the epoch of their last free.
 * No time is read when memory is handed out.  One thread at a time calls decay, whenever an epoch has
 * passed; the caller decides how long an epoch is. */
#include "allocator/give_back.h"

#include "allocator/supply/expand.h"
#include "allocator/supply/supply.h"

bool ac_give_back_begin(ac_allocator_t *allocator, uint64_t target) {
    ac_caches_recall(allocator, NULL); /* memory that waits in caches is pending from now on */
    /* Freed memory that work may still reach is neither in use nor idle, and no request may come
     * that would ask for a fence: so this does. */
    bool may = ac_fence_calm(target);
    ac_lock(&allocator->lock);
    ac_retired_drain_all(allocator);
    ac_unlock(&allocator->lock);
    if (!may)
        ac_supply_postpone_trim(allocator);
    return may;
}

/* Returns true if the program or a captured graph has a block of the native segment.  Blocks that threads keep
 * are not in use, and stay with them. */
static inline bool is_in_use(const ac_segment_t *segment) {
    if (segment->held)
        return true;
    for (const ac_block_t *block = segment->first; block; block = block->next)
        if (block->state == AC_BLOCK_ALLOCATED || (ac_block_is_slab(block) && ac_block_in_use(block)))
            return true;
    return false;
}

static uint64_t idle_in(const ac_segment_t *segment) {
    if (segment->range)
        return ac_range_idle_bytes(segment->range);
    return segment->busy && is_in_use(segment) ? 0 : segment->size;
}

/* Programs ask for free memory again and again.  If no thread keeps a block and none waits, each block that is not
 * free is in use, so segments outside of the idle list need no look. */
uint64_t ac_allocator_idle_bytes(ac_allocator_t *allocator) {
    uint64_t idle = 0;
    ac_lock(&allocator->lock);
    bool kept = ac_caches_hold(allocator, NULL);
    for (ac_arena_t *arena = allocator->arenas; arena; arena = arena->next) {
        bool all = kept || ac_retired_any(arena) || arena->holes.first;
        const ac_segment_t *s = all ? arena->segments : arena->idle.first;
        for (; s; s = all ? s->next : s->idle_next)
            idle += idle_in(s);
    }
    ac_unlock(&allocator->lock);
    return idle;
}

uint64_t ac_allocator_unused_bytes(ac_allocator_t *allocator) {
    ac_cache_sum_t sum;
    const ac_device_stats_t *stats = allocator->stats;
    ac_lock(&allocator->lock);
    ac_caches_absorb(allocator, &sum);
    uint64_t bytes = (uint64_t)(stats->reserved_bytes[AC_POOL_ALL].current -
                                stats->allocated_bytes[AC_POOL_ALL].current) -
                     allocator->counters->capture_deferred_bytes;
    ac_unlock(&allocator->lock);
    return bytes;
}

static void add_free(ac_free_bytes_t *bytes, const ac_segment_t *segment, uint64_t page,
                     uint64_t reached) {
    bool used = segment->allocated || segment->held;
    for (const ac_block_t *block = segment->first; block; block = block->next) {
        if (block->state != AC_BLOCK_FREE)
            continue;
        if (segment->range && block->ticket.epoch > reached)
            bytes->kept += block->size;
        if (!segment->range && used && block->size >= page && block->ticket.epoch <= reached)
            bytes->movable += (block->size - page + AC_GRANULE) / page * page;
    }
}

ac_free_bytes_t ac_allocator_free_bytes(ac_allocator_t *allocator, uint64_t page) {
    ac_free_bytes_t bytes = {0, 0};
    bool able = false;
    for (ac_arena_t *arena = allocator->arenas; arena; arena = arena->next) {
        able = able || ac_expand_able(arena);
        ac_lock(&allocator->lock);
        uint64_t reached = ac_supply_reached(arena);
        for (const ac_segment_t *s = arena->idle.first; s; s = s->idle_next)
            bytes.kept += s->size;
        for (const ac_segment_t *s = arena->segments; s; s = s->next)
            add_free(&bytes, s, page, reached);
        ac_unlock(&allocator->lock);
    }
    if (!able)
        bytes.movable = 0;
    return bytes;
}

uint64_t ac_give_back_except(ac_allocator_t *allocator, const ac_shrink_t *pick, uint64_t kept) {
    ac_shrink_t most = *pick;
    most.bytes = AC_UNLIMITED;
    if (kept) {
        uint64_t idle = ac_allocator_idle_bytes(allocator);
        most.within = true;
        most.bytes = idle > kept ? idle - kept : 0;
    }
    return ac_supply_shrink(allocator, &most);
}

/* --- after a while --- */

static uint64_t shrink_aged(ac_allocator_t *allocator, uint32_t epochs) {
    const ac_shrink_t aged = {.epochs = epochs, .leaving = true};
    ac_lock(&allocator->lock);
    uint64_t kept = ac_mempool_kept(&allocator->store, 0);
    ac_unlock(&allocator->lock);
    return ac_give_back_except(allocator, &aged, kept);
}

uint64_t ac_allocator_decay(ac_allocator_t *allocator, uint32_t epochs) {
    ac_lock(&allocator->lock);
    allocator->epoch++;
    ac_unlock(&allocator->lock);
    bool may = ac_give_back_begin(allocator, 0);
    ac_lock(&allocator->lock);
    allocator->supply->pending_epochs = may ? 0 : epochs;
    ac_unlock(&allocator->lock);
    return may ? shrink_aged(allocator, epochs) : 0;
}

/* Returns true if a larger budget of pages was learned.  If it fell, a trim is pending. */
static bool look_at_toll(ac_allocator_t *allocator) {
    ac_toll_t *toll = &allocator->supply->expand.toll;
    bool owes = false;
    ac_lock(&allocator->lock);
    if (toll->share) {
        ac_caches_raise(allocator, NULL); /* the statistics have the requests */
        owes = ac_policy_learn(toll, &allocator->settings, ac_supply_requests(allocator),
                               allocator->arenas->ops->now_ns());
    }
    bool learned = toll->share;
    ac_unlock(&allocator->lock);
    if (owes)
        ac_supply_postpone_trim(allocator);
    return learned;
}

bool ac_allocator_settle_debt(ac_allocator_t *allocator) {
    bool learned = look_at_toll(allocator);
    if (!atomic_load(&allocator->supply->trim_pending))
        return !learned;
    if (!ac_give_back_begin(allocator, 0))
        return false;
    atomic_store(&allocator->supply->trim_pending, false);
    ac_lock(&allocator->lock);
    uint32_t epochs = allocator->supply->pending_epochs;
    allocator->supply->pending_epochs = 0;
    ac_unlock(&allocator->lock);
    const ac_shrink_t excess = {.bytes = ac_supply_excess(allocator), .leaving = true};
    ac_supply_shrink(allocator, &excess);
    if (epochs)
        shrink_aged(allocator, epochs);
    ac_supply_collect(allocator);
    return !learned;
}

/* --- after a free --- */

void ac_give_back_leaving(ac_arena_t *arena) {
    ac_allocator_t *allocator = arena->allocator;
    ac_supply_shrink_leaving(arena);
    ac_lock(&allocator->lock);
    bool left = arena->tainted_idle;
    ac_unlock(&allocator->lock);
    if (left)
        ac_supply_postpone_trim(allocator);
}

void ac_allocator_release(ac_allocator_t *allocator, uint64_t session) {
    for (ac_arena_t *arena = allocator->arenas; arena; arena = arena->next) {
        ac_lock(&allocator->lock);
        bool owes = ac_retired_let_go(arena, session);
        bool leaving = arena->tainted_idle && !arena->dead;
        ac_unlock(&allocator->lock);
        if (leaving)
            ac_supply_shrink_leaving(arena);
        if (owes)
            ac_supply_postpone_trim(allocator);
    }
}

/* --- before a context goes --- */

/* Work that the program itself may hold back gets a second only: another thread may release it, but maybe
 * only the caller would, after this call. */
void ac_arena_await(ac_arena_t *arena, uint64_t target, uint64_t limit_ns) {
    uint64_t begin = arena->ops->now_ns(), spent = 0;
    while (spent < limit_ns && !arena->ops->capturing(arena->context, true) &&
           !(spent >= AC_PATIENCE_NS && ac_fence_holding(&arena->timeline, AC_REACH_ALL)) &&
           ac_fence_wait(&arena->timeline, AC_REACH_ALL, target, AC_STEP_NS) == AC_BUSY)
        spent = arena->ops->now_ns() - begin;
}

void ac_arena_quiesce(ac_arena_t *arena, uint64_t limit_ns) {
    ac_allocator_t *allocator = arena->allocator;
    ac_lock(&allocator->lock);
    const ac_ledger_t *ledger = &arena->retired->ledger;
    const ac_due_t *last = ledger->fence[AC_REACH_ALL].last;
    bool waits = !arena->dead && last;
    uint64_t target = waits ? ac_due_epoch(last) : 0;
    for (unsigned i = 0; !arena->dead && i < AC_LEDGER_SESSIONS; i++)
        if (ledger->capture[i].first && atomic_load(&ac_fence_shared)) {
            waits = true; /* no fence covers them yet: a fence of this moment would */
            target = ac_fence_now();
        }
    ac_unlock(&allocator->lock);
    if (waits)
        ac_arena_await(arena, target, limit_ns);
}

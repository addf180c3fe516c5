/* Native segments: memory that the driver allocates, and frees as a whole (supply.h).  They leave
 * the arena under the lock and go to the driver without it. */
#include "allocator/policy.h"
#include "allocator/space/records.h"
#include "allocator/space/segment.h"
#include "allocator/space/size.h"
#include "allocator/supply/expand.h"
#include "allocator/supply/medium.h"
#include "device/wait.h"
#include "failpoint.h"

/* --- growing: all under the lock, which is given up around calls and waits --- */

/* Returns true for a medium block if medium segments serve.  Segments that replace refused pages are no medium
 * ones. */
static bool is_medium(const ac_growth_ask_t *ask) {
    const ac_allocator_t *allocator = ask->arena->allocator;
    return ask->medium && !allocator->settings.expandable_segments &&
           allocator->supply->medium.apart;
}

static bool is_big(const ac_growth_ask_t *ask) {
    return ac_big_serves(ask->arena->allocator, ask->pool, ask->size);
}

static unsigned index_for(const ac_growth_ask_t *ask) {
    return is_medium(ask) ? AC_INDEX_MEDIUM : is_big(ask) ? AC_INDEX_BIG : (unsigned)ask->pool;
}

static ac_plan_t plan_of(const ac_growth_ask_t *ask) {
    const ac_allocator_t *allocator = ask->arena->allocator;
    ac_for_t kind = ask->pool == AC_POOL_SMALL ? AC_FOR_SMALL
                    : is_medium(ask)           ? AC_FOR_MEDIUM
                    : is_big(ask)              ? AC_FOR_BIG
                                               : AC_FOR_LARGE;
    return ac_policy_plan(&allocator->settings, ac_supply_live(allocator, ask->size),
                          ac_supply_taken(allocator), kind, ask->size);
}

/* Returns the bytes of the requested segment that other requests may use. */
static uint64_t left_over(const ac_growth_ask_t *ask, uint64_t size) {
    const ac_settings_t *settings = &ask->arena->allocator->settings;
    return size < settings->max_split_size ? size - ask->size : 0;
}

/* Announce a growth by `size` bytes.  False: the limit does not allow it. */
static bool reserve(ac_growth_ask_t *ask, uint64_t size) {
    ac_arena_t *arena = ask->arena;
    ac_allocator_t *allocator = arena->allocator;
    uint64_t limit = ac_supply_limit(allocator);
    if (size > limit || ac_supply_taken(allocator) > limit - size)
        return false;
    allocator->supply->growing += size;
    allocator->calls++;
    ask->index = index_for(ask);
    arena->growths->calls[ask->index]++;
    arena->growths->coming[ask->index] += left_over(ask, size);
    return true;
}

/* The call has ended. */
static void unreserve(ac_growth_ask_t *ask, uint64_t size, bool changed) {
    ac_arena_t *arena = ask->arena;
    ac_allocator_t *allocator = arena->allocator;
    /* Others may have claimed some of it, and the settings may have changed. */
    uint64_t *coming = &arena->growths->coming[ask->index], left = left_over(ask, size);
    allocator->supply->growing -= size;
    *coming -= *coming < left ? *coming : left;
    if (--arena->growths->calls[ask->index] == 0)
        *coming = 0;
    ask->changes += changed;
    ac_supply_end_call(allocator, changed);
}

/* Waits for a segment that another thread asks for, if it holds more than that thread needs.  Returns true if the
 * request was served.  The wait ends: the device call may depend on what the program does after this request.
 * After a wait that failed, no thread waits for segments that were announced before. */
static bool share_growth(const ac_growth_ask_t *ask) {
    ac_arena_t *arena = ask->arena;
    ac_allocator_t *allocator = arena->allocator;
    const unsigned index = index_for(ask);
    uint64_t *coming = &arena->growths->coming[index];
    bool found = false;
    int late = 0;
    if (*coming < ask->size)
        return false;
    *coming -= ask->size;
    uint64_t end = arena->ops->now_ns() + AC_OTHERS_NS;
    const struct timespec until = {(time_t)(end / 1000000000), (long)(end % 1000000000)};
    while (!found && !late && !arena->dead && arena->growths->calls[index]) {
        late = ac_wait_until(&allocator->settled, &allocator->lock, &until);
        found = !arena->dead && ask->look(ask->arg);
    }
    if (late && !found)
        *coming = 0;
    return found;
}

/* Adds a segment and lists its free blocks in `index`, or in that of the pool if big blocks are not separate any
 * more. */
static ac_segment_t *add(ac_arena_t *arena, int pool, unsigned index, uint64_t address,
                         uint64_t size) {
    if (index == AC_INDEX_BIG && !arena->allocator->supply->big.apart)
        index = (unsigned)pool;
    ac_segment_t *segment = ac_segment_add(&arena->space, pool, address, size);
    if (segment && index != segment->index)
        ac_segment_relist(segment, index);
    return segment;
}

/* Makes a segment of new memory and serves the request with it: the end of the announced call.  If another segment
 * has some of the pages, that waits for ac_supply_adopt, unless this is it (`last`). */
static ac_status_t adopt(ac_growth_ask_t *ask, uint64_t address, uint64_t size, bool last) {
    ac_arena_t *arena = ask->arena;
    ac_allocator_t *allocator = arena->allocator;
    ac_segment_t *segment = NULL;
    bool may = !arena->dead || AC_FAILPOINT(grown_into_dead);
    if (may)
        segment = add(arena, ask->pool, ask->index, address, size);
    if (segment) {
        allocator->supply->ceiling = 0;
        ask->serve(ask->arg, segment->first);
    } else if (may && !last && ac_page_map_is_owned(address, size)) {
        ask->stale_address = address;
        ask->stale_bytes = size;
        return AC_FAILED;
    }
    if (!segment) { /* within the call: the arena may serve another context after it */
        ac_unlock(&allocator->lock);
        arena->ops->segment_free(arena->context, address, size);
        ac_lock(&allocator->lock);
    }
    /* A failure changes nothing for others unless the announced bytes were in their way. */
    unreserve(ask, size, segment || allocator->settings.limit != AC_UNLIMITED);
    return segment ? AC_OK : AC_FAILED;
}

/* Asks for a segment of `size` bytes within the limit, and serves the request with it. */
static ac_status_t grow_by(ac_growth_ask_t *ask, uint64_t size) {
    ac_arena_t *arena = ask->arena;
    ac_allocator_t *allocator = arena->allocator;
    uint64_t address;
    if (!reserve(ask, size))
        return AC_OOM;
    ac_unlock(&allocator->lock);
    uint64_t begin = arena->ops->now_ns();
    ac_status_t status = ask->aside
                             ? arena->ops->segment_alloc_aside(arena->context, size, &address)
                             : arena->ops->segment_alloc(arena->context, size, &address);
    uint64_t spent = arena->ops->now_ns() - begin;
    AC_WINDOW(grown);
    ac_lock(&allocator->lock);
    allocator->counters->driver_allocs++;
    allocator->counters->driver_alloc_ns += spent;
    if (status == AC_OK)
        return adopt(ask, address, size, false);
    unreserve(ask, size, allocator->settings.limit != AC_UNLIMITED);
    if (status == AC_OOM)
        allocator->supply->ceiling = ac_supply_taken(allocator);
    return status;
}

ac_status_t ac_supply_adopt(ac_growth_ask_t *ask) {
    uint64_t address = ask->stale_address, bytes = ask->stale_bytes;
    ask->stale_bytes = 0;
    ac_lock(&ask->arena->allocator->lock);
    ac_status_t status = adopt(ask, address, bytes, true);
    ac_unlock(&ask->arena->allocator->lock);
    return status;
}

/* Returns true if there are whole pages that no request can find.  Under the lock. */
static bool has_left_pages(ac_arena_t *arena) {
    return arena->allocator->counters->left_pages && !atomic_load(&arena->timeline.broken) &&
           ac_range_any_whole(&arena->space, false);
}

/* Gives back pages that no request can find, then idle segments. */
static void shrink_by(ac_arena_t *arena, uint64_t bytes, bool left) {
    uint64_t freed = left ? ac_supply_pages.shrink(arena, &(ac_shrink_t){.bytes = bytes}) : 0;
    if (freed < bytes)
        ac_supply_native.shrink(arena, &(ac_shrink_t){.bytes = bytes - freed});
}

/* Beyond the budget: gives idle segments that are too small back, if that waits for nothing.  Beyond `wait_budget`:
 * first waits, once, for the work that keeps them.  The lock is open meanwhile.  Returns true if the request was
 * served. */
static bool make_room(const ac_growth_ask_t *ask, uint64_t excess, bool patient) {
    ac_arena_t *arena = ask->arena;
    ac_allocator_t *allocator = arena->allocator;
    bool left = has_left_pages(arena);
    bool any = arena->idle.first || left;
    ac_unlock(&allocator->lock);
    bool may = ac_supply_may_shrink(allocator, ask->target);
    if (!may && any && patient && ac_supply_wait(ask)) {
        ac_lock(&allocator->lock);
        if (ask->look(ask->arg)) /* what waited for that work makes more segments idle */
            return true;
        ac_unlock(&allocator->lock);
        may = ac_supply_may_shrink(allocator, ask->target);
    }
    if (may)
        shrink_by(arena, excess, left);
    ac_lock(&allocator->lock);
    return false;
}

/* Ends separate big blocks if too much lies idle next to them.  Returns true if one of their free blocks then served
 * the request, which is not big. */
static bool big_lets_go(const ac_growth_ask_t *ask) {
    ac_allocator_t *allocator = ask->arena->allocator;
    return allocator->supply->big.apart && index_for(ask) == AC_POOL_LARGE && plan_of(ask).exceeds &&
           !ac_big_stays_apart(allocator, ac_supply_live(allocator, ask->size)) && ask->look(ask->arg);
}

/* Gives idle segments back: the request exceeds the budget.  Returns true if it was served meanwhile. */
static bool make_way(const ac_growth_ask_t *ask, const ac_plan_t *plan, bool shares) {
    ac_big_note_trade(ask->arena->allocator); /* the segments that go for it may go later */
    return make_room(ask, plan->trim, shares && plan->waits) ||
           (shares && share_growth(ask)) || /* others have begun to grow meanwhile */
           big_lets_go(ask);
}

static ac_status_t grow_planned(ac_growth_ask_t *ask, const ac_plan_t *plan) {
    ac_status_t status = AC_OOM;
    uint64_t tried = UINT64_MAX;
    for (int i = 0; i < 3 && status == AC_OOM; i++)
        if (plan->segment[i] < tried)
            status = grow_by(ask, tried = plan->segment[i]);
    return status;
}

/* Grows for one request.  With `shares`, the request first waits for other threads that grow by more than they
 * need. */
static ac_status_t grow_snug(ac_growth_ask_t *ask, bool shares) {
    if (ask->look(ask->arg) || (shares && share_growth(ask)))
        return AC_OK;
    if (ask->pool == AC_POOL_LARGE && ask->size > AC_MEDIUM && !ask->target) /* once a request */
        ac_medium_look_native(ask->arena, ask->size, ac_supply_live(ask->arena->allocator, ask->size));
    ac_plan_t plan = plan_of(ask);
    if (plan.trim && make_way(ask, &plan, shares))
        return AC_OK;
    if (plan.trim)
        plan = plan_of(ask); /* the lock was left */
    return grow_planned(ask, &plan);
}

/* Requests share growth, but not while anything captures, when the driver answers each thread differently. */
static ac_status_t grow(ac_growth_ask_t *ask) {
    ac_arena_t *arena = ask->arena;
    bool shares = !arena->ops->capturing(arena->context, true);
    ac_lock(&arena->allocator->lock);
    ac_status_t status = grow_snug(ask, shares);
    ac_unlock(&arena->allocator->lock);
    return status;
}

ac_status_t ac_native_grow_instead(ac_growth_ask_t *ask) {
    ac_allocator_t *allocator = ask->arena->allocator;
    ac_lock(&allocator->lock);
    uint64_t size = plan_of(ask).segment[2];
    uint64_t reserved = (uint64_t)allocator->stats->reserved_bytes[AC_POOL_ALL].current;
    bool full = reserved + size > allocator->settings.memory / 2;
    ac_status_t status = full ? AC_OOM : grow_by(ask, size);
    ac_unlock(&allocator->lock);
    return status;
}

/* --- giving back --- */

enum { BATCH = 32 };

/* A segment on its way to the driver: in no list any more.  The records are out of use, and kept
 * for its return: others may have used up all that there is meanwhile. */
typedef struct {
    uint64_t address, size;
    int pool;
    unsigned index;
    bool tainted, refused;
    ac_segment_t *segment;
    ac_block_t *block;
} ac_leaving_t;

/* Which of the idle segments go: tainted ones alone, or others. */
typedef struct {
    const ac_shrink_t *shrink;
    bool tainted;
    uint64_t quiet; /* up to which target the device is done */
} ac_pick_t;

static bool picked(const ac_segment_t *segment, const ac_pick_t *pick, uint64_t taken) {
    const ac_shrink_t *shrink = pick->shrink;
    return segment->tainted == pick->tainted && segment->quiet <= pick->quiet &&
           (!shrink->large || segment->pool == AC_POOL_LARGE) &&
           (!shrink->within || segment->size <= shrink->bytes - taken) &&
           (!shrink->epochs ||
            segment->arena->allocator->epoch - segment->idle_epoch > shrink->epochs);
}

/* Takes up to BATCH picked segments out of the arena's lists, longest idle first, until `bytes` are reached. */
static unsigned take(ac_arena_t *arena, const ac_pick_t *pick, ac_leaving_t leaving[BATCH],
                     uint64_t *taken) {
    unsigned n = 0;
    for (ac_segment_t *s = arena->idle.first, *next;
         s && n < BATCH && *taken < pick->shrink->bytes; s = next) {
        next = s->idle_next;
        if (!picked(s, pick, *taken))
            continue;
        leaving[n++] = (ac_leaving_t){.address = s->address,
                                      .size = s->size,
                                      .pool = s->pool,
                                      .index = s->index,
                                      .tainted = s->tainted};
        *taken += s->size;
        arena->allocator->supply->claimed += s->size; /* until the device has it back */
        ac_segment_remove(s, false);
        leaving[n - 1].segment =
            ac_record_segment(&arena->allocator->store); /* what was just returned */
        leaving[n - 1].block = ac_record_block(&arena->allocator->store);
    }
    arena->allocator->calls += n > 0;
    return n;
}

static void return_records(ac_allocator_t *allocator, const ac_leaving_t *leaving) {
    ac_record_segment_return(&allocator->store, leaving->segment);
    ac_record_block_return(&allocator->store, leaving->block);
}

/* Takes a segment back that the device refused to free now. */
static void put_back(ac_arena_t *arena, const ac_leaving_t *leaving) {
    ac_device_stats_t *stats = arena->allocator->stats;
    ac_segment_t *segment =
        arena->dead && !AC_FAILPOINT(put_back_into_dead)
            ? NULL
            : add(arena, leaving->pool, leaving->index, leaving->address, leaving->size);
    if (!segment)
        return;
    stats->num_device_alloc--;
    stats->num_device_free--;
    if (leaving->tainted) {
        ac_segment_taint(segment);
        arena->tainted_idle++;
    }
}

static uint64_t shrink(ac_arena_t *arena, ac_pick_t pick) {
    ac_allocator_t *allocator = arena->allocator;
    ac_leaving_t leaving[BATCH];
    uint64_t total = 0;
    unsigned n, refused = 0;
    ac_lock(&allocator->lock);
    do {
        /* The work of a broken context is dead, and no fence tells of it any more. */
        pick.quiet = atomic_load(&arena->timeline.broken) ? UINT64_MAX : ac_supply_reached(arena);
        n = arena->dead ? 0 : take(arena, &pick, leaving, &total);
        if (!n)
            break;
        ac_unlock(&allocator->lock);
        uint64_t begin = arena->ops->now_ns();
        for (unsigned i = 0; i < n; i++)
            leaving[i].refused = arena->ops->segment_free(arena->context, leaving[i].address,
                                                          leaving[i].size) == AC_BUSY;
        uint64_t spent = arena->ops->now_ns() - begin;
        ac_lock(&allocator->lock);
        for (unsigned i = 0; i < n; i++) {
            return_records(allocator, &leaving[i]);
            allocator->supply->claimed -= leaving[i].size;
            if (!leaving[i].refused)
                continue;
            put_back(arena, &leaving[i]);
            total -= leaving[i].size;
            refused++;
        }
        allocator->counters->driver_frees += n;
        allocator->counters->driver_free_ns += spent;
        ac_supply_end_call(allocator, true);
    } while (n == BATCH && !refused);
    if (total) {
        allocator->supply->ceiling = 0;
        allocator->counters->trims++;
        allocator->counters->trimmed_bytes += total;
        atomic_fetch_add(&ac_given_back, total);
    }
    ac_unlock(&allocator->lock);
    return total;
}

static uint64_t shrink_idle(ac_arena_t *arena, const ac_shrink_t *pick) {
    return shrink(arena, (ac_pick_t){.shrink = pick});
}

uint64_t ac_supply_shrink_leaving(ac_arena_t *arena) {
    const ac_shrink_t all = {.bytes = AC_UNLIMITED};
    return shrink(arena, (ac_pick_t){.shrink = &all, .tainted = true});
}

const ac_supply_kind_t ac_supply_native = {.grow = grow, .shrink = shrink_idle};

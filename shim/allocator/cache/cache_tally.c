/* The tally of thread caches (thread_cache.h): how near a peak is, and what the device statistics
 * take over. */
#include "allocator/budget.h"
#include "allocator/cache/cache_int.h"

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* What may still be added to a figure before a peak rises: its pool's, or the whole device's,
 * which the sides of a cache share between them.  *slack: how much more a side may have of the
 * other's. */
static void share_room(const ac_stat_t stat[AC_POOL_KINDS], int64_t *const room[AC_FLOWS],
                       int64_t *const slack[AC_FLOWS]) {
    int64_t all = stat[AC_POOL_ALL].peak - stat[AC_POOL_ALL].current;
    for (int i = 0; i < AC_FLOWS; i++) {
        int64_t own = stat[AC_POOL_SMALL + i].peak - stat[AC_POOL_SMALL + i].current;
        *room[i] = least(all / (AC_FLOWS - i), own);
        *slack[i] = own - *room[i];
        all -= *room[i];
    }
}

/* Of two figures the one with less room counts.  *lead: how much more the second has. */
static void share_both(const ac_stat_t one[AC_POOL_KINDS], const ac_stat_t two[AC_POOL_KINDS],
                       int64_t *const room[AC_FLOWS], int64_t *const slack[AC_FLOWS],
                       int64_t *const lead[AC_FLOWS]) {
    int64_t most[AC_FLOWS], gap[AC_FLOWS];
    share_room(one, room, slack);
    share_room(two, (int64_t *[]){&most[0], &most[1]}, (int64_t *[]){&gap[0], &gap[1]});
    for (int i = 0; i < AC_FLOWS; i++) {
        int64_t own = least(*room[i] + *slack[i], most[i] + gap[i]);
        *lead[i] = most[i] - *room[i];
        *room[i] = least(*room[i], most[i]);
        *slack[i] = own - *room[i];
    }
}

#define EACH_SIDE(of, figure) ((int64_t *[]){&of[0].figure, &of[1].figure})

/* With other caches in use it is not known how near a peak is. */
void ac_cache_set_room(ac_cache_t *cache) {
    const ac_allocator_t *allocator = cache->arena->allocator;
    const ac_device_stats_t *s = allocator->stats;
    ac_cache_room_t room[AC_FLOWS], *slack = cache->slack, *lead = cache->lead;
    if (allocator->caches->first == cache && !cache->next) {
        share_both(s->allocation, s->active, EACH_SIDE(room, blocks), EACH_SIDE(slack, blocks),
                   EACH_SIDE(lead, blocks));
        share_both(s->allocated_bytes, s->active_bytes, EACH_SIDE(room, bytes),
                   EACH_SIDE(slack, bytes), EACH_SIDE(lead, bytes));
        share_room(s->requested_bytes, EACH_SIDE(room, requested), EACH_SIDE(slack, requested));
    } else {
        for (int i = 0; i < AC_FLOWS; i++) {
            room[i] = (ac_cache_room_t){AC_CACHE_UNPUBLISHED >> AC_GRANULE_BITS,
                                        AC_CACHE_UNPUBLISHED, AC_CACHE_UNPUBLISHED};
            slack[i] = lead[i] = (ac_cache_room_t){0, 0, 0};
        }
    }
    for (int i = 0; i < AC_FLOWS; i++)
        cache->tally->side[i].room = room[i];
    cache->share = ac_budget_fence(&allocator->settings, allocator->high_water);
}

/* A block that waits is freed, and active as before: of two figures that share their room the
 * first has more of it, which counts as far as the other one's goes.  No more than that was known
 * of what the pool may have of the other pool's. */
static void first_grows(int64_t *room, int64_t *slack, int64_t *lead, int64_t n) {
    int64_t both = *lead < 0 ? 0 : least(*lead, n);
    *room += both;
    *slack -= both;
    *lead -= n;
}

/* Then it is ready: the second has. */
static void second_grows(int64_t *room, int64_t *slack, int64_t *lead, int64_t n) {
    int64_t both = *lead > 0 ? 0 : least(-*lead, n);
    *room += both;
    *slack -= both;
    *lead += n;
}

void ac_cache_count_waiting(ac_cache_t *cache, const ac_block_t *block) {
    uint64_t size = block->size;
    int flow = ac_cache_flow(size);
    ac_cache_side_t *side = &cache->tally->side[flow];
    uint64_t requested = atomic_load_explicit(&block->requested, memory_order_relaxed);
    ac_tally_add(&side->flow.given, 1);
    ac_tally_add(&side->flow.given_bytes, size);
    ac_tally_add(&side->flow.given_requested, requested);
    ac_tally_add(&side->waiting.blocks, 1);
    ac_tally_add(&side->waiting.bytes, size);
    ac_tally_add(&side->waiting.requested, requested);
    ac_tally_add(&cache->tally->fenced, 1);
    first_grows(&side->room.blocks, &cache->slack[flow].blocks, &cache->lead[flow].blocks, 1);
    first_grows(&side->room.bytes, &cache->slack[flow].bytes, &cache->lead[flow].bytes,
                (int64_t)size);
}

void ac_cache_count_ready(ac_cache_t *cache, int flow, const ac_cache_wait_t *ready) {
    ac_cache_side_t *side = &cache->tally->side[flow];
    ac_tally_add(&side->waiting.blocks, -ready->blocks);
    ac_tally_add(&side->waiting.bytes, -ready->bytes);
    ac_tally_add(&side->waiting.requested, -ready->requested);
    second_grows(&side->room.blocks, &cache->slack[flow].blocks, &cache->lead[flow].blocks,
                 (int64_t)ready->blocks);
    second_grows(&side->room.bytes, &cache->slack[flow].bytes, &cache->lead[flow].bytes,
                 (int64_t)ready->bytes);
    side->room.requested += (int64_t)ready->requested;
}

/* Whether a side has room for `n`, if need be from the other one.  What a figure had more than
 * the one it shares its room with may be what it lacks then. */
static bool has_room(int64_t *own, int64_t *other, int64_t *slack, int64_t *other_slack,
                     int64_t *lead, int64_t n) {
    int64_t lacking = n - *own;
    if (lacking <= 0)
        return true;
    if (lacking > *other || lacking > *slack)
        return false;
    *own += lacking;
    *other -= lacking;
    *slack -= lacking;
    *other_slack += lacking;
    *lead = 0;
    return true;
}

bool ac_cache_has_rooms(ac_cache_t *cache, int flow, int64_t blocks, uint64_t bytes,
                        uint64_t requested) {
    ac_cache_room_t *own = &cache->tally->side[flow].room;
    ac_cache_room_t *other = &cache->tally->side[!flow].room;
    ac_cache_room_t *slack = &cache->slack[flow], *others = &cache->slack[!flow];
    ac_cache_room_t *lead = &cache->lead[flow];
    return has_room(&own->blocks, &other->blocks, &slack->blocks, &others->blocks, &lead->blocks,
                    blocks) &&
           has_room(&own->bytes, &other->bytes, &slack->bytes, &others->bytes, &lead->bytes,
                    (int64_t)bytes) &&
           has_room(&own->requested, &other->requested, &slack->requested, &others->requested,
                    &lead->requested, (int64_t)requested);
}

static void absorb(ac_allocator_t *allocator, const ac_cache_sum_t *sum) {
    ac_stats_absorb(allocator->stats, allocator->counters, sum);
    uint64_t live = (uint64_t)allocator->stats->allocated_bytes[AC_POOL_ALL].current;
    if (live > allocator->high_water)
        allocator->high_water = live;
}

void ac_caches_absorb(ac_allocator_t *allocator, ac_cache_sum_t *sum) {
    *sum = (ac_cache_sum_t){.ordered = 0};
    for (ac_cache_t *cache = allocator->caches->first; cache; cache = cache->next)
        ac_cache_tally_add(cache->tally, true, sum);
    absorb(allocator, sum);
}

/* Whether the peak of a figure would rise by what a cache did and `n` more. */
static bool rises(const ac_stat_t stat[AC_POOL_KINDS], int pool, const int64_t net[AC_FLOWS],
                  int64_t n) {
    int64_t own = net[pool - AC_POOL_SMALL] + n, all = net[0] + net[1] + n;
    return stat[pool].current + own > stat[pool].peak ||
           stat[AC_POOL_ALL].current + all > stat[AC_POOL_ALL].peak;
}

static bool peak_rises(const ac_device_stats_t *s, const ac_cache_sum_t *sum, int pool,
                       uint64_t size, uint64_t requested) {
    int64_t blocks[AC_FLOWS], bytes[AC_FLOWS];                 /* allocated */
    int64_t active[AC_FLOWS], held[AC_FLOWS], asked[AC_FLOWS]; /* with those that wait */
    for (int i = 0; i < AC_FLOWS; i++) {
        const ac_cache_flow_t *f = &sum->flow[i];
        const ac_cache_wait_t *w = &sum->waiting[i];
        blocks[i] = (int64_t)(f->taken - f->given);
        bytes[i] = (int64_t)(f->taken_bytes - f->given_bytes);
        active[i] = blocks[i] + (int64_t)w->blocks;
        held[i] = bytes[i] + (int64_t)w->bytes;
        asked[i] = (int64_t)(f->taken_requested - f->given_requested + w->requested);
    }
    return rises(s->allocation, pool, blocks, 1) || rises(s->active, pool, active, 1) ||
           rises(s->allocated_bytes, pool, bytes, (int64_t)size) ||
           rises(s->active_bytes, pool, held, (int64_t)size) ||
           rises(s->requested_bytes, pool, asked, (int64_t)requested);
}

void ac_caches_before(ac_allocator_t *allocator, ac_cache_t *cache, int pool, uint64_t size,
                      uint64_t requested) {
    ac_cache_sum_t sum = {.ordered = 0};
    if (!allocator->caches->first)
        return;
    /* The figures of one cache alone may show a peak that the others' make none. */
    bool alone = allocator->caches->first == cache && !cache->next;
    bool news = cache && !ac_cache_tally_absorbed(cache->tally);
    if (alone && !news)
        return;
    if (news && !alone)
        ac_cache_tally_add(cache->tally, false, &sum);
    if (!alone && (!cache || peak_rises(allocator->stats, &sum, pool, size, requested))) {
        ac_caches_absorb(allocator, &sum);
    } else if (news) {
        sum = (ac_cache_sum_t){.ordered = 0};
        ac_cache_tally_add(cache->tally, true, &sum);
        absorb(allocator, &sum);
    }
    /* The only one counts on being alone in what it adds to the figures. */
    if (!cache && !allocator->caches->first->next)
        atomic_fetch_or(&allocator->caches->first->gate, AC_GATE_STALE);
}

void ac_caches_before_free(ac_allocator_t *allocator) {
    ac_cache_sum_t sum;
    const ac_cache_t *only = allocator->caches->first;
    if (only && !only->next && atomic_load(&only->gate) & (AC_GATE_DUE | AC_GATE_STALE))
        ac_caches_absorb(allocator, &sum);
}

void ac_caches_after(ac_cache_t *cache, uint64_t size) {
    const ac_allocator_t *allocator = cache->arena->allocator;
    if (!ac_cache_usable(cache) || allocator->caches->first != cache || cache->next)
        return;
    /* What was served raised the figures of both sides: of one its own, of the other the sum.
     * Less room than there is does no harm. */
    for (int i = 0; i < AC_FLOWS; i++) {
        ac_cache_side_t *side = &cache->tally->side[i];
        side->room.blocks--;
        side->room.bytes -= (int64_t)size;
        side->room.requested -= (int64_t)size;
    }
}

/* A hit found that a peak may have been reached: before anything else is done. */
void ac_cache_publish(ac_cache_t *cache) {
    ac_allocator_t *allocator = cache->arena->allocator;
    ac_cache_sum_t sum;
    ac_lock(&allocator->lock);
    bool usable = ac_cache_usable(cache);
    bool stale = atomic_load(&cache->gate) & AC_GATE_STALE;
    if (usable && !stale && ac_cache_has_rooms(cache, 0, 0, 0, 0) &&
        ac_cache_has_rooms(cache, 1, 0, 0, 0)) {
        /* It was not: the other side had room to spare. */
        atomic_fetch_and(&cache->gate, ~(uint32_t)AC_GATE_DUE);
    } else {
        atomic_fetch_and(&cache->gate, ~(uint32_t)(AC_GATE_DUE | AC_GATE_STALE));
        ac_caches_absorb(allocator, &sum);
        if (usable)
            ac_cache_set_room(cache);
    }
    ac_unlock(&allocator->lock);
}

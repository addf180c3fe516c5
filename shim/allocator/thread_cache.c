/* Thread caches (thread_cache.h). */
#include "allocator/thread_cache.h"

#include <sched.h>

#include "allocator/allocator_int.h"

/* A magazine of small blocks holds this many, or this many bytes; one of large blocks few. */
enum { SMALL_MOST = 32, SMALL_LEAST = 4, LARGE_MOST = 4, LARGE_SHARE = 4, FETCH = 8 };
#define SMALL_BYTES ((uint64_t)128 << 10)
#define SMALL_LIMIT ((uint64_t)1 << 20) /* of all small magazines together */

enum { RECALL_TRIES = 10000 };

/* In place of a block: no address is its own. */
static ac_block_t nobodys = {.address = 1};

static uint32_t clamp(uint64_t n, uint32_t low, uint32_t high) {
    return n < low ? low : n > high ? high : (uint32_t)n;
}

static uint32_t most_of(const ac_cache_t *cache, uint64_t size) {
    return size > AC_SMALL_LIMIT ? clamp(cache->limit[1] / LARGE_SHARE / size, 1, LARGE_MOST)
                                 : clamp(SMALL_BYTES / size, SMALL_LEAST, SMALL_MOST);
}

/* --- statistics --- */

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* What may still be added to a figure before its peak rises.  The whole device's is shared by the
 * two pools; with other threads about nobody knows it. */
static int64_t room_of(const ac_stat_t stat[AC_POOL_KINDS], int pool, bool alone,
                       int64_t others) {
    const ac_stat_t *all = &stat[AC_POOL_ALL], *own = &stat[pool];
    return alone ? least((all->peak - all->current) / AC_FLOWS, own->peak - own->current)
                 : others;
}

static void set_room(ac_cache_t *cache) {
    const int64_t unknown = INT64_MAX;
    const ac_allocator_t *allocator = cache->arena->allocator;
    const ac_device_stats_t *s = allocator->stats;
    bool alone = allocator->caches == cache && !cache->next;
    for (int i = 0; i < AC_FLOWS; i++) {
        int pool = AC_POOL_SMALL + i;
        ac_cache_side_t *side = &cache->books->side[i];
        side->room.blocks =
            least(room_of(s->allocation, pool, alone, AC_CACHE_UNPUBLISHED >> AC_GRANULE_BITS),
                  room_of(s->active, pool, alone, unknown));
        side->room.bytes = least(room_of(s->allocated_bytes, pool, alone, AC_CACHE_UNPUBLISHED),
                                 room_of(s->active_bytes, pool, alone, unknown));
        side->room.requested = room_of(s->requested_bytes, pool, alone, AC_CACHE_UNPUBLISHED);
    }
}

static void absorb(ac_allocator_t *allocator, const ac_cache_sum_t *sum) {
    ac_stats_absorb(allocator->stats, allocator->counters, sum);
    uint64_t live = (uint64_t)allocator->stats->allocated_bytes[AC_POOL_ALL].current;
    if (live > allocator->high_water)
        allocator->high_water = live;
}

void ac_caches_absorb(ac_allocator_t *allocator, ac_cache_sum_t *sum) {
    *sum = (ac_cache_sum_t){.ordered = 0};
    for (ac_cache_t *cache = allocator->caches; cache; cache = cache->next)
        ac_cache_books_add(cache->books, true, sum);
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
    int64_t blocks[AC_FLOWS], bytes[AC_FLOWS], asked[AC_FLOWS];
    for (int i = 0; i < AC_FLOWS; i++) {
        const ac_cache_flow_t *f = &sum->flow[i];
        blocks[i] = (int64_t)(f->taken - f->given);
        bytes[i] = (int64_t)(f->taken_bytes - f->given_bytes);
        asked[i] = (int64_t)(f->taken_requested - f->given_requested);
    }
    return rises(s->allocation, pool, blocks, 1) || rises(s->active, pool, blocks, 1) ||
           rises(s->allocated_bytes, pool, bytes, (int64_t)size) ||
           rises(s->active_bytes, pool, bytes, (int64_t)size) ||
           rises(s->requested_bytes, pool, asked, (int64_t)requested);
}

void ac_caches_before(ac_allocator_t *allocator, ac_cache_t *cache, int pool, uint64_t size,
                      uint64_t requested) {
    ac_cache_sum_t sum = {.ordered = 0};
    if (!allocator->caches)
        return;
    /* The figures of one cache alone may show a peak that the others' make none. */
    bool alone = allocator->caches == cache && !cache->next;
    bool news = cache && !ac_cache_books_absorbed(cache->books);
    if (alone && !news)
        return;
    if (news)
        ac_cache_books_add(cache->books, false, &sum);
    if (!alone && (!cache || peak_rises(allocator->stats, &sum, pool, size, requested))) {
        ac_caches_absorb(allocator, &sum);
    } else if (news) {
        sum = (ac_cache_sum_t){.ordered = 0};
        ac_cache_books_add(cache->books, true, &sum);
        absorb(allocator, &sum);
    }
}

void ac_caches_after(ac_cache_t *cache, uint64_t size) {
    const ac_allocator_t *allocator = cache->arena->allocator;
    if (!ac_cache_usable(cache) || allocator->caches != cache || cache->next)
        return;
    /* What was served raised the figures of both sides: of one its own, of the other the sum.
     * Less room than there is does no harm. */
    for (int i = 0; i < AC_FLOWS; i++) {
        ac_cache_side_t *side = &cache->books->side[i];
        side->room.blocks--;
        side->room.bytes -= (int64_t)size;
        side->room.requested -= (int64_t)size;
    }
}

/* A hit found that a peak may have been reached: before anything else is done. */
static void publish(ac_cache_t *cache) {
    ac_allocator_t *allocator = cache->arena->allocator;
    ac_cache_sum_t sum;
    pthread_mutex_lock(&allocator->lock);
    atomic_fetch_and(&cache->gate, ~(uint32_t)AC_GATE_DUE);
    ac_caches_absorb(allocator, &sum);
    if (ac_cache_usable(cache))
        set_room(cache);
    pthread_mutex_unlock(&allocator->lock);
}

/* --- blocks --- */

bool ac_cache_usable(ac_cache_t *cache) {
    const uint32_t shut = AC_GATE_RECALLED | AC_GATE_GONE;
    return cache && !(atomic_load_explicit(&cache->gate, memory_order_acquire) & shut);
}

/* Blocks that come and go without being allocated or freed. */
static void moved(ac_cache_t *cache, int64_t blocks, uint64_t size) {
    int flow = ac_cache_flow(size);
    ac_books_add(&cache->books->moved_blocks[flow], (uint64_t)blocks);
    ac_books_add(&cache->books->moved_bytes[flow], (uint64_t)blocks * size);
}

static void push(ac_cache_t *cache, ac_magazine_t *magazine, ac_block_t *block) {
    atomic_store_explicit(&block->state, AC_BLOCK_CACHED, memory_order_relaxed);
    block->list_next = magazine->top;
    magazine->top = block;
    magazine->left--;
    block->segment->allocated++;
    moved(cache, 1, block->size);
}

/* Give back all but the `kept` newest. */
static bool shrink(ac_cache_t *cache, ac_magazine_t *magazine, uint32_t kept) {
    ac_block_t **end = &magazine->top;
    for (uint32_t i = 0; i < kept && *end; i++)
        end = &(*end)->list_next;
    ac_block_t *block = *end, *next;
    bool any = block != NULL;
    *end = NULL;
    for (; block; block = next) {
        next = block->list_next;
        magazine->left++;
        block->segment->allocated--;
        moved(cache, -1, block->size);
        ac_segment_coalesce(block);
    }
    return any;
}

/* No magazine for this size any more. */
static bool dismiss(ac_cache_t *cache, ac_magazine_t *magazine) {
    if (!magazine->size)
        return false;
    bool any = shrink(cache, magazine, 0);
    cache->promised[ac_cache_flow(magazine->size)] -= magazine->most * magazine->size;
    *magazine = (ac_magazine_t){0};
    return any;
}

/* The same for all of small or of large blocks. */
static bool dismiss_all(ac_cache_t *cache, int flow) {
    bool any = false;
    for (int i = 0; i < AC_CACHE_MAGAZINES && cache->promised[flow]; i++)
        if (cache->magazine[i].size && ac_cache_flow(cache->magazine[i].size) == flow)
            any |= dismiss(cache, &cache->magazine[i]);
    return any;
}

bool ac_cache_flush(ac_cache_t *cache, bool all) {
    bool any = ac_cache_books_held(cache->books, 1) && dismiss_all(cache, 1);
    if (all && ac_cache_books_held(cache->books, 0))
        any |= dismiss_all(cache, 0);
    return any;
}

/* The magazine for blocks of the size; it takes the place of others, where it must. */
static ac_magazine_t *magazine_for(ac_cache_t *cache, uint64_t size) {
    ac_magazine_t *magazine = ac_cache_magazine(cache, size);
    int flow = ac_cache_flow(size);
    if (magazine->size == size)
        return magazine;
    dismiss(cache, magazine);
    uint32_t most = most_of(cache, size);
    if (cache->promised[flow] + most * size > cache->limit[flow])
        dismiss_all(cache, flow);
    cache->promised[flow] += most * size;
    *magazine = (ac_magazine_t){
        .size = size, .side = &cache->books->side[flow], .left = most, .most = most};
    return magazine;
}

bool ac_cache_keep(ac_cache_t *cache, ac_block_t *block) {
    if (!ac_cache_usable(cache) || !block->home || block->home != cache->arena->number ||
        block->size > AC_CACHE_LARGEST || !cache->limit[ac_cache_flow(block->size)])
        return false;
    /* Only of sizes that were asked for lately: others are more use in one piece. */
    ac_magazine_t *magazine = ac_cache_magazine(cache, block->size);
    if (magazine->size != block->size)
        return false;
    if (magazine->left == 0)
        shrink(cache, magazine, magazine->most / 2);
    push(cache, magazine, block);
    return true;
}

/* --- hits that take more than the usual --- */

static bool enter_long(ac_cache_t *cache) {
    atomic_store(&cache->busy, 1);
    atomic_thread_fence(memory_order_seq_cst);
    if (!(atomic_load(&cache->gate) & (AC_GATE_RECALLED | AC_GATE_GONE)))
        return true;
    ac_cache_leave(cache);
    return false;
}

/* Whether a hit may be tried that the short way had no chance of. */
static bool takes_longer(ac_cache_t *cache) {
    uint32_t gate = atomic_load(&cache->gate);
    if (gate & AC_GATE_DUE)
        publish(cache);
    return gate;
}

bool ac_cache_take_long(ac_cache_t *cache, uint64_t bytes, uint64_t *address) {
    if (!takes_longer(cache) || !enter_long(cache))
        return false;
    ac_block_t *block =
        ac_cache_pop(cache, ac_size_round(cache->divisions, bytes), bytes, ac_fence_handout);
    if (block)
        *address = block->address;
    ac_cache_leave(cache);
    return block;
}

bool ac_cache_give_long(ac_cache_t *cache, uint64_t address) {
    bool ordered;
    ac_block_t *block = takes_longer(cache) ? ac_cache_block(cache, address) : NULL;
    if (!block || !ac_cache_ready(cache, block, &ordered) || !enter_long(cache))
        return false;
    bool kept = ac_cache_push(cache, block, ordered);
    ac_cache_leave(cache);
    return kept;
}

void ac_cache_expect(ac_cache_t *cache, int pool, uint64_t size) {
    ac_arena_t *arena = cache->arena;
    uint64_t largest = arena->allocator->settings.expandable ? AC_RANGE_KEEP : AC_CACHE_LARGEST;
    if (!ac_cache_usable(cache) || size > largest || !cache->limit[0])
        return;
    ac_magazine_t *magazine = ac_cache_magazine(cache, size);
    if (magazine->size != size) {
        magazine_for(cache, size);
        return; /* only those who come again get more than they ask for */
    }
    if (pool != AC_POOL_SMALL || size > AC_SMALL_LIMIT)
        return;
    uint32_t wanted = clamp(magazine->most / 2, 1, FETCH);
    ac_fit_t fit = ac_size_fit(&arena->allocator->settings, size);
    while (magazine->most - magazine->left < wanted) {
        ac_block_t *block = ac_free_index_find(&arena->index[pool], &fit, false);
        if (!block)
            return;
        ac_segment_carve(block, size);
        if (block->size != size) { /* no record for what is left */
            ac_segment_coalesce(block);
            return;
        }
        block->home = arena->number;
        push(cache, magazine, block);
    }
}

/* While its owner keeps out, and with nothing in it. */
static void configure(ac_cache_t *cache) {
    const ac_settings_t *settings = &cache->arena->allocator->settings;
    uint32_t gate = ac_barrier_is_light() ? 0 : AC_GATE_FENCED;
    for (int i = 0; i < AC_DIVISION_SLOTS; i++) {
        cache->divisions[i] = settings->divisions[i];
        if (settings->divisions[i] > 1)
            gate |= AC_GATE_STEPPED;
    }
    gate |= atomic_load(&cache->gate) & AC_GATE_RECALLED;
    atomic_store(&cache->gate, gate);
    cache->limit[0] = settings->cache < SMALL_LIMIT ? settings->cache : SMALL_LIMIT;
    cache->limit[1] = settings->cache;
}

/* Under the lock. */
static void unlist(ac_cache_t *cache) {
    ac_allocator_t *allocator = cache->arena->allocator;
    for (ac_cache_t **at = &allocator->caches; *at; at = &(*at)->next)
        if (*at == cache) {
            *at = cache->next;
            atomic_fetch_sub(&allocator->cache_count, 1);
            return;
        }
}

void ac_cache_close(ac_cache_t *cache) {
    ac_allocator_t *allocator = cache->arena->allocator;
    pthread_mutex_lock(&allocator->lock);
    if (!(atomic_load(&cache->gate) & AC_GATE_GONE)) {
        ac_cache_sum_t sum;
        ac_caches_absorb(allocator, &sum);
        ac_cache_flush(cache, true);
        unlist(cache);
    }
    *cache->books = (ac_cache_books_t){.device = 0};
    cache->next = allocator->spare_caches;
    allocator->spare_caches = cache;
    pthread_mutex_unlock(&allocator->lock);
}

/* --- recall --- */

/* Whether another cache than `own` holds anything.  Under the lock. */
static bool others_hold(const ac_allocator_t *allocator, const ac_cache_t *own) {
    ac_cache_sum_t sum = {.ordered = 0};
    for (ac_cache_t *cache = allocator->caches; cache; cache = cache->next)
        if (cache != own)
            ac_cache_books_add(cache->books, false, &sum);
    return sum.held_blocks != 0;
}

static bool is_shut(const ac_cache_t *cache) {
    return atomic_load(&cache->gate) & AC_GATE_RECALLED;
}

static bool is_busy(const ac_cache_t *cache) {
    return atomic_load_explicit(&cache->busy, memory_order_acquire);
}

/* Whether an owner has not come out of a cache that is shut. */
static bool any_busy(ac_allocator_t *allocator) {
    bool busy = false;
    pthread_mutex_lock(&allocator->lock);
    for (const ac_cache_t *cache = allocator->caches; cache && !busy; cache = cache->next)
        busy = is_shut(cache) && is_busy(cache);
    pthread_mutex_unlock(&allocator->lock);
    return busy;
}

/* Keep the owners of all caches but `own` (of one arena; NULL: of all) out of them.  False: that
 * cannot be done, and they may be in them.  With the recall lock alone. */
static bool shut(ac_allocator_t *allocator, const ac_cache_t *own, const ac_arena_t *arena) {
    bool any = false;
    pthread_mutex_lock(&allocator->lock);
    for (ac_cache_t *cache = allocator->caches; cache; cache = cache->next) {
        if (cache == own || (arena && cache->arena != arena))
            continue;
        atomic_fetch_or(&cache->gate, AC_GATE_RECALLED);
        any = true;
    }
    pthread_mutex_unlock(&allocator->lock);
    if (any && !ac_barrier_heavy())
        return false;
    /* A hit is over in no time, unless its thread is kept from running. */
    for (int i = 0; any && i < RECALL_TRIES && any_busy(allocator); i++)
        sched_yield();
    return true;
}

/* Let the owners in again, or with AC_GATE_GONE as `then` never; before that `visit` (NULL:
 * nobody) sees each cache whose owner is out of it.  True if it said so of any.  With both locks.
 */
static bool reopen(ac_allocator_t *allocator, bool (*visit)(ac_cache_t *), uint32_t then) {
    bool any = false;
    for (ac_cache_t *cache = allocator->caches, *next; cache; cache = next) {
        next = cache->next;
        if (!is_shut(cache))
            continue;
        if (visit && !is_busy(cache))
            any |= visit(cache);
        if (then)
            atomic_fetch_or(&cache->gate, then);
        atomic_fetch_and(&cache->gate, ~(uint32_t)AC_GATE_RECALLED);
    }
    return any;
}

void ac_caches_freeze(ac_allocator_t *allocator) {
    pthread_mutex_lock(&allocator->recall_lock);
    shut(allocator, NULL, NULL);
    pthread_mutex_lock(&allocator->lock);
}

void ac_caches_thaw(ac_allocator_t *allocator) {
    reopen(allocator, NULL, 0);
    pthread_mutex_unlock(&allocator->lock);
    pthread_mutex_unlock(&allocator->recall_lock);
}

static bool give_back(ac_cache_t *cache) {
    ac_cache_sum_t sum;
    bool any = ac_cache_flush(cache, true);
    ac_caches_absorb(cache->arena->allocator, &sum);
    configure(cache);
    set_room(cache);
    return any;
}

/* `always`: also where there is nothing to be had. */
static bool recall(ac_allocator_t *allocator, ac_cache_t *own, bool always) {
    bool any = false;
    if (!atomic_load(&allocator->cache_count))
        return false;
    pthread_mutex_lock(&allocator->recall_lock);
    pthread_mutex_lock(&allocator->lock);
    if (ac_cache_usable(own))
        any = give_back(own);
    bool others = always || others_hold(allocator, own);
    pthread_mutex_unlock(&allocator->lock);
    if (others) {
        bool out = shut(allocator, own, NULL);
        pthread_mutex_lock(&allocator->lock);
        any |= reopen(allocator, out ? give_back : NULL, 0);
        pthread_mutex_unlock(&allocator->lock);
    }
    pthread_mutex_unlock(&allocator->recall_lock);
    return any;
}

bool ac_caches_recall(ac_allocator_t *allocator, ac_cache_t *own) {
    return recall(allocator, own, false);
}

void ac_caches_settle(ac_allocator_t *allocator) {
    recall(allocator, NULL, true);
}

/* The records go with the segments. */
static bool lose(ac_cache_t *cache) {
    ac_cache_sum_t sum;
    ac_caches_absorb(cache->arena->allocator, &sum);
    for (int i = 0; i < AC_CACHE_MAGAZINES; i++)
        cache->magazine[i] = (ac_magazine_t){0};
    cache->promised[0] = cache->promised[1] = 0;
    for (int i = 0; i < AC_FLOWS; i++) {
        const ac_cache_flow_t *flow = &cache->books->side[i].flow;
        ac_books_add(&cache->books->moved_blocks[i], -ac_cache_books_held(cache->books, i));
        cache->books->moved_bytes[i] = flow->taken_bytes - flow->given_bytes;
    }
    unlist(cache);
    return true;
}

void ac_caches_drop(ac_arena_t *arena) {
    ac_allocator_t *allocator = arena->allocator;
    if (!atomic_load(&allocator->cache_count))
        return;
    pthread_mutex_lock(&allocator->recall_lock);
    shut(allocator, NULL, arena);
    pthread_mutex_lock(&allocator->lock);
    reopen(allocator, lose, AC_GATE_GONE);
    pthread_mutex_unlock(&allocator->lock);
    pthread_mutex_unlock(&allocator->recall_lock);
}

/* --- life --- */

ac_cache_t *ac_cache_open(ac_arena_t *arena, ac_cache_books_t *books) {
    ac_allocator_t *allocator = arena->allocator;
    ac_cache_t *cache = NULL;
    ac_barrier_setup();
    /* The caches of others may count on being the only one: they learn of this one. */
    pthread_mutex_lock(&allocator->recall_lock);
    pthread_mutex_lock(&allocator->lock);
    bool may = !arena->dead && arena->number && allocator->settings.cache;
    if (may && (cache = allocator->spare_caches))
        allocator->spare_caches = cache->next;
    pthread_mutex_unlock(&allocator->lock);
    if (may && !cache)
        cache = ac_record_memory(sizeof *cache);
    if (cache) {
        *cache = (ac_cache_t){
            .home = arena->number, .arena = arena, .line = &arena->line, .books = books};
        for (int i = 0; i < AC_CACHE_HANDED; i++)
            cache->handed[i] = &nobodys;
        pthread_mutex_lock(&allocator->lock);
        configure(cache);
        cache->next = allocator->caches;
        allocator->caches = cache;
        atomic_fetch_add(&allocator->cache_count, 1);
        set_room(cache);
        pthread_mutex_unlock(&allocator->lock);
    }
    pthread_mutex_unlock(&allocator->recall_lock);
    if (cache && cache->next)
        recall(allocator, cache, true);
    return cache;
}

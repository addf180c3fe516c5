/* The checker of the allocator's invariants: tests call it after every step. */
#include <string.h>

#include "allocator/allocator_int.h"
#include "allocator/cache/caches.h"
#include "allocator/cache/lane.h"
#include "observe/scratch.h"

typedef struct {
    ac_device_stats_t sum; /* only `current` is meaningful */
    uint64_t mempool_bytes[AC_MEMPOOLS];
    ac_modules_t modules; /* what they hold, as alloc_bytes */
    uint64_t held_blocks, held_bytes;
    uint32_t records; /* of slots */
    /* Sums of an arena, by state; `listed`: free, and in service. */
    uint64_t listed, retired, cached, waiting;
    unsigned lanes[AC_ORDER_SLOTS]; /* that name the slot */
    /* Counts of a segment. */
    uint32_t busy, allocated, kept;
    uint64_t synced; /* with pages: a block counts on each */
    const char *wrong;
} ac_check_t;

static void expect(ac_check_t *check, bool holds, const char *what) {
    if (!holds && !check->wrong)
        check->wrong = what;
}

static void add(ac_stat_t stat[AC_POOL_KINDS], int pool, int64_t n) {
    stat[AC_POOL_ALL].current += n;
    stat[pool].current += n;
}

/* Counts what the block asks of the driver, for each allocation that the block lies in. */
static void count_synced(ac_check_t *check, const ac_block_t *block) {
    uint64_t end;
    if (!block->lifetime || !block->lifetime->sync)
        return;
    for (uint64_t at = block->address; at < block->address + block->size;
         at = end, check->synced++)
        expect(check, ac_segment_synced(block, at, &end), "a block asks for SYNC_MEMOPS");
}

static void count(ac_check_t *check, const ac_block_t *block) {
    count_synced(check, block);
    check->retired += block->state == AC_BLOCK_RETIRED;
    check->cached += block->state == AC_BLOCK_CACHED && !ac_block_waits_cached(block);
    check->waiting += ac_block_waits_cached(block);
    check->kept += ac_block_is_held(block);
    check->allocated += block->state == AC_BLOCK_ALLOCATED || block->state == AC_BLOCK_CACHED;
    if (block->state == AC_BLOCK_ALLOCATED)
        ac_modules_take(&check->modules, block->module, block->size);
    if (block->state == AC_BLOCK_ALLOCATED && block->mempool)
        check->mempool_bytes[block->mempool] += ac_mempool_bytes(block);
}

/* Counts a block that is not free as the statistics do. */
static void check_used(ac_check_t *check, const ac_block_t *block) {
    int pool = block->segment->pool;
    count(check, block);
    expect(check, block->state != AC_BLOCK_UNUSED, "unused block in a segment");
    expect(check, block->state != AC_BLOCK_TRANSIT, "block in transit");
    expect(check, !block->lifetime || (block->state == AC_BLOCK_ALLOCATED && !block->owner_arena),
           "lifetime of a block that the program does not hold");
    if (block->state == AC_BLOCK_CACHED && !ac_block_waits_cached(block))
        return;
    /* The rest of a block that was freed in stream order may be all rounding; memory that waits after it
     * was free (quarantine.c) was requested by no program. */
    expect(check, block->requested || block->state == AC_BLOCK_RETIRED, "requested bytes");
    expect(check, block->requested <= block->size, "requested bytes");
    add(check->sum.active, pool, 1);
    add(check->sum.active_bytes, pool, (int64_t)block->size);
    add(check->sum.requested_bytes, pool, (int64_t)block->requested);
    if (block->state == AC_BLOCK_ALLOCATED) {
        add(check->sum.allocation, pool, 1);
        add(check->sum.allocated_bytes, pool, (int64_t)block->size);
        if (block->oversize)
            check->sum.oversize_allocations.current++;
    }
}

static void check_slot(ac_block_t *slot, void *check) {
    if (slot->state != AC_BLOCK_FREE)
        check_used(check, slot);
}

static void count_record(ac_block_t *slot, void *arg) {
    ac_check_t *check = arg;
    check->records += ac_slab_look(slot->address) == slot;
}

static void check_block(ac_check_t *check, const ac_segment_t *segment, const ac_block_t *block) {
    int pool = segment->pool;
    expect(check, block->segment == segment, "block in a foreign segment");
    expect(check, block->size && block->size % AC_GRANULE == 0, "block size");
    if (block->state == AC_BLOCK_UNMAPPED || block->state == AC_BLOCK_MOVING) {
        expect(check, segment->range != NULL, "no memory below a block");
        return;
    }
    expect(check, ac_page_map_get(block->address) == block, "page map slot");
    expect(check, ac_page_map_find(block->address + block->size - 1) == block, "page map search");
    expect(check, !block->oversize || block->state == AC_BLOCK_ALLOCATED, "oversize, and free");
    if (block->state == AC_BLOCK_FREE) {
        expect(check, !block->next || block->next->state != AC_BLOCK_FREE, "free neighbours");
        if ((block->prev || block->next) && !segment->range) {
            add(check->sum.inactive_split, pool, 1);
            add(check->sum.inactive_split_bytes, pool, (int64_t)block->size);
        }
        check->listed += ac_segment_serves(segment);
        expect(check, !segment->sealed || block->size < AC_SEGMENT_ALIGN, "sealed away");
    } else if (block->state == AC_BLOCK_SLAB) {
        const char *wrong = ac_slab_check(block);
        expect(check, !wrong, wrong);
        ac_slab_each(block, check_slot, check);
        ac_slab_each(block, count_record, check);
    } else {
        expect(check, !block->slab, "a block is a slab's");
        check_used(check, block);
    }
}

/* Returns the pages' count; pages of a MOVING block belong to another thread. */
static uint64_t synced_pages(const ac_segment_t *segment) {
    const ac_range_t *range = segment->range;
    uint64_t synced = 0;
    for (const ac_block_t *block = segment->first; block; block = block->next) {
        uint64_t unit = ac_range_unit(range, block->address + AC_SEGMENT_ALIGN - 1);
        uint64_t end = ac_range_unit(range, block->address + block->size + AC_SEGMENT_ALIGN - 1);
        for (; ac_block_has_memory(block) && unit < end; unit++)
            synced += range->unit[unit].synced;
    }
    return synced;
}

static void check_segment(ac_check_t *check, const ac_segment_t *segment) {
    uint64_t address = segment->address;
    const ac_block_t *prev = NULL;
    check->busy = check->allocated = check->kept = 0;
    check->synced = 0;
    for (const ac_block_t *block = segment->first; block; prev = block, block = block->next) {
        expect(check, block->prev == prev, "block links");
        expect(check, block->address == address, "blocks do not tile the segment");
        check_block(check, segment, block);
        check->busy += block->state != AC_BLOCK_FREE && block->state != AC_BLOCK_UNMAPPED;
        address += block->size;
    }
    expect(check, address == segment->address + segment->size, "segment end");
    expect(check, check->busy + (segment->range != NULL) == segment->busy, "busy count");
    expect(check, check->allocated == segment->allocated, "allocated count");
    expect(check, check->kept == segment->held, "held count");
    expect(check, segment->frees == &segment->space->index[segment->index], "index of a segment");
    if (segment->range) {
        const char *wrong;
        uint64_t mapped = ac_range_check(segment->range, &wrong);
        add(check->sum.reserved_bytes, segment->pool, (int64_t)mapped);
        expect(check, !wrong, wrong);
        expect(check, check->synced == synced_pages(segment), "synced on pages");
        return;
    }
    expect(check, check->synced == segment->synced, "synced count");
    add(check->sum.segment, segment->pool, 1);
    add(check->sum.reserved_bytes, segment->pool, (int64_t)segment->size);
    if (segment->oversize)
        check->sum.oversize_segments.current++;
}

/* Every indexed block is free, in its bin, and in service; returns how many there are. */
static uint64_t check_index(ac_check_t *check, const ac_free_index_t *index) {
    uint64_t blocks = 0;
    for (unsigned bin = 0; bin < AC_BINS; bin++) {
        bool marked = index->nonempty[bin / 64] >> (bin % 64) & 1;
        expect(check, marked == (index->bin[bin] != NULL), "bin mark");
        ac_block_t *const *at = &index->bin[bin];
        for (const ac_block_t *block = *at; block; at = &block->bin_next, block = *at) {
            expect(check, block->state == AC_BLOCK_FREE, "indexed block is not free");
            expect(check, block->bin_at == at, "block that is elsewhere in its bin");
            expect(check, ac_free_index_bin(block->size) == bin && block->bin == bin,
                   "block in a wrong bin");
            expect(check, !block->segment->tainted, "tainted block indexed");
            blocks++;
        }
    }
    return blocks;
}

/* The idle list holds exactly the segments without busy blocks. */
static void check_idle(ac_check_t *check, const ac_arena_t *arena) {
    uint64_t idle = 0;
    unsigned tainted = 0;
    const ac_segment_t *prev = NULL;
    for (const ac_segment_t *s = arena->idle.first; s; prev = s, s = s->idle_next) {
        expect(check, s->busy == 0 && s->idle_prev == prev, "idle list");
        tainted += s->tainted;
        idle++;
    }
    expect(check, arena->idle.last == prev, "idle list's end");
    expect(check, arena->tainted_idle == tainted, "tainted idle segments");
    for (const ac_segment_t *s = arena->segments; s; s = s->next)
        idle -= s->busy == 0;
    expect(check, idle == 0, "idle segments missing in the list");
}

static void add_waiting(ac_cache_wait_t *sum, const ac_block_t *block) {
    sum->blocks++;
    sum->bytes += block->size;
    sum->requested += block->requested;
}

/* How many blocks of an entry wait. */
static void check_waiting(ac_check_t *check, const ac_cache_t *cache, int i,
                          ac_cache_wait_t waiting[AC_FLOWS]) {
    const ac_entry_t *entry = &cache->entry[i];
    const ac_block_t *last = cache->wait[i], *b = last;
    ac_cache_wait_t *sum = &waiting[ac_cache_flow(ac_entry_size(entry))];
    uint64_t epoch = 0;
    if (!last)
        return;
    do {
        b = b->link;
        expect(check, ac_block_waits_cached(b) && b->ticket.key == AC_KEY_OWN,
               "block that waits has no ticket");
        expect(check, b->size == ac_entry_size(entry), "block waits in a wrong entry");
        expect(check, b->segment->arena == cache->arena, "waiting block of another arena");
        expect(check, epoch <= b->ticket.epoch, "what waits is out of order");
        epoch = b->ticket.epoch;
        add_waiting(sum, b);
    } while (b != last && !check->wrong);
}

/* Checks the entry's place, and that no other entry has its key. */
static void check_place(ac_check_t *check, ac_cache_t *cache, int i) {
    const ac_entry_t *entry = &cache->entry[i];
    uint64_t key = ac_entry_key(entry), size = ac_key_size(key), bit = (uint64_t)1 << (i % 64);
    int class = key == size ? ac_cache_class(size) : AC_CACHE_STREAMS;
    bool may = size && !(entry->size & AC_ENTRY_EMPTY);
    int bucket = (int)(ac_cache_entry(cache, key) - cache->entry) / AC_CACHE_WAYS;
    for (int k = 0; k < AC_CACHE_CLASSES; k++)
        expect(check, !(cache->kept[k][i / 64] & bit) == !(may && k == class),
               "bits of entries that may have blocks");
    expect(check, (may && !(entry->size & AC_ENTRY_REFUSED)) || !entry->top,
           "an entry that keeps nothing has blocks");
    expect(check, may || !cache->wait[i], "blocks wait where none are kept");
    expect(check, !size || i / AC_CACHE_WAYS == bucket, "an entry lies in a wrong bucket");
    expect(check, !size || entry->class == class, "an entry of a wrong class");
    for (int k = i + 1; size && k < (bucket + 1) * AC_CACHE_WAYS; k++)
        expect(check, ac_entry_key(&cache->entry[k]) != key, "a key has two entries");
}

/* Checks the path to the bits of its entries. */
static void check_classes(ac_check_t *check, const ac_cache_t *cache) {
    for (int k = 0; k < AC_CACHE_CLASSES; k++) {
        unsigned words = 0;
        for (int i = 0; i < AC_CACHE_WORDS; i++)
            words |= (cache->kept[k][i] != 0) << i;
        expect(check, cache->words[k] == words, "words of entries that may have blocks");
        expect(check, (cache->classes >> k & 1) == (words != 0),
               "classes of entries that may have blocks");
    }
}

/* The lanes of the cache. */
static void check_lanes(ac_check_t *check, const ac_cache_t *cache) {
    unsigned count = 0;
    for (int i = 0; cache->lanes && i < AC_LANES; i++) {
        const ac_lane_t *lane = &cache->lanes->lane[i];
        if (lane->stream) {
            check->lanes[lane->order.slot]++;
            count++;
        }
        for (int k = 0; lane->stream && k < i; k++)
            expect(check, cache->lanes->lane[k].stream != lane->stream, "a stream has two lanes");
    }
    expect(check, !cache->lanes || count == cache->lanes->count, "lanes in use");
}

/* A ready block of an entry of a stream, or of a plain one. */
static void check_kept(ac_check_t *check, const ac_cache_t *cache, const ac_entry_t *entry,
                       const ac_block_t *b) {
    uint64_t number = (ac_entry_key(entry) & (AC_GRANULE - 1)) >> AC_KEY_STREAM_SHIFT;
    expect(check, b->state == AC_BLOCK_CACHED && !ac_block_waits_cached(b),
           "kept block is not cached, or not ready");
    expect(check, b->size == ac_entry_size(entry), "block in a wrong entry");
    expect(check, b->segment->arena == cache->arena, "cached block of another arena");
    if (!number)
        return;
    const ac_lane_t *lane = &cache->lanes->lane[number - 1];
    expect(check, lane->stream && b->ticket.key == ac_key_of(lane->order.slot), "block in a wrong lane");
    expect(check, b->ticket.place > lane->order.base, "position of another stream");
}

/* Checks a chain of ready blocks that goes from one cache to another (cache/inbox.h).  Returns their
 * bytes. */
static uint64_t check_chain(ac_check_t *check, const ac_cache_t *cache, const ac_block_t *block,
                            uint64_t *bytes) {
    uint64_t blocks = 0;
    for (; block && !check->wrong; block = block->link) {
        expect(check, block->state == AC_BLOCK_CACHED && !ac_block_waits_cached(block),
               "block on its way is not cached, or not ready");
        expect(check, block->segment->arena == cache->arena, "block in a wrong inbox");
        *bytes += block->size;
        blocks++;
    }
    return blocks;
}

/* How many blocks the caches of threads hold, and how many of these wait.  Their owners keep out
 * of them. */
static uint64_t check_caches(ac_check_t *check, const ac_arena_t *arena, uint64_t *wait) {
    uint64_t blocks = 0;
    *wait = 0;
    for (ac_cache_t *cache = arena->allocator->caches->first; cache; cache = cache->next) {
        uint64_t bytes = 0, largest = 0;
        int64_t charged = 0;
        ac_cache_wait_t waiting[AC_FLOWS] = {{0, 0, 0}, {0, 0, 0}};
        if (cache->arena != arena)
            continue;
        check_lanes(check, cache);
        check_classes(check, cache);
        for (int i = 0; i < AC_CACHE_ENTRIES; i++) {
            const ac_entry_t *entry = &cache->entry[i];
            if (!entry->size && !entry->top && !cache->wait[i]) {
                for (int k = 0; k < AC_CACHE_CLASSES; k++)
                    expect(check, !(cache->kept[k][i / 64] >> (i % 64) & 1), "bit of no entry");
                continue;
            }
            check_place(check, cache, i);
            check_waiting(check, cache, i, waiting);
            for (const ac_block_t *b = entry->top; b; b = b->link) {
                check_kept(check, cache, entry, b);
                largest = entry->charge > largest ? entry->charge : largest;
                charged += entry->charge;
                bytes += b->size;
                blocks++;
            }
        }
        expect(check, (int64_t)cache->budget - charged == cache->room, "room of a cache");
        expect(check, !largest || charged - (int64_t)largest <= (int64_t)cache->budget,
               "a cache keeps too much");
        for (unsigned i = 0; i < cache->loose_count; i++) {
            const ac_block_t *b = cache->loose[i];
            expect(check, b->state == AC_BLOCK_CACHED, "loose block is not cached");
            if (ac_block_waits_cached(b)) {
                add_waiting(&waiting[ac_cache_flow(b->size)], b);
                continue;
            }
            bytes += b->size;
            blocks++;
        }
        blocks += check_chain(check, cache, cache->out.first, &bytes) +
                  check_chain(check, cache, cache->unplaced, &bytes);
        uint64_t posted_bytes = 0;
        uint64_t posted = check_chain(check, cache, ac_inbox_first(&cache->inbox), &posted_bytes);
        blocks += posted;
        expect(check, ac_inbox_weight(posted, posted_bytes) == atomic_load(&cache->inbox.weight),
               "weight of an inbox");
        for (int i = 0; i < AC_FLOWS; i++) {
            const ac_cache_wait_t *said = &cache->tally->side[i].waiting;
            expect(check,
                   said->blocks == waiting[i].blocks && said->bytes == waiting[i].bytes &&
                       said->requested == waiting[i].requested,
                   "tally of what waits");
            expect(check, said->bytes <= cache->may_wait[i], "too much waits in a cache");
            *wait += waiting[i].blocks;
        }
        ac_cache_sum_t sum = {.ordered = 0};
        ac_cache_tally_add(cache->tally, false, &sum);
        expect(check, sum.held_bytes == bytes, "tally of a cache");
    }
    return blocks;
}

/* Checks the sum of the leases of all arenas' caches. */
static void check_leases(ac_check_t *check, const ac_allocator_t *allocator) {
    uint64_t leased = 0;
    for (const ac_cache_t *cache = allocator->caches->first; cache; cache = cache->next) {
        leased += cache->leased;
        expect(check,
               cache->leased <= cache->budget && cache->budget - cache->leased <= AC_CACHE_OWN,
               "budget of a cache");
    }
    expect(check, leased == allocator->caches->leased && leased <= AC_CACHE_KEPT,
           "bytes leased to caches");
}

static int64_t brought_by(const ac_allocator_t *allocator, const ac_block_t *block) {
    int64_t bytes = 0;
    for (; block; block = block->link)
        bytes += ac_cache_brings(block, allocator->caches->raised);
    return bytes;
}

/* Checks that the bound and the grants of the caches leave as much as the peak leaves.  Called before the
 * tallies are absorbed, with all owners out. */
static void check_bound(ac_check_t *check, const ac_allocator_t *allocator) {
    int64_t peak = allocator->stats->allocated_bytes[AC_POOL_ALL].peak;
    int64_t share = peak / AC_CACHE_MISSED_SHARE, beyond = allocator->peak_bound - peak;
    for (const ac_cache_t *cache = allocator->caches->first; cache; cache = cache->next) {
        ac_cache_sum_t sum = {.ordered = 0};
        ac_cache_tally_add(cache->tally, false, &sum);
        if (!(atomic_load(&cache->gate) & AC_GATE_RESTS))
            beyond += cache->headroom;
        for (int i = 0; i < AC_FLOWS && !(atomic_load(&cache->gate) & AC_GATE_RESTS); i++)
            beyond += (int64_t)(sum.flow[i].taken_bytes - sum.flow[i].given_bytes);
        beyond += brought_by(allocator, cache->out.first) +
                  brought_by(allocator, cache->unplaced) +
                  brought_by(allocator, ac_inbox_first(&cache->inbox));
    }
    expect(check,
           beyond == 0 || beyond == (share > AC_CACHE_MISSED ? share : AC_CACHE_MISSED),
           "bound of the peak of allocated bytes");
}

static bool is_indexed(const ac_free_index_t *index, const ac_block_t *block) {
    unsigned bin = ac_free_index_bin(block->size);
    if (block->bin != bin)
        return false;
    ac_block_t *const *at = &index->bin[bin];
    while (*at && *at != block)
        at = &(*at)->bin_next;
    return *at && block->bin_at == at && index->nonempty[bin / 64] >> (bin % 64) & 1;
}

static void check_due(ac_due_t *due, void *arg) {
    ac_check_t *check = arg;
    const ac_block_t *b = ac_block_of(due);
    const ac_retired_t *retired = b->segment->arena->retired;
    const ac_ticket_t *ticket = &due->ticket;
    if (ac_slab_is_aside(b))
        return;
    expect(check, b->state == AC_BLOCK_RETIRED, "listed block is not retired");
    check->retired--;
    if (ticket->key == AC_KEY_CAPTURE) {
        expect(check, ticket->place, "held for no session");
        check->held_blocks++;
        check->held_bytes += b->size;
    } else if (ac_key_is_stream(ticket->key)) {
        unsigned slot = ac_key_slot(ticket->key);
        const ac_order_t *order = retired->order;
        expect(check, ticket->place <= order->pos[slot] && ticket->place > order->base[slot],
               "position of another stream");
        expect(check, is_indexed(&retired->index[slot][b->segment->index], b),
               "block missing in the index of its stream");
        expect(check, !b->segment->tainted && !ac_retired_alike(b, b->next),
               "block that should have been joined, or taken out");
    }
}

static void check_retired(ac_check_t *check, const ac_arena_t *arena) {
    ac_retired_t *retired = arena->retired;
    const char *wrong = ac_ledger_check(&retired->ledger, check_due, check);
    expect(check, !wrong, wrong);
    expect(check, !retired->order || ac_order_check(retired->order) == 0, "order of streams");
    expect(check, !check->retired, "retired blocks missing in the ledger");
}

static void check_arena(ac_check_t *check, ac_arena_t *arena) {
    uint64_t wait;
    check->listed = check->retired = check->cached = check->waiting = 0;
    memset(check->lanes, 0, sizeof check->lanes);
    check_idle(check, arena);
    for (const ac_segment_t *s = arena->segments; s; s = s->next)
        check_segment(check, s);
    uint64_t indexed = 0;
    for (int i = 0; i < AC_INDICES; i++)
        indexed += check_index(check, &arena->index[i]);
    expect(check, indexed == check->listed, "free blocks missing in the index");
    check_retired(check, arena);
    expect(check, check->cached == check_caches(check, arena, &wait),
           "cached blocks missing in the caches");
    expect(check, check->waiting == wait, "waiting blocks missing in the caches");
    for (unsigned slot = 0; slot < AC_ORDER_SLOTS; slot++)
        expect(check, ac_ordered_lanes(arena, slot) == check->lanes[slot], "lanes of a stream");
    expect(check, arena->dead || ac_fence_check(&arena->timeline) == 0, "timeline");
}

static void compare(ac_check_t *check, const ac_device_stats_t *stats) {
#define STAT_POOLS(name, unit, doc)                                                              \
    for (int i = 0; i < AC_POOL_KINDS; i++)                                                      \
        expect(check, check->sum.name[i].current == stats->name[i].current, #name);
#define STAT_SINGLE(name, unit, doc)                                                             \
    expect(check, check->sum.name.current == stats->name.current, #name);
#include "observe/stats.def"
}

/* The account of modules agrees with the blocks. */
static void check_modules(ac_check_t *check, const ac_allocator_t *allocator) {
    ac_modules_t said = allocator->stats->modules;
    ac_caches_modules(allocator, &said);
    for (unsigned i = 0; i < AC_MODULES; i++)
        expect(check, said.alloc_bytes[i] - said.free_bytes[i] == check->modules.alloc_bytes[i],
               "bytes of a module");
}

/* Returns the broken invariant, or NULL; *unseen tells then why it could not look at anything. */
static const char *check_all(ac_check_t *check, ac_allocator_t *allocator, const char **unseen) {
    ac_cache_sum_t sum;
    memset(check, 0, sizeof *check);
    if (!ac_caches_freeze_patiently(allocator)) { /* its lists and sums may be half changed */
        ac_caches_thaw(allocator);
        *unseen = "a thread did not come out of its cache";
        return NULL;
    }
    check_bound(check, allocator);
    ac_caches_absorb(allocator, &sum);
    for (ac_arena_t *arena = allocator->arenas; arena; arena = arena->next)
        check_arena(check, arena);
    check_leases(check, allocator);
    compare(check, allocator->stats);
    check_modules(check, allocator);
    for (unsigned i = 0; i < AC_MEMPOOLS; i++)
        expect(check, check->mempool_bytes[i] == allocator->mempools[i].now[AC_MARK_USED],
               "bytes of a memory pool");
    expect(check, check->held_blocks == allocator->counters->capture_deferred_blocks,
           "capture_deferred_blocks");
    expect(check, check->held_bytes == allocator->counters->capture_deferred_bytes,
           "capture_deferred_bytes");
    expect(check, check->records == allocator->slots.count, "records of slots");
    ac_caches_thaw(allocator);
    return check->wrong;
}

int ac_allocator_check(ac_allocator_t *allocator, const char **why) {
    ac_check_t *check = ac_scratch_take();
    _Static_assert(sizeof *check <= AC_SCRATCH, "a check has no room");
    const char *unseen = check ? NULL : "host memory is short";
    const char *wrong = check ? check_all(check, allocator, &unseen) : NULL;
    ac_scratch_give(check);
    if (why)
        *why = wrong ? wrong : unseen;
    return wrong != NULL;
}

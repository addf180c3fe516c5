/* Implements oracle.h. */
#include "oracle.h"

#include "allocator/supply/expand.h"

#include <stdlib.h>
#include <string.h>

#define MIB      ((uint64_t)1 << 20)
#define CAPACITY (512 * MIB)

oracle_t oracle;

struct oracle_opened {
    fake_context_t context;
    struct oracle_opened *next;
};

#define expect(holds, ...)                                                                       \
    do {                                                                                         \
        if (!(holds))                                                                            \
            oracle_wrong("step %u: " __VA_ARGS__);                                               \
    } while (0)

/* Draws a size up to 128 MiB. One size is drawn often enough to fill its slabs. */
static uint64_t draw_size(void) {
    uint64_t log = oracle_draw(32);
    if (log >= 28)
        return AC_SLAB_LARGEST;
    return ((uint64_t)1 << log) + oracle_draw((uint64_t)1 << log);
}

static bool overlap(uint64_t a, uint64_t a_size, uint64_t b, uint64_t b_size) {
    return a < b + b_size && b < a + a_size;
}

static void forget_done(void) {
    unsigned kept = 0;
    for (unsigned i = 0; i < oracle.hazards; i++) {
        bool open = false;
        for (int c = 0; c < ORACLE_CONTEXTS; c++)
            open |= oracle.hazard[i].need[c] > atomic_load(&oracle.context[c]->completed);
        if (open)
            oracle.hazard[kept++] = oracle.hazard[i];
    }
    oracle.hazards = kept;
}

/* Returns true if unfinished work may use the range. `stream`: the stream of the next work;
 * ORACLE_NO_STREAM: any stream. */
static bool in_danger(uint64_t address, uint64_t size, int slot, int stream) {
    for (unsigned i = 0; i < oracle.hazards; i++) {
        const oracle_hazard_t *h = &oracle.hazard[i];
        if (stream >= 0 && h->slot == slot && h->streams >> stream & 1)
            continue;
        for (int c = 0; c < ORACLE_CONTEXTS; c++)
            if (h->need[c] > atomic_load(&oracle.context[c]->completed) &&
                overlap(h->address, h->size, address, size))
                return true;
    }
    return false;
}

static void before_call(void *arg, fake_kind_t kind) {
    (void)arg, (void)kind;
    if (ac_try_lock(&oracle.allocator->lock))
        ac_unlock(&oracle.allocator->lock);
    else
        oracle.lock_held = true;
    for (int c = 0; c < ORACLE_CONTEXTS; c++) {
        ac_mutex_t *lock = &ac_arena_timeline(oracle.arena[c])->lock;
        if (ac_try_lock(lock))
            ac_unlock(lock);
        else
            oracle.lock_held = true;
    }
}

static void freeing(void *arg, uint64_t address, uint64_t size) {
    (void)arg;
    expect(!in_danger(address, size, 0, ORACLE_NO_STREAM), "gave back memory in use by work",
           oracle.step);
    for (unsigned i = 0; i < oracle.lives; i++)
        expect(!overlap(oracle.live[i].address, oracle.live[i].size, address, size),
               "gave back a segment with a live block", oracle.step);
}

static void open_context(int slot) {
    struct oracle_opened *opened = calloc(1, sizeof *opened);
    expect(opened, "no memory", oracle.step);
    opened->next = oracle.opened;
    oracle.opened = opened;
    oracle.context[slot] = &opened->context;
    fake_context_init(oracle.context[slot], &oracle.device);
    oracle.device.before = NULL; /* the arena does not exist yet */
    oracle.arena[slot] = ac_arena_create(oracle.allocator, &fake_ops, oracle.context[slot]);
    expect(oracle.arena[slot], "no arena", oracle.step);
    oracle.device.before = before_call;
}

void oracle_begin(bool bump, bool pages) {
    memset(&oracle, 0, sizeof oracle);
    atomic_store(&ac_fence_shared, false);
    atomic_store(&ac_fence_untracked, false);
    fake_device_init(&oracle.device, CAPACITY);
    oracle.device.bump = bump;
    oracle.most_caches = ORACLE_CACHES;
    oracle.device.freeing = freeing;
    oracle.device.ordered = oracle_ordered;
    oracle.settings = fake_settings(pages ? "expandable_segments:true" : "");
    if (pages && oracle_draw(2))
        oracle.settings.page = 2 * MIB;
    oracle.allocator = ac_allocator_create(&oracle.settings, &oracle.stats, &oracle.counters);
    expect(oracle.allocator, "no allocator", oracle.step);
    for (int c = 0; c < ORACLE_CONTEXTS; c++)
        open_context(c);
}

void oracle_end(void) {
    bool before = oracle.step % 2; /* or after their contexts */
    if (before)
        oracle_caches_end();
    for (int c = 0; c < ORACLE_CONTEXTS; c++) {
        fake_context_kill(oracle.context[c]);
        ac_arena_drop(oracle.arena[c]);
        ac_expand_bury(oracle.arena[c]);
    }
    if (!before)
        oracle_caches_end();
    expect(oracle.device.live_fences == 0, "fences are left", oracle.step);
    expect(oracle.device.live_pages == 0, "pages are left", oracle.step);
    expect(oracle.device.live_mappings == 0, "mappings are left", oracle.step);
    expect(fake_reserved_bytes(&oracle.device) == 0, "ranges are left", oracle.step);
    expect(oracle.stats.reserved_bytes[AC_POOL_ALL].current == 0, "segments are left",
           oracle.step);
    expect(oracle.stats.active[AC_POOL_ALL].current == 0, "blocks are left", oracle.step);
    while (oracle.opened) {
        struct oracle_opened *next = oracle.opened->next;
        free(oracle.opened);
        oracle.opened = next;
    }
    fake_device_close(&oracle.device);
    pthread_mutex_destroy(&oracle.device.lock);
}

/* --- the oracle's own arithmetic --- */

static uint64_t rounded(uint64_t bytes) {
    uint64_t power = 1, divisions = oracle.settings.divisions[0]; /* the same in every slot */
    while (power * 2 <= bytes)
        power *= 2;
    if (divisions > 1 && bytes > 512 * divisions && bytes != power)
        for (uint64_t i = 1; i <= divisions; i++)
            if (power + power / divisions * i >= bytes) {
                bytes = power + power / divisions * i;
                break;
            }
    return (bytes + 511) / 512 * 512;
}

typedef struct {
    uint64_t run, longest; /* adjacent bytes that would be free after all work */
    uint64_t live_segments;
    const ac_segment_t *segment;
    bool counted;
    const ac_arena_t *arena;
} room_t;

static void look(const ac_segment_t *segment, const ac_block_t *block, void *arg) {
    room_t *room = arg;
    if (room->segment != segment) {
        room->segment = segment;
        room->run = 0;
        room->counted = false;
    }
    if (block->state == AC_BLOCK_ALLOCATED) {
        room->live_segments += room->counted ? 0 : segment->size;
        room->counted = true;
        room->run = 0;
    } else if (segment->arena == room->arena && !segment->tainted) {
        room->run += block->size;
        if (room->run > room->longest)
            room->longest = room->run;
    }
}

static void look_at(ac_block_t *block, void *room) {
    look(block->segment, block, room);
}

static void look_at_all(room_t *room) {
    ac_lock(&oracle.allocator->lock);
    for (ac_arena_t *arena = oracle.allocator->arenas; arena; arena = arena->next)
        for (ac_segment_t *s = arena->segments; s; s = s->next)
            ac_segment_each(s, look_at, room);
    ac_unlock(&oracle.allocator->lock);
}

static bool anything_captures(void) {
    for (int c = 0; c < ORACLE_CONTEXTS; c++)
        if (atomic_load(&oracle.context[c]->capturing))
            return true;
    return false;
}

static void judge_out_of_memory(int slot, uint64_t bytes) {
    oracle.ooms++;
    if (oracle.broken || anything_captures() || oracle.settings.max_split_size != AC_UNLIMITED)
        return;
    room_t room = {.arena = oracle.arena[slot]};
    look_at_all(&room);
    uint64_t size = rounded(bytes);
    uint64_t need = size <= 64 << 10 ? 2 * MIB : (size + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
    uint64_t most = oracle.settings.limit < CAPACITY ? oracle.settings.limit : CAPACITY;
    if (oracle.settings.expandable_segments) {
        uint64_t kept = oracle.device.used - ac_allocator_idle_bytes(oracle.allocator);
        need = (size + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
        expect(kept + need > most, "false out of memory: %llu needed, %llu of %llu kept",
               oracle.step, (unsigned long long)need, (unsigned long long)kept,
               (unsigned long long)most);
        return;
    }
    expect(room.longest < size, "false out of memory: a block of %llu serves %llu", oracle.step,
           (unsigned long long)room.longest, (unsigned long long)size);
    expect(room.live_segments + need > most,
           "false out of memory: %llu in use of %llu, %llu needed", oracle.step,
           (unsigned long long)room.live_segments, (unsigned long long)most,
           (unsigned long long)need);
}

/* --- the operations --- */

void oracle_alloc(bool cached_only) {
    const oracle_cache_t *cache = &oracle.cache[0];
    bool steady = oracle.steady && cache->cache && !cache->gone && oracle_draw(8);
    oracle_request(steady ? cache->slot : (int)oracle_draw(ORACLE_CONTEXTS), ORACLE_NO_STREAM,
                   cached_only);
}

void oracle_request(int slot, int stream, bool cached_only) {
    uint64_t bytes = draw_size(), address = 0;
    if (oracle.lives == ORACLE_LIVES)
        return;
    unsigned calls = oracle.device.total_calls, failed = oracle.device.failed;
    ac_cache_t *cache = stream < 0 ? oracle_cache_for(slot) : NULL;
    ac_arena_t *arena = oracle.arena[slot];
    bytes = oracle_size_for(cache, bytes);
    uint64_t waiting = oracle_waiting(cache);
    unsigned module = (unsigned)(bytes / 512 % AC_MODULES);
    if (cache)
        ac_cache_ask_for(cache, module);
    ac_status_t status =
        cache ? ac_cache_alloc(cache, bytes, cached_only, &address)
        : stream < 0
            ? ac_arena_alloc_for(arena, module, bytes, cached_only, &address)
            : ac_arena_alloc_from(arena, module, AC_MEMPOOL_FIRST, oracle_key(slot, stream),
                                  bytes, cached_only, &address);
    if (cached_only)
        expect(oracle.device.total_calls == calls, "a device call with cached_only", oracle.step);
    if (status != AC_OK) {
        if (oracle.device.failed > failed)
            return; /* an injected failure: any status, but the statistics must be right */
        expect(status != AC_BUSY || cached_only || atomic_load(&oracle.context[slot]->capturing),
               "busy for no reason", oracle.step);
        expect(status != AC_FAILED || oracle.broken, "failed for no reason", oracle.step);
        if (status == AC_OOM)
            judge_out_of_memory(slot, bytes);
        return;
    }
    oracle.gathers += oracle_waiting(cache) < waiting;
    oracle_live_t live = {.slot = slot, .address = address, .requested = bytes};
    ac_block_info_t info;
    expect(address && address % AC_GRANULE == 0, "odd address", oracle.step);
    expect(ac_block_find(address + bytes - 1, &info) == AC_OK, "block not found", oracle.step);
    expect(info.address == address && info.allocated && info.requested == bytes &&
               info.arena == oracle.arena[slot] && info.size >= rounded(bytes),
           "a wrong block", oracle.step);
    live.size = info.size;
    for (unsigned i = 0; i < oracle.lives; i++)
        expect(!overlap(address, live.size, oracle.live[i].address, oracle.live[i].size),
               "two owners", oracle.step);
    expect(fake_usable(&oracle.device, address, live.size),
           "memory that the device has not given", oracle.step);
    expect(!in_danger(address, live.size, slot, stream), "memory in use by work was handed out",
           oracle.step);
    for (int c = 0; c < ORACLE_CONTEXTS; c++)
        live.born[c] = atomic_load(&oracle.context[c]->submitted);
    live.pool = ac_page_map_find(address)->segment->pool;
    oracle.live[oracle.lives++] = live;
    oracle_count(&live, 1);
}

oracle_live_t oracle_give_up(oracle_hazard_t *hazard) {
    unsigned at = (unsigned)oracle_draw(oracle.lives);
    oracle_live_t live = oracle.live[at];
    oracle.live[at] = oracle.live[--oracle.lives];
    oracle_count(&live, -1);
    *hazard = (oracle_hazard_t){.address = live.address, .size = live.size, .slot = live.slot};
    for (int c = 0; c < ORACLE_CONTEXTS; c++) {
        uint64_t submitted = atomic_load(&oracle.context[c]->submitted);
        bool counts = c == live.slot || atomic_load(&ac_fence_shared);
        if (counts && (oracle.untracked || submitted > live.born[c]))
            hazard->need[c] = submitted;
    }
    expect(oracle.hazards < ORACLE_HAZARDS, "the oracle is full", oracle.step);
    return live;
}

void oracle_free(void) {
    oracle_hazard_t hazard;
    if (!oracle.lives)
        return;
    oracle_live_t live = oracle_give_up(&hazard);
    oracle.hazard[oracle.hazards++] = hazard;
    ac_cache_t *cache = oracle_cache_for(-1);
    uint64_t waiting = oracle_waiting(cache);
    ac_status_t status = cache ? ac_cache_free(cache, live.address) : ac_block_free(live.address);
    expect(status == AC_OK, "free refused", oracle.step);
    oracle.waits += oracle_waiting(cache) > waiting;
}

void oracle_mark_used(void) {
    if (!oracle.lives)
        return;
    oracle_live_t *live = &oracle.live[oracle_draw(oracle.lives)];
    expect(ac_block_mark_used(live->address) == AC_OK, "mark", oracle.step);
    memset(live->born, 0, sizeof live->born);
}

void oracle_bad_free(void) {
    uint64_t address = FAKE_BASE + oracle_draw(CAPACITY / 256) * 512;
    for (unsigned i = 0; i < oracle.lives; i++)
        if (oracle.live[i].address == address)
            return;
    ac_cache_t *cache = oracle_cache_for(-1);
    ac_status_t status = cache ? ac_cache_free(cache, address) : ac_block_free(address);
    expect(status == AC_NOT_OURS || status == AC_BAD_ADDRESS, "freed what is not held",
           oracle.step);
}

/* Submits as the hooks do: waiting frees get their fence first. */
void oracle_submit(void) {
    int slot = (int)oracle_draw(ORACLE_CONTEXTS);
    ac_timeline_t *timeline = ac_arena_timeline(oracle.arena[slot]);
    if (ac_fence_full(timeline))
        ac_fence_close(timeline, atomic_load(&ac_fence_shared));
    fake_submit(oracle.context[slot]);
    if (!oracle.untracked)
        ac_fence_submitted(timeline);
}

void oracle_complete(void) {
    fake_context_t *context = oracle.context[oracle_draw(ORACLE_CONTEXTS)];
    uint64_t done = atomic_load(&context->completed);
    uint64_t open = atomic_load(&context->submitted) - done;
    if (open)
        fake_complete(context, done + 1 + oracle_draw(open));
}

void oracle_synchronize(void) {
    int slot = (int)oracle_draw(ORACLE_CONTEXTS);
    if (atomic_load(&oracle.context[slot]->capturing))
        return;
    uint64_t clock = ac_fence_stamp();
    fake_complete(oracle.context[slot], atomic_load(&oracle.context[slot]->submitted));
    ac_fence_synced(ac_arena_timeline(oracle.arena[slot]), clock);
}

void oracle_trim(void) {
    bool wait = oracle_draw(2);
    uint64_t used = oracle.device.used;
    uint64_t freed = ac_allocator_trim(oracle.allocator, wait);
    expect(used - oracle.device.used == freed || oracle.device.failed, "trim's answer",
           oracle.step);
    if (wait && !anything_captures() && !oracle.broken && !oracle.device.failed)
        expect(ac_allocator_idle_bytes(oracle.allocator) == 0, "trim left idle memory",
               oracle.step);
}

void oracle_settle(void) {
    ac_allocator_drop_records(oracle.allocator);
}

void oracle_taint(void) {
    if (!oracle.lives)
        return;
    bool fresh;
    expect(ac_block_taint(oracle.live[oracle_draw(oracle.lives)].address, &fresh) == AC_OK,
           "taint", oracle.step);
}

static void identify(oracle_live_t *live) {
    uint64_t serial = 0;
    ac_block_info_t info;
    expect(ac_block_identify(live->address, &serial) == AC_OK, "identify", oracle.step);
    expect(live->serial ? serial == live->serial : serial > oracle.serials,
           "two lifetimes with one serial", oracle.step);
    expect(ac_block_find(live->address + live->requested - 1, &info) == AC_OK &&
               info.serial == serial,
           "serial of a block", oracle.step);
    live->serial = serial;
    if (serial > oracle.serials)
        oracle.serials = serial;
}

void oracle_identify(void) {
    if (oracle.lives)
        identify(&oracle.live[oracle_draw(oracle.lives)]);
}

static bool set_sync(void *unused, uint64_t address, bool on) {
    (void)unused;
    (void)on;
    return address % 7; /* looks random */
}

/* Sets the attribute on a block. The checker counts the requests for it. */
void oracle_sync(void) {
    if (!oracle.lives)
        return;
    oracle_live_t *live = &oracle.live[oracle_draw(oracle.lives)];
    bool on = oracle_draw(3);
    ac_block_info_t before, after;
    identify(live);
    ac_block_find(live->address, &before);
    ac_status_t status = ac_block_sync(live->address, on, set_sync, NULL);
    ac_block_find(live->address, &after);
    expect(status == AC_OK ? after.sync == on : status == AC_FAILED && after.sync == before.sync,
           "SYNC_MEMOPS of a block", oracle.step);
}

/* The driver ends the context first, and the allocator hears of it later. In between the driver may
 * hand out the same addresses. */
void oracle_drop(void) {
    int slot = (int)oracle_draw(ORACLE_CONTEXTS);
    ac_arena_t *arena = oracle.arena[slot];
    fake_context_kill(oracle.context[slot]);
    unsigned kept = 0;
    for (unsigned i = 0; i < oracle.lives; i++)
        if (oracle.live[i].slot != slot)
            oracle.live[kept++] = oracle.live[i];
        else
            oracle_count(&oracle.live[i], -1);
    oracle.lives = kept;
    oracle_caches_gone(slot);
    kept = 0;
    for (unsigned i = 0; i < oracle.hazards; i++) {
        oracle.hazard[i].need[slot] = 0;
        if (oracle.hazard[i].slot != slot)
            oracle.hazard[kept++] = oracle.hazard[i];
    }
    oracle.hazards = kept;
    open_context(slot);
    if (oracle_draw(2)) {
        uint64_t address;
        unsigned failed = oracle.device.failed;
        if (ac_arena_alloc(oracle.arena[slot], 3 * MIB, false, &address) == AC_OK)
            expect(ac_block_free(address) == AC_OK, "free after a context's end", oracle.step);
        else
            expect(oracle.device.failed > failed || oracle.device.used > 0, "empty and full",
                   oracle.step);
    }
    ac_arena_drop(arena);
    ac_expand_bury(arena);
}

void oracle_capture(void) {
    fake_context_t *context = oracle.context[oracle_draw(ORACLE_CONTEXTS)];
    atomic_store(&context->capturing, !atomic_load(&context->capturing));
}

void oracle_cross(void) {
    atomic_store(&ac_fence_shared, true);
}

/* Plans a failure of a device call: busy, out of memory, or unable to record. With `failed_too` it
 * may be AC_FAILED, after which the effect of the call is unknown. */
void oracle_plan_failure(bool failed_too) {
    ac_status_t alloc = AC_BUSY, other = AC_BUSY, record = AC_BUSY;
    oracle.device.fail_at = oracle.device.total_calls + 1 + (unsigned)oracle_draw(3);
    switch (oracle_draw(failed_too ? 4 : 2)) {
    case 0:
        break;
    case 1:
        alloc = AC_OOM;
        break;
    case 2:
        record = AC_UNSUPPORTED;
        break;
    default:
        alloc = other = record = AC_FAILED;
        oracle.broken = true;
    }
    for (int k = 0; k < FAKE_KINDS; k++)
        oracle.device.fail_with[k] = fake_may_answer((fake_kind_t)k, other) ? other : AC_OK;
    for (int k = FAKE_RANGE_RESERVE; k < FAKE_PAGES_UNMAP; k++)
        oracle.device.fail_with[k] = fake_may_answer((fake_kind_t)k, alloc) ? alloc : AC_OK;
    oracle.device.fail_with[FAKE_SEGMENT_ALLOC] = alloc;
    oracle.device.fail_with[FAKE_RECORD] = record;
}

void oracle_configure(void) {
    static const uint64_t splits[] = {AC_UNLIMITED, AC_UNLIMITED, 21 * MIB, 24 * MIB, 50 * MIB};
    static const uint64_t larges[] = {2 * MIB, 20 * MIB, 20 * MIB, 64 * MIB};
    static const uint64_t limits[] = {AC_UNLIMITED, AC_UNLIMITED, 300 * MIB};
    static const uint32_t divisions[] = {0, 0, 2, 4, 16};
    oracle.settings.max_split_size = splits[oracle_draw(5)];
    oracle.settings.large_segment_size = larges[oracle_draw(4)];
    oracle.settings.limit = limits[oracle_draw(3)];
    oracle.settings.gc_threshold = oracle_draw(2) ? 0.6 : 0;
    static const uint64_t smalls[] = {AC_SMALL_LIMIT, AC_SMALL_LIMIT, 4096,
                                      16384,          256 << 10,      MIB};
    oracle.settings.small_limit = smalls[oracle_draw(6)];
    oracle.settings.wait_budget = 0.1 * oracle_draw(4);
    oracle.settings.exact = oracle_draw(4) == 0;
    oracle.settings.thread_cache = oracle_draw(3) * 32 * MIB;
    uint32_t d = divisions[oracle_draw(5)];
    for (int i = 0; i < AC_DIVISION_SLOTS; i++)
        oracle.settings.divisions[i] = d;
    ac_allocator_configure(oracle.allocator, &oracle.settings);
}

void oracle_reset(void) {
    if (oracle_draw(2)) {
        ac_allocator_reset_peak(oracle.allocator);
        oracle_peaks_reset();
    } else {
        ac_allocator_reset_accumulated(oracle.allocator);
        oracle.was_reset = true;
    }
}

static void check_stat(const ac_stat_t *stat) {
    expect(stat->current >= 0 && stat->peak >= stat->current, "a statistic", oracle.step);
    expect(oracle.was_reset || stat->allocated - stat->freed == stat->current, "a sum",
           oracle.step);
}

/* Active blocks: the program's, and freed blocks that are not ready, in a list or in a thread's
 * cache. */
typedef struct {
    uint64_t blocks, bytes, requested;
} active_t;

static void add_active(ac_block_t *block, void *arg) {
    active_t *active = arg;
    if (block->state != AC_BLOCK_ALLOCATED && block->state != AC_BLOCK_RETIRED &&
        !ac_block_waits_cached(block))
        return;
    active->blocks++;
    active->bytes += block->size;
    active->requested += block->requested;
}

static void check_active(const ac_device_stats_t *stats) {
    active_t active = {0, 0, 0};
    for (const ac_arena_t *arena = oracle.allocator->arenas; arena; arena = arena->next)
        for (const ac_segment_t *s = arena->segments; s; s = s->next)
            ac_segment_each(s, add_active, &active);
    expect((uint64_t)stats->active[AC_POOL_ALL].current == active.blocks,
           "active is not what the blocks add up to", oracle.step);
    expect((uint64_t)stats->active_bytes[AC_POOL_ALL].current == active.bytes,
           "active_bytes is not what the blocks add up to", oracle.step);
    expect((uint64_t)stats->requested_bytes[AC_POOL_ALL].current == active.requested,
           "requested_bytes is not what the blocks add up to", oracle.step);
}

/* Checks that the sums of a snapshot equal the statistics and the modules' figures. */
static void check_layout(const ac_device_stats_t *stats) {
    static ac_laid_segment_t segment[4096];
    static ac_laid_block_t block[1 << 16];
    ac_layout_t layout = {.segment = segment,
                          .block = block,
                          .segment_room = sizeof segment / sizeof *segment,
                          .block_room = sizeof block / sizeof *block};
    uint64_t blocks[AC_LAID_STATES] = {0}, bytes[AC_LAID_STATES] = {0}, module[AC_MODULES] = {0};
    uint64_t requested = 0, native = 0;
    expect(
        ac_allocator_lay_out(oracle.allocator, &(struct timespec){.tv_sec = INT32_MAX}, &layout),
        "a snapshot", oracle.step);
    for (size_t i = 0; i < layout.segments; i++)
        native += !segment[i].paged;
    for (size_t i = 0; i < layout.blocks; i++) {
        blocks[block[i].state]++;
        bytes[block[i].state] += block[i].size;
        if (block[i].state != AC_LAID_ALLOCATED)
            continue;
        module[block[i].module] += block[i].size;
        requested += block[i].requested;
    }
    const uint64_t active =
        bytes[AC_LAID_ALLOCATED] + bytes[AC_LAID_PENDING] + bytes[AC_LAID_HELD];
    const uint64_t said = (uint64_t)stats->active_bytes[AC_POOL_ALL].current;
    uint64_t all = 0;
    for (int i = 0; i < AC_LAID_STATES; i++)
        all += i == AC_LAID_UNMAPPED ? 0 : bytes[i];
    expect((uint64_t)stats->allocation[AC_POOL_ALL].current == blocks[AC_LAID_ALLOCATED],
           "allocation is not what the snapshot has", oracle.step);
    expect((uint64_t)stats->allocated_bytes[AC_POOL_ALL].current == bytes[AC_LAID_ALLOCATED],
           "allocated_bytes is not what the snapshot has", oracle.step);
    expect((uint64_t)stats->requested_bytes[AC_POOL_ALL].current >= requested,
           "requested_bytes is less than the snapshot has", oracle.step);
    /* Blocks in threads' caches count as active only while they wait. */
    expect(active <= said && said <= active + bytes[AC_LAID_CACHED],
           "active_bytes is not what the snapshot has", oracle.step);
    /* After a failure some pages may belong to no block. */
    const uint64_t reserved = (uint64_t)stats->reserved_bytes[AC_POOL_ALL].current;
    expect(oracle.device.failed ? reserved >= all : reserved == all,
           "reserved_bytes is not what the snapshot has", oracle.step);
    expect((uint64_t)stats->segment[AC_POOL_ALL].current == native,
           "segment is not what the snapshot has", oracle.step);
    ac_modules_t modules = stats->modules;
    ac_caches_modules(oracle.allocator, &modules);
    for (unsigned i = 0; i < AC_MODULES; i++)
        expect(modules.alloc_bytes[i] - modules.free_bytes[i] == module[i],
               "a module does not have what the snapshot says", oracle.step);
}

void oracle_check(void) {
    const char *why = NULL;
    ac_device_stats_t stats;
    forget_done();
    if (!oracle_caches_rest())
        return;
    expect(ac_allocator_check(oracle.allocator, &why) == 0, "%s", oracle.step, why);
    expect(!oracle.lock_held, "a device call under a lock", oracle.step);
    expect(!oracle.device.wrong, "%s", oracle.step, oracle.device.wrong);
    ac_allocator_stats(oracle.allocator, &stats);
#define STAT_POOLS(name, unit, doc)                                                              \
    for (int i = 0; i < AC_POOL_KINDS; i++)                                                      \
        check_stat(&stats.name[i]);
#define STAT_SINGLE(name, unit, doc) check_stat(&stats.name);
#include "observe/stats.def"
    /* A segment with an injected failure of its free is no longer counted. */
    if (!oracle.device.failed)
        expect((uint64_t)stats.reserved_bytes[AC_POOL_ALL].current == oracle.device.used,
               "reserved differs from the device's own count", oracle.step);
    expect(stats.allocation[AC_POOL_ALL].current == (int64_t)oracle.lives, "live blocks",
           oracle.step);
    check_layout(&stats);
    check_active(&stats);
    oracle_peaks_check(&stats);
}

/* Lines of private pools: segments and blocks of space/, in records of their own. */
#include "api/pools_int.h"

#include "allocator/carve.h"
#include "allocator/space/records.h"

#define SMALL_LIMIT   ((uint64_t)1 << 20)
#define LARGE_LIMIT   ((uint64_t)10 << 20)
#define LARGE_SEGMENT ((uint64_t)20 << 20)
#define MOST          ((uint64_t)1 << 48)

/* The device's statistics count the memory that segments are cut from, so these figures serve nothing.  With
 * this high-water mark no request is large enough for a sealed segment. */
static ac_device_stats_t stats;
static ac_store_t store = {.settings = {.max_split_size = AC_UNLIMITED},
                           .stats = &stats,
                           .high_water = UINT64_MAX};

static ac_pool_line_t *spare; /* by next */

ac_pool_line_t *ac_pool_line_begin(ac_pool_t *pool, int device) {
    ac_pool_line_t *line = spare;
    if (line) {
        spare = line->next;
    } else {
        line = ac_carve(sizeof *line);
        for (int i = AC_POOL_SMALL; line && i <= AC_POOL_LARGE; i++)
            if (!(line->space.index[i].bin = ac_carve_table(AC_BINS_BYTES)))
                return NULL;
    }
    if (!line)
        return NULL;
    line->space.store = &store;
    line->pool = pool;
    line->device = device;
    line->next = pool->lines;
    pool->lines = line;
    return line;
}

void ac_pool_line_end(ac_pool_line_t *line) {
    ac_pool_line_t **at = &line->pool->lines;
    while (*at != line)
        at = &(*at)->next;
    *at = line->next;
    line->next = spare;
    spare = line;
}

uint64_t ac_pool_round(size_t bytes) {
    return bytes > MOST ? 0 : (bytes + AC_GRANULE - 1) / AC_GRANULE * AC_GRANULE;
}

uint64_t ac_pool_segment_size(uint64_t size) {
    if (size <= SMALL_LIMIT)
        return AC_SMALL_SEGMENT;
    if (size < LARGE_LIMIT)
        return LARGE_SEGMENT;
    return (size + AC_SEGMENT_ALIGN - 1) / AC_SEGMENT_ALIGN * AC_SEGMENT_ALIGN;
}

/* --- blocks --- */

static void hand_out(ac_block_t *block, size_t bytes, uint32_t stack) {
    ac_segment_reuse(block, AC_MODULE_UNKNOWN, bytes);
    block->ticket.place = 0;
    block->stack = stack;
    block->named = 0;
    ac_pool_line_of(block->segment)->allocated += block->size;
    ac_pool_index_enter(block);
}

static void take_back(ac_block_t *block) {
    ac_pool_index_leave(block);
    ac_pool_line_of(block->segment)->allocated -= block->size;
    ac_segment_release(block);
}

ac_block_t *ac_pool_take(ac_pool_line_t *line, uint64_t size, size_t bytes, bool whole,
                         uint32_t stack) {
    bool small = size <= SMALL_LIMIT;
    const ac_fit_t fit = {.size = size, .below = AC_UNLIMITED};
    ac_block_t *block =
        ac_free_index_find(&line->space.index[small ? AC_POOL_SMALL : AC_POOL_LARGE], &fit, true);
    if (!block || !ac_pool_index_reserve())
        return NULL;
    uint64_t least = small ? AC_GRANULE : SMALL_LIMIT + AC_GRANULE;
    ac_segment_carve(block, whole || block->size - size < least ? block->size : size);
    hand_out(block, bytes, stack);
    return block;
}

bool ac_pool_add(ac_pool_line_t *line, uint64_t address, uint64_t size,
                 const accel_allocator_t *source) {
    int pool = size == AC_SMALL_SEGMENT ? AC_POOL_SMALL : AC_POOL_LARGE;
    ac_segment_t *segment =
        ac_pool_index_reserve() ? ac_segment_add(&line->space, pool, address, size) : NULL;
    if (!segment)
        return false;
    segment->source = source;
    line->reserved += size;
    ac_pool_index_add(segment);
    return true;
}

void ac_pool_give(ac_block_t *block) {
    take_back(block);
    ac_segment_count_finished(block);
    ac_segment_coalesce(block, 0);
}

static void wait_for_fence(ac_block_t *block, uint64_t elsewhere) {
    ac_block_set_state(block, AC_BLOCK_RETIRED);
    AC_BLOCK_SET(block, ticket.epoch, 0);
    block->ticket.place = elsewhere;
    ac_block_queue_append(&ac_pool_line_of(block->segment)->pending, block);
}

static void wait_no_more(ac_block_t *block) {
    ac_block_queue_remove(&ac_pool_line_of(block->segment)->pending, block);
    ac_block_take_out(block);
}

void ac_pool_defer(ac_block_t *block, uint64_t elsewhere) {
    take_back(block);
    wait_for_fence(block, elsewhere);
}

void ac_pool_withhold(ac_pool_line_t *line, uint64_t elsewhere) {
    for (ac_segment_t *segment = line->space.segments; segment; segment = segment->next)
        for (ac_block_t *block = segment->first; block; block = block->next)
            if (block->state == AC_BLOCK_FREE) {
                ac_segment_withdraw(block);
                wait_for_fence(block, elsewhere);
            }
}

/* --- freed memory that waits for a fence --- */

static void ask_for(ac_ticket_t *ticket, ac_pool_moment_t *moment) {
    if (!ticket->epoch && !moment->now.clock) {
        ac_fence_submitted(moment->timeline); /* by ways that no hook sees, maybe */
        moment->now = ac_fence_moment(moment->timeline);
    }
    if (!ticket->epoch) {
        atomic_store_explicit(&ticket->epoch, moment->now.clock, memory_order_relaxed);
        ticket->all = moment->now.all;
    }
    if (moment->newest.clock < ticket->epoch)
        moment->newest.clock = ticket->epoch;
    moment->newest.all |= ticket->all;
}

/* Blocks without an epoch are the last ones. */
void ac_pool_ask(ac_pool_line_t *line, ac_pool_moment_t *moment) {
    bool more = true;
    for (ac_block_t *block = line->pending.last; block && more; block = block->list_prev) {
        more = !block->ticket.epoch;
        ask_for(&block->ticket, moment);
    }
    if (line->gone && !line->rested)
        ask_for(&line->rest, moment);
}

static bool is_over(const ac_ticket_t *ticket, const ac_timeline_t *timeline) {
    return ticket->epoch && ac_fence_is_over(timeline, (ac_moment_t){ticket->epoch, ticket->all});
}

void ac_pool_drain(ac_pool_line_t *line, const ac_timeline_t *timeline) {
    ac_block_t *block;
    while ((block = line->pending.first) && is_over(&block->ticket, timeline)) {
        wait_no_more(block);
        ac_segment_finish(block);
    }
    line->rested |= line->gone && is_over(&line->rest, timeline);
}

/* --- segments that go --- */

void ac_pool_remove(ac_segment_t *segment) {
    ac_pool_index_remove(segment);
    ac_pool_line_of(segment)->reserved -= segment->size;
    ac_segment_remove(segment, false);
}

void ac_pool_lose(ac_pool_line_t *line) {
    while (line->pending.first)
        wait_no_more(line->pending.first);
    for (ac_segment_t *segment; (segment = line->space.segments);) {
        for (ac_block_t *block = segment->first; block; block = block->next)
            if (block->state == AC_BLOCK_ALLOCATED)
                ac_pool_index_leave(block);
        ac_pool_index_remove(segment);
        ac_segment_remove(segment, true);
    }
    line->reserved = line->allocated = 0;
    line->rested = line->gone;
}

/* --- blocks in the place of others --- */

bool ac_pool_reserve(size_t places) {
    return ac_record_reserve(&store, 2 * places);
}

/* Behind a free block there is one that is not. */
static void clear(ac_segment_t *segment) {
    while (segment->busy) {
        ac_block_t *block = segment->first;
        if (block->state == AC_BLOCK_FREE)
            block = block->next;
        if (block->state == AC_BLOCK_ALLOCATED) {
            ac_pool_give(block);
        } else {
            wait_no_more(block);
            ac_segment_finish(block);
        }
    }
}

void ac_pool_restore(ac_segment_t *segment, const ac_laid_block_t *place, size_t count) {
    clear(segment);
    ac_block_t *rest = segment->first;
    for (size_t i = 0; i < count; i++) {
        ac_block_t *gap = NULL;
        if (ac_block_address(rest) < place[i].address) {
            gap = rest;
            ac_segment_carve(gap, place[i].address - ac_block_address(gap));
            rest = gap->next;
        }
        ac_segment_carve(rest, place[i].size);
        hand_out(rest, place[i].requested, 0);
        rest = rest->next;
        if (gap)
            ac_segment_put_back(gap);
    }
}

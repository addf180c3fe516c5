#include "api/pool_space.h"

#include <stdlib.h>
#include <string.h>

enum { GRANULE = 512 };
#define SMALL_LIMIT   ((uint64_t)1 << 20)
#define SMALL_SEGMENT ((uint64_t)2 << 20)
#define LARGE_LIMIT   ((uint64_t)10 << 20)
#define LARGE_SEGMENT ((uint64_t)20 << 20)
#define MOST          ((uint64_t)1 << 48)

uint64_t ac_pool_round(size_t bytes) {
    return bytes > MOST ? 0 : (bytes + GRANULE - 1) / GRANULE * GRANULE;
}

uint64_t ac_pool_segment_size(uint64_t size) {
    if (size <= SMALL_LIMIT)
        return SMALL_SEGMENT;
    if (size < LARGE_LIMIT)
        return LARGE_SEGMENT;
    return (size + SMALL_SEGMENT - 1) / SMALL_SEGMENT * SMALL_SEGMENT;
}

/* --- used blocks by address --- */

static ac_pool_block_t **bucket;
static size_t buckets, used; /* a power of two, or 0 */

static size_t bucket_of(uint64_t address, size_t count) {
    return (size_t)((address / GRANULE) * 0x9e3779b97f4a7c15u >> 20) & (count - 1);
}

/* Where host memory is short the chains are long. */
static bool make_room(void) {
    size_t count = buckets ? 2 * buckets : 256;
    if (used < buckets)
        return true;
    ac_pool_block_t **larger = calloc(count, sizeof(*larger));
    if (!larger)
        return buckets;
    for (size_t i = 0; i < buckets; i++)
        for (ac_pool_block_t *block = bucket[i], *next; block; block = next) {
            next = block->chain;
            ac_pool_block_t **head = &larger[bucket_of(block->address, count)];
            block->chain = *head;
            *head = block;
        }
    free(bucket);
    bucket = larger;
    buckets = count;
    return true;
}

static void enter_table(ac_pool_block_t *block) {
    ac_pool_block_t **head = &bucket[bucket_of(block->address, buckets)];
    block->chain = *head;
    *head = block;
    used++;
}

static void leave_table(ac_pool_block_t *block) {
    ac_pool_block_t **at = &bucket[bucket_of(block->address, buckets)];
    while (*at != block)
        at = &(*at)->chain;
    *at = block->chain;
    used--;
}

ac_pool_block_t *ac_pool_block_at(uint64_t address) {
    ac_pool_block_t *block = buckets ? bucket[bucket_of(address, buckets)] : NULL;
    while (block && block->address != address)
        block = block->chain;
    return block;
}

/* --- segments by address --- */

static ac_pool_segment_t **order; /* [segments], by address */
static size_t segments, room;

static size_t position(uint64_t address) {
    size_t low = 0, high = segments;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (order[middle]->address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

ac_pool_segment_t *ac_pool_segment_around(uint64_t address) {
    size_t at = position(address);
    bool inside = at && address - order[at - 1]->address < order[at - 1]->size;
    return inside ? order[at - 1] : NULL;
}

ac_pool_block_t *ac_pool_block_around(uint64_t address) {
    ac_pool_block_t *block = ac_pool_block_at(address);
    const ac_pool_segment_t *segment = block ? NULL : ac_pool_segment_around(address);
    if (!segment)
        return block;
    for (block = segment->first; address - block->address >= block->size;)
        block = block->next;
    return block->state == AC_POOL_USED ? block : NULL;
}

/* --- free blocks --- */

static unsigned bin_of(uint64_t size) {
    uint64_t granules = size / GRANULE;
    unsigned shift = 63 - (unsigned)__builtin_clzll(granules);
    unsigned low = shift >= AC_POOL_BIN_BITS
                       ? (unsigned)(granules >> (shift - AC_POOL_BIN_BITS)) & 7
                       : (unsigned)(granules << (AC_POOL_BIN_BITS - shift)) & 7;
    unsigned bin = (shift << AC_POOL_BIN_BITS) + low;
    return bin < AC_POOL_BINS ? bin : AC_POOL_BINS - 1;
}

static void enter_bin(ac_pool_block_t *block) {
    ac_pool_line_t *line = block->segment->line;
    unsigned bin = bin_of(block->size), kind = block->segment->small;
    block->state = AC_POOL_FREE;
    block->bin_prev = NULL;
    block->bin_next = line->bin[kind][bin];
    if (block->bin_next)
        block->bin_next->bin_prev = block;
    line->bin[kind][bin] = block;
    line->filled[kind][bin / 64] |= (uint64_t)1 << bin % 64;
}

static void leave_bin(ac_pool_block_t *block) {
    ac_pool_line_t *line = block->segment->line;
    unsigned bin = bin_of(block->size), kind = block->segment->small;
    if (block->bin_next)
        block->bin_next->bin_prev = block->bin_prev;
    if (block->bin_prev)
        block->bin_prev->bin_next = block->bin_next;
    else if (!(line->bin[kind][bin] = block->bin_next))
        line->filled[kind][bin / 64] &= ~((uint64_t)1 << bin % 64);
}

/* The smallest of the first bin, from that of the size on, that has one large enough. */
static ac_pool_block_t *best(const ac_pool_line_t *line, unsigned kind, uint64_t size) {
    ac_pool_block_t *found = NULL;
    for (unsigned bin = bin_of(size); bin < AC_POOL_BINS && !found; bin++) {
        uint64_t rest = line->filled[kind][bin / 64] >> bin % 64;
        if (!rest) {
            bin |= 63;
            continue;
        }
        bin += (unsigned)__builtin_ctzll(rest);
        for (ac_pool_block_t *block = line->bin[kind][bin]; block; block = block->bin_next)
            if (block->size >= size && (!found || block->size < found->size))
                found = block;
    }
    return found;
}

/* --- blocks --- */

static void split(ac_pool_block_t *block, uint64_t size) {
    uint64_t least = block->segment->small ? GRANULE : SMALL_LIMIT + GRANULE;
    if (block->size - size < least)
        return;
    ac_pool_block_t *rest = calloc(1, sizeof *rest);
    if (!rest)
        return; /* the block is larger than it had to be */
    *rest = (ac_pool_block_t){.address = block->address + size,
                              .size = block->size - size,
                              .segment = block->segment,
                              .prev = block,
                              .next = block->next};
    if (rest->next)
        rest->next->prev = rest;
    block->next = rest;
    block->size = size;
    enter_bin(rest);
}

ac_pool_block_t *ac_pool_take(ac_pool_line_t *line, uint64_t size, size_t bytes, bool whole,
                              uint32_t stack) {
    ac_pool_block_t *block = best(line, size <= SMALL_LIMIT, size);
    if (!block || !make_room())
        return NULL;
    leave_bin(block);
    if (!whole)
        split(block, size);
    block->state = AC_POOL_USED;
    block->bytes = bytes;
    block->stack = stack;
    block->recorded = 0;
    block->segment->busy++;
    line->allocated += block->size;
    enter_table(block);
    return block;
}

bool ac_pool_add(ac_pool_line_t *line, uint64_t address, uint64_t size,
                 const accel_allocator_t *source) {
    ac_pool_segment_t *segment = calloc(1, sizeof *segment);
    ac_pool_block_t *block = calloc(1, sizeof *block);
    if (segments == room) {
        ac_pool_segment_t **larger = realloc(order, (room + 64) * sizeof(*larger));
        if (larger) {
            order = larger;
            room += 64;
        }
    }
    if (!segment || !block || segments == room) {
        free(segment);
        free(block);
        return false;
    }
    *segment = (ac_pool_segment_t){.address = address,
                                   .size = size,
                                   .line = line,
                                   .source = source,
                                   .first = block,
                                   .next = line->segments,
                                   .small = size == SMALL_SEGMENT};
    line->segments = segment;
    line->reserved += size;
    size_t at = position(address);
    memmove(&order[at + 1], &order[at], (segments - at) * sizeof(*order));
    order[at] = segment;
    segments++;
    *block = (ac_pool_block_t){.address = address, .size = size, .segment = segment};
    enter_bin(block);
    return true;
}

/* The second one becomes part of the first; both are in no bin. */
static ac_pool_block_t *join(ac_pool_block_t *first, ac_pool_block_t *second) {
    first->size += second->size;
    first->next = second->next;
    if (first->next)
        first->next->prev = first;
    free(second);
    return first;
}

static void coalesce(ac_pool_block_t *block) {
    block->segment->busy--;
    if (block->next && block->next->state == AC_POOL_FREE) {
        leave_bin(block->next);
        join(block, block->next);
    }
    if (block->prev && block->prev->state == AC_POOL_FREE) {
        leave_bin(block->prev);
        block = join(block->prev, block);
    }
    enter_bin(block);
}

static void no_longer_used(ac_pool_block_t *block) {
    leave_table(block);
    block->segment->line->allocated -= block->size;
}

void ac_pool_give(ac_pool_block_t *block) {
    no_longer_used(block);
    coalesce(block);
}

static void wait_for_fence(ac_pool_block_t *block, uint64_t target, bool all) {
    ac_pool_line_t *line = block->segment->line;
    block->state = AC_POOL_PENDING;
    block->target = target;
    block->all = all;
    block->bin_next = NULL;
    if (line->pending)
        line->pending_last->bin_next = block;
    else
        line->pending = block;
    line->pending_last = block;
}

void ac_pool_defer(ac_pool_block_t *block, uint64_t target, bool all) {
    no_longer_used(block);
    wait_for_fence(block, target, all);
}

void ac_pool_withhold(ac_pool_line_t *line, uint64_t recorded) {
    for (ac_pool_segment_t *segment = line->segments; segment; segment = segment->next)
        for (ac_pool_block_t *block = segment->first; block; block = block->next)
            if (block->state == AC_POOL_FREE) {
                leave_bin(block);
                segment->busy++;
                block->recorded = recorded;
                wait_for_fence(block, 0, false);
            }
}

void ac_pool_ask(ac_pool_line_t *line) {
    for (ac_pool_block_t *block = line->pending; block; block = block->bin_next)
        if (!block->target)
            block->target = AC_POOL_ASKED;
}

void ac_pool_drain(ac_pool_line_t *line, const uint64_t reached[2], uint64_t target, bool all) {
    ac_pool_block_t **at = &line->pending, *block, *last = NULL;
    while ((block = *at)) {
        if (block->target == AC_POOL_ASKED && target) {
            block->target = target;
            block->all = all;
        }
        bool known = block->target && block->target != AC_POOL_ASKED;
        if (known && block->target <= reached[block->all]) {
            *at = block->bin_next;
            coalesce(block);
        } else {
            last = block;
            at = &block->bin_next;
        }
    }
    line->pending_last = last;
}

/* --- blocks in the place of others --- */

static ac_pool_block_t *append(ac_pool_segment_t *segment, ac_pool_block_t *last,
                               const ac_pool_place_t *place, ac_pool_state_t state) {
    ac_pool_block_t *block = calloc(1, sizeof *block);
    if (!block)
        return NULL;
    *block = (ac_pool_block_t){.address = place->address,
                               .size = place->size,
                               .bytes = place->bytes,
                               .segment = segment,
                               .prev = last,
                               .state = state};
    if (last)
        last->next = block;
    return block;
}

void ac_pool_drop_layout(ac_pool_block_t *first) {
    while (first) {
        ac_pool_block_t *next = first->next;
        free(first);
        first = next;
    }
}

ac_pool_block_t *ac_pool_lay_out(ac_pool_segment_t *segment, const ac_pool_place_t *place,
                                 size_t count) {
    ac_pool_block_t *first = NULL, *last = NULL;
    uint64_t at = segment->address, end = segment->address + segment->size;
    for (size_t i = 0; i <= count; i++) {
        uint64_t next = i < count ? place[i].address : end;
        ac_pool_place_t gap = {at, next - at, 0};
        bool made = next == at || (last = append(segment, last, &gap, AC_POOL_FREE));
        first = first ? first : last;
        if (made && i < count) {
            made = make_room() && (last = append(segment, last, &place[i], AC_POOL_USED));
            first = first ? first : last;
            at = next + place[i].size;
        }
        if (!made) {
            ac_pool_drop_layout(first);
            return NULL;
        }
    }
    return first;
}

static void leave_pending(ac_pool_block_t *block) {
    ac_pool_line_t *line = block->segment->line;
    ac_pool_block_t **at = &line->pending, *before = NULL;
    while (*at != block) {
        before = *at;
        at = &before->bin_next;
    }
    *at = block->bin_next;
    if (line->pending_last == block)
        line->pending_last = before;
}

void ac_pool_replace(ac_pool_segment_t *segment, ac_pool_block_t *first) {
    for (ac_pool_block_t *block = segment->first; block; block = block->next) {
        if (block->state == AC_POOL_USED)
            no_longer_used(block);
        else if (block->state == AC_POOL_FREE)
            leave_bin(block);
        else
            leave_pending(block);
    }
    ac_pool_drop_layout(segment->first);
    segment->first = first;
    segment->busy = 0;
    for (ac_pool_block_t *block = first; block; block = block->next) {
        if (block->state == AC_POOL_FREE) {
            enter_bin(block);
            continue;
        }
        enter_table(block);
        segment->busy++;
        segment->line->allocated += block->size;
    }
}

static void leave_order(const ac_pool_segment_t *segment) {
    size_t place = position(segment->address);
    memmove(&order[place - 1], &order[place], (segments - place) * sizeof(*order));
    segments--;
}

ac_pool_segment_t *ac_pool_cut(ac_pool_line_t *line) {
    ac_pool_segment_t **at = &line->segments, *segment;
    while (*at && (*at)->busy)
        at = &(*at)->next;
    segment = *at;
    if (!segment)
        return NULL;
    *at = segment->next;
    leave_bin(segment->first);
    free(segment->first);
    line->reserved -= segment->size;
    leave_order(segment);
    return segment;
}

void ac_pool_lose(ac_pool_line_t *line) {
    for (ac_pool_segment_t *segment = line->segments, *next; segment; segment = next) {
        next = segment->next;
        for (ac_pool_block_t *block = segment->first; block; block = block->next)
            if (block->state == AC_POOL_USED)
                leave_table(block);
        ac_pool_drop_layout(segment->first);
        leave_order(segment);
        free(segment);
    }
    line->segments = NULL;
    line->pending = line->pending_last = NULL;
    memset(line->filled, 0, sizeof line->filled);
    memset(line->bin, 0, sizeof line->bin);
    line->reserved = line->allocated = 0;
    line->rested = line->gone;
}

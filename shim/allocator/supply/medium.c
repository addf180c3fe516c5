/* Which memory medium blocks keep from large ones (medium.h). */
#include "allocator/supply/medium.h"

#include "allocator/policy.h"
#include "allocator/space/range.h"
#include "allocator/space/segment.h"
#include "allocator/space/size.h"
#include "allocator/space/slab.h"

/* --- pages --- */

/* A page, and the bytes of medium blocks on it.  0 units: no page. */
typedef struct {
    uint64_t first, units;
    uint64_t used;
} page_t;

/* Returns the idle bytes of a page that only medium blocks keep, if these have less than half of it. */
static uint64_t page_end(page_t *page) {
    uint64_t bytes = page->units << AC_PAGE_BITS;
    uint64_t idle = page->used && 2 * page->used < bytes ? bytes - page->used : 0;
    *page = (page_t){0};
    return idle;
}

static uint64_t idle_beside_medium(const ac_range_t *range) {
    page_t page = {0};
    uint64_t idle = 0, taken = 0; /* `taken`: up to which unit pages have a large block */
    for (const ac_block_t *block = range->segment->first; block; block = block->next) {
        if (!ac_block_in_use(block) || !ac_block_has_memory(block))
            continue;
        uint64_t first = ac_range_unit(range, block->address);
        uint64_t last = ac_range_unit(range, block->address + block->size - 1);
        if (block->size > AC_MEDIUM) {
            if (first >= page.first + page.units)
                idle += page_end(&page);
            page = (page_t){0};
            taken = ac_range_page_end(range, last);
            continue;
        }
        if (last < taken)
            continue;
        if (last >= page.first + page.units) {
            idle += page_end(&page);
            page.first = ac_range_page_begin(range, last);
            page.units = ac_range_page_end(range, last) - page.first;
        }
        page.used += block->size;
    }
    return idle + page_end(&page);
}

void ac_medium_look(ac_arena_t *arena, uint64_t reserved, uint64_t live) {
    const ac_settings_t *settings = &arena->allocator->settings;
    ac_medium_t *medium = &arena->allocator->supply->medium;
    uint64_t floor = ac_budget_floor(settings, AC_BUDGET_PAGES);
    uint64_t much = live / AC_MEDIUM_LOST > floor ? live / AC_MEDIUM_LOST : floor;
    if (medium->apart || settings->page <= settings->small_page || reserved < live + much ||
        reserved < medium->looked)
        return;
    medium->looked = reserved + reserved / 64;
    uint64_t idle = 0;
    for (const ac_segment_t *s = arena->segments; s; s = s->next)
        if (s->range && s->index == AC_POOL_LARGE)
            idle += idle_beside_medium(s->range);
    medium->apart = idle > much;
}

/* --- native segments --- */

/* A stretch between two large blocks: all bytes, bytes of smaller blocks in use, and the largest free block. */
typedef struct {
    uint64_t bytes, used, largest;
} stretch_t;

typedef struct {
    uint64_t size; /* of the request */
    uint64_t most; /* bytes of a smaller block */
    uint64_t used; /* of smaller blocks */
    unsigned left; /* blocks that it may still visit */
    bool kept;     /* it would fit, did smaller blocks not take a small part */
} look_t;

static void stretch_end(look_t *look, stretch_t *at) {
    look->used += at->used;
    look->kept |= at->bytes >= look->size && at->largest < look->size && 2 * at->used < at->bytes;
    *at = (stretch_t){0};
}

static void look_at(look_t *look, const ac_segment_t *segment) {
    stretch_t at = {0};
    for (const ac_block_t *block = segment->first; block && look->left; block = block->next) {
        look->left--;
        bool used = ac_block_in_use(block);
        if (used && block->size > look->most) {
            stretch_end(look, &at);
            continue;
        }
        at.bytes += block->size;
        if (used)
            at.used += block->size;
        else if (block->size > at.largest)
            at.largest = block->size;
    }
    stretch_end(look, &at);
}

/* Finds out if blocks of up to `most` bytes keep the request from the arena's free memory. */
static look_t look_for(const ac_arena_t *arena, uint64_t size, uint64_t most) {
    look_t look = {.size = size, .most = most, .left = AC_LOOK_MOST};
    for (const ac_segment_t *s = arena->segments; s && look.left; s = s->next)
        if (!s->range && s->index == AC_POOL_LARGE)
            look_at(&look, s);
    arena->allocator->supply->medium.owed += AC_LOOK_MOST - look.left;
    return look;
}

static bool may_come_apart(const ac_allocator_t *allocator, uint64_t live) {
    const ac_medium_t *medium = &allocator->supply->medium;
    return !allocator->settings.expandable_segments && !medium->apart &&
           ac_policy_parts(&allocator->settings, live);
}

/* --- big blocks --- */

static bool may_become_big(const ac_allocator_t *allocator, uint64_t size, uint64_t live) {
    const ac_big_t *big = &allocator->supply->big;
    return !allocator->settings.expandable_segments && !big->apart && size >= ac_policy_big(live) &&
           ac_policy_parts(&allocator->settings, live) && live / 2 >= big->together;
}

/* Returns true if the segment has room for a big block, and smaller blocks hold nothing of it. */
static bool is_for_big(const ac_segment_t *segment, uint64_t least) {
    bool room = false;
    if (segment->range || segment->index != AC_POOL_LARGE)
        return false;
    for (const ac_block_t *block = segment->first; block; block = block->next) {
        room = room || block->size >= least;
        if (ac_block_in_use(block) && block->size < least)
            return false;
    }
    return room;
}

static void big_begin(ac_allocator_t *allocator, uint64_t live) {
    ac_big_t *big = &allocator->supply->big;
    *big = (ac_big_t){.apart = true,
                      .least = allocator->high_water,
                      .together = big->together,
                      .requests = ac_supply_requests(allocator)};
    for (ac_arena_t *arena = allocator->arenas; arena; arena = arena->next)
        for (ac_segment_t *s = arena->segments; s; s = s->next)
            if (is_for_big(s, ac_policy_big(live)))
                ac_segment_relist(s, AC_INDEX_BIG);
}

/* Lets segments of less than `least` bytes serve all sizes. */
static void big_join(ac_allocator_t *allocator, uint64_t least) {
    for (ac_arena_t *arena = allocator->arenas; arena; arena = arena->next) {
        for (ac_segment_t *s = arena->segments; s; s = s->next)
            if (s->index == AC_INDEX_BIG && s->size < least)
                ac_segment_relist(s, AC_POOL_LARGE);
        arena->added++; /* there is more to be found now */
    }
}

static void big_end(ac_allocator_t *allocator, uint64_t together) {
    allocator->supply->big = (ac_big_t){.together = together};
    big_join(allocator, UINT64_MAX);
}

void ac_big_sort(ac_allocator_t *allocator) {
    ac_big_t *big = &allocator->supply->big;
    if (!big->apart)
        return;
    if (allocator->settings.expandable_segments) {
        big_end(allocator, big->together);
    } else if (allocator->high_water / 2 >= big->least) {
        big->least = allocator->high_water;
        big_join(allocator, ac_policy_big(allocator->high_water));
    }
}

void ac_big_note_trade(ac_allocator_t *allocator) {
    ac_big_t *big = &allocator->supply->big;
    uint64_t count = ac_supply_requests(allocator) - big->requests;
    if (!big->apart)
        return;
    big->trades++;
    if (count < AC_WINDOW_REQUESTS)
        return;
    bool much = big->trades > count / AC_BIG_TRADES;
    big->costly = much ? big->costly + (unsigned)(count / AC_WINDOW_REQUESTS) : 0;
    big->trades = 0;
    big->requests += count;
    if (big->costly >= AC_WINDOWS)
        big_end(allocator, allocator->high_water);
}

/* Returns the idle bytes of a segment in which a big block is in use.  A segment that is wholly idle goes back
 * beyond the budget, and does not count. */
static uint64_t idle_beside_big(const ac_segment_t *segment, unsigned *left) {
    uint64_t idle = 0;
    bool used = false;
    if (segment->index != AC_INDEX_BIG)
        return 0;
    for (const ac_block_t *block = segment->first; block && *left; block = block->next, --*left) {
        used |= ac_block_in_use(block);
        idle += ac_block_in_use(block) ? 0 : block->size;
    }
    return used ? idle : 0;
}

bool ac_big_stays_apart(ac_allocator_t *allocator, uint64_t live) {
    uint64_t idle = 0;
    unsigned left = AC_LOOK_MOST;
    if (!allocator->supply->big.apart)
        return true;
    for (const ac_arena_t *arena = allocator->arenas; arena; arena = arena->next)
        for (const ac_segment_t *s = arena->segments; s && left; s = s->next)
            idle += idle_beside_big(s, &left);
    if (idle <= live / AC_BIG_IDLE)
        return true;
    big_end(allocator, live);
    return false;
}

/* --- what large requests that grow teach --- */

/* Returns true if the last walks took more time than the requests since then are worth. */
static bool looked_lately(ac_allocator_t *allocator) {
    ac_medium_t *medium = &allocator->supply->medium;
    uint64_t requests = ac_supply_requests(allocator);
    uint64_t paid = (requests - medium->requests) * AC_LOOK_FOR_EACH;
    medium->requests = requests;
    medium->owed -= paid < medium->owed ? paid : medium->owed;
    return medium->owed > 0;
}

void ac_medium_look_native(ac_arena_t *arena, uint64_t size, uint64_t live) {
    ac_allocator_t *allocator = arena->allocator;
    const ac_device_stats_t *stats = allocator->stats;
    ac_medium_t *medium = &allocator->supply->medium;
    ac_big_t *big = &allocator->supply->big;
    bool as_medium = may_come_apart(allocator, live);
    bool as_big = may_become_big(allocator, size, live);
    uint64_t free = (uint64_t)(stats->reserved_bytes[AC_POOL_LARGE].current -
                               stats->allocated_bytes[AC_POOL_LARGE].current);
    if ((!as_medium && !as_big) || free < size || looked_lately(allocator))
        return;
    if (as_medium) {
        look_t look = look_for(arena, size, AC_MEDIUM);
        if (look.kept && look.used <= live / AC_MEDIUM_MOST)
            medium->grown += size;
        medium->apart = medium->grown > live / AC_MEDIUM_LOST;
    }
    if (as_big && look_for(arena, size, ac_policy_big(live) - 1).kept) {
        big->grown += size;
        if (big->grown > live / AC_BIG_LOST)
            big_begin(allocator, live);
    }
}

/* Decisions by amounts (policy.h). */
#include "allocator/policy.h"

#include "device/device.h"

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static uint64_t share_of(uint64_t bytes, unsigned percent) {
    return bytes / 100 * percent;
}

/* --- budgets --- */

uint64_t ac_budget_floor(const ac_settings_t *settings, ac_budget_t budget) {
    switch (budget) {
    case AC_BUDGET_IDLE:
        return AC_FLOOR_IDLE * settings->large_segment_size;
    case AC_BUDGET_WAIT:
        return AC_FLOOR_WAIT * settings->large_segment_size;
    case AC_BUDGET_PAGES:
        return AC_FLOOR_PAGES * settings->page;
    case AC_BUDGET_HOLES:
        break;
    }
    return 0;
}

static double share(const ac_settings_t *settings, ac_budget_t budget) {
    const double segments = AC_SHARE_SEGMENTS / 100.0, pages = AC_SHARE_PAGES / 100.0;
    if (budget == AC_BUDGET_WAIT || budget == AC_BUDGET_HOLES)
        return settings->wait_budget;
    if (budget == AC_BUDGET_IDLE && !settings->expandable_segments)
        return segments;
    double set = settings->page_budget > 0 ? settings->page_budget : pages;
    return budget == AC_BUDGET_IDLE && set < segments ? segments : set;
}

uint64_t ac_budget(const ac_settings_t *settings, ac_budget_t budget, uint64_t live) {
    uint64_t bytes = live + (uint64_t)((double)live * share(settings, budget));
    return most(bytes, ac_budget_floor(settings, budget));
}

uint64_t ac_budget_fence(const ac_settings_t *settings, uint64_t live) {
    return (ac_budget(settings, AC_BUDGET_WAIT, live) - live) / 2 + 1;
}

uint64_t ac_budget_sole(uint64_t live, uint64_t reserved, uint64_t left) {
    uint64_t spare = reserved > live ? reserved - live : 0;
    return least(left, most(AC_SOLE_BYTES, least(spare, live / AC_SOLE_SHARE)));
}

uint64_t ac_budget_garbage(const ac_settings_t *settings, uint64_t reserved) {
    if (settings->gc_threshold <= 0 || settings->limit == AC_UNLIMITED)
        return 0;
    uint64_t threshold = (uint64_t)(settings->gc_threshold * (double)settings->limit);
    return reserved > threshold ? reserved - threshold : 0;
}

/* --- native segments --- */

static uint64_t whole_segments(uint64_t bytes) {
    return (bytes + AC_SEGMENT_ALIGN - 1) / AC_SEGMENT_ALIGN * AC_SEGMENT_ALIGN;
}

/* Returns the bytes that device and limit have available. */
static uint64_t room(const ac_settings_t *settings, uint64_t reserved) {
    uint64_t whole = settings->memory ? least(settings->memory, settings->limit) : settings->limit;
    return whole > reserved ? whole - reserved : 0;
}

/* A segment for a whole number of requests, which have `used` bytes of it. */
typedef struct {
    uint64_t used, bytes;
} pack_t;

/* Takes `count` requests instead if they leave a smaller share over. */
static void try_count(pack_t *pack, uint64_t size, uint64_t count) {
    pack_t other = {size * count, whole_segments(size * count)};
    if (!pack->used || (other.bytes - other.used) * pack->used < (pack->bytes - pack->used) * other.used)
        *pack = other;
}

/* Returns the segment that leaves the smallest share over, of the largest ones with up to `bytes` bytes. */
static uint64_t pack_many(uint64_t size, uint64_t bytes) {
    uint64_t count = most(bytes / size, 1), end = count > AC_PACK_TRIES ? count - AC_PACK_TRIES : 1;
    pack_t pack = {0};
    for (; count >= end; count--)
        try_count(&pack, size, count);
    return pack.bytes;
}

/* Returns the smallest segment that leaves no more than a share over (AC_PACK_REST).  If none with up to `bytes`
 * bytes does, it is the one that leaves the smallest share. */
static uint64_t pack_few(uint64_t size, uint64_t bytes) {
    pack_t pack = {0};
    for (uint64_t count = 1; count <= most(bytes / size, 1); count++) {
        try_count(&pack, size, count);
        if (pack.bytes - pack.used <= pack.used / AC_PACK_REST)
            break;
    }
    return pack.bytes;
}

/* Returns the bytes of a segment for several requests.  Requests that do not fit lose the rest of it.  Growth beyond
 * the budget, or by much of the available memory, therefore serves `few` requests. */
static uint64_t segment_for(const ac_settings_t *settings, uint64_t reserved, uint64_t size, bool few) {
    uint64_t left = room(settings, reserved), bytes = reserved / AC_GROWTH_SHARE;
    few = few || bytes > left / (AC_ROOM_SHARE / 2);
    bytes = most(few ? bytes / 2 : bytes, settings->large_segment_size);
    bytes = least(least(bytes, AC_GROWTH_MOST), left / AC_ROOM_SHARE);
    /* A segment of max_split_size would be closed to other requests. */
    bytes = least(bytes, settings->max_split_size - 1) / AC_SEGMENT_ALIGN * AC_SEGMENT_ALIGN;
    if (few)
        return pack_few(size, bytes);
    /* Small requests of a small program share the segment with other sizes. */
    bool first = bytes <= settings->large_segment_size && size <= bytes / 4;
    return first ? bytes : pack_many(size, bytes);
}

/* Returns the bytes of a segment for medium blocks. */
static uint64_t medium_segment(const ac_settings_t *settings, uint64_t live, uint64_t reserved) {
    uint64_t bytes = least(live / AC_MEDIUM_SEGMENT, whole_segments(settings->large_segment_size));
    bytes = least(bytes, room(settings, reserved) / AC_ROOM_SHARE) / AC_SEGMENT_ALIGN * AC_SEGMENT_ALIGN;
    return bytes < settings->max_split_size && !settings->exact ? most(bytes, AC_SMALL_SEGMENT)
                                                                : AC_SMALL_SEGMENT;
}

ac_plan_t ac_policy_plan(const ac_settings_t *settings, uint64_t live, uint64_t reserved, ac_for_t kind,
                         uint64_t size) {
    bool shared = kind == AC_FOR_LARGE && !settings->exact && size < settings->max_split_size;
    uint64_t exact = kind == AC_FOR_SMALL || kind == AC_FOR_MEDIUM ? AC_SMALL_SEGMENT : whole_segments(size);
    uint64_t large = shared                   ? segment_for(settings, reserved, size, false)
                     : kind == AC_FOR_MEDIUM ? medium_segment(settings, live, reserved)
                                              : exact;
    uint64_t few = shared ? segment_for(settings, reserved, size, true) : large;
    uint64_t cap = ac_budget(settings, AC_BUDGET_IDLE, live);
    uint64_t trim = reserved + large > cap ? reserved + large - cap : 0, first = trim ? few : large;
    return (ac_plan_t){.segment = {first, few, exact},
                       .trim = trim,
                       .exceeds = reserved + first > cap,
                       .waits = trim && reserved + exact > ac_budget(settings, AC_BUDGET_WAIT, live)};
}

/* --- pages --- */

static uint64_t create_ns(uint64_t page) {
    return most(AC_CREATE_NS + AC_CREATE_MIB_NS * (page >> 20), AC_CREATE_LEAST_NS);
}

void ac_policy_charge(ac_toll_t *toll, uint64_t runs, uint64_t pages, uint64_t traded, uint64_t page) {
    if (!pages && !traded)
        return;
    uint64_t moved_ns = runs * AC_UNMAP_NS + AC_ALLOW_NS +
                        pages * (AC_UNMAP_PAGE_NS + AC_MAP_PAGE_NS + AC_ALLOW_PAGE_NS);
    toll->earned_ns += pages ? moved_ns : 0;
    toll->spent_ns += moved_ns + traded / page * create_ns(page) / 2; /* the other half is due without the trade */
}

/* Returns true if the cost of moves is watched. */
static bool learns(const ac_settings_t *settings) {
    return !settings->frugal && settings->page_budget == 0;
}

bool ac_policy_fine(const ac_toll_t *toll, const ac_settings_t *settings) {
    return toll->fine.live && toll->fine.page == settings->page && learns(settings);
}

uint64_t ac_policy_page(const ac_toll_t *toll, const ac_settings_t *settings, uint64_t size) {
    uint64_t page = settings->page;
    return ac_policy_fine(toll, settings) && size / AC_FINE_MANY < page ? page / 2 : page;
}

uint64_t ac_policy_rests(const ac_toll_t *toll, const ac_settings_t *settings, uint64_t live, uint64_t reserved) {
    uint64_t rests = most(share_of(live, AC_FINE_MUCH), AC_FINE_LITTLE * settings->page);
    bool may = learns(settings) && settings->page > settings->small_page && settings->page <= AC_FINE_PAGE;
    return may && reserved >= live + rests && reserved <= live + share_of(live, AC_FINE_MOST) &&
                   reserved >= toll->fine.looked
               ? toll->fine.old + rests
               : UINT64_MAX;
}

static unsigned windows_in(uint64_t count, uint64_t window) {
    return (unsigned)least(count / window, AC_TOLL_MOST * AC_WINDOWS);
}

/* The budget rises faster while it is far too low, so that the program is costly for a short time. */
static void rise(ac_toll_t *toll, uint64_t cost_ns) {
    unsigned step = cost_ns > 3 * AC_TOLL_MUCH_NS ? 6 : cost_ns > 2 * AC_TOLL_MUCH_NS ? 3 : 1;
    toll->share = (unsigned)least(most(toll->share, AC_SHARE_PAGES) + step, AC_TOLL_MOST);
}

static void look_at_requests(ac_toll_t *toll, uint64_t requests, bool fine) {
    uint64_t count = requests - toll->requests, little = count * AC_TOLL_LITTLE_NS;
    if (count < AC_WINDOW_REQUESTS)
        return;
    uint64_t cost_ns = (toll->spent_ns - toll->seen_ns) / count;
    unsigned windows = windows_in(count, AC_WINDOW_REQUESTS);
    toll->requests = requests;
    toll->seen_ns = toll->spent_ns;
    toll->earned_ns -= least(little, toll->earned_ns);
    toll->quiet = cost_ns < AC_TOLL_LITTLE_NS ? toll->quiet + windows : 0;
    toll->costly = cost_ns > AC_TOLL_MUCH_NS ? toll->costly + windows : 0;
    if (toll->costly < AC_WINDOWS)
        return;
    if (!fine)
        rise(toll, cost_ns);
    else
        toll->fine.live = toll->costly = 0; /* larger pages move at less cost */
}

static void look_at_time(ac_toll_t *toll, uint64_t now_ns) {
    if (!toll->calm_ns || toll->still_ns != toll->spent_ns) {
        toll->calm_ns = now_ns;
        toll->still_ns = toll->spent_ns;
    }
    toll->quiet += windows_in(now_ns - toll->calm_ns, AC_CALM_NS);
    toll->calm_ns += (now_ns - toll->calm_ns) / AC_CALM_NS * AC_CALM_NS;
}

bool ac_policy_learn(ac_toll_t *toll, const ac_settings_t *settings, uint64_t requests, uint64_t now_ns) {
    unsigned before = toll->share;
    look_at_requests(toll, requests, ac_policy_fine(toll, settings));
    if (before && now_ns)
        look_at_time(toll, now_ns);
    for (; toll->share && toll->quiet >= AC_WINDOWS; toll->quiet -= AC_WINDOWS)
        toll->share--;
    if (!learns(settings))
        toll->share = toll->costly = toll->quiet = 0;
    return toll->share < before;
}

static uint64_t learned(const ac_toll_t *toll, const ac_settings_t *settings, uint64_t live) {
    return toll->share && learns(settings) ? live + share_of(live, toll->share) : 0;
}

/* Moves cost no more than the pages that they save. */
uint64_t ac_policy_pages(const ac_toll_t *toll, const ac_settings_t *settings, uint64_t live, uint64_t page) {
    uint64_t cap = ac_budget(settings, AC_BUDGET_PAGES, live);
    if (settings->page_budget != 0)
        return cap;
    if (settings->frugal || ac_policy_fine(toll, settings))
        cap = live + share_of(live, AC_SHARE_FRUGAL);
    cap = least(cap, live + toll->earned_ns / create_ns(page) * page / 4);
    return most(most(cap, ac_budget_floor(settings, AC_BUDGET_PAGES)), learned(toll, settings, live));
}

uint64_t ac_policy_kept(const ac_toll_t *toll, const ac_settings_t *settings, uint64_t live) {
    return most(ac_budget(settings, AC_BUDGET_IDLE, live), learned(toll, settings, live));
}

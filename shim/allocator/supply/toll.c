/* The price of moving pages (toll.h). */
#include "allocator/supply/toll.h"

#include "allocator/budget.h"
#include "allocator/supply/fine.h"

static uint64_t percent(uint64_t bytes, unsigned share) {
    return bytes / 100 * share;
}

/* Of one page. */
static uint64_t create_ns(uint64_t page) {
    uint64_t ns = AC_CREATE_NS + AC_CREATE_MIB_NS * (page >> 20);
    return ns > AC_CREATE_LEAST_NS ? ns : AC_CREATE_LEAST_NS;
}

/* By how many percent the budget rises: far from what it has to be by more, so that the program is
 * not costly for long, and near by no more than needed. */
static unsigned rise(uint64_t cost) {
    return cost > 3 * AC_TOLL_MUCH_NS ? 6 : cost > 2 * AC_TOLL_MUCH_NS ? 3 : 1;
}

static void fall(ac_toll_t *toll) {
    for (; toll->share && toll->quiet >= AC_WINDOWS; toll->quiet -= AC_WINDOWS)
        toll->share--;
}

static void look(ac_allocator_t *allocator) {
    ac_toll_t *toll = &allocator->supply->expand.toll;
    uint64_t requests = (uint64_t)allocator->stats->allocation[AC_POOL_ALL].allocated;
    uint64_t count = requests - toll->requests;
    if (count < AC_WINDOW_REQUESTS)
        return;
    uint64_t cost = (toll->spent_ns - toll->seen_ns) / count;
    unsigned windows =
        count / AC_WINDOW_REQUESTS > AC_TOLL_MOST * AC_WINDOWS ? AC_TOLL_MOST * AC_WINDOWS : (unsigned)(count / AC_WINDOW_REQUESTS);
    toll->requests = requests;
    toll->seen_ns = toll->spent_ns;
    uint64_t little = count * AC_TOLL_LITTLE_NS;
    toll->earned_ns -= little < toll->earned_ns ? little : toll->earned_ns;
    if (!ac_budget_learns(&allocator->settings))
        return;
    toll->quiet = cost < AC_TOLL_LITTLE_NS ? toll->quiet + windows : 0;
    toll->costly = cost > AC_TOLL_MUCH_NS ? toll->costly + windows : 0;
    if (toll->costly >= AC_WINDOWS && ac_fine_serves(allocator)) {
        ac_fine_end(allocator);
        toll->costly = 0;
    } else if (toll->costly >= AC_WINDOWS) {
        unsigned least = AC_SHARE_PAGES;
        toll->share = (toll->share > least ? toll->share : least) + rise(cost);
        toll->share = toll->share < AC_TOLL_MOST ? toll->share : AC_TOLL_MOST;
    }
    fall(toll);
}

/* Seconds without a move are quiet windows. */
static void look_at_time(ac_toll_t *toll, uint64_t now_ns) {
    if (!toll->calm_ns || toll->still_ns != toll->spent_ns) {
        toll->calm_ns = now_ns;
        toll->still_ns = toll->spent_ns;
    }
    uint64_t windows = (now_ns - toll->calm_ns) / AC_CALM_NS;
    toll->calm_ns += windows * AC_CALM_NS;
    toll->quiet += (unsigned)(windows < AC_TOLL_MOST * AC_WINDOWS ? windows : AC_TOLL_MOST * AC_WINDOWS);
}

void ac_toll_reset(ac_allocator_t *allocator) {
    allocator->supply->expand.toll.requests -=
        (uint64_t)allocator->stats->allocation[AC_POOL_ALL].allocated;
}

unsigned ac_toll_look(ac_allocator_t *allocator) {
    ac_toll_t *toll = &allocator->supply->expand.toll;
    unsigned before = toll->share;
    if (!before)
        return 0;
    look(allocator);
    if (allocator->arenas)
        look_at_time(toll, allocator->arenas->ops->now_ns());
    fall(toll);
    if (!ac_budget_learns(&allocator->settings))
        toll->share = toll->costly = 0;
    return before > toll->share ? before - toll->share : 0;
}

uint64_t ac_toll_kept(const ac_allocator_t *allocator, uint64_t live) {
    unsigned share = ac_budget_learns(&allocator->settings) ? allocator->supply->expand.toll.share : 0;
    return share ? live + percent(live, share) : 0;
}

/* Moving costs no more than what it saves, and at most the share. */
uint64_t ac_toll_budget(ac_allocator_t *allocator, uint64_t size, uint64_t page) {
    const ac_settings_t *settings = &allocator->settings;
    const ac_toll_t *toll = &allocator->supply->expand.toll;
    uint64_t live = ac_supply_live(allocator, size);
    uint64_t most = ac_budget(settings, AC_BUDGET_PAGES, live);
    if (settings->page_budget == 0) {
        look(allocator);
        uint64_t earned = live + toll->earned_ns / create_ns(page) * page / 4;
        uint64_t floor = ac_budget_floor(settings, AC_BUDGET_PAGES);
        if (settings->frugal || ac_fine_serves(allocator))
            most = live + percent(live, AC_FINE_SHARE);
        most = earned < most ? earned : most;
        most = most > floor ? most : floor;
        uint64_t learned = ac_toll_kept(allocator, live);
        most = learned > most ? learned : most;
    }
    return ac_supply_bound(allocator, most);
}

void ac_toll_charge(ac_allocator_t *allocator, uint64_t runs, uint64_t pages, uint64_t traded,
                    uint64_t page) {
    ac_toll_t *toll = &allocator->supply->expand.toll;
    if (!pages && !traded)
        return;
    uint64_t moved_ns = runs * (uint64_t)AC_UNMAP_NS + AC_ALLOW_NS +
                        pages * (AC_UNMAP_PAGE_NS + AC_MAP_PAGE_NS + AC_ALLOW_PAGE_NS);
    toll->earned_ns += pages ? moved_ns : 0;
    toll->spent_ns +=
        moved_ns + traded / page * create_ns(page) / 2; /* the rest it would cost anyway */
}

/* The order of order.h. */
#include "allocator/order/order.h"

#include <string.h>

#include "allocator/carve.h"
#include "failpoint.h"

/* The distrusted events, by hash.  Records are added and never taken out; a record with event 0 serves
 * the next event of its list. */
typedef struct distrust {
    _Atomic uint64_t event;
    struct distrust *next;
} distrust_t;
enum { DISTRUST_BITS = 6, DISTRUST_LISTS = 1 << DISTRUST_BITS };
static distrust_t *_Atomic distrusted[DISTRUST_LISTS];
static _Atomic unsigned distrust_count;
static _Atomic bool distrust_all;

static uint64_t max(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* --- slots --- */

unsigned ac_order_find(ac_order_t *order, ac_stream_t stream) {
    for (unsigned slot = 0; slot < order->high; slot++)
        if (order->used[slot] && order->stream[slot] == stream) {
            order->touched[slot] = ++order->ticks;
            return slot;
        }
    return AC_ORDER_NONE;
}

unsigned ac_order_slot(ac_order_t *order, ac_stream_t stream, uint64_t busy) {
    unsigned found = ac_order_find(order, stream);
    if (found != AC_ORDER_NONE)
        return found;
    for (unsigned slot = 0; slot < AC_ORDER_SLOTS; slot++) {
        if (busy >> slot & 1)
            continue;
        if (!order->used[slot]) {
            found = slot;
            break;
        }
        if (found == AC_ORDER_NONE || order->touched[slot] < order->touched[found])
            found = slot;
    }
    if (found == AC_ORDER_NONE)
        return AC_ORDER_NONE;
    ac_order_drop(order, found);
    order->stream[found] = stream;
    order->used[found] = true;
    order->touched[found] = ++order->ticks;
    if (found >= order->high)
        order->high = found + 1;
    return found;
}

void ac_order_drop(ac_order_t *order, unsigned slot) {
    order->used[slot] = false;
    order->base[slot] = ac_order_advance(order, slot); /* above any position that a free may have read */
    order->kind[slot] = AC_ORDER_UNKNOWN;
    order->item[slot] = 0;
    memset(&order->seen[slot], 0, sizeof order->seen[slot]);
}

uint64_t ac_order_advance(ac_order_t *order, unsigned slot) {
    return ++order->pos[slot];
}

/* --- edges --- */

uint64_t ac_order_reach(const ac_order_t *order, unsigned to, unsigned from) {
    return to == from ? UINT64_MAX : max(order->seen[to].at[from], order->complete[from]);
}

bool ac_order_proven(const ac_order_t *order, unsigned to, unsigned from, uint64_t at) {
    if (at <= order->base[from])
        return false; /* of a former stream of the slot */
    return to == from || at <= max(order->seen[to].at[from], order->complete[from]);
}

void ac_order_read(ac_order_t *order, unsigned slot, ac_order_vector_t *vector) {
    *vector = order->seen[slot];
    vector->at[slot] = ac_order_advance(order, slot);
}

void ac_order_join(ac_order_t *order, unsigned to, const ac_order_vector_t *vector) {
    for (unsigned s = 0; s < order->high; s++)
        order->seen[to].at[s] = max(order->seen[to].at[s], vector->at[s]);
}

void ac_order_completed(ac_order_t *order, const ac_order_vector_t *vector) {
    for (unsigned s = 0; s < order->high; s++)
        order->complete[s] = max(order->complete[s], vector->at[s]);
}

/* --- events --- */

static ac_order_event_t *set_of(ac_order_t *order, uint64_t event) {
    return order->event[event * 0x9e3779b97f4a7c15u >> 57];
}
_Static_assert(AC_ORDER_SETS == 1 << (64 - 57), "the hash of an event names a set");

static ac_order_event_t *entry_of(ac_order_t *order, uint64_t event) {
    ac_order_event_t *set = set_of(order, event);
    for (unsigned way = 0; event && way < AC_ORDER_WAYS; way++)
        if (set[way].event == event)
            return &set[way];
    return NULL;
}

/* The entry that changed longest ago gives way; NULL: all are being recorded. */
static ac_order_event_t *entry_new(ac_order_t *order, uint64_t event) {
    ac_order_event_t *set = set_of(order, event), *oldest = NULL;
    for (unsigned way = 0; way < AC_ORDER_WAYS; way++)
        if (!set[way].inside && (!oldest || set[way].version < oldest->version))
            oldest = &set[way];
    if (oldest) {
        oldest->event = event;
        oldest->overlapped = oldest->known = false;
    }
    return oldest;
}

void ac_order_record_begin(ac_order_t *order, uint64_t event, unsigned slot,
                           ac_order_mark_t *mark) {
    ac_order_event_t *entry = entry_of(order, event);
    if (!entry)
        entry = entry_new(order, event);
    mark->event = event;
    mark->known = slot != AC_ORDER_NONE;
    mark->stray = !entry;
    mark->strays = order->stray_end;
    if (mark->known)
        ac_order_read(order, slot, &mark->vector);
    if (!entry) {
        order->strays++;
        order->stray_end++;
        return;
    }
    entry->version = ++order->versions;
    entry->known = false;
    if (entry->inside++)
        entry->overlapped = true;
}

void ac_order_record_end(ac_order_t *order, const ac_order_mark_t *mark, bool good) {
    if (mark->stray) {
        order->strays--;
        return;
    }
    ac_order_event_t *entry = entry_of(order, mark->event);
    if (!entry || !entry->inside)
        return;
    bool alone = !entry->overlapped || AC_FAILPOINT(overlapping_records_known);
    entry->known = good && mark->known && alone && !order->strays &&
                   mark->strays == order->stray_end && !ac_order_distrusts(mark->event);
    if (entry->known)
        entry->vector = mark->vector;
    if (--entry->inside == 0)
        entry->overlapped = false;
}

bool ac_order_look(ac_order_t *order, uint64_t event, ac_order_mark_t *mark) {
    const ac_order_event_t *entry = entry_of(order, event);
    mark->known = entry && entry->known && !entry->inside;
    if (!mark->known)
        return false;
    mark->event = event;
    mark->version = entry->version;
    mark->vector = entry->vector;
    return true;
}

bool ac_order_still(ac_order_t *order, const ac_order_mark_t *mark) {
    const ac_order_event_t *entry = mark->known ? entry_of(order, mark->event) : NULL;
    return entry && entry->known && entry->version == mark->version;
}

void ac_order_forget(ac_order_t *order, uint64_t event) {
    ac_order_event_t *entry = entry_of(order, event);
    if (!entry)
        return;
    entry->version = ++order->versions;
    entry->known = false;
    if (entry->inside)
        entry->overlapped = true; /* whatever that record finds is not the newest state */
    else
        entry->event = 0;
}

static distrust_t *_Atomic *distrust_list(uint64_t event) {
    return &distrusted[event * 0x9e3779b97f4a7c15u >> (64 - DISTRUST_BITS)];
}

static distrust_t *distrust_find(uint64_t event) {
    for (distrust_t *at = atomic_load(distrust_list(event)); at; at = at->next)
        if (atomic_load(&at->event) == event)
            return at;
    return NULL;
}

bool ac_order_distrust(uint64_t event) {
    distrust_t *_Atomic *list = distrust_list(event);
    if (!event || distrust_find(event))
        return false;
    for (distrust_t *at = atomic_load(list); at; at = at->next) {
        uint64_t none = 0;
        if (atomic_compare_exchange_strong(&at->event, &none, event)) {
            atomic_fetch_add(&distrust_count, 1);
            return true;
        }
    }
    distrust_t *made = ac_carve(sizeof *made);
    if (!made) {
        atomic_store(&distrust_all, true);
        return true;
    }
    atomic_store(&made->event, event);
    made->next = atomic_load(list);
    while (!atomic_compare_exchange_weak(list, &made->next, made))
        ;
    atomic_fetch_add(&distrust_count, 1);
    return true;
}

/* Two threads may have listed the event at the same time. */
bool ac_order_trust(uint64_t event) {
    bool any = false;
    if (!event || !atomic_load(&distrust_count))
        return false;
    for (distrust_t *at; (at = distrust_find(event)); any = true) {
        uint64_t listed = event;
        if (atomic_compare_exchange_strong(&at->event, &listed, 0))
            atomic_fetch_sub(&distrust_count, 1);
    }
    return any;
}

bool ac_order_distrusts(uint64_t event) {
    return atomic_load(&distrust_all) || (atomic_load(&distrust_count) && distrust_find(event));
}

int ac_order_check(const ac_order_t *order) {
    int wrong = 0;
    for (unsigned s = 0; s < AC_ORDER_SLOTS; s++) {
        wrong |= order->complete[s] > order->pos[s] || order->base[s] > order->pos[s];
        wrong |= order->used[s] && s >= order->high;
        for (unsigned t = 0; t < AC_ORDER_SLOTS; t++) {
            wrong |= order->seen[t].at[s] > order->pos[s];
            wrong |= t != s && order->used[s] && order->used[t] &&
                     order->stream[s] == order->stream[t];
        }
    }
    for (unsigned set = 0; set < AC_ORDER_SETS; set++)
        for (unsigned way = 0; way < AC_ORDER_WAYS; way++) {
            const ac_order_event_t *entry = &order->event[set][way];
            for (unsigned s = 0; entry->known && s < AC_ORDER_SLOTS; s++)
                wrong |= entry->vector.at[s] > order->pos[s];
        }
    return wrong;
}

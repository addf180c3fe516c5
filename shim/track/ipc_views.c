/* See ipc_views.h.
 *
 * `inside` of a mapping counts the uses of its views and the threads between an entry and its
 * end.  The caller opens the mapping when `inside` becomes 1, and closes it when `inside`
 * becomes 0.
 *
 * The driver counts how often an allocation is open, by a token or by its own handle.  Memory
 * opened by its own handle is a view of the whole mapping.  If there is no mapping, or the
 * driver has not answered yet, it has a record of its own (NATIVE) until there is one. */
#include "track/ipc_views.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "allocator/carve.h"
#include "allocator/order/fence.h"
#include "device/wait.h"
#include "lock.h"

/* How long a thread waits for the call of another thread: a close waits for the device in that
 * call. */
enum { WAIT_SECONDS = 1, VIEWS_FIRST = 128 };

typedef enum { OPENING, OPEN, CLOSING, NATIVE } state_t;

struct ac_ipc_mapping {
    ac_ipc_mapping_t *next;
    const void *context;
    uint64_t exporter;
    unsigned char handle[AC_IPC_HANDLE];
    uint64_t base, bytes;
    uint64_t widest; /* bytes of the largest view so far */
    unsigned inside;
    unsigned opens; /* opens that the driver counts */
    state_t state;
    bool lost;     /* its context has ended: the driver has closed it, except pages */
    bool alone;    /* not shared: another mapping of the handle is stuck */
    bool on_pages; /* ac_ipc_on_pages */
    int owner;       /* device of the pages */
    uint64_t target; /* clock of ac_ipc_postponed; 0: it was not called */
};

typedef struct {
    uint64_t address, size, id;
    unsigned opens;
    ac_ipc_mapping_t *mapping;
} view_t;

static ac_mutex_t lock = AC_MUTEX(IPC);
static ac_cond_t returned; /* signalled when a driver call has returned */
static ac_ipc_mapping_t *mappings, *spare;
static ac_ipc_mapping_t *left; /* on pages, lost or postponed: to be removed */
static view_t *views;          /* ordered by address */
static size_t view_count, view_room;
_Atomic unsigned ac_ipc_mappings, ac_ipc_natives;

/* ---- mappings, under the lock ---- */

static ac_ipc_mapping_t *find_handle(const void *context, uint64_t exporter,
                                     const unsigned char *handle) {
    ac_ipc_mapping_t *mapping = mappings;
    while (mapping && (mapping->context != context || mapping->exporter != exporter ||
                       mapping->state == NATIVE || mapping->lost || mapping->alone ||
                       memcmp(mapping->handle, handle, AC_IPC_HANDLE) != 0))
        mapping = mapping->next;
    return mapping;
}

/* Returns the counter of mappings of this kind. */
static _Atomic unsigned *count_of(const ac_ipc_mapping_t *mapping) {
    return mapping->state == NATIVE ? &ac_ipc_natives : &ac_ipc_mappings;
}

/* Returns NULL if host memory is short. */
static ac_ipc_mapping_t *take_spare(void) {
    ac_ipc_mapping_t *mapping = spare;
    if (!mapping)
        return ac_carve(sizeof *mapping);
    spare = mapping->next;
    return mapping;
}

static ac_ipc_mapping_t *add(const ac_ipc_mapping_t *as) {
    ac_ipc_mapping_t *mapping = take_spare();
    if (!mapping)
        return NULL;
    *mapping = *as;
    mapping->next = mappings;
    mappings = mapping;
    atomic_fetch_add(count_of(mapping), 1);
    return mapping;
}

static void drop(ac_ipc_mapping_t *mapping) {
    ac_ipc_mapping_t **link = &mappings;
    while (*link != mapping)
        link = &(*link)->next;
    bool later = (mapping->lost || mapping->target) && mapping->on_pages && mapping->base;
    ac_ipc_mapping_t **to = later ? &left : &spare;
    *link = mapping->next;
    mapping->next = *to;
    *to = mapping;
    if (!later)
        atomic_fetch_sub(count_of(mapping), 1);
}

static bool is_around(const ac_ipc_mapping_t *mapping, uint64_t address) {
    return (mapping->state == OPEN || mapping->state == CLOSING) && !mapping->lost &&
           address - mapping->base < mapping->bytes;
}

static ac_ipc_mapping_t *find_base(const void *context, uint64_t base, state_t state) {
    ac_ipc_mapping_t *mapping = mappings;
    while (mapping && (mapping->context != context || mapping->base != base ||
                       mapping->state != state || mapping->lost))
        mapping = mapping->next;
    return mapping;
}

/* ---- views, under the lock ---- */

/* Returns the index of the first view at `address` or above. */
static size_t first_at(uint64_t address) {
    size_t low = 0, high = view_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (views[middle].address < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool make_room(void) {
    if (view_count < view_room)
        return true;
    size_t room = view_room ? 2 * view_room : VIEWS_FIRST;
    view_t *larger = mmap(NULL, room * sizeof *larger, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (larger == MAP_FAILED)
        return false;
    if (view_room) {
        memcpy(larger, views, view_count * sizeof *views);
        munmap(views, view_room * sizeof *views);
    }
    views = larger;
    view_room = room;
    return true;
}

static bool add_view(ac_ipc_mapping_t *mapping, uint64_t address, uint64_t size) {
    static uint64_t ids;
    size_t at = first_at(address);
    while (at < view_count && views[at].address == address && views[at].mapping != mapping)
        at++;
    bool known = at < view_count && views[at].address == address;
    if (!known && !make_room())
        return false;
    if (!known) {
        memmove(&views[at + 1], &views[at], (view_count - at) * sizeof *views);
        views[at] = (view_t){.address = address, .mapping = mapping};
        view_count++;
    }
    if (!known || views[at].size != size)
        views[at].id = (uint64_t)3 << 62 | ++ids; /* unlike ids of the driver and of any block */
    views[at].size = size;
    views[at].opens++;
    if (mapping->widest < size)
        mapping->widest = size;
    return true;
}

static void remove_view(size_t at) {
    memmove(&views[at], &views[at + 1], (--view_count - at) * sizeof *views);
}

static void show(const view_t *view, ac_ipc_view_t *shown) {
    *shown = (ac_ipc_view_t){.address = view->address,
                             .size = view->size,
                             .id = view->id,
                             .base = view->mapping->base,
                             .bytes = view->mapping->bytes,
                             .context = view->mapping->context,
                             .on_pages = view->mapping->on_pages};
}

/* ---- for the hooks ---- */

static struct timespec limit_of_wait(void) {
    struct timespec limit;
    clock_gettime(CLOCK_MONOTONIC, &limit);
    limit.tv_sec += WAIT_SECONDS;
    return limit;
}

ac_ipc_mapping_t *ac_ipc_enter(const void *context, uint64_t exporter,
                               const unsigned char handle[AC_IPC_HANDLE], uint64_t bytes,
                               bool *fresh) {
    struct timespec limit = limit_of_wait();
    ac_ipc_mapping_t *mapping;
    bool stuck = false; /* another thread's call does not return: open a separate mapping */
    ac_lock(&lock);
    while ((mapping = find_handle(context, exporter, handle)) && mapping->state != OPEN && !stuck)
        stuck = ac_wait_until(&returned, &lock, &limit) != 0;
    *fresh = !mapping || mapping->state != OPEN;
    if (*fresh) {
        ac_ipc_mapping_t as = {.context = context,
                               .exporter = exporter,
                               .bytes = bytes,
                               .inside = 1,
                               .state = OPENING,
                               .alone = stuck};
        memcpy(as.handle, handle, AC_IPC_HANDLE);
        mapping = add(&as);
    } else {
        mapping->inside++;
    }
    ac_unlock(&lock);
    return mapping;
}

/* Adds a use by the driver's own handle, which becomes a view of the mapping.  Called under the
 * lock.  Returns false if host memory is short. */
static bool add_native(ac_ipc_mapping_t *mapping) {
    if (!add_view(mapping, mapping->base, mapping->bytes))
        return false;
    mapping->opens++;
    mapping->inside++;
    return true;
}

void ac_ipc_opened(ac_ipc_mapping_t *mapping, uint64_t base) {
    ac_lock(&lock);
    ac_ipc_mapping_t *native = base ? find_base(mapping->context, base, NATIVE) : NULL;
    mapping->base = base;
    mapping->state = OPEN;
    mapping->opens = 1;
    while (native && native->opens && !mapping->lost && add_native(mapping))
        native->opens--;
    if (native && !native->opens)
        drop(native);
    if (!base)
        drop(mapping);
    ac_cond_broadcast(&returned);
    ac_unlock(&lock);
}

void ac_ipc_on_pages(ac_ipc_mapping_t *mapping, int owner) {
    ac_lock(&lock);
    mapping->on_pages = true;
    mapping->owner = owner;
    ac_unlock(&lock);
}

uint64_t ac_ipc_base(const ac_ipc_mapping_t *mapping) {
    return mapping->base;
}

int ac_ipc_owner(const ac_ipc_mapping_t *mapping) {
    return mapping->owner;
}

const void *ac_ipc_context(const ac_ipc_mapping_t *mapping) {
    return mapping->context;
}

bool ac_ipc_view_add(ac_ipc_mapping_t *mapping, uint64_t offset, uint64_t size) {
    bool done = true;
    ac_lock(&lock);
    if (mapping->lost) {
        if (--mapping->inside == 0)
            drop(mapping);
    } else {
        done = add_view(mapping, mapping->base + offset, size);
    }
    ac_unlock(&lock);
    return done;
}

ac_ipc_mapping_t *ac_ipc_view_close(const void *context, uint64_t address, ac_ipc_view_t *view) {
    ac_ipc_mapping_t *mapping = NULL;
    ac_lock(&lock);
    size_t at = first_at(address), found = at;
    for (; at < view_count && views[at].address == address; at++)
        if (views[at].mapping->context == context)
            found = at;
    if (found < view_count && views[found].address == address) {
        mapping = views[found].mapping;
        show(&views[found], view);
        view->closed = --views[found].opens == 0;
        if (view->closed)
            remove_view(found);
    }
    ac_unlock(&lock);
    return mapping;
}

unsigned ac_ipc_leave(ac_ipc_mapping_t *mapping) {
    unsigned closes = 0;
    ac_lock(&lock);
    if (--mapping->inside == 0) {
        closes = mapping->lost ? 0 : mapping->opens;
        mapping->state = CLOSING;
        if (mapping->lost)
            drop(mapping);
    }
    ac_unlock(&lock);
    return closes;
}

void ac_ipc_closed(ac_ipc_mapping_t *mapping, bool failed) {
    ac_lock(&lock);
    mapping->state = OPEN;
    mapping->inside = 1;
    mapping->on_pages &= failed || mapping->target;
    if (!failed)
        drop(mapping);
    ac_cond_broadcast(&returned);
    ac_unlock(&lock);
}

void ac_ipc_native_opened(const void *context, uint64_t base) {
    ac_lock(&lock);
    ac_ipc_mapping_t *mapping = find_base(context, base, OPEN);
    if (!mapping || !add_native(mapping)) {
        ac_ipc_mapping_t *native = find_base(context, base, NATIVE);
        if (!native)
            native = add(&(ac_ipc_mapping_t){.context = context, .base = base, .state = NATIVE});
        if (native)
            native->opens++;
    }
    ac_unlock(&lock);
}

bool ac_ipc_native_close(const void *context, uint64_t base) {
    ac_lock(&lock);
    ac_ipc_mapping_t *native = find_base(context, base, NATIVE);
    if (native && --native->opens == 0)
        drop(native);
    ac_unlock(&lock);
    return native;
}

/* Finds the newest view around the address.  Views may overlap if the program kept a view of a
 * block that the exporter freed.  The driver may open an allocation for two contexts at one
 * base. */
ac_ipc_place_t ac_ipc_find(uint64_t address, ac_ipc_view_t *view) {
    uint64_t widest = 0;
    bool any = false;
    ac_lock(&lock);
    for (const ac_ipc_mapping_t *mapping = mappings; mapping; mapping = mapping->next)
        if (is_around(mapping, address)) {
            any = true;
            widest = mapping->widest > widest ? mapping->widest : widest;
        }
    for (const ac_ipc_mapping_t *mapping = left; mapping; mapping = mapping->next)
        any |= address - mapping->base < mapping->bytes; /* closed, but still mapped */
    const view_t *found = NULL;
    for (size_t at = widest ? first_at(address + 1) : 0; at > 0; at--) {
        const view_t *candidate = &views[at - 1];
        if (address - candidate->address >= widest)
            break;
        if (address - candidate->address < candidate->size &&
            (!found || candidate->id > found->id))
            found = candidate;
    }
    if (found)
        show(found, view);
    ac_unlock(&lock);
    return !any ? AC_IPC_ELSEWHERE : found ? AC_IPC_VIEW : AC_IPC_BETWEEN;
}

void ac_ipc_context_gone(const void *context) {
    if (!atomic_load(&ac_ipc_mappings) && !atomic_load(&ac_ipc_natives))
        return;
    ac_lock(&lock);
    for (size_t at = view_count; at > 0; at--)
        if (views[at - 1].mapping->context == context) {
            views[at - 1].mapping->inside -= views[at - 1].opens;
            remove_view(at - 1);
        }
    for (ac_ipc_mapping_t *mapping = mappings, *next; mapping; mapping = next) {
        next = mapping->next;
        if (mapping->context != context)
            continue;
        mapping->lost = true;
        if (mapping->inside == 0 && (mapping->state == OPEN || mapping->state == NATIVE))
            drop(mapping);
    }
    ac_cond_broadcast(&returned);
    ac_unlock(&lock);
}

void ac_ipc_postponed(ac_ipc_mapping_t *mapping) {
    ac_lock(&lock);
    mapping->target = ac_fence_moment(NULL).clock;
    ac_unlock(&lock);
}

bool ac_ipc_next_left(ac_ipc_left_t *next) {
    ac_lock(&lock);
    ac_ipc_mapping_t *mapping = left;
    if (mapping) {
        left = mapping->next;
        mapping->next = spare;
        spare = mapping;
        atomic_fetch_sub(&ac_ipc_mappings, 1);
        *next = (ac_ipc_left_t){.context = mapping->context,
                                .base = mapping->base,
                                .bytes = mapping->bytes,
                                .owner = mapping->owner,
                                .target = mapping->target};
    }
    ac_unlock(&lock);
    return mapping;
}

/* If host memory is short, the pages stay. */
void ac_ipc_left_again(const ac_ipc_left_t *again) {
    ac_lock(&lock);
    ac_ipc_mapping_t *mapping = take_spare();
    if (mapping) {
        *mapping = (ac_ipc_mapping_t){.next = left,
                                      .context = again->context,
                                      .base = again->base,
                                      .bytes = again->bytes,
                                      .owner = again->owner,
                                      .target = again->target};
        left = mapping;
        atomic_fetch_add(&ac_ipc_mappings, 1);
    }
    ac_unlock(&lock);
}

bool ac_ipc_next_of(int owner, const void **context, uint64_t *base, uint64_t *bytes) {
    const ac_ipc_mapping_t *next = NULL;
    ac_lock(&lock);
    for (const ac_ipc_mapping_t *at = mappings; at; at = at->next)
        if (at->on_pages && at->owner == owner && at->state == OPEN && !at->lost &&
            at->base > *base && (!next || at->base < next->base))
            next = at;
    if (next) {
        *context = next->context;
        *base = next->base;
        *bytes = next->bytes;
    }
    ac_unlock(&lock);
    return next;
}

void ac_ipc_fork_child(void) {
    lock = (ac_mutex_t)AC_MUTEX(IPC);
    returned = (ac_cond_t){0, 0};
    mappings = left = NULL;
    view_count = 0;
    atomic_store(&ac_ipc_mappings, 0);
    atomic_store(&ac_ipc_natives, 0);
}

/* A device for one line of fences, with an oracle that knows the order of its work. Work of a
 * stream may touch memory that was freed under the single-stream rule. All work that was pending
 * at this free must come before it. */
#ifndef LINE_DEVICE_H
#define LINE_DEVICE_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/order/fence.h"

enum { STREAMS = 5, FIRST_KEY = 0x1000 }; /* keys FIRST_KEY + n */

/* For each stream, the progress of other streams ... */
typedef struct {
    uint64_t at[STREAMS];
} clocks_t;

typedef struct {
    clocks_t covers;
    int sole;     /* of a join event; -1 */
    unsigned use; /* device calls that concern it */
} fence_t;

static struct {
    uint64_t submitted[STREAMS], completed[STREAMS];
    clocks_t before[STREAMS]; /* ... after which work submitted to it now may begin */
    clocks_t relied;          /* ... at a free under the rule: work that may use it */
    bool captures[STREAMS], no_join_events, never_join_events, no_waits, late_join_events;
    _Atomic bool gone[STREAMS];
    _Atomic unsigned join_events, fences;
    unsigned waits, host_waits, syncs;
} d;

static ac_timeline_t timeline;
static ac_joins_t joins;

static unsigned stream_of(uint64_t key) {
    ck_assert_uint_lt(key - FIRST_KEY, STREAMS);
    return (unsigned)(key - FIRST_KEY);
}

static void raise_to(uint64_t *value, uint64_t to) {
    *value = *value > to ? *value : to;
}

static void join(clocks_t *to, const clocks_t *from) {
    for (int i = 0; i < STREAMS; i++)
        raise_to(&to->at[i], from->at[i]);
}

/* Returns all work of a stream, and the work before it. */
static clocks_t end_of(unsigned stream) {
    clocks_t end = d.before[stream];
    end.at[stream] = d.submitted[stream];
    return end;
}

static void complete(const clocks_t *until) {
    for (int i = 0; i < STREAMS; i++)
        raise_to(&d.completed[i], until->at[i]);
}

static bool capturing(void *context, bool any) {
    (void)context;
    (void)any;
    for (int i = 0; i < STREAMS; i++)
        if (d.captures[i])
            return true;
    return false;
}

/* Steps of other threads: while the next join event is being recorded, after a join event or a
 * fence was recorded, and while a fence is queried. */
typedef void part_fn(void);
static part_fn *_Atomic meanwhile, *_Atomic after_join, *_Atomic after_record,
    *_Atomic while_asked;

/* Runs the step once, even if several threads arrive at a time. */
static void let_others(part_fn *_Atomic *part) {
    part_fn *others = atomic_exchange(part, NULL);
    if (others)
        others();
}

static ac_status_t join_record(void *context, uint64_t key, void **out) {
    let_others(&meanwhile);
    ck_assert_msg(!atomic_load(&d.gone[stream_of(key)]), "a stream that is gone is named");
    if (capturing(context, false))
        return AC_BUSY;
    if (d.no_join_events)
        return AC_UNSUPPORTED;
    fence_t *fence = malloc(sizeof *fence);
    *fence = (fence_t){end_of(stream_of(key)), (int)stream_of(key), 0};
    d.join_events++;
    d.fences++;
    *out = fence;
    let_others(&after_join);
    return AC_OK;
}

static _Atomic unsigned recorded;

static ac_status_t fence_record(void *context, bool unseen, void **out) {
    (void)context;
    (void)unseen;
    atomic_fetch_add(&recorded, 1);
    fence_t *fence = malloc(sizeof *fence);
    memcpy(fence->covers.at, d.submitted, sizeof d.submitted);
    fence->sole = -1;
    fence->use = 0;
    d.fences++;
    *out = fence;
    let_others(&after_record);
    return AC_OK;
}

static ac_status_t fence_query(void *context, void *fence) {
    (void)context;
    fence_t *asked = fence;
    asked->use++;
    let_others(&while_asked);
    asked->use--;
    for (int i = 0; i < STREAMS; i++)
        if (d.completed[i] < asked->covers.at[i])
            return AC_BUSY;
    return AC_OK;
}

static ac_status_t fence_wait(void *context, void *fence, uint64_t limit_ns) {
    (void)context;
    (void)limit_ns;
    complete(&((const fence_t *)fence)->covers);
    return AC_OK;
}

/* A join event in use covers no work behind the last free that relied on order. This work may
 * never end. */
static void check_join(const fence_t *join) {
    ck_assert_msg(d.late_join_events || join->covers.at[join->sole] <= d.relied.at[join->sole],
                  "a join covers work %u of its sole, the last free came behind %u",
                  (unsigned)join->covers.at[join->sole], (unsigned)d.relied.at[join->sole]);
}

static bool join_events(void *context) {
    (void)context;
    return !d.never_join_events;
}

static ac_status_t join_wait(void *context, void *fence, uint64_t key) {
    check_join(fence);
    if (key == 0) {
        d.host_waits++;
        return fence_wait(context, fence, 0);
    }
    if (d.captures[stream_of(key)])
        return AC_BUSY;
    if (d.no_waits)
        return AC_FAILED;
    d.waits++;
    join(&d.before[stream_of(key)], &((const fence_t *)fence)->covers);
    return AC_OK;
}

static void fence_release(void *context, void *fence) {
    (void)context;
    ck_assert_msg(((fence_t *)fence)->use == 0,
                  "a fence is released that the device is asked for");
    d.fences--;
    free(fence);
}

static ac_status_t synchronize(void *context, uint64_t limit_ns) {
    (void)limit_ns;
    if (capturing(context, false))
        return AC_BUSY;
    d.syncs++;
    memcpy(d.completed, d.submitted, sizeof d.completed);
    return AC_OK;
}

static const ac_device_ops_t ops = {.fence_record = fence_record,
                                    .fence_query = fence_query,
                                    .fence_wait = fence_wait,
                                    .fence_release = fence_release,
                                    .join_record = join_record,
                                    .join_events = join_events,
                                    .join_wait = join_wait,
                                    .capturing = capturing,
                                    .synchronize = synchronize};

static void begin(void) {
    memset(&d, 0, sizeof d);
    ck_assert(ac_timeline_open(&timeline, &ops, NULL));
}

/* Resets the context to one without join events. */
static inline void forget_join_events(void) {
    timeline.single.backoff = 0;
}

static void end(void) {
    ck_assert_int_eq(ac_fence_check(&timeline), 0);
    ac_timeline_close(&timeline);
    ck_assert_uint_eq(d.fences, 0);
}

/* Submits as the hooks do. The work may use memory that was freed under the rule. */
static void submit(unsigned stream) {
    if (ac_fence_full(&timeline))
        ac_fence_close(&timeline, false);
    ac_fence_enter(&timeline);
    ac_sole_enter(&timeline, FIRST_KEY + stream, &joins);
    for (unsigned i = 0; i < STREAMS; i++)
        ck_assert_msg(i == stream || d.relied.at[i] <= d.completed[i] ||
                          d.relied.at[i] <= d.before[stream].at[i],
                      "stream %u works on memory that stream %u is busy with", stream, i);
    d.submitted[stream]++;
    ac_fence_leave(&timeline);
    ck_assert_int_eq(ac_fence_check(&timeline), 0);
}

/* Frees memory that all work so far may use. Returns true if it was ready at once. */
static bool rely(void) {
    bool protects = ac_sole_protects(&timeline);
    if (protects)
        memcpy(d.relied.at, d.submitted, sizeof d.relied.at);
    return protects;
}

static void full_sync(void) {
    uint64_t clock = ac_fence_stamp();
    memcpy(d.completed, d.submitted, sizeof d.completed);
    ac_fence_synced(&timeline, clock);
}

#endif

/* Blocks of pinned memory and what becomes of them (host.h). */
#include "allocator/host/host.h"

#include <stddef.h>

#include "allocator/carve.h"
#include "allocator/order/capture.h"
#include "allocator/order/fence.h"
#include "allocator/policy.h"
#include "failpoint.h"

struct ac_host_block {
    ac_host_node_t node; /* first: its address is that of the driver's allocation */
    uint64_t size;       /* of that */
    uint64_t requested;  /* bytes; HELD */
    ac_host_key_t key;
    ac_host_state_t state;
    bool tainted;     /* the program told the driver about it: it serves no second request */
    bool freed;       /* LEAVING: the program had freed it before */
    uint64_t handout; /* clock (fence.h) */
    ac_due_t due;     /* WAITING: its entry of the ledger; IDLE: of the queue of idle blocks */
    uint64_t idle_ns; /* IDLE: since when */
    uint64_t serial;  /* of its lifetime; HELD */
    ac_host_block_t *newer, *older; /* IDLE: neighbours in its bucket; GONE: `older` is the next spare */
};

void ac_host_init(ac_host_t *host, ac_host_stats_t *stats) {
    ac_mutex_init(&host->lock, AC_RANK_HOST);
    host->stats = stats;
}

uint64_t ac_host_size(uint64_t bytes) {
    if (bytes > UINT64_MAX / 2)
        return 0;
    uint64_t power = (uint64_t)1 << (63 - __builtin_clzll(bytes));
    uint64_t step = power / AC_PINNED_STEPS < AC_PINNED_LEAST ? AC_PINNED_LEAST : power / AC_PINNED_STEPS;
    return (bytes + step - 1) / step * step;
}

/* --- lists --- */

static ac_host_block_t *block_of(const ac_due_t *due) {
    return due ? (ac_host_block_t *)((uintptr_t)due - offsetof(ac_host_block_t, due)) : NULL;
}

static ac_host_block_t **bucket_of(ac_host_t *host, const ac_host_key_t *key, uint64_t size) {
    uintptr_t owner = AC_FAILPOINT(pinned_owner_forgotten) ? 0 : (uintptr_t)key->owner;
    uint64_t hash = size ^ owner ^ (uint64_t)key->node << 32;
    return &host->bucket[hash * 0x9e3779b97f4a7c15u >> 55];
}
_Static_assert(AC_HOST_BUCKETS == 1 << (64 - 55), "the hash is an index of the table");

static bool matches(const ac_host_block_t *block, const ac_host_key_t *key, uint64_t size) {
    return block->size == size &&
           (block->key.owner == key->owner || AC_FAILPOINT(pinned_owner_forgotten)) &&
           (block->key.kind == key->kind || AC_FAILPOINT(pinned_flags_forgotten)) &&
           block->key.node == key->node;
}

/* --- steps: out of a state and its list, into a state; WAITING is added to the ledger by the caller --- */

static bool is_kept(ac_host_state_t state) {
    return state == AC_HOST_WAITING || state == AC_HOST_IDLE;
}

/* Held, or freed with work still pending. */
static bool is_active(ac_host_state_t state) {
    return state == AC_HOST_HELD || state == AC_HOST_WAITING;
}

static void count_active(ac_host_t *host, const ac_host_block_t *block, bool active) {
    void (*count)(ac_stat_t *, int64_t) = active ? ac_stat_up : ac_stat_down;
    count(&host->stats->active_requests, 1);
    count(&host->stats->active_bytes, (int64_t)block->size);
}

static void step(ac_host_t *host, ac_host_block_t *block, ac_host_state_t to, uint64_t now) {
    ac_host_state_t from = block->state;
    if (is_kept(from))
        atomic_fetch_sub(&host->kept, block->size);
    if (from == AC_HOST_WAITING)
        ac_ledger_remove(&host->ledger, &block->due);
    if (from == AC_HOST_IDLE) {
        ac_due_queue_remove(&host->idle_queue, &block->due);
        *(block->newer ? &block->newer->older : bucket_of(host, &block->key, block->size)) =
            block->older;
        if (block->older)
            block->older->newer = block->newer;
        host->idle -= block->size;
    }
    if (is_active(from) != is_active(to))
        count_active(host, block, is_active(to));
    block->state = to;
    if (is_kept(to))
        atomic_fetch_add(&host->kept, block->size);
    if (to == AC_HOST_IDLE) {
        ac_due_queue_append(&host->idle_queue, &block->due);
        ac_host_block_t **bucket = bucket_of(host, &block->key, block->size);
        block->idle_ns = now;
        block->newer = NULL;
        block->older = *bucket;
        if (*bucket)
            (*bucket)->newer = block;
        *bucket = block;
        host->idle += block->size;
    }
}

static void put_aside(ac_host_t *host, ac_host_block_t *block) {
    block->older = host->spare;
    host->spare = block;
}

/* The driver has taken it back, or its context has gone. */
static void lose(ac_host_t *host, ac_host_block_t *block) {
    bool leaving = block->state == AC_HOST_LEAVING;
    step(host, block, AC_HOST_GONE, 0);
    ac_host_index_remove(&host->root, &block->node);
    ac_stat_down(&host->stats->allocations, 1);
    ac_stat_down(&host->stats->allocated_bytes, (int64_t)block->size);
    atomic_fetch_sub(&host->blocks, 1);
    if (!leaving) /* else its thread does, in ac_host_left */
        put_aside(host, block);
}

static void ready(ac_due_t *due, void *arg) {
    ac_host_t *host = arg;
    step(host, block_of(due), AC_HOST_IDLE, host->drained_ns);
}

static void drain(ac_host_t *host, uint64_t now) {
    host->drained_ns = now;
    if (ac_ledger_waits(&host->ledger))
        ac_ledger_drain(&host->ledger, NULL, NULL, ready, host);
}

/* Adds the block, which work that was submitted up to now may touch, to the ledger. */
static void wait_for_all(ac_host_t *host, ac_host_block_t *block, uint64_t now) {
    uint64_t target = AC_FAILPOINT(pinned_handout_awaited) ? block->handout : ac_fence_moment(NULL).clock;
    block->due.ticket = (ac_ticket_t){.epoch = target, .key = AC_KEY_ALL, .all = true};
    ac_ledger_add(&host->ledger, &block->due);
    drain(host, now);
    if (block->state == AC_HOST_WAITING) /* page-locking costs more than an event */
        ac_fence_want(NULL, true, AC_FENCE_BATCH_WEIGHT);
}

/* --- requests --- */

static void hand_out(ac_host_block_t *block, ac_host_t *host, uint64_t bytes) {
    block->requested = bytes;
    block->handout = ac_fence_handout_shared();
    block->serial = ++host->serial;
}

bool ac_host_take(ac_host_t *host, const ac_host_key_t *key, uint64_t size, uint64_t bytes,
                  uint64_t now, uint64_t *address) {
    ac_lock(&host->lock);
    drain(host, now);
    ac_host_block_t *block = *bucket_of(host, key, size);
    while (block && !matches(block, key, size))
        block = block->older;
    if (block) {
        step(host, block, AC_HOST_HELD, now);
        hand_out(block, host, bytes);
        *address = block->node.address;
    }
    ac_unlock(&host->lock);
    return block;
}

bool ac_host_waits(ac_host_t *host, const ac_host_key_t *key, uint64_t size) {
    ac_lock(&host->lock);
    const ac_due_t *due = host->ledger.fence[AC_REACH_ALL].first;
    while (due && !matches(block_of(due), key, size))
        due = due->next;
    ac_unlock(&host->lock);
    return due;
}

/* The record of a node of the index, which is its first member. */
static ac_host_block_t *record_of(ac_host_node_t *node) {
    return (ac_host_block_t *)(void *)node;
}

static ac_host_block_t *floor_of(ac_host_t *host, uint64_t address) {
    return record_of(ac_host_index_floor(host->root, address));
}

static ac_host_block_t *next_of(ac_host_t *host, uint64_t address) {
    return record_of(ac_host_index_next(host->root, address));
}

static ac_host_block_t *around(ac_host_t *host, uint64_t address) {
    ac_host_block_t *block = floor_of(host, address);
    return block && address - block->node.address < block->size ? block : NULL;
}

bool ac_host_add(ac_host_t *host, const ac_host_key_t *key, uint64_t address, uint64_t size,
                 uint64_t bytes) {
    ac_lock(&host->lock);
    for (ac_host_block_t *old;
         (old = floor_of(host, address + size - 1)) && old->node.address + old->size > address;)
        lose(host, old); /* the driver had taken it back unseen, or does so now */
    ac_host_block_t *block = host->spare;
    if (block)
        host->spare = block->older;
    else
        block = ac_carve(sizeof *block);
    if (block) {
        *block = (ac_host_block_t){.node = {.address = address}, .size = size, .key = *key};
        ac_host_index_insert(&host->root, &block->node);
        atomic_fetch_add(&host->blocks, 1);
        ac_stat_up(&host->stats->allocations, 1);
        ac_stat_up(&host->stats->allocated_bytes, (int64_t)size);
        host->stats->num_host_alloc++;
        step(host, block, AC_HOST_HELD, 0);
        hand_out(block, host, bytes);
    }
    ac_unlock(&host->lock);
    return block;
}

/* --- frees --- */

/* Blocks that the library does not keep are left to the driver. */
static ac_host_free_t retire(ac_host_t *host, ac_host_block_t *block, uint64_t now) {
    uint64_t session = ac_order_captured_anywhere(block->handout);
    if (session && !AC_FAILPOINT(pinned_capture_forgotten)) {
        block->due.ticket = (ac_ticket_t){.place = session, .key = AC_KEY_CAPTURE};
        step(host, block, AC_HOST_WAITING, now);
        ac_ledger_add(&host->ledger, &block->due);
        return AC_HOST_DEFERRED;
    }
    bool free = ac_fence_untouched_anywhere(block->handout) || AC_FAILPOINT(pinned_reused_early);
    step(host, block, free ? AC_HOST_IDLE : AC_HOST_WAITING, now);
    if (!free)
        wait_for_all(host, block, now);
    return block->state == AC_HOST_IDLE ? AC_HOST_READY : AC_HOST_WAITS;
}

ac_host_free_t ac_host_give(ac_host_t *host, uint64_t address, bool keep, uint64_t limit,
                            uint64_t now, ac_host_block_t **leaving) {
    ac_host_free_t answer;
    ac_lock(&host->lock);
    drain(host, now);
    ac_host_block_t *block = around(host, address);
    if (!block) {
        answer = AC_HOST_NOT_OURS;
    } else if (block->node.address != address || block->state != AC_HOST_HELD) {
        answer = AC_HOST_BAD;
    } else if (!keep || block->tainted || host->kept - host->idle + block->size > limit) {
        block->freed = false;
        step(host, block, AC_HOST_LEAVING, now);
        *leaving = block;
        answer = AC_HOST_LEAVES;
    } else {
        answer = retire(host, block, now);
    }
    ac_unlock(&host->lock);
    return answer;
}

/* --- back to the driver --- */

ac_host_block_t *ac_host_leave(ac_host_t *host, uint64_t before, uint64_t limit, uint64_t now) {
    ac_lock(&host->lock);
    drain(host, now);
    ac_host_block_t *block = host->kept > limit ? block_of(host->idle_queue.first) : NULL;
    if (block && block->idle_ns >= before)
        block = NULL;
    if (block) {
        block->freed = true;
        step(host, block, AC_HOST_LEAVING, now);
    }
    ac_unlock(&host->lock);
    return block;
}

bool ac_host_due(ac_host_t *host, uint64_t before, uint64_t limit) {
    ac_lock(&host->lock);
    const ac_host_block_t *oldest = block_of(host->idle_queue.first);
    bool due = ac_ledger_waits(&host->ledger) || host->kept > limit ||
               (oldest && oldest->idle_ns < before);
    ac_unlock(&host->lock);
    return due;
}

void *ac_host_leaving(const ac_host_block_t *block, uint64_t *address, uint64_t *size) {
    *address = block->node.address;
    *size = block->size;
    return block->key.owner;
}

void ac_host_left(ac_host_t *host, ac_host_block_t *block, bool freed, uint64_t now) {
    ac_lock(&host->lock);
    bool gone =
        block->state == AC_HOST_GONE; /* with its context, or its address was given again */
    if (!gone && !freed) {
        step(host, block, block->freed ? AC_HOST_IDLE : AC_HOST_HELD, now);
    } else {
        if (!gone)
            lose(host, block);
        put_aside(host, block);
        host->stats->num_host_free += freed;
    }
    ac_unlock(&host->lock);
}

void ac_host_owner_gone(ac_host_t *host, const void *owner) {
    ac_lock(&host->lock);
    for (ac_host_block_t *block = next_of(host, 0), *next; block; block = next) {
        uint64_t address = block->node.address;
        if (block->key.owner == owner)
            lose(host, block);
        next = next_of(host, address);
    }
    ac_unlock(&host->lock);
}

void ac_host_forget(ac_host_t *host, uint64_t address) {
    ac_lock(&host->lock);
    ac_host_block_t *block = around(host, address);
    if (block && block->node.address == address)
        lose(host, block);
    ac_unlock(&host->lock);
}

/* --- what they wait for --- */

uint64_t ac_host_target(ac_host_t *host, const void *owner) {
    uint64_t target = 0;
    ac_lock(&host->lock);
    for (const ac_host_block_t *b = next_of(host, 0); b; b = next_of(host, b->node.address)) {
        bool captured = b->due.ticket.key == AC_KEY_CAPTURE;
        if (b->state != AC_HOST_WAITING || (owner ? b->key.owner != owner : captured))
            continue;
        uint64_t place = captured ? ac_fence_now() : ac_due_epoch(&b->due);
        target = place > target ? place : target;
    }
    ac_unlock(&host->lock);
    return target;
}

bool ac_host_holds(ac_host_t *host, uint64_t session) {
    ac_lock(&host->lock);
    bool any = ac_ledger_held(&host->ledger, session);
    ac_unlock(&host->lock);
    return any;
}

void ac_host_release(ac_host_t *host, uint64_t session, uint64_t now) {
    ac_lock(&host->lock);
    for (ac_due_t *due; (due = ac_ledger_held(&host->ledger, session));) {
        ac_ledger_remove(&host->ledger, due);
        wait_for_all(host, block_of(due), now);
    }
    ac_unlock(&host->lock);
}

/* --- what it looks like --- */

bool ac_host_find(ac_host_t *host, uint64_t address, ac_host_info_t *info) {
    ac_lock(&host->lock);
    const ac_host_block_t *block = around(host, address);
    if (block)
        *info = (ac_host_info_t){.address = block->node.address,
                                 .size = block->size,
                                 .requested = block->requested,
                                 .id = (uint64_t)3 << 62 | block->serial,
                                 .allocated = block->state == AC_HOST_HELD &&
                                              address - block->node.address < block->requested};
    ac_unlock(&host->lock);
    return block;
}

void ac_host_taint(ac_host_t *host, uint64_t address) {
    ac_lock(&host->lock);
    ac_host_block_t *block = around(host, address);
    if (block && block->state == AC_HOST_HELD)
        block->tainted = true;
    ac_unlock(&host->lock);
}

bool ac_host_figures(ac_host_t *host, const struct timespec *deadline, ac_host_stats_t *stats) {
    if (!ac_lock_until(&host->lock, deadline))
        return false;
    *stats = *host->stats;
    ac_unlock(&host->lock);
    return true;
}

/* --- the checker --- */

typedef struct {
    uint64_t blocks, bytes; /* in the ledger and in the queue of idle ones */
} listed_t;

static void count_listed(ac_due_t *due, void *arg) {
    listed_t *listed = arg;
    listed->blocks += is_kept(block_of(due)->state);
    listed->bytes += block_of(due)->size;
}

static const char *check(ac_host_t *host) {
    uint64_t count = 0, bytes = 0, active = 0, kept = 0;
    const ac_host_block_t *before = NULL;
    for (const ac_host_block_t *b = next_of(host, 0); b; b = next_of(host, b->node.address)) {
        if (b->state == AC_HOST_GONE)
            return "a block that is gone is in the index";
        if (before && before->node.address + before->size > b->node.address)
            return "blocks overlap";
        before = b;
        count++;
        bytes += b->size;
        active += is_active(b->state);
        kept += is_kept(b->state);
    }
    listed_t listed = {0, 0};
    const char *wrong = ac_ledger_check(&host->ledger, count_listed, &listed);
    if (wrong)
        return wrong;
    for (ac_due_t *due = host->idle_queue.first; due; due = due->next)
        count_listed(due, &listed);
    if (listed.blocks != kept)
        return "a kept block is in no list";
    if (listed.bytes != host->kept || host->idle > listed.bytes)
        return "kept bytes are not the sum";
    const ac_host_stats_t *s = host->stats;
    if (s->allocations.current != (int64_t)count ||
        s->allocated_bytes.current != (int64_t)bytes ||
        s->active_requests.current != (int64_t)active || host->blocks != count)
        return "statistics of pinned memory are not the sum";
    return NULL;
}

int ac_host_check(ac_host_t *host, const char **why) {
    ac_lock(&host->lock);
    *why = check(host);
    ac_unlock(&host->lock);
    return *why != NULL;
}

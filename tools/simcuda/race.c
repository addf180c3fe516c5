/* The race detector's order: which work happens before which by CUDA's documented rules, as far
 * as the program established it.  Global lock.
 *
 * The edges are those the simulator makes (sim_work_after: stream order, default streams, events,
 * graph edges, context-wide records and waits).  They are kept even if the earlier item is
 * complete already.  Items are threaded onto chains.  An item continues the chain of an item that
 * it follows, takes over a chain if it follows the last item there, or begins a new one.  Its clock
 * gives its past as one position for each chain.  Items that touch no memory (records, waits,
 * marks) take no place on a chain; otherwise each event of a whole context would end a chain.  The
 * number of chains is about the largest number of unordered streams of work so far.
 *
 * The host.  One clock stands for all host threads.  If any thread saw work complete (by a
 * synchronisation, a successful query, a synchronous copy, or a host function that ran), this work
 * comes before all work that any thread submits afterwards.  Threads order themselves by locks
 * that are invisible here.  Calls follow each other in real time under the global lock, and this
 * order contains every order made by locks.  The detector therefore never reports accesses that a
 * lock might have ordered.  It misses races between two threads that were merely lucky.
 *
 * The detector cannot see the host's reads of memory either; simcuda_host_saw reports one.  The
 * host is assumed to poll each value that a stream operation writes to host memory.
 *
 * A programmatic launch starts when the kernel before it has started.  It follows the work that
 * this kernel follows, but not the kernel itself.  Later work follows both.
 *
 * A wait for a value in memory may be ordered after a write that is unknown here.  Work behind the
 * wait is not compared with work that it is not known to follow. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "race_memory.h"
#include "state.h"

#define EXPORT __attribute__((visibility("default")))

enum { TEXTS = 200, PAIRS = 256 }; /* reports with text; recent pairs that are not reported again */

bool sim_race_on;
static FILE *out;
static bool aborts;
static atomic_ullong reports, found[SIM_FINDINGS];

static uint64_t *tails; /* by chain: its newest position */
static unsigned chains, chain_room;
static sim_vector_t *host;
static uint64_t host_version = 1;
static sim_op_t *entered;
static uint64_t live_ops;

bool sim_race_open(const char *how) {
    if (!how || !*how || !strcmp(how, "off"))
        return true;
    aborts = !strcmp(how, "abort");
    out = stderr;
    if (!aborts && strcmp(how, "on") && !(out = fopen(how, "ae"))) {
        fprintf(stderr, "simcuda: ACCEL_SIM: race_detector: cannot write %s\n", how);
        return false;
    }
    sim_race_on = true;
    return true;
}

/* ---- vectors ---- */

static void vector_unref(sim_vector_t *vector) {
    if (vector && !--vector->refs)
        free(vector);
}

static sim_vector_t *vector_ref(sim_vector_t *vector) {
    if (vector)
        vector->refs++;
    return vector;
}

/* Makes *slot writable, with room for `count`.  Without memory the order is lost and later reports
 * could be wrong, so the race detector stops. */
static bool vector_own(sim_vector_t **slot, unsigned count) {
    sim_vector_t *old = *slot;
    if (old && old->refs == 1 && old->count >= count)
        return true;
    unsigned room = old && old->count > count ? old->count : count;
    sim_vector_t *made = calloc(1, sizeof *made + room * sizeof *made->at);
    if (!made) {
        sim_race_on = false;
        return false;
    }
    made->refs = 1;
    made->count = room;
    if (old)
        memcpy(made->at, old->at, old->count * sizeof *old->at);
    vector_unref(old);
    *slot = made;
    return true;
}

static uint64_t vector_at(const sim_vector_t *vector, unsigned chain) {
    return vector && chain < vector->count ? vector->at[chain] : 0;
}

static void vector_raise(sim_vector_t **slot, unsigned chain, uint64_t pos) {
    if (vector_at(*slot, chain) < pos && vector_own(slot, chain + 1))
        (*slot)->at[chain] = pos;
}

static void vector_join(sim_vector_t **slot, sim_vector_t *other) {
    if (!other || *slot == other)
        return;
    if (!*slot) {
        *slot = vector_ref(other);
        return;
    }
    for (unsigned i = 1; i < other->count; i++)
        if (other->at[i] > vector_at(*slot, i)) {
            if (!vector_own(slot, other->count))
                return;
            (*slot)->at[i] = other->at[i];
        }
}

/* ---- items ---- */

static sim_op_t *op_new(void) {
    sim_op_t *op = calloc(1, sizeof *op);
    if (op) {
        op->refs = 1;
        live_ops++;
    }
    return op;
}

sim_op_t *sim_op_of(sim_work_t *work) {
    if (!work->op) {
        work->op = op_new();
        if (!work->op)
            return NULL;
        sim_work_type_t type = work->ops->type;
        work->op->joint = type == SIM_WORK_RECORD || type == SIM_WORK_WAIT ||
                          type == SIM_WORK_MARK || type == SIM_WORK_HOST;
    }
    return work->op;
}

sim_op_t *sim_op_ref(sim_op_t *op) {
    op->refs++;
    return op;
}

void sim_op_unref(sim_op_t *op) {
    if (!op || --op->refs)
        return;
    sim_op_release_uses(op);
    vector_unref(op->pre);
    vector_unref(op->extra);
    free(op);
    live_ops--;
}

void sim_race_forget(sim_work_t *work) {
    sim_op_unref(work->op);
    work->op = NULL;
}

void sim_race_clone(sim_work_t *to, const sim_work_t *from) {
    sim_op_t *op = from->op ? sim_op_of(to) : NULL;
    for (size_t i = 0; op && i < from->op->use_count; i++)
        sim_op_add_use(op, &from->op->uses[i]);
    if (op)
        op->resolved = from->op->resolved;
}

bool sim_op_before(const sim_op_t *first, const sim_op_t *second) {
    if (first->chain == second->chain)
        return first->pos <= second->pos;
    return vector_at(second->pre, first->chain) >= first->pos;
}

bool sim_op_host_knows(const sim_op_t *op) {
    return vector_at(host, op->chain) >= op->pos;
}

sim_op_t *sim_op_entered(void) {
    return entered;
}

static bool extend(sim_op_t *op, unsigned chain) {
    op->chain = chain;
    op->pos = ++tails[chain];
    return true;
}

/* Orders `op` after `before`, the items before it, and the items that precede only its
 * successors. */
void sim_op_join(sim_op_t *op, const sim_op_t *before) {
    vector_join(&op->pre, before->pre);
    vector_join(&op->pre, before->extra);
    op->undecided |= before->undecided;
    if (op->host_seen < before->host_seen)
        op->host_seen = before->host_seen;
    if (!before->chain)
        return;
    if (!op->chain && op->joint) {
        op->chain = before->chain;
        op->pos = before->pos;
    } else if (!op->chain && tails[before->chain] == before->pos) {
        extend(op, before->chain);
    } else if (op->chain != before->chain || op->pos <= before->pos) {
        vector_raise(&op->pre, before->chain, before->pos);
    }
}

static unsigned chain_new(void) {
    if (chains + 1 >= chain_room) {
        unsigned room = chain_room ? 2 * chain_room : 64;
        uint64_t *grown = realloc(tails, room * sizeof *grown);
        if (!grown)
            return 0;
        memset(grown + chain_room, 0, (room - chain_room) * sizeof *grown);
        tails = grown;
        chain_room = room;
    }
    return ++chains;
}

/* Places an item that continues no chain: on a chain that it follows entirely, or on a new one. */
static bool place(sim_op_t *op) {
    for (unsigned i = 1; op->pre && i < op->pre->count; i++)
        if (op->pre->at[i] && op->pre->at[i] == tails[i])
            return extend(op, i);
    unsigned chain = chain_new();
    return chain && extend(op, chain);
}

/* Makes a chain for work of another process; items of this process never continue it. */
unsigned sim_chain_foreign(void) {
    unsigned chain = chain_new();
    if (chain)
        tails[chain] = UINT64_MAX;
    return chain;
}

sim_op_t *sim_op_foreign(unsigned chain, uint64_t pos) {
    sim_op_t *op = op_new();
    if (!op)
        return NULL;
    op->chain = chain;
    op->pos = pos;
    op->pre = vector_ref(host);
    op->device = -1;
    op->settled = op->resolved = true;
    return op;
}

/* Fixes the order of the item: no more items come before it. */
static sim_op_t *settle(sim_work_t *work) {
    sim_op_t *op = sim_op_of(work);
    if (!op || op->settled)
        return op;
    op->type = work->ops->name;
    op->label = work->label;
    op->stream_id = work->stream_id;
    op->ctx_id = work->ctx_id;
    op->device = work->ctx ? work->ctx->device : -1;
    op->undecided |= work->ops->type == SIM_WORK_WAIT_VALUE;
    if (op->host_seen < host_version) {
        vector_join(&op->pre, host);
        op->host_seen = host_version;
    }
    sim_race_resolve(work);
    sim_op_join_frees(op);
    if (!op->chain && !op->joint && !place(op)) {
        sim_race_on = false;
        return NULL;
    }
    op->settled = true;
    return op;
}

static bool overlaps(const sim_work_t *work, const sim_work_t *before) {
    return work->programmatic && before->ops->type == SIM_WORK_KERNEL &&
           work->stream_id == before->stream_id;
}

/* Orders `work` after the predecessors of the kernel `other`, with which it may run concurrently.
 * Successors of `work` follow `other`, too, unless `work` is a record of an event. */
static void join_start(sim_work_t *work, sim_op_t *op, const sim_op_t *other) {
    vector_join(&op->pre, other->pre);
    if (other->pos > 1)
        vector_raise(&op->pre, other->chain, other->pos - 1);
    op->undecided |= other->undecided;
    if (work->ops->type == SIM_WORK_RECORD)
        return;
    vector_join(&op->extra, other->pre);
    vector_join(&op->extra, other->extra);
    vector_raise(&op->extra, other->chain, other->pos);
}

void sim_race_after_start(sim_work_t *work, sim_work_t *before) {
    sim_op_t *op = sim_op_of(work), *other = op ? settle(before) : NULL;
    if (!other || op->settled)
        return;
    if (before->ops->type == SIM_WORK_KERNEL)
        join_start(work, op, other);
    else /* a node that was disabled */
        sim_op_join(op, other);
}

void sim_race_after(sim_work_t *work, sim_work_t *before) {
    if (!before || before == work)
        return;
    sim_op_t *op = sim_op_of(work), *other = op ? settle(before) : NULL;
    if (!other || op->settled)
        return;
    if (overlaps(work, before))
        join_start(work, op, other);
    else
        sim_op_join(op, other);
}

void sim_race_submit(sim_work_t *work) {
    if (sim_shared_foreign)
        sim_shared_sync();
    sim_op_t *op = settle(work);
    if (!op)
        return;
    op->seq = work->seq;
    sim_op_judge(op);
}

/* ---- the host ---- */

static void host_learns(const sim_op_t *op, bool complete) {
    vector_join(&host, op->pre);
    if (complete || op->joint) {
        vector_join(&host, op->extra);
        vector_raise(&host, op->chain, op->pos);
    } else if (op->pos > 1) {
        vector_raise(&host, op->chain, op->pos - 1);
    }
    host_version++;
    if (sim_shared_published)
        sim_shared_known();
}

void sim_op_host_learns(const sim_op_t *op) {
    host_learns(op, true);
}

void sim_race_done(sim_work_t *work) {
    if (work->op)
        work->op->done = true;
}

void sim_race_seen(sim_work_t *work) {
    if (work && work->op && work->op->settled)
        host_learns(work->op, true);
}

void sim_race_reached(sim_work_t *work) {
    if (work && work->op && work->op->settled)
        host_learns(work->op, false);
}

/* Begins the effect of an item.  The host may poll a value written to host memory, so it learns of
 * the write here. */
void sim_race_enter(sim_work_t *work) {
    if (!work->op || !work->op->settled)
        return;
    entered = work->op;
    if (work->ops->type == SIM_WORK_WRITE_VALUE && work->access_count) {
        const sim_alloc_t *record = sim_alloc_around(work->accesses[0].address);
        if (record && record->host)
            host_learns(work->op, true);
    }
}

void sim_race_leave(void) {
    entered = NULL;
}

/* ---- streams that are gone ---- */

void sim_race_stream_gone(sim_op_t **gone, sim_work_t *last) {
    sim_op_t *op = last ? settle(last) : NULL;
    if (op && !*gone)
        *gone = op_new();
    if (!op || !*gone)
        return;
    vector_join(&(*gone)->pre, op->pre);
    vector_join(&(*gone)->pre, op->extra);
    vector_raise(&(*gone)->pre, op->chain, op->pos);
    (*gone)->undecided |= op->undecided;
}

void sim_race_after_gone(const sim_op_t *gone, sim_work_t *work) {
    sim_op_t *op = gone ? sim_op_of(work) : NULL;
    if (op && !op->settled) {
        vector_join(&op->pre, gone->pre);
        op->undecided |= gone->undecided;
    }
}

void sim_race_gone_free(sim_op_t **gone) {
    sim_op_unref(*gone);
    *gone = NULL;
}

/* ---- reports ---- */

static const struct {
    const char *name, *text;
} findings[SIM_FINDINGS] = {
#define SIM_FINDING(name, text) {#name, text},
#include "findings.def"
#undef SIM_FINDING
};

EXPORT unsigned long long simcuda_race_reports(void) {
    return atomic_load(&reports);
}

EXPORT unsigned long long simcuda_race_found(const char *finding) {
    for (unsigned i = 0; finding && i < SIM_FINDINGS; i++)
        if (!strcmp(findings[i].name, finding))
            return atomic_load(&found[i]);
    return ~0ull;
}

/* Returns true if the pair was reported already: two items often meet in many places. */
static bool said_already(sim_finding_t what, const sim_party_t *first,
                         const sim_party_t *second) {
    static struct {
        sim_finding_t what;
        uint64_t a, b;
    } said[PAIRS];
    static unsigned next;
    uint64_t a = first->op ? first->op->seq : 0, b = second && second->op ? second->op->seq : 0;
    if (!a && !b)
        return false;
    for (unsigned i = 0; i < PAIRS; i++)
        if (said[i].what == what && said[i].a == a && said[i].b == b)
            return true;
    said[next % PAIRS].what = what;
    said[next % PAIRS].a = a;
    said[next++ % PAIRS].b = b;
    return false;
}

static void describe(const sim_party_t *party) {
    char owner[96];
    if (!party)
        return;
    sim_owner_describe(party->owner, owner, sizeof owner);
    if (party->op)
        fprintf(out,
                "  %s: %s %s%s%snumber %" PRIu64 ", stream %" PRIu64 ", context %" PRIu64
                ", device %d, %s 0x%" PRIx64 "+%" PRIu64 ", %s\n",
                party->text, party->op->type, party->op->label ? "\"" : "",
                party->op->label ? party->op->label : "", party->op->label ? "\" " : "",
                party->op->seq, party->op->stream_id, party->op->ctx_id, party->op->device,
                party->write ? "writes" : "reads", party->address, party->length, owner);
    else
        fprintf(out, "  %s: 0x%" PRIx64 "+%" PRIu64 ", %s\n", party->text, party->address,
                party->length, owner);
}

void sim_race_report(sim_finding_t what, uint64_t address, uint64_t length,
                     const sim_party_t *first, const sim_party_t *second) {
    if (said_already(what, first, second))
        return;
    atomic_fetch_add(&found[what], 1);
    if (atomic_fetch_add(&reports, 1) < TEXTS) {
        fprintf(out, "simcuda race detector: %s: 0x%" PRIx64 "+%" PRIu64 "\n",
                findings[what].text, address, length);
        describe(first);
        describe(second);
        fflush(out);
    }
    if (aborts)
        abort();
}

SIM_LIVE_COUNT(race_items) {
    return live_ops;
}

SIM_LIVE_COUNT(race_chains) {
    return chains;
}

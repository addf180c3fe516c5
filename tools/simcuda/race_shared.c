/* The race detector for processes that share memory by cuIpcOpenMemHandle, or physical memory by
 * descriptors.  Global lock; other processes see the register (ipc_share.h) at any moment.
 *
 * The process that owns memory publishes the lifetimes in it.  A process that has the memory open
 * publishes each use in the owner's register.  The use stays there from the submission of the work
 * until the using host knows that the work is over.  From then on the program may have told the
 * owner in a way that is invisible here.  The owner treats these uses as work of its own on
 * separate chains.  It judges a release and a later lifetime against them as against any other
 * work.  An event that comes after a use covers it: work that waits for the event is ordered after
 * the use.
 *
 * In the other direction, a process reports its work on memory with an ended lifetime at
 * submission.
 *
 * Limits: an order that a third process makes by events alone is unknown.  If a register is full,
 * nothing is reported.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ipc_share.h"
#include "race_memory.h"
#include "state.h"

enum { ASK_EVERY = 64 };

size_t sim_shared_published, sim_shared_foreign;

/* ---- owner: lifetimes ---- */

static uint64_t offset_of(uint64_t address) {
    return address - sim_space_base();
}

void sim_shared_owner_new(sim_owner_t *owner) {
    static unsigned next;
    if (!sim_share || owner->shared)
        return;
    for (unsigned i = 0; i < SIM_SHARE_OWNERS; i++) {
        unsigned at = (next + i) % SIM_SHARE_OWNERS;
        sim_share_owner_t *slot = &sim_share->owner[at];
        if (atomic_load(&slot->lifetime))
            continue;
        slot->offset = offset_of(owner->base);
        slot->size = owner->size;
        atomic_store(&slot->record, !owner->program);
        atomic_store(&slot->lifetime, owner->lifetime);
        if (atomic_load(&sim_share->owners) <= at)
            atomic_store(&sim_share->owners, at + 1);
        owner->shared = at + 1;
        next = at + 1;
        return;
    }
}

/* Returns the lifetime at this place of a process's memory that reaches to `end`; 0: none, or more
 * than one.  A lifetime of the program takes precedence over the driver's record around it. */
static uint64_t lifetime_at(const sim_share_t *share, uint64_t offset, uint64_t end) {
    uint64_t of_record = 0;
    bool program = false;
    unsigned count = atomic_load(&share->owners);
    for (unsigned i = 0; i < count; i++) {
        const sim_share_owner_t *slot = &share->owner[i];
        uint64_t lifetime = atomic_load(&slot->lifetime);
        if (!lifetime || slot->offset >= end || offset >= slot->offset + slot->size)
            continue;
        bool around = slot->offset <= offset && end <= slot->offset + slot->size;
        if (!atomic_load(&slot->record)) {
            if (around)
                return lifetime;
            program = true;
        } else if (around && atomic_load(&slot->record) != SIM_RECORD_HOSTS) {
            of_record = lifetime;
        }
    }
    return program ? 0 : of_record;
}

void sim_shared_hosts(const sim_owner_t *record) {
    if (record->shared)
        atomic_store(&sim_share->owner[record->shared - 1].record, SIM_RECORD_HOSTS);
}

/* ---- importer: its uses ---- */

typedef struct {
    sim_op_t *op;
    sim_peer_t *peer;
    sim_share_use_t *use;
    uint64_t state;
} published_t;

static published_t *published;
static size_t published_room;

/* Finds the process that owns imported memory, and the place of `address` there. */
static sim_peer_t *place_of(uint64_t address, uint64_t *offset) {
    const sim_alloc_t *record = sim_alloc_around(address);
    bool mapped = record && record->kind == SIM_MEM_VMM;
    if (!record || (!mapped && record->kind != SIM_MEM_IPC) || !record->owner)
        return NULL;
    uint64_t base;
    sim_peer_t *peer = mapped ? sim_vmm_peer(record, &base) : sim_import_peer(record, &base);
    *offset = base + (address - record->base);
    return peer;
}

void sim_shared_imported(sim_owner_t *owner) {
    uint64_t offset;
    const sim_peer_t *peer = place_of(owner->base, &offset);
    if (peer)
        owner->foreign = lifetime_at(peer->share, offset, offset + owner->size);
}

static sim_share_use_t *use_take(sim_share_t *share, unsigned long long *state) {
    for (unsigned i = 0; i < SIM_SHARE_USES; i++) {
        unsigned long long none = 0;
        if (atomic_load(&share->use[i].state))
            continue;
        *state = 2 * (atomic_fetch_add(&share->last_use, 1) + 1);
        if (!atomic_compare_exchange_strong(&share->use[i].state, &none, *state - 1))
            continue;
        unsigned uses = atomic_load(&share->uses);
        while (uses <= i && !atomic_compare_exchange_weak(&share->uses, &uses, i + 1))
            ;
        return &share->use[i];
    }
    return NULL;
}

static void publish(sim_op_t *op, const sim_use_t *use, sim_peer_t *peer, uint64_t offset,
                    uint64_t lifetime) {
    if (sim_shared_published == published_room) {
        size_t room = published_room ? 2 * published_room : 64;
        published_t *grown = realloc(published, room * sizeof *grown);
        if (!grown)
            return;
        published = grown;
        published_room = room;
    }
    unsigned long long state;
    sim_share_use_t *slot = use_take(peer->share, &state);
    if (!slot)
        return;
    slot->cookie = sim_share->cookie;
    slot->pid = getpid();
    slot->chain = op->chain;
    slot->pos = op->pos;
    slot->seq = op->seq;
    slot->offset = offset;
    slot->length = use->length;
    slot->lifetime = lifetime;
    slot->write = use->write;
    snprintf(slot->type, sizeof slot->type, "%s", op->type);
    for (size_t i = 0; i < SIM_SHARE_COVERS; i++)
        atomic_store(&slot->covers[i], 0);
    atomic_store(&slot->state, state);
    peer->refs++;
    published[sim_shared_published++] = (published_t){sim_op_ref(op), peer, slot, state};
}

bool sim_shared_use(sim_op_t *op, const sim_use_t *use) {
    uint64_t offset;
    sim_peer_t *peer = place_of(use->address, &offset);
    if (!peer || !sim_share_start())
        return true;
    uint64_t now = lifetime_at(peer->share, offset, offset + use->length);
    if (use->owner->foreign && now != use->owner->foreign)
        return false;
    if (now)
        publish(op, use, peer, offset, now);
    return true;
}

void sim_shared_reach(sim_op_t *op, sim_peer_t *peer, uint64_t offset, uint64_t length,
                      bool write) {
    uint64_t lifetime = lifetime_at(peer->share, offset, offset + length);
    if (lifetime && sim_share_start())
        publish(op, &(sim_use_t){.length = length, .write = write}, peer, offset, lifetime);
}

void sim_shared_known(void) {
    for (size_t i = 0; i < sim_shared_published;) {
        published_t *one = &published[i];
        if (!sim_op_host_knows(one->op)) {
            i++;
            continue;
        }
        unsigned long long state = one->state;
        atomic_compare_exchange_strong(&one->use->state, &state, 0);
        sim_op_unref(one->op);
        sim_peer_close(one->peer);
        *one = published[--sim_shared_published];
    }
}

/* Packs the numbers of an event's record into one word. */
static uint64_t cover_of(uint64_t cookie, uint64_t event, uint64_t ticket) {
    uint64_t word = cookie ^ event * 0x9e3779b97f4a7c15ull ^ ticket * 0xc2b2ae3d27d4eb4full;
    return word ? word : 1;
}

void sim_shared_covered(sim_work_t *record, uint64_t cookie, uint64_t event, uint64_t ticket) {
    for (size_t i = 0; record->op && i < sim_shared_published; i++)
        if (sim_op_before(published[i].op, record->op))
            atomic_store(&published[i].use->covers[ticket % SIM_SHARE_COVERS],
                         cover_of(cookie, event, ticket));
}

/* ---- owner: uses by others ---- */

static struct {
    uint64_t state; /* as it was seen */
    sim_op_t *op;
} foreign[SIM_SHARE_USES];

static struct chain {
    struct chain *next;
    uint64_t cookie, theirs;
    unsigned ours;
} * chains;

static unsigned chain_of(uint64_t cookie, uint64_t theirs) {
    for (const struct chain *chain = chains; chain; chain = chain->next)
        if (chain->cookie == cookie && chain->theirs == theirs)
            return chain->ours;
    struct chain *chain = calloc(1, sizeof *chain);
    unsigned ours = chain ? sim_chain_foreign() : 0;
    if (!ours) {
        free(chain);
        return 0;
    }
    *chain = (struct chain){chains, cookie, theirs, ours};
    chains = chain;
    return ours;
}

/* Copies a text for reports: it outlives the process that it came from. */
static const char *kept_text(const char *text) {
    static struct text {
        struct text *next;
        char text[32];
    } * texts;
    for (const struct text *known = texts; known; known = known->next)
        if (!strcmp(known->text, text))
            return known->text;
    struct text *new = calloc(1, sizeof *new);
    if (!new)
        return "work";
    snprintf(new->text, sizeof new->text, "%s", text);
    new->next = texts;
    texts = new;
    return new->text;
}

static void adopt(size_t at, const sim_share_use_t *use, uint64_t state) {
    uint64_t address = sim_space_base() + use->offset;
    sim_owner_t *owner = sim_owner_at(address);
    unsigned chain = chain_of(use->cookie, use->chain);
    foreign[at].state = state;
    if (!chain || !owner || owner->lifetime != use->lifetime)
        return;
    char who[32];
    snprintf(who, sizeof who, "of process %d", (int)use->pid);
    sim_op_t *op = sim_op_foreign(chain, use->pos);
    if (!op)
        return;
    op->seq = use->seq;
    op->type = kept_text(use->type);
    op->label = kept_text(who);
    sim_use_t ours = {address, use->length, use->write, SIM_USE_PLAIN, owner};
    if (!sim_op_add_use(op, &ours)) {
        sim_op_unref(op);
        return;
    }
    foreign[at].op = op;
    sim_shared_foreign++;
    sim_op_judge(op);
}

static void over(size_t at) {
    if (!foreign[at].op)
        return;
    sim_op_host_learns(foreign[at].op);
    sim_op_unref(foreign[at].op);
    foreign[at].op = NULL;
    sim_shared_foreign--;
}

/* Updates the uses by others.  `ask` also checks that their processes run; this is slow, so it is
 * done rarely, and before a lifetime ends. */
static void sync_uses(bool ask) {
    unsigned count = sim_share ? atomic_load(&sim_share->uses) : 0;
    for (unsigned i = 0; i < count && sim_race_on; i++) {
        sim_share_use_t *use = &sim_share->use[i];
        unsigned long long state = atomic_load(&use->state);
        if (ask && state && !sim_process_runs(use->pid)) { /* its work ended with it */
            atomic_compare_exchange_strong(&use->state, &state, 0);
            state = 0;
        }
        if (foreign[i].state == state)
            continue;
        over(i);
        foreign[i].state = 0;
        if (state && !(state & 1))
            adopt(i, use, state);
    }
}

void sim_shared_sync(void) {
    static unsigned syncs;
    sync_uses(++syncs % ASK_EVERY == 0);
}

/* Updates the uses of the lifetime by others before it ends. */
void sim_shared_owner_gone(sim_owner_t *owner) {
    sync_uses(true);
    atomic_store(&sim_share->owner[owner->shared - 1].lifetime, 0);
    owner->shared = 0;
}

void sim_shared_after(sim_work_t *work, uint64_t cookie, uint64_t event, uint64_t ticket) {
    sim_op_t *op = sim_op_of(work);
    uint64_t cover = cover_of(cookie, event, ticket);
    sim_shared_sync();
    for (unsigned i = 0; op && sim_share && i < atomic_load(&sim_share->uses); i++)
        if (foreign[i].op &&
            atomic_load(&sim_share->use[i].covers[ticket % SIM_SHARE_COVERS]) == cover)
            sim_op_join(op, foreign[i].op);
}

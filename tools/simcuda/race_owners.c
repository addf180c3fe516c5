/* Owners of memory: lifetimes as the program saw them.  Global lock.
 *
 * A lifetime comes from simcuda_owner_begin if the program called it for the memory.  Otherwise it
 * is an allocation of the driver.  A use belongs to the owner at the time its work was made.  A
 * kernel submitted before a free therefore stays a use of the freed memory, and a graph keeps the
 * owners for which its nodes were made. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "race_memory.h"
#include "state.h"

#define EXPORT __attribute__((visibility("default")))

static sim_node_t *records, *programs;
static uint64_t last_owner, live_owners;

/* The newest releases of memory by the driver.  If work uses released memory, a report names the
 * work that released it. */
enum { RELEASES = 1024 };
static struct {
    sim_owner_t *record;
    sim_op_t *by;
} releases[RELEASES];
static unsigned last_release;

/* ---- owners ---- */

static sim_owner_t *owner_floor(sim_node_t *root, uint64_t address) {
    sim_owner_t *owner = (sim_owner_t *)(void *)sim_tree_floor(root, address);
    return owner && address - owner->base < owner->size ? owner : NULL;
}

sim_owner_t *sim_owner_at(uint64_t address) {
    sim_owner_t *owner = owner_floor(programs, address);
    if (!owner)
        owner = owner_floor(records, address);
    return owner && !owner->hosts ? owner : NULL;
}

bool sim_owner_same(const sim_owner_t *a, const sim_owner_t *b) {
    return a->lifetime == b->lifetime;
}

static uint64_t next_owner(sim_node_t *root, uint64_t address) {
    const sim_node_t *node = sim_tree_ceil(root, address);
    return node ? node->key : UINT64_MAX;
}

void sim_owner_unref(sim_owner_t *owner) {
    if (owner && !--owner->refs) {
        free(owner);
        live_owners--;
    }
}

static sim_owner_t *owner_new(sim_node_t **root, uint64_t base, uint64_t size) {
    sim_owner_t *owner = calloc(1, sizeof *owner);
    if (!owner) {
        sim_race_on = false;
        return NULL;
    }
    live_owners++;
    owner->refs = 1;
    owner->node.key = owner->base = base;
    owner->size = size;
    owner->id = owner->lifetime = ++last_owner;
    owner->live = true;
    sim_tree_insert(root, &owner->node);
    return owner;
}

static void owner_remove(sim_node_t **root, sim_owner_t *owner) {
    if (owner->shared) /* under_owner: the program did not end it */
        sim_shared_owner_gone(owner);
    sim_tree_remove(root, &owner->node);
    owner->live = false;
    sim_owner_unref(owner);
}

void sim_owner_describe(const sim_owner_t *owner, char *out, size_t room) {
    if (!owner)
        snprintf(out, room, "memory without an owner");
    else
        snprintf(out, room, "%s %" PRIu64 " (0x%" PRIx64 "+%" PRIu64 "%s)",
                 owner->program ? "owner" : "driver allocation", owner->id, owner->base,
                 owner->size, owner->live ? "" : ", ended");
}

/* ---- uses of an item ---- */

bool sim_op_add_use(sim_op_t *op, const sim_use_t *use) {
    if (op->use_count == op->use_room) {
        size_t room = op->use_room ? 2 * op->use_room : 4;
        sim_use_t *grown = realloc(op->uses, room * sizeof *grown);
        if (!grown)
            return false;
        op->uses = grown;
        op->use_room = room;
    }
    op->uses[op->use_count++] = *use;
    if (use->owner)
        use->owner->refs++;
    return true;
}

void sim_op_release_uses(sim_op_t *op) {
    for (size_t i = 0; i < op->use_count; i++)
        sim_owner_unref(op->uses[i].owner);
    free(op->uses);
    op->uses = NULL;
    op->use_count = op->use_room = 0;
}

void sim_race_touch(sim_work_t *work, uint64_t address, uint64_t length, bool write,
                    sim_use_kind_t kind) {
    sim_op_t *op = sim_op_of(work);
    if (op && length)
        sim_op_add_use(op, &(sim_use_t){address, length, write, kind, NULL});
}

static void add_reached(sim_op_t *op, uint64_t address, uint64_t length, bool write);

/* Cuts the range into pieces with one owner each. */
static void add_pieces(sim_op_t *op, const sim_use_t *use) {
    uint64_t at = use->address, end = use->address + use->length;
    while (at < end) {
        sim_owner_t *owner = owner_floor(programs, at);
        uint64_t stop = owner ? owner->base + owner->size : next_owner(programs, at);
        if (!owner) {
            owner = owner_floor(records, at);
            uint64_t here = owner ? owner->base + owner->size : next_owner(records, at);
            stop = here < stop ? here : stop;
        }
        if (stop > end)
            stop = end;
        sim_op_add_use(op, &(sim_use_t){at, stop - at, use->write, use->kind, owner});
        if (sim_multicast_at(at))
            add_reached(op, at, stop - at, use->write);
        at = stop;
    }
}

/* Adds the memory behind a multicast mapping, which has no further memory behind it. */
static void add_reached(sim_op_t *op, uint64_t address, uint64_t length, bool write) {
    unsigned slot = 0;
    uint64_t at, bytes;
    while (sim_multicast_here(address, length, &slot, &at, &bytes))
        add_pieces(op, &(sim_use_t){at, bytes, write, SIM_USE_REACHED, NULL});
}

void sim_race_resolve(sim_work_t *work) {
    sim_op_t *op = sim_op_of(work);
    if (!op)
        return;
    sim_op_t old = *op;
    bool first = !op->resolved;
    op->uses = NULL;
    op->use_count = op->use_room = 0;
    op->resolved = true;
    for (size_t i = 0; i < old.use_count; i++) {
        if (old.uses[i].owner)
            sim_op_add_use(op, &old.uses[i]);
        else
            add_pieces(op, &old.uses[i]);
    }
    for (size_t i = 0; first && i < work->access_count; i++) {
        const sim_access_t *access = &work->accesses[i];
        add_pieces(op, &(sim_use_t){access->address, access->length, access->write, SIM_USE_PLAIN,
                                    NULL});
    }
    sim_op_release_uses(&old);
}

/* Returns true if a word is only the end of a range.  The next range often starts there, but the
 * kernel does not touch it.  The first address of a range therefore counts only if no other
 * argument points into memory that ends there. */
static bool is_end(const sim_owner_t *owner, const uint64_t *words, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (words[i] < owner->base && owner->base - words[i] <= (64ull << 30)) {
            const sim_owner_t *other = owner_floor(programs, words[i]);
            if (!other)
                other = owner_floor(records, words[i]);
            if (other && (other->base + other->size + SIM_SMALL_ALIGN - 1) / SIM_SMALL_ALIGN *
                                 SIM_SMALL_ALIGN >=
                             owner->base)
                return true;
        }
    return false;
}

void sim_race_arguments(sim_work_t *work, const void *bytes, size_t count) {
    uint64_t words[512];
    size_t found = count / 8 < 512 ? count / 8 : 512;
    if (found)
        memcpy(words, bytes, found * 8);
    for (size_t i = 0; i < found; i++) {
        const sim_owner_t *owner = owner_floor(programs, words[i]);
        if (!owner) {
            owner = owner_floor(records, words[i]);
            if (owner && owner->hosts)
                owner = NULL;
        }
        if (owner && !(words[i] == owner->base && is_end(owner, words, found)))
            sim_race_touch(work, owner->base, owner->size, true, SIM_USE_GUESS);
    }
}

void sim_race_record_new(const sim_alloc_t *record) {
    sim_owner_t *owner = owner_new(&records, record->base, record->size);
    if (!owner)
        return;
    owner->by_time = record->kind == SIM_MEM_POOL;
    if (!owner->by_time) /* earlier uses there concern only the driver */
        sim_race_range_gone(owner->base, owner->size);
}

/* Publishes the lifetimes in the record in the register, from now on. */
void sim_race_exported(const sim_alloc_t *record) {
    sim_owner_t *owner = (sim_owner_t *)(void *)sim_tree_find(records, record->base);
    if (!owner)
        return;
    owner->exported = true;
    sim_shared_owner_new(owner);
    if (owner->hosts)
        sim_shared_hosts(owner);
    uint64_t end = record->base + record->size;
    for (sim_owner_t *inside = (sim_owner_t *)(void *)sim_tree_ceil(programs, record->base);
         inside && inside->base < end;
         inside = (sim_owner_t *)(void *)sim_tree_ceil(programs, inside->base + 1))
        sim_shared_owner_new(inside);
}

void sim_race_imported(const sim_alloc_t *record) {
    sim_owner_t *owner = (sim_owner_t *)(void *)sim_tree_find(records, record->base);
    if (owner)
        sim_shared_imported(owner);
}

void sim_race_mapped(const sim_alloc_t *record) {
    sim_owner_t *owner = (sim_owner_t *)(void *)sim_tree_find(records, record->base);
    if (owner)
        owner->lifetime = sim_vmm_place(record);
}

void sim_race_unmapping(const sim_alloc_t *record) {
    const sim_owner_t *owner = (sim_owner_t *)(void *)sim_tree_find(records, record->base);
    if (owner)
        sim_uses_release(owner);
}

static void remember_release(sim_owner_t *record) {
    unsigned at = ++last_release % RELEASES;
    sim_owner_unref(releases[at].record);
    sim_op_unref(releases[at].by);
    record->refs++;
    releases[at].record = record;
    releases[at].by = sim_op_entered() ? sim_op_ref(sim_op_entered()) : NULL;
}

void sim_race_record_gone(const sim_alloc_t *record) {
    sim_owner_t *owner = (sim_owner_t *)(void *)sim_tree_find(records, record->base);
    if (!owner)
        return;
    if (owner->shared)
        sim_shared_owner_gone(owner);
    owner->live = false;
    remember_release(owner);
    if (owner->by_time)
        sim_uses_retire(owner);
    else
        sim_uses_release(owner);
    for (sim_owner_t *inside;
         !owner->by_time &&
         (inside = (sim_owner_t *)(void *)sim_tree_ceil(programs, owner->base)) &&
         inside->base < owner->base + owner->size;) {
        sim_party_t first = {"owned", NULL, inside, inside->base, inside->size, true},
                    second = {"released",  sim_op_entered(), owner,
                              owner->base, owner->size,      true};
        sim_race_report(SIM_FOUND_under_owner, inside->base, inside->size, &first, &second);
        owner_remove(&programs, inside);
    }
    owner_remove(&records, owner);
}

/* Returns the newest release that left the address without memory. */
static unsigned release_of(uint64_t address) {
    for (unsigned i = 0; i < RELEASES; i++) {
        unsigned at = (last_release - i) % RELEASES;
        const sim_owner_t *record = releases[at].record;
        if (record && address - record->base < record->size)
            return at;
    }
    return RELEASES;
}

void sim_race_fault(sim_work_t *work, uint64_t address, uint64_t length) {
    sim_party_t by = {"by", work->op, NULL, address, length, true}, gone = {.text = "released"};
    for (size_t i = 0; work->op && i < work->op->use_count; i++)
        if (work->op->uses[i].address - address < length)
            by.owner = work->op->uses[i].owner;
    for (const sim_alloc_t *there;
         length && (there = sim_alloc_around(address)) && !there->no_access;) {
        uint64_t here = there->base + there->size - address;
        length -= here < length ? here : length;
        address += here;
    }
    unsigned at = length ? release_of(address) : RELEASES;
    if (at < RELEASES) {
        gone.op = releases[at].by;
        gone.owner = releases[at].record;
        gone.address = gone.owner->base;
        gone.length = gone.owner->size;
        gone.write = true;
    }
    sim_race_report(SIM_FOUND_unmapped, by.address, by.length, &by, at < RELEASES ? &gone : NULL);
}

/* ---- graphs ---- */

static bool used_by_any(sim_work_t *const *items, size_t count, const sim_owner_t *owner) {
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; items[i]->op && j < items[i]->op->use_count; j++)
            if (items[i]->op->uses[j].owner == owner)
                return true;
    return false;
}

/* Returns the first current owner in the range. */
static const sim_owner_t *owner_in(uint64_t base, uint64_t size) {
    const sim_owner_t *owner = sim_owner_at(base);
    if (!owner)
        owner = (sim_owner_t *)(void *)sim_tree_ceil(programs, base);
    return owner && owner->base < base + size ? owner : NULL;
}

/* Reports uses by a launch of memory that has another owner now, unless the launch uses the memory
 * for that owner, too. */
void sim_race_launched(sim_work_t *const *items, size_t count) {
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; items[i]->op && j < items[i]->op->use_count; j++) {
            const sim_use_t *use = &items[i]->op->uses[j];
            if (!use->owner || use->owner->live || use->kind > SIM_USE_GUESS)
                continue;
            const sim_owner_t *now = owner_in(use->address, use->length);
            if (!now || sim_owner_same(now, use->owner) || used_by_any(items, count, now))
                continue;
            sim_party_t by = {"by",         items[i]->op, use->owner,
                              use->address, use->length,  use->write},
                        new = {"belongs to", NULL, now, now->base, now->size, true};
            sim_race_report(SIM_FOUND_stale, use->address, use->length, &by, &new);
        }
}

/* ---- lifetimes that the program sees ---- */

static bool usable(void) {
    sim_config_ensure();
    return sim_race_on && !(atomic_load(&sim_gate) & (SIM_GATE_FORKED | SIM_GATE_EXITING));
}

static void end_owner(sim_owner_t *owner) {
    if (owner->shared)
        sim_shared_owner_gone(owner);
    owner->live = false;
    sim_uses_retire(owner);
    owner_remove(&programs, owner);
}

/* Ends older lifetimes in the range: a new lifetime implies that they are over. */
static void end_inside(uint64_t base, uint64_t size, uint64_t given) {
    for (sim_owner_t *old; (old = owner_floor(programs, base)) ||
                           ((old = (sim_owner_t *)(void *)sim_tree_ceil(programs, base)) &&
                            old->base < base + size);) {
        sim_party_t first = {"owned", NULL, old, old->base, old->size, true},
                    second = {"given out", NULL, NULL, given, size, true};
        sim_race_report(SIM_FOUND_given_twice, base, size, &first, &second);
        end_owner(old);
    }
}

/* Ends the lifetimes in the range, also at other addresses at which the memory is mapped. */
static void end_overlapping(uint64_t base, uint64_t size) {
    end_inside(base, size, base);
    if (!sim_vmm_mapped)
        return;
    for (const sim_alloc_t *record = sim_alloc_around(base);
         record || (record = sim_alloc_from(base));) {
        uint64_t first = record->base > base ? record->base : base;
        uint64_t end = record->base + record->size;
        end = end < base + size ? end : base + size;
        if (first >= end)
            break;
        const sim_alloc_t *alias = NULL;
        while (record->kind == SIM_MEM_VMM && (alias = sim_vmm_alias(record, alias)))
            if (first - record->base < alias->size)
                end_inside(alias->base + (first - record->base), end - first, first);
        size -= end - base;
        base = end;
        record = NULL;
        if (!size)
            break;
    }
}

/* Memory without a record belongs to a graph that will allocate it: its nodes are the lifetime. */
static bool is_of_a_graph(uint64_t address) {
    return sim_space_holds(address) && !owner_floor(records, address);
}

EXPORT void simcuda_owner_begin(CUdeviceptr address, size_t bytes) {
    if (!usable() || !address || !bytes)
        return;
    sim_lock();
    if (sim_race_on && !is_of_a_graph(address)) {
        end_overlapping(address, bytes);
        sim_owner_t *owner = owner_new(&programs, address, bytes);
        const sim_alloc_t *around = sim_alloc_around(address);
        if (owner) {
            owner->program = true;
            sim_shared_imported(owner);
        }
        if (owner && around && around->kind == SIM_MEM_HOST)
            sim_uses_given(owner);
        for (uint64_t at = address; at < address + bytes;) {
            sim_owner_t *record = owner_floor(records, at);
            if (record && !record->hosts) {
                record->hosts = true;
                sim_shared_hosts(record);
            }
            if (record && record->exported && owner)
                sim_shared_owner_new(owner);
            uint64_t next = record ? record->base + record->size : next_owner(records, at);
            at = next > at ? next : UINT64_MAX;
        }
    }
    sim_unlock();
}

EXPORT size_t simcuda_owner_end(CUdeviceptr address) {
    size_t bytes = 0;
    if (!usable() || !address)
        return 0;
    sim_lock();
    sim_owner_t *owner = (sim_owner_t *)(void *)sim_tree_find(programs, address);
    if (owner) {
        bytes = owner->size;
        end_owner(owner);
    }
    sim_unlock();
    return bytes;
}

SIM_LIVE_COUNT(race_owners) {
    return live_owners;
}

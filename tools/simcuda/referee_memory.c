/* The referee's memory: who owns which range, who used it, and whether two owners' uses are
 * ordered.  Global lock.
 *
 * Owners are lifetimes as the program saw them.  Where simcuda_owner_begin told of them, those;
 * elsewhere the driver's own allocations.  A use belongs to the owner at the time its
 * work was made, so that a kernel submitted before a free stays a use of the freed memory.
 *
 * Uses are kept by range, in segments that do not overlap.  A segment lists uses that no later
 * use of the same owner follows: whoever comes after all of these comes after all there
 * were.  When a lifetime ends, its uses take the place of older owners' uses that they follow;
 * so the lists stay as short as there are streams at work on the range. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "referee_order.h"
#include "state.h"

#define EXPORT __attribute__((visibility("default")))

struct sim_owner {
    sim_node_t node; /* key = base */
    unsigned refs;
    uint64_t base, size, id;
    bool program; /* told by simcuda_owner_begin, else one of the driver's records */
    bool live;
    bool hosts;   /* record: the program had memory of its own in it */
    bool by_time; /* record of a pool: comes and goes with work, not with calls */
};

typedef struct {
    sim_op_t *op;
    sim_owner_t *owner;
    uint64_t address, length; /* of the whole use, for reports */
    bool write;
    sim_use_kind_t kind;
} entry_t;

typedef struct {
    sim_node_t node; /* key = first address */
    uint64_t end;
    entry_t *entries;
    size_t count, room;
} segment_t;

static sim_node_t *records, *programs, *segments;
static uint64_t last_owner, live_owners, live_segments;

/* What the driver took back lately: who releases memory is asked for when work meets the gap. */
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

static uint64_t next_owner(sim_node_t *root, uint64_t address) {
    const sim_node_t *node = sim_tree_ceil(root, address);
    return node ? node->key : UINT64_MAX;
}

static void owner_unref(sim_owner_t *owner) {
    if (owner && !--owner->refs) {
        free(owner);
        live_owners--;
    }
}

static sim_owner_t *owner_new(sim_node_t **root, uint64_t base, uint64_t size) {
    sim_owner_t *owner = calloc(1, sizeof *owner);
    if (!owner) {
        sim_referee_on = false;
        return NULL;
    }
    live_owners++;
    owner->refs = 1;
    owner->node.key = owner->base = base;
    owner->size = size;
    owner->id = ++last_owner;
    owner->live = true;
    sim_tree_insert(root, &owner->node);
    return owner;
}

static void owner_remove(sim_node_t **root, sim_owner_t *owner) {
    sim_tree_remove(root, &owner->node);
    owner->live = false;
    owner_unref(owner);
}

void sim_owner_describe(const sim_owner_t *owner, char *out, size_t room) {
    if (!owner)
        snprintf(out, room, "nobody's memory");
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
        owner_unref(op->uses[i].owner);
    free(op->uses);
    op->uses = NULL;
    op->use_count = op->use_room = 0;
}

void sim_referee_touch(sim_work_t *work, uint64_t address, uint64_t length, bool write,
                       sim_use_kind_t kind) {
    sim_op_t *op = sim_op_of(work);
    if (op && length)
        sim_op_add_use(op, &(sim_use_t){address, length, write, kind, NULL});
}

/* Cuts the range into pieces of one owner each. */
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
        at = stop;
    }
}

void sim_referee_resolve(sim_work_t *work) {
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

/* A pointer to the end of one range is often the start of the next one, which the kernel does
 * not touch: a word that is somebody's first address counts only if no other argument points
 * into memory that ends there. */
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

void sim_referee_arguments(sim_work_t *work, const void *bytes, size_t count) {
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
            sim_referee_touch(work, owner->base, owner->size, true, SIM_USE_GUESS);
    }
}

/* ---- segments ---- */

static segment_t *segment_new(uint64_t first, uint64_t end) {
    segment_t *segment = calloc(1, sizeof *segment);
    if (!segment) {
        sim_referee_on = false;
        return NULL;
    }
    live_segments++;
    segment->node.key = first;
    segment->end = end;
    sim_tree_insert(&segments, &segment->node);
    return segment;
}

static void entry_drop(segment_t *segment, size_t i) {
    sim_op_unref(segment->entries[i].op);
    owner_unref(segment->entries[i].owner);
    segment->entries[i] = segment->entries[--segment->count];
}

static void segment_free(segment_t *segment) {
    while (segment->count)
        entry_drop(segment, segment->count - 1);
    sim_tree_remove(&segments, &segment->node);
    free(segment->entries);
    free(segment);
    live_segments--;
}

static bool entry_add(segment_t *segment, const entry_t *entry) {
    if (segment->count == segment->room) {
        size_t room = segment->room ? 2 * segment->room : 2;
        entry_t *grown = realloc(segment->entries, room * sizeof *grown);
        if (!grown)
            return false;
        segment->entries = grown;
        segment->room = room;
    }
    segment->entries[segment->count++] = *entry;
    sim_op_ref(entry->op);
    entry->owner->refs++;
    return true;
}

/* The segment that holds the address, or NULL. */
static segment_t *segment_around(uint64_t address) {
    segment_t *segment = (segment_t *)(void *)sim_tree_floor(segments, address);
    return segment && address < segment->end ? segment : NULL;
}

static segment_t *segment_from(uint64_t address) {
    return (segment_t *)(void *)sim_tree_ceil(segments, address);
}

/* No segment crosses the address afterwards. */
static void cut(uint64_t address) {
    segment_t *segment = segment_around(address);
    if (!segment || segment->node.key == address)
        return;
    segment_t *rest = segment_new(address, segment->end);
    if (!rest)
        return;
    for (size_t i = 0; i < segment->count; i++)
        entry_add(rest, &segment->entries[i]);
    segment->end = address;
}

/* First segment that overlaps [address, ...). */
static segment_t *segment_first(uint64_t address) {
    segment_t *segment = segment_around(address);
    return segment ? segment : segment_from(address);
}

/* ---- judging ---- */

static sim_party_t party(const char *text, const entry_t *entry) {
    return (sim_party_t){text,           entry->op,     entry->owner,
                         entry->address, entry->length, entry->write};
}

static void judge_segment(segment_t *segment, const entry_t *now) {
    for (size_t i = 0; i < segment->count;) {
        const entry_t *old = &segment->entries[i];
        bool ordered = sim_op_before(old->op, now->op);
        if (old->owner == now->owner && ordered) {
            entry_drop(segment, i);
            continue;
        }
        if (old->owner != now->owner && !ordered && !now->op->undecided) {
            sim_party_t first = party("first", old), second = party("second", now);
            sim_referee_report("memory of two owners in use without an order", segment->node.key,
                               segment->end - segment->node.key, &first, &second);
        }
        i++;
    }
    entry_add(segment, now);
}

/* A graph keeps naming memory that was given back after the node was made.  If it has a new
 * owner by now, it is for the order of the two to show whether that is wrong. */
static bool is_nobodys(const sim_use_t *use) {
    if (use->owner->live && !use->owner->hosts)
        return false;
    const sim_owner_t *record = owner_floor(records, use->address);
    return !owner_floor(programs, use->address) && (!record || record->hosts);
}

static void judge_use(sim_op_t *op, const sim_use_t *use) {
    uint64_t at = use->address, end = use->address + use->length;
    entry_t now = {op, use->owner, use->address, use->length, use->write, use->kind};
    if (!use->owner)
        return; /* not mapped: found when it runs */
    if (use->kind == SIM_USE_PLAIN && is_nobodys(use)) {
        sim_party_t by = party("by", &now);
        sim_referee_report("memory used after it was freed", at, use->length, &by, NULL);
    }
    cut(at);
    cut(end);
    while (at < end && sim_referee_on) {
        segment_t *segment = segment_first(at);
        uint64_t next = segment && segment->node.key < end ? segment->node.key : end;
        if (at < next) {
            segment = segment_new(at, next);
            if (!segment)
                return;
        }
        judge_segment(segment, &now);
        at = segment->end;
    }
}

void sim_op_judge(sim_op_t *op) {
    for (size_t i = 0; i < op->use_count && sim_referee_on; i++)
        judge_use(op, &op->uses[i]);
}

/* What the driver hands out in stream order comes after what it got back in stream order. */
void sim_op_join_frees(sim_op_t *op) {
    for (size_t i = 0; i < op->use_count; i++) {
        const sim_use_t *use = &op->uses[i];
        if (use->kind != SIM_USE_ALLOC)
            continue;
        uint64_t end = use->address + use->length;
        for (segment_t *segment = segment_first(use->address); segment && segment->node.key < end;
             segment = segment_from(segment->end))
            for (size_t j = 0; j < segment->count; j++)
                if (segment->entries[j].kind == SIM_USE_FREE)
                    sim_op_join(op, segment->entries[j].op);
    }
}

/* ---- lifetimes end ---- */

/* Older owners' uses that a use of the ended one follows, and all that the host has seen
 * complete, can meet nobody new any more. */
static void retire(segment_t *segment, const sim_owner_t *ended) {
    for (size_t i = 0; i < segment->count; i++) {
        const entry_t *mine = &segment->entries[i];
        if (mine->owner != ended)
            continue;
        for (size_t j = 0; j < segment->count;) {
            const entry_t *old = &segment->entries[j];
            if (old->owner == ended || !sim_op_before(old->op, mine->op)) {
                j++;
                continue;
            }
            /* The last entry takes the place of the dropped one: it may be `mine`. */
            bool moved = i == segment->count - 1;
            entry_drop(segment, j);
            if (moved)
                i = j;
            mine = &segment->entries[i];
        }
    }
    for (size_t i = 0; i < segment->count;) {
        if (sim_op_host_knows(segment->entries[i].op))
            entry_drop(segment, i);
        else
            i++;
    }
}

static void retire_range(const sim_owner_t *ended) {
    uint64_t end = ended->base + ended->size;
    cut(ended->base);
    cut(end);
    for (segment_t *segment = segment_first(ended->base), *next;
         segment && segment->node.key < end; segment = next) {
        next = segment_from(segment->end);
        retire(segment, ended);
        if (!segment->count)
            segment_free(segment);
    }
}

/* The driver takes memory back: all that used it must be known to be over. */
static void release_range(const sim_owner_t *record) {
    const sim_op_t *by = sim_op_entered();
    uint64_t end = record->base + record->size;
    cut(record->base);
    cut(end);
    for (segment_t *segment = segment_first(record->base), *next;
         segment && segment->node.key < end; segment = next) {
        next = segment_from(segment->end);
        for (size_t i = 0; i < segment->count; i++) {
            const entry_t *entry = &segment->entries[i];
            if (sim_op_host_knows(entry->op) || (by && sim_op_before(entry->op, by)) ||
                entry->op->undecided)
                continue;
            sim_party_t first = party("used", entry),
                        second = {"released", by, record, record->base, record->size, true};
            sim_referee_report("memory released while in use", segment->node.key,
                               segment->end - segment->node.key, &first, &second);
        }
        segment_free(segment);
    }
}

void sim_referee_range_gone(uint64_t base, uint64_t size) {
    cut(base);
    cut(base + size);
    for (segment_t *segment = segment_first(base), *next;
         segment && segment->node.key < base + size; segment = next) {
        next = segment_from(segment->end);
        segment_free(segment);
    }
}

void sim_referee_record_new(const sim_alloc_t *record) {
    sim_owner_t *owner = owner_new(&records, record->base, record->size);
    if (!owner)
        return;
    owner->by_time = record->kind == SIM_MEM_POOL;
    if (!owner->by_time) /* what the driver had there before is its own affair */
        sim_referee_range_gone(owner->base, owner->size);
}

static void remember_release(sim_owner_t *record) {
    unsigned at = ++last_release % RELEASES;
    owner_unref(releases[at].record);
    sim_op_unref(releases[at].by);
    record->refs++;
    releases[at].record = record;
    releases[at].by = sim_op_entered() ? sim_op_ref(sim_op_entered()) : NULL;
}

void sim_referee_record_gone(const sim_alloc_t *record) {
    sim_owner_t *owner = (sim_owner_t *)(void *)sim_tree_find(records, record->base);
    if (!owner)
        return;
    owner->live = false;
    remember_release(owner);
    if (owner->by_time)
        retire_range(owner);
    else
        release_range(owner);
    for (sim_owner_t *inside;
         !owner->by_time &&
         (inside = (sim_owner_t *)(void *)sim_tree_ceil(programs, owner->base)) &&
         inside->base < owner->base + owner->size;) {
        sim_party_t first = {"owned", NULL, inside, inside->base, inside->size, true},
                    second = {"released",  sim_op_entered(), owner,
                              owner->base, owner->size,      true};
        sim_referee_report("memory released under its owner", inside->base, inside->size, &first,
                           &second);
        owner_remove(&programs, inside);
    }
    owner_remove(&records, owner);
}

/* Newest first: the release that left the address without memory. */
static unsigned release_of(uint64_t address) {
    for (unsigned i = 0; i < RELEASES; i++) {
        unsigned at = (last_release - i) % RELEASES;
        const sim_owner_t *record = releases[at].record;
        if (record && address - record->base < record->size)
            return at;
    }
    return RELEASES;
}

void sim_referee_fault(sim_work_t *work, uint64_t address, uint64_t length) {
    sim_party_t by = {"by", work->op, NULL, address, length, true}, gone = {.text = "released"};
    for (size_t i = 0; work->op && i < work->op->use_count; i++)
        if (work->op->uses[i].address - address < length)
            by.owner = work->op->uses[i].owner;
    while (length && sim_alloc_around(address)) {
        const sim_alloc_t *there = sim_alloc_around(address);
        uint64_t here = there->base + there->size - address;
        length -= here < length ? here : length;
        address += here;
    }
    unsigned at = release_of(address);
    if (at < RELEASES) {
        gone.op = releases[at].by;
        gone.owner = releases[at].record;
        gone.address = gone.owner->base;
        gone.length = gone.owner->size;
        gone.write = true;
    }
    sim_referee_report("work touches memory that is not mapped", by.address, by.length, &by,
                       at < RELEASES ? &gone : NULL);
}

/* ---- lifetimes that the program sees ---- */

static bool usable(void) {
    sim_config_ensure();
    return sim_referee_on && !(atomic_load(&sim_gate) & (SIM_GATE_FORKED | SIM_GATE_EXITING));
}

static void end_owner(sim_owner_t *owner) {
    owner->live = false;
    retire_range(owner);
    owner_remove(&programs, owner);
}

/* Two lifetimes at once: the older one is taken to be over. */
static void end_overlapping(uint64_t base, uint64_t size) {
    sim_owner_t *old = owner_floor(programs, base);
    for (; old || ((old = (sim_owner_t *)(void *)sim_tree_ceil(programs, base)) &&
                   old->base < base + size);
         old = NULL) {
        sim_party_t first = {"owned", NULL, old, old->base, old->size, true},
                    second = {"given out", NULL, NULL, base, size, true};
        sim_referee_report("memory given out that has an owner", base, size, &first, &second);
        end_owner(old);
    }
}

EXPORT void simcuda_owner_begin(CUdeviceptr address, size_t bytes) {
    if (!usable() || !address || !bytes)
        return;
    sim_lock();
    if (sim_referee_on) {
        end_overlapping(address, bytes);
        sim_owner_t *owner = owner_new(&programs, address, bytes);
        if (owner)
            owner->program = true;
        for (uint64_t at = address; at < address + bytes;) {
            sim_owner_t *record = owner_floor(records, at);
            if (record)
                record->hosts = true;
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

SIM_LIVE_COUNT(referee_owners) {
    return live_owners;
}

SIM_LIVE_COUNT(referee_ranges) {
    return live_segments;
}

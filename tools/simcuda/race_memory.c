/* Uses of memory, and whether the uses of two lifetimes are ordered.  Global lock.
 *
 * Uses are kept by range, in segments that do not overlap.  A segment lists uses that no later
 * use of the same lifetime follows.  Work ordered after all uses in the list is ordered after all
 * earlier uses, too.  When a lifetime ends, its uses replace the uses of older lifetimes that they
 * follow.  A list is therefore about as long as the number of streams at work on the range.
 *
 * The key of a segment is the address.  For mappings it is the place of the physical memory, so
 * that two mappings of the same memory are compared with each other. */
#include <stdlib.h>

#include "race_memory.h"
#include "state.h"

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

static sim_node_t *segments;
static uint64_t live_segments;

/* ---- segments ---- */

static segment_t *segment_new(uint64_t first, uint64_t end) {
    segment_t *segment = calloc(1, sizeof *segment);
    if (!segment) {
        sim_race_on = false;
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
    sim_owner_unref(segment->entries[i].owner);
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

/* Returns the segment that contains the address, or NULL. */
static segment_t *segment_around(uint64_t address) {
    segment_t *segment = (segment_t *)(void *)sim_tree_floor(segments, address);
    return segment && address < segment->end ? segment : NULL;
}

static segment_t *segment_from(uint64_t address) {
    return (segment_t *)(void *)sim_tree_ceil(segments, address);
}

/* Splits the segment that crosses the address, if there is one. */
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

/* Returns the first segment that overlaps [address, ...). */
static segment_t *segment_first(uint64_t address) {
    segment_t *segment = segment_around(address);
    return segment ? segment : segment_from(address);
}

/* ---- places ---- */

/* A contiguous piece of an address range.  Loop over the pieces of a range:
 * `for (place_t p = place_of(base, end); place_next(&p);)`. */
typedef struct {
    uint64_t at, end; /* addresses still to come */
    uint64_t key, key_end;
    uint64_t delta; /* address - key */
} place_t;

static place_t place_of(uint64_t base, uint64_t end) {
    return (place_t){.at = base, .end = end};
}

static bool place_next(place_t *p) {
    if (p->at >= p->end)
        return false;
    uint64_t stop = p->end, key = p->at;
    if (sim_vmm_mapped) {
        const sim_alloc_t *record = sim_alloc_around(p->at);
        const sim_alloc_t *after = record;
        while (!record && (after || (after = sim_alloc_from(p->at))) &&
               after->kind != SIM_MEM_VMM && after->base < stop)
            after = sim_alloc_from(after->base + 1);
        if (record) {
            uint64_t record_end = record->base + record->size;
            stop = record_end < stop ? record_end : stop;
            if (record->kind == SIM_MEM_VMM)
                key = sim_vmm_place(record) + (p->at - record->base);
        } else if (after && after->base < stop) {
            stop = after->base;
        }
    }
    p->key = key;
    p->key_end = key + (stop - p->at);
    p->delta = p->at - key;
    p->at = stop;
    cut(p->key);
    cut(p->key_end);
    return true;
}

/* ---- judging ---- */

static sim_party_t party(const char *text, const entry_t *entry) {
    return (sim_party_t){text,           entry->op,     entry->owner,
                         entry->address, entry->length, entry->write};
}

static void judge_segment(segment_t *segment, const entry_t *now, uint64_t delta) {
    for (size_t i = 0; i < segment->count;) {
        const entry_t *old = &segment->entries[i];
        bool ordered = sim_op_before(old->op, now->op);
        bool same = sim_owner_same(old->owner, now->owner);
        if (same && ordered) {
            entry_drop(segment, i);
            continue;
        }
        if (!same && !ordered && !now->op->undecided) {
            sim_party_t first = party("first", old), second = party("second", now);
            sim_race_report(SIM_FOUND_unordered, segment->node.key + delta,
                            segment->end - segment->node.key, &first, &second);
        }
        i++;
    }
    entry_add(segment, now);
}

/* Returns true if the memory was given back after a graph's node was made, and has no owner.  For
 * a new owner see sim_race_launched. */
static bool is_unowned(const sim_use_t *use) {
    return !(use->owner->live && !use->owner->hosts) && !sim_owner_at(use->address);
}

static void judge_use(sim_op_t *op, const sim_use_t *use) {
    entry_t now = {op, use->owner, use->address, use->length, use->write, use->kind};
    if (!use->owner)
        return; /* not mapped: found when it runs */
    if (use->kind == SIM_USE_PLAIN && is_unowned(use)) {
        sim_party_t by = party("by", &now);
        sim_race_report(SIM_FOUND_freed, use->address, use->length, &by, NULL);
    }
    if ((sim_imports || sim_vmm_imports) && !sim_shared_use(op, use) &&
        use->kind == SIM_USE_PLAIN) {
        sim_party_t by = party("by", &now);
        sim_race_report(SIM_FOUND_freed, use->address, use->length, &by, NULL);
    }
    if (sim_multicast_mapped)
        sim_multicast_publish(op, use->address, use->length, use->write);
    for (place_t p = place_of(use->address, use->address + use->length); place_next(&p);)
        for (uint64_t at = p.key; at < p.key_end && sim_race_on;) {
            segment_t *segment = segment_first(at);
            uint64_t next =
                segment && segment->node.key < p.key_end ? segment->node.key : p.key_end;
            if (at < next) {
                segment = segment_new(at, next);
                if (!segment)
                    return;
            }
            judge_segment(segment, &now, p.delta);
            at = segment->end;
        }
}

void sim_op_judge(sim_op_t *op) {
    for (size_t i = 0; i < op->use_count && sim_race_on; i++)
        judge_use(op, &op->uses[i]);
}

/* Orders allocations after frees of the same memory: the driver reuses it in stream order. */
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

/* Drops uses that cannot race with later ones: uses of older owners that the ended owner's uses
 * follow, and all uses that the host has seen complete. */
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
            /* The last entry, which may be `mine`, takes the place of the dropped one. */
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

void sim_uses_retire(const sim_owner_t *ended) {
    for (place_t p = place_of(ended->base, ended->base + ended->size); place_next(&p);)
        for (segment_t *segment = segment_first(p.key), *next;
             segment && segment->node.key < p.key_end; segment = next) {
            next = segment_from(segment->end);
            retire(segment, ended);
            if (!segment->count)
                segment_free(segment);
        }
}

static bool is_pending(const entry_t *entry) {
    return !sim_op_host_knows(entry->op) && !entry->op->undecided;
}

void sim_uses_given(const sim_owner_t *owner) {
    for (place_t p = place_of(owner->base, owner->base + owner->size); place_next(&p);)
        for (segment_t *segment = segment_first(p.key); segment && segment->node.key < p.key_end;
             segment = segment_from(segment->end))
            for (size_t i = 0; i < segment->count; i++) {
                if (!is_pending(&segment->entries[i]))
                    continue;
                sim_party_t first = party("used", &segment->entries[i]),
                            second = {"given out", NULL, owner, owner->base, owner->size, true};
                sim_race_report(SIM_FOUND_given_early, segment->node.key + p.delta,
                                segment->end - segment->node.key, &first, &second);
            }
}

/* Returns true if the use was made through this mapping; its address tells. */
static bool by_address(const entry_t *entry, const sim_owner_t *record) {
    return entry->kind != SIM_USE_REACHED && entry->address < record->base + record->size &&
           record->base < entry->address + entry->length;
}

void sim_uses_release(const sim_owner_t *record) {
    const sim_op_t *by = sim_op_entered();
    for (place_t p = place_of(record->base, record->base + record->size); place_next(&p);)
        for (segment_t *segment = segment_first(p.key), *next;
             segment && segment->node.key < p.key_end; segment = next) {
            next = segment_from(segment->end);
            for (size_t i = 0; i < segment->count;) {
                const entry_t *entry = &segment->entries[i];
                if (!by_address(entry, record)) {
                    i++;
                    continue;
                }
                if (is_pending(entry) && !(by && sim_op_before(entry->op, by))) {
                    sim_party_t first = party("used", entry),
                                second = {"released",   by,           record,
                                          record->base, record->size, true};
                    sim_race_report(SIM_FOUND_released, segment->node.key + p.delta,
                                    segment->end - segment->node.key, &first, &second);
                }
                entry_drop(segment, i);
            }
            if (!segment->count)
                segment_free(segment);
        }
}

void sim_race_range_gone(uint64_t base, uint64_t size) {
    cut(base);
    cut(base + size);
    for (segment_t *segment = segment_first(base), *next;
         segment && segment->node.key < base + size; segment = next) {
        next = segment_from(segment->end);
        segment_free(segment);
    }
}

/* ---- the host looks ---- */

__attribute__((visibility("default"))) void simcuda_host_saw(const void *address) {
    sim_config_ensure();
    if (!sim_race_on || atomic_load(&sim_gate) & (SIM_GATE_FORKED | SIM_GATE_EXITING))
        return;
    sim_lock();
    const segment_t *segment = segment_around((uintptr_t)address);
    for (size_t i = 0; segment && i < segment->count; i++)
        if (segment->entries[i].write && segment->entries[i].op->done)
            sim_op_host_learns(segment->entries[i].op);
    sim_unlock();
}

SIM_LIVE_COUNT(race_ranges) {
    return live_segments;
}

/* Copying segments and blocks (lay_out.h). */
#include "allocator/space/lay_out.h"

#include "allocator/space/guard_place.h"
#include "allocator/space/segment.h"

typedef struct {
    ac_layout_t *layout;
    ac_stream_named_fn *stream_of;
    uint64_t end;   /* end of the block before ... */
    bool free_last; /* ... which was free */
} walk_t;

static ac_laid_state_t state_of(ac_block_state_t state, const ac_block_t *block) {
    switch (state) {
    case AC_BLOCK_ALLOCATED:
        return AC_LAID_ALLOCATED;
    case AC_BLOCK_CACHED:
        return AC_LAID_CACHED;
    case AC_BLOCK_RETIRED:
        return ac_block_is_held(block) ? AC_LAID_HELD : AC_LAID_PENDING;
    default:
        return AC_LAID_FREE;
    }
}

static void add(ac_layout_t *layout, const ac_laid_block_t *laid) {
    if (layout->blocks < layout->block_room)
        layout->block[layout->blocks] = *laid;
    layout->blocks++;
}

/* Time and caller of the request for a guarded block, and of its free. */
static void date(const ac_layout_t *layout, const ac_guarded_t *record, ac_laid_block_t *laid) {
    laid->asked_ns = layout->now_ns - record->asked_ns;
    if (!record->freed_ns)
        return;
    laid->freed_ns = layout->now_ns - record->freed_ns;
    laid->freed_by = record->freed_by;
}

/* Free slots of slabs lie side by side, and are many. */
static void grow_last(walk_t *walk, uint64_t size) {
    ac_layout_t *layout = walk->layout;
    if (layout->blocks <= layout->block_room)
        layout->block[layout->blocks - 1].size += size;
    walk->end += size;
}

static void visit(ac_block_t *block, void *arg) {
    walk_t *walk = arg;
    ac_layout_t *layout = walk->layout;
    uint64_t address = ac_block_address(block);
    /* Once: the owner of a cache may change it at any time. */
    ac_block_state_t was = atomic_load_explicit(&block->state, memory_order_relaxed);
    ac_laid_state_t state = state_of(was, block);
    bool is_free = state == AC_LAID_FREE;
    if (is_free && walk->free_last && walk->end == address) {
        grow_last(walk, block->size);
        return;
    }
    ac_laid_block_t laid = {.address = address, .size = block->size, .state = (uint8_t)state};
    if (!is_free) {
        laid.module = atomic_load_explicit(&block->module, memory_order_relaxed);
        laid.requested = atomic_load_explicit(&block->requested, memory_order_relaxed);
    }
    if (!is_free && !block->segment->arena)
        laid.stack = block->stack;
    laid.async = state == AC_LAID_ALLOCATED && block->mempool;
    if (state == AC_LAID_PENDING && ac_key_is_stream(block->ticket.key))
        laid.stream = walk->stream_of(block);
    if (!is_free && ac_segment_is_guarded(block->segment))
        date(layout, ac_guard_record(block), &laid);
    add(layout, &laid);
    walk->end = address + block->size;
    walk->free_last = is_free;
}

/* Guarded blocks at addresses that have no memory now. */
static void visit_gone(const ac_block_t *unmapped, walk_t *walk) {
    const ac_range_t *range = unmapped->segment->range;
    uint64_t at = ac_range_unit(range, unmapped->address);
    uint64_t end = ac_range_unit(range, unmapped->address + unmapped->size);
    for (end = end < range->high ? end : range->high; at < end; at++) {
        const ac_guarded_t *record = &range->guard->record[at];
        ac_laid_block_t laid = {.address = record->address,
                                .size = (record->requested + AC_GRANULE - 1) & ~(AC_GRANULE - 1),
                                .requested = record->requested,
                                .state = AC_LAID_UNMAPPED,
                                .module = record->asked_by};
        if (!record->address)
            continue;
        date(walk->layout, record, &laid);
        add(walk->layout, &laid);
    }
    walk->free_last = false;
}

static void lay_out_guarded(const ac_segment_t *segment, walk_t *walk) {
    for (ac_block_t *block = segment->first; block; block = block->next)
        if (ac_block_has_memory(block))
            visit(block, walk);
        else if (!ac_block_is_moving(block))
            visit_gone(block, walk);
}

void ac_segment_lay_out(const ac_segment_t *segment, ac_stream_named_fn *stream_of,
                        ac_layout_t *layout) {
    walk_t walk = {.layout = layout, .stream_of = stream_of};
    bool guarded = ac_segment_is_guarded(segment);
    size_t first = layout->blocks;
    if (guarded)
        lay_out_guarded(segment, &walk);
    else if (!layout->guarded)
        ac_segment_each(segment, visit, &walk);
    else
        return;
    if (layout->segments < layout->segment_room)
        layout->segment[layout->segments] =
            (ac_laid_segment_t){.address = segment->address,
                                .size = segment->size,
                                .first = first,
                                .count = layout->blocks - first,
                                .small = segment->pool == AC_POOL_SMALL,
                                .paged = segment->range != NULL,
                                .exported = segment->tainted && !guarded,
                                .guarded = guarded};
    layout->segments++;
}

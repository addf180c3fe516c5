/* Copying segments and blocks (lay_out.h). */
#include "allocator/space/lay_out.h"

#include "allocator/space/segment.h"

typedef struct {
    ac_layout_t *layout;
    ac_stream_named_fn *stream_of;
    size_t first;   /* of the segment's blocks */
    uint64_t end;   /* where the block before ended ... */
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
    laid.async = state == AC_LAID_ALLOCATED && block->mempool;
    if (state == AC_LAID_PENDING && ac_key_is_stream(block->ticket.key))
        laid.stream = walk->stream_of(block);
    if (layout->blocks < layout->block_room)
        layout->block[layout->blocks] = laid;
    layout->blocks++;
    walk->end = address + block->size;
    walk->free_last = is_free;
}

static void lay_out(const ac_segment_t *segment, walk_t *walk) {
    ac_layout_t *layout = walk->layout;
    walk->first = layout->blocks;
    walk->free_last = false;
    ac_segment_each(segment, visit, walk);
    if (layout->segments < layout->segment_room)
        layout->segment[layout->segments] =
            (ac_laid_segment_t){.address = segment->address,
                                .size = segment->size,
                                .first = walk->first,
                                .count = layout->blocks - walk->first,
                                .small = segment->pool == AC_POOL_SMALL,
                                .paged = segment->range != NULL,
                                .exported = segment->tainted};
    layout->segments++;
}

void ac_space_lay_out(const ac_space_t *space, ac_stream_named_fn *stream_of,
                      ac_layout_t *layout) {
    walk_t walk = {.layout = layout, .stream_of = stream_of};
    for (const ac_segment_t *segment = space->segments; segment; segment = segment->next)
        lay_out(segment, &walk);
}

/* Layouts as text, and the part of a layout near an address (layout.h).  The text is not made by the JSON
 * builder, because its objects would take ten times the memory.  A program may hold millions of blocks and
 * may be short of memory. */
#include "observe/layout.h"

#include <inttypes.h>
#include <stdlib.h>

#include "observe/text.h"
const char *const ac_laid_words[AC_LAID_STATES] = {
#define X(name, word) word,
    AC_LAID_WORDS(X)
#undef X
};

void ac_layout_drop(ac_layout_t *layout) {
    free(layout->segment);
    free(layout->block);
    layout->segment = NULL;
    layout->block = NULL;
    layout->segment_room = layout->block_room = 0;
    layout->segments = layout->blocks = 0;
}

bool ac_layout_make_room(ac_layout_t *layout) {
    size_t segments = layout->segments + layout->segments / 8 + 16;
    size_t blocks = layout->blocks + layout->blocks / 8 + 256;
    ac_layout_drop(layout);
    layout->segment = malloc(segments * sizeof *layout->segment);
    layout->block = malloc(blocks * sizeof *layout->block);
    layout->segment_room = layout->segment ? segments : 0;
    layout->block_room = layout->block ? blocks : 0;
    return layout->segment && layout->block;
}

/* ---- near an address ---- */

/* Returns true if an out-of-bounds address may belong to the block. */
static bool is_held(const ac_laid_block_t *block) {
    return block->state == AC_LAID_ALLOCATED || block->state == AC_LAID_UNMAPPED;
}

/* Adds a copy of the segment, without blocks, to `near`. */
static void keep(ac_near_t *near, const ac_laid_segment_t *segment) {
    ac_layout_t *to = &near->layout;
    near->segment[to->segments] = *segment;
    near->segment[to->segments].first = to->blocks;
    near->segment[to->segments++].count = 0;
}

static void keep_block(ac_near_t *near, const ac_laid_block_t *block) {
    ac_layout_t *to = &near->layout;
    if (!block)
        return;
    near->block[to->blocks++] = *block;
    near->segment[to->segments - 1].count++;
}

/* Copies the segment with up to three blocks: the one that contains the address, and the nearest held or guarded
 * block on each side. */
static void keep_around(const ac_layout_t *of, const ac_laid_segment_t *segment, uint64_t address,
                        ac_near_t *near) {
    const ac_laid_block_t *before = NULL, *around = NULL, *behind = NULL;
    for (size_t i = 0; i < segment->count && !behind; i++) {
        const ac_laid_block_t *block = &of->block[segment->first + i];
        if (address >= block->address && address - block->address < block->size)
            around = block;
        else if (is_held(block) && block->address <= address)
            before = block;
        else if (is_held(block))
            behind = block;
    }
    keep(near, segment);
    keep_block(near, before);
    keep_block(near, around);
    keep_block(near, behind);
}

void ac_layout_near(const ac_layout_t *layout, uint64_t address, ac_near_t *near) {
    const ac_laid_segment_t *below = NULL, *above = NULL;
    *near = (ac_near_t){.layout = {.ordinal = layout->ordinal}};
    near->layout.segment = near->segment;
    near->layout.block = near->block;
    for (size_t i = 0; i < layout->segments; i++) {
        const ac_laid_segment_t *segment = &layout->segment[i];
        if (address >= segment->address && address - segment->address < segment->size) {
            keep_around(layout, segment, address, near);
            return;
        }
        if (segment->address <= address && (!below || segment->address > below->address))
            below = segment;
        if (segment->address > address && (!above || segment->address < above->address))
            above = segment;
    }
    if (below)
        keep_around(layout, below, address, near);
    if (above)
        keep_around(layout, above, address, near);
}

/* ---- text ---- */

static void add_block(ac_text_t *text, const ac_laid_block_t *block) {
    ac_text_add(text, "{\"address\": %" PRIu64 ", \"size\": %" PRIu64 ", \"state\": \"%s\"",
                block->address, block->size, ac_laid_words[block->state]);
    if (block->state != AC_LAID_FREE)
        ac_text_add(text, ", \"requested\": %" PRIu64 ", \"module\": %u", block->requested,
                    block->module);
    if (block->async)
        ac_text_add(text, ", \"async\": true");
    if (block->asked_ns)
        ac_text_add(text, ", \"asked_ago_ms\": %" PRIu64, block->asked_ns / 1000000);
    if (block->freed_ns)
        ac_text_add(text, ", \"freed_ago_ms\": %" PRIu64 ", \"freed_by\": %u",
                    block->freed_ns / 1000000, block->freed_by);
    if (block->stream)
        ac_text_add(text, ", \"stream\": %" PRIu64, block->stream);
    if (block->stack)
        ac_text_add(text, ", \"stack\": %" PRIu32, block->stack);
    if (block->since_ns)
        ac_text_add(text, ", \"since_ns\": %" PRId64, block->since_ns);
    ac_text_add(text, "}");
}

static void add_segment(ac_text_t *text, const ac_layout_t *layout,
                        const ac_laid_segment_t *segment, size_t *left) {
    ac_text_add(text,
                "{\"device\": %d, \"address\": %" PRIu64 ", \"size\": %" PRIu64
                ", \"pool\": \"%s\", \"expandable\": %s, \"exported\": %s%s, \"blocks\": ",
                layout->ordinal, segment->address, segment->size,
                segment->small ? "small" : "large", segment->paged ? "true" : "false",
                segment->exported ? "true" : "false",
                segment->guarded ? ", \"guarded\": true" : "");
    if (segment->count > *left) {
        ac_text_add(text, "null}");
        return;
    }
    *left -= segment->count;
    ac_text_add(text, "[");
    for (size_t i = 0; i < segment->count; i++) {
        ac_text_add(text, i ? ",\n      " : "\n      ");
        add_block(text, &layout->block[segment->first + i]);
    }
    ac_text_add(text, "]}");
}

char *ac_layout_text(const ac_layout_t *layout, unsigned count, size_t most, size_t *length) {
    ac_text_t text = {NULL, 0, 0, false};
    bool any = false;
    ac_text_add(&text, "[");
    for (unsigned i = 0; i < count; i++)
        for (size_t k = 0; k < layout[i].segments; k++, any = true) {
            ac_text_add(&text, any ? ",\n    " : "\n    ");
            add_segment(&text, &layout[i], &layout[i].segment[k], &most);
        }
    ac_text_add(&text, "]");
    return ac_text_take(&text, length);
}

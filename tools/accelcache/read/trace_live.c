/* See trace_live.h. */
#include "read/trace_live.h"

#include "command.h"

#include <stdlib.h>
#include <string.h>

static size_t home(const cmd_live_t *live, uint64_t address) {
    return (address * 0x9e3779b97f4a7c15u >> 20) & (live->slots - 1);
}

cmd_live_block_t *cmd_live_find(const cmd_live_t *live, uint64_t address) {
    if (!live->slots)
        return NULL;
    size_t at = home(live, address);
    while (live->used[at] && live->slot[at].address != address)
        at = (at + 1) & (live->slots - 1);
    return live->used[at] ? &live->slot[at] : NULL;
}

static void place(cmd_live_t *live, const cmd_live_block_t *block) {
    size_t at = home(live, block->address);
    while (live->used[at])
        at = (at + 1) & (live->slots - 1);
    live->slot[at] = *block;
    live->used[at] = 1;
    live->count++;
}

static void grow(cmd_live_t *live) {
    enum { FIRST = 1024 };
    cmd_live_t bigger = {.slots = live->slots ? 2 * live->slots : FIRST};
    bigger.slot = cmd_alloc(bigger.slots * sizeof *bigger.slot);
    bigger.used = cmd_alloc(bigger.slots);
    memset(bigger.used, 0, bigger.slots);
    for (size_t i = 0; i < live->slots; i++)
        if (live->used[i])
            place(&bigger, &live->slot[i]);
    cmd_live_clear(live);
    *live = bigger;
}

void cmd_live_add(cmd_live_t *live, const cmd_live_block_t *block) {
    if (2 * (live->count + 1) > live->slots)
        grow(live);
    place(live, block);
}

/* Entries that follow without a gap move up if they may, so that no search ends too early. */
void cmd_live_remove(cmd_live_t *live, cmd_live_block_t *block) {
    size_t mask = live->slots - 1, hole = (size_t)(block - live->slot);
    for (size_t at = (hole + 1) & mask; live->used[at]; at = (at + 1) & mask) {
        size_t wanted = home(live, live->slot[at].address);
        if (((at - wanted) & mask) >= ((at - hole) & mask)) {
            live->slot[hole] = live->slot[at];
            hole = at;
        }
    }
    live->used[hole] = 0;
    live->count--;
}

static int by_id(const void *a, const void *b) {
    uint64_t x = ((const cmd_live_block_t *)a)->id, y = ((const cmd_live_block_t *)b)->id;
    return x < y ? -1 : x > y;
}

cmd_live_block_t *cmd_live_take(cmd_live_t *live, uint32_t context, size_t *count) {
    cmd_live_block_t *taken = NULL;
    *count = 0;
    for (size_t i = 0; i < live->slots; i++)
        *count += live->used[i] && live->slot[i].context == context;
    if (!*count)
        return NULL;
    taken = cmd_alloc(*count * sizeof *taken);
    for (size_t i = 0, n = 0; i < live->slots; i++)
        if (live->used[i] && live->slot[i].context == context)
            taken[n++] = live->slot[i];
    qsort(taken, *count, sizeof *taken, by_id);
    for (size_t i = 0; i < *count; i++)
        cmd_live_remove(live, cmd_live_find(live, taken[i].address));
    return taken;
}

void cmd_live_clear(cmd_live_t *live) {
    free(live->slot);
    free(live->used);
    *live = (cmd_live_t){.slots = 0};
}

/* Inboxes of thread caches (inbox.h). */
#include "allocator/cache/inbox.h"

#include "failpoint.h"

enum { ARENA_SHIFT = 48 }; /* above all addresses of a process */
#define BLOCK_MASK (((uint64_t)1 << ARENA_SHIFT) - 1)

static uint64_t word_of(uint16_t arena, const ac_block_t *first) {
    return (uint64_t)arena << ARENA_SHIFT | (uint64_t)(uintptr_t)first;
}

static ac_block_t *block_in(uint64_t word) {
    return (ac_block_t *)(uintptr_t)(word & BLOCK_MASK);
}

void ac_chain_add(ac_chain_t *chain, ac_trail_t *trail, ac_block_t *block, int flow) {
    atomic_store_explicit(&trail->block[trail->turn++ % AC_TRAIL], block, memory_order_relaxed);
    block->link = chain->first;
    chain->first = block;
    if (!chain->last)
        chain->last = block;
    chain->blocks[flow]++;
    chain->bytes[flow] += block->size;
}

void ac_inbox_open(ac_inbox_t *inbox, uint16_t arena) {
    atomic_store(&inbox->word, word_of(arena, NULL));
}

bool ac_inbox_post(ac_inbox_t *inbox, uint16_t arena, const ac_chain_t *chain,
                   ac_trail_t *trail) {
    uint64_t word = atomic_load_explicit(&inbox->word, memory_order_relaxed);
    uint64_t weight = ac_inbox_weight(ac_chain_blocks(chain), ac_chain_bytes(chain));
    atomic_fetch_add_explicit(&inbox->weight, weight, memory_order_relaxed);
    do {
        if (word >> ARENA_SHIFT != arena && !AC_FAILPOINT(posted_to_gone)) {
            atomic_fetch_sub_explicit(&inbox->weight, weight, memory_order_relaxed);
            return false;
        }
        chain->last->link = block_in(word);
    } while (!atomic_compare_exchange_weak_explicit(&inbox->word, &word,
                                                    word_of(arena, chain->first),
                                                    memory_order_release, memory_order_relaxed));
    atomic_store_explicit(&trail->posted, trail->turn, memory_order_relaxed);
    if (atomic_load_explicit(&inbox->trail, memory_order_relaxed) != trail)
        atomic_store_explicit(&inbox->trail, trail, memory_order_relaxed);
    return true;
}

/* Prefetches the posted blocks that the trail shows. */
static void touch(const ac_inbox_t *inbox, const ac_block_t *first) {
    const ac_trail_t *trail = atomic_load_explicit(&inbox->trail, memory_order_relaxed);
    if (!trail)
        return;
    uint32_t at = atomic_load_explicit(&trail->posted, memory_order_relaxed);
    uint64_t n = atomic_load_explicit(&inbox->weight, memory_order_relaxed) / ac_inbox_weight(1, first->size);
    for (uint32_t i = 1; i <= n && i <= AC_TRAIL; i++)
        ac_block_touch_to_write(
            atomic_load_explicit(&trail->block[(at - i) % AC_TRAIL], memory_order_relaxed));
}

ac_block_t *ac_inbox_take(ac_inbox_t *inbox, uint16_t arena) {
    if (atomic_load(&inbox->word) == word_of(arena, NULL)) /* the common case: the inbox is empty */
        return NULL;
    ac_block_t *first = block_in(
        atomic_exchange_explicit(&inbox->word, word_of(arena, NULL), memory_order_acquire));
    uint64_t weight = 0;
    if (first)
        touch(inbox, first);
    for (const ac_block_t *block = first; block; block = block->link) {
        ac_block_touch(block->link);
        weight += ac_inbox_weight(1, block->size);
    }
    if (weight)
        atomic_fetch_sub_explicit(&inbox->weight, weight, memory_order_relaxed);
    return first;
}

const ac_block_t *ac_inbox_first(const ac_inbox_t *inbox) {
    return block_in(atomic_load(&inbox->word));
}

/* Memory of private pools by address.  It has an index of its own, since a segment that the program's
 * allocator returned may lie inside a block of the library, at any address. */
#include "api/pools_int.h"

#include <stdlib.h>
#include <string.h>

/* --- allocated blocks --- */

static ac_block_t **bucket; /* by `link` */
static size_t buckets, used; /* a power of two, or 0 */

static size_t bucket_of(uint64_t address, size_t count) {
    return (size_t)((address / AC_GRANULE) * 0x9e3779b97f4a7c15u >> 20) & (count - 1);
}

static void enter(ac_block_t **table, size_t count, ac_block_t *block) {
    ac_block_t **head = &table[bucket_of(ac_block_address(block), count)];
    block->link = *head;
    *head = block;
}

/* If host memory is short, the chains are long. */
static bool reserve_block(void) {
    size_t count = buckets ? 2 * buckets : 256;
    if (used < buckets)
        return true;
    ac_block_t **larger = calloc(count, sizeof(*larger));
    if (!larger)
        return buckets;
    for (size_t i = 0; i < buckets; i++)
        for (ac_block_t *block = bucket[i], *next; block; block = next) {
            next = block->link;
            enter(larger, count, block);
        }
    free(bucket);
    bucket = larger;
    buckets = count;
    return true;
}

void ac_pool_index_enter(ac_block_t *block) {
    enter(bucket, buckets, block);
    used++;
}

void ac_pool_index_leave(ac_block_t *block) {
    ac_block_t **at = &bucket[bucket_of(ac_block_address(block), buckets)];
    while (*at != block)
        at = &(*at)->link;
    *at = block->link;
    used--;
}

ac_block_t *ac_pool_block_at(uint64_t address) {
    ac_block_t *block = buckets ? bucket[bucket_of(address, buckets)] : NULL;
    while (block && ac_block_address(block) != address)
        block = block->link;
    return block;
}

/* --- segments --- */

static ac_segment_t **order; /* [segments], by address */
static size_t segments, room;

/* How many begin at the address or below it. */
static size_t position(uint64_t address) {
    size_t low = 0, high = segments;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (order[middle]->address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool ac_pool_index_reserve(void) {
    if (segments == room) {
        ac_segment_t **larger = realloc(order, (room + 64) * sizeof(*larger));
        if (!larger)
            return false;
        order = larger;
        room += 64;
    }
    return reserve_block();
}

void ac_pool_index_add(ac_segment_t *segment) {
    size_t at = position(segment->address);
    memmove(&order[at + 1], &order[at], (segments - at) * sizeof(*order));
    order[at] = segment;
    segments++;
}

void ac_pool_index_remove(const ac_segment_t *segment) {
    size_t at = position(segment->address);
    memmove(&order[at - 1], &order[at], (segments - at) * sizeof(*order));
    segments--;
}

ac_segment_t *ac_pool_segment_around(uint64_t address) {
    size_t at = position(address);
    bool inside = at && address - order[at - 1]->address < order[at - 1]->size;
    return inside ? order[at - 1] : NULL;
}

ac_segment_t *ac_pool_segment_number(size_t i) {
    return i < segments ? order[i] : NULL;
}

ac_block_t *ac_pool_block_around(uint64_t address) {
    ac_block_t *block = ac_pool_block_at(address);
    const ac_segment_t *segment = block ? NULL : ac_pool_segment_around(address);
    if (!segment)
        return block;
    for (block = segment->first; address - ac_block_address(block) >= block->size;)
        block = block->next;
    return block->state == AC_BLOCK_ALLOCATED ? block : NULL;
}

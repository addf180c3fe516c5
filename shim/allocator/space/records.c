/* Host memory for the allocator's records: recycled, never given back.  Not malloc: the host
 * program may have replaced it, and hooks run inside of it. */
#include "allocator/space/records.h"

#include <sys/mman.h>

#include "allocator/carve.h"

/* Chunks of block records double: a small program touches one page, a large one makes few
 * system calls. */
enum { FIRST_CHUNK = 16, LAST_CHUNK = 512, SEGMENTS = 16 };
_Static_assert(LAST_CHUNK * sizeof(ac_block_t) <= 64 << 10, "more than is carved at once");

void *ac_record_memory(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void ac_record_memory_return(void *memory, size_t bytes) {
    munmap(memory, bytes);
}

static bool have_fresh(ac_store_t *store) {
    if (store->fresh_left)
        return true;
    unsigned most = store->next_chunk ? store->next_chunk : FIRST_CHUNK;
    store->fresh_blocks = ac_carve(most * sizeof *store->fresh_blocks);
    if (!store->fresh_blocks)
        return false;
    store->fresh_left = most;
    store->next_chunk = most < LAST_CHUNK ? 2 * most : LAST_CHUNK;
    return true;
}

ac_block_t *ac_record_fresh(ac_store_t *store) {
    return have_fresh(store) ? &store->fresh_blocks[--store->fresh_left] : NULL;
}

void ac_record_block_return(ac_store_t *store, ac_block_t *block) {
    ac_block_set_state(block, AC_BLOCK_UNUSED);
    AC_BLOCK_SET(block, address, ac_block_address(block) | 1);
    block->next = store->spare_blocks; /* which no cache writes: an owner may be late (ac_caches_drop) */
    store->spare_blocks = block;
}

bool ac_record_reserve(ac_store_t *store, size_t count) {
    for (ac_block_t *spare = store->spare_blocks; spare && count; spare = spare->next)
        count--;
    for (; count; count--) {
        ac_block_t *block = ac_record_fresh(store);
        if (!block)
            return false;
        ac_record_block_return(store, block);
    }
    return true;
}

ac_block_t *ac_record_piece(const ac_block_t *block, uint64_t size) {
    ac_store_t *store = block->segment->space->store;
    ac_block_t *piece = ac_record_block(store);
    if (piece && !ac_page_map_set(block->address + size, piece)) {
        ac_record_block_return(store, piece);
        return NULL;
    }
    return piece;
}

ac_segment_t *ac_record_segment(ac_store_t *store) {
    if (!store->spare_segments) {
        ac_segment_t *chunk = ac_carve(SEGMENTS * sizeof *chunk);
        for (int i = 0; chunk && i < SEGMENTS; i++)
            ac_record_segment_return(store, &chunk[i]);
    }
    ac_segment_t *segment = store->spare_segments;
    if (segment)
        store->spare_segments = segment->next;
    return segment;
}

void ac_record_segment_return(ac_store_t *store, ac_segment_t *segment) {
    segment->next = store->spare_segments;
    store->spare_segments = segment;
}

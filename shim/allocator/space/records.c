/* Host memory for the allocator's records: recycled, never given back.  Not malloc: the host
 * program may have replaced it, and hooks run inside of it. */
#include <sys/mman.h>

#include "allocator/allocator_int.h"
#include "allocator/space/carve.h"

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

static bool have_fresh(ac_allocator_t *allocator) {
    if (allocator->fresh_left)
        return true;
    unsigned most = allocator->next_chunk ? allocator->next_chunk : FIRST_CHUNK;
    allocator->fresh_blocks = ac_carve(most * sizeof *allocator->fresh_blocks);
    if (!allocator->fresh_blocks)
        return false;
    allocator->fresh_left = most;
    allocator->next_chunk = most < LAST_CHUNK ? 2 * most : LAST_CHUNK;
    return true;
}

ac_block_t *ac_record_block(ac_allocator_t *allocator) {
    ac_block_t *block = allocator->spare_blocks;
    if (block) {
        allocator->spare_blocks = block->list_next;
        return block;
    }
    return have_fresh(allocator) ? &allocator->fresh_blocks[--allocator->fresh_left] : NULL;
}

void ac_record_block_return(ac_allocator_t *allocator, ac_block_t *block) {
    ac_block_set_state(block, AC_BLOCK_UNUSED);
    AC_BLOCK_SET(block, address, ac_block_address(block) | 1);
    block->list_next = allocator->spare_blocks;
    allocator->spare_blocks = block;
}

ac_block_t *ac_record_piece(const ac_block_t *block, uint64_t size) {
    ac_allocator_t *allocator = block->segment->arena->allocator;
    ac_block_t *piece = ac_record_block(allocator);
    if (piece && !ac_page_map_set(block->address + size, piece)) {
        ac_record_block_return(allocator, piece);
        return NULL;
    }
    return piece;
}

ac_segment_t *ac_record_segment(ac_allocator_t *allocator) {
    if (!allocator->spare_segments) {
        ac_segment_t *chunk = ac_carve(SEGMENTS * sizeof *chunk);
        for (int i = 0; chunk && i < SEGMENTS; i++)
            ac_record_segment_return(allocator, &chunk[i]);
    }
    ac_segment_t *segment = allocator->spare_segments;
    if (segment)
        allocator->spare_segments = segment->next;
    return segment;
}

void ac_record_segment_return(ac_allocator_t *allocator, ac_segment_t *segment) {
    segment->next = allocator->spare_segments;
    allocator->spare_segments = segment;
}

/* Host memory for the allocator's records: mapped in chunks, recycled, never given back.
 * Not malloc: the host program may have replaced it, and hooks run inside of it. */
#include <sys/mman.h>

#include "allocator/allocator_int.h"

enum { CHUNK = 256 << 10 };

void *ac_record_memory(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void ac_record_memory_return(void *memory, size_t bytes) {
    munmap(memory, bytes);
}

ac_block_t *ac_record_block(ac_allocator_t *allocator) {
    if (!allocator->spare_blocks) {
        ac_block_t *chunk = ac_record_memory(CHUNK);
        if (!chunk)
            return NULL;
        for (size_t i = 0; i < CHUNK / sizeof *chunk; i++)
            ac_record_block_return(allocator, &chunk[i]);
    }
    ac_block_t *block = allocator->spare_blocks;
    allocator->spare_blocks = block->list_next;
    return block;
}

void ac_record_block_return(ac_allocator_t *allocator, ac_block_t *block) {
    block->state = AC_BLOCK_UNUSED;
    block->list_next = allocator->spare_blocks;
    allocator->spare_blocks = block;
}

ac_segment_t *ac_record_segment(ac_allocator_t *allocator) {
    if (!allocator->spare_segments) {
        ac_segment_t *chunk = ac_record_memory(CHUNK / 4);
        if (!chunk)
            return NULL;
        for (size_t i = 0; i < CHUNK / 4 / sizeof *chunk; i++)
            ac_record_segment_return(allocator, &chunk[i]);
    }
    ac_segment_t *segment = allocator->spare_segments;
    allocator->spare_segments = segment->next;
    return segment;
}

void ac_record_segment_return(ac_allocator_t *allocator, ac_segment_t *segment) {
    segment->next = allocator->spare_segments;
    allocator->spare_segments = segment;
}

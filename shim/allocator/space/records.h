/* Host memory for records: recycled, never given back.  Under the allocator's lock.  NULL: host memory is short. */
#ifndef AC_RECORDS_H
#define AC_RECORDS_H

#include "allocator/space/space.h"

ac_block_t *ac_record_fresh(ac_store_t *store);
static inline ac_block_t *ac_record_block(ac_store_t *store) {
    ac_block_t *block = store->spare_blocks;
    if (!block)
        return ac_record_fresh(store); /* never used yet */
    store->spare_blocks = block->next;
    return block;
}
/* A record, of no content yet, that the page map names as what starts `size` bytes into `block`.
 */
ac_block_t *ac_record_piece(const ac_block_t *block, uint64_t size);
void ac_record_block_return(ac_store_t *store, ac_block_t *block);
/* Makes sure that ac_record_block succeeds `count` times.  False: host memory is short. */
bool ac_record_reserve(ac_store_t *store, size_t count);
ac_segment_t *ac_record_segment(ac_store_t *store);
void ac_record_segment_return(ac_store_t *store, ac_segment_t *segment);
void *ac_record_memory(size_t bytes);                     /* zeroed, whole pages */
void ac_record_memory_return(void *memory, size_t bytes); /* only what was never published */

#endif

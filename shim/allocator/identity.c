/* Blocks that others get to know: their lifetimes begin here, and are exported (lifetime.h). */
#include "allocator/allocator_int.h"
#include "allocator/space/lifetime.h"

/* An owner that does not come out of its cache is waited for so often. */
enum { TRIES = 4 };

/* Whether a thread may take the block into its cache without the lock. */
static bool may_be_taken(const ac_block_t *block) {
    return atomic_load_explicit(&block->owner_arena, memory_order_relaxed) != 0;
}

/* Keep the block out of all caches.  A thread that looked at it before may be about to take it: it
 * has done so, or not, once all threads were out of their caches.  Without the lock. */
static void keep_for_program(ac_allocator_t *allocator, uint64_t address) {
    ac_caches_freeze(allocator);
    ac_block_t *block = ac_slab_look(address);
    if (block && block->address == address && block->state == AC_BLOCK_ALLOCATED &&
        block->segment->arena->allocator == allocator)
        AC_BLOCK_SET(block, owner_arena, 0);
    ac_caches_thaw(allocator);
}

ac_status_t ac_block_identify(uint64_t address, uint64_t *serial) {
    for (int i = 0;; i++) {
        ac_block_t *block;
        ac_allocator_t *allocator;
        ac_status_t status = ac_allocator_lock_block(address, &block, &allocator);
        if (status != AC_OK)
            return status;
        if (may_be_taken(block) && i < TRIES) {
            ac_unlock(&allocator->lock);
            keep_for_program(allocator, address);
            continue;
        }
        const ac_lifetime_t *lifetime = ac_lifetime_begin(block);
        if (lifetime && block->segment->range)
            ac_range_pin(block);
        if (lifetime)
            *serial = lifetime->serial;
        ac_unlock(&allocator->lock);
        return lifetime ? AC_OK : AC_OOM;
    }
}

ac_status_t ac_block_export(uint64_t address, uint64_t serial, uint64_t exported) {
    ac_block_t *block;
    ac_allocator_t *allocator;
    ac_status_t status = ac_allocator_lock_block(address, &block, &allocator);
    if (status != AC_OK)
        return status;
    ac_lifetime_t *lifetime = block->lifetime;
    if (!lifetime || lifetime->serial != serial) {
        status = AC_BAD_ADDRESS;
    } else if (lifetime->exported) {
        status = AC_BUSY;
    } else {
        lifetime->exported = exported;
        ac_lifetime_notify(exported, serial);
    }
    ac_unlock(&allocator->lock);
    return status;
}

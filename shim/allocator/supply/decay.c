/* Memory that was not used for a while goes back to the device.  Called by one thread at a time,
 * whenever an epoch has passed; how long one is, is the caller's business.
 *
 * A segment notes the epoch in which it became idle, and every use takes it off the idle list:
 * one that is still there and was for so many whole epochs was not used in them.  What stays is
 * the high-water mark of recent use, by segments.  Holes of a range note theirs likewise with
 * every free in them.  No time is read where memory is handed out. */
#include "allocator/supply/expand.h"
#include "allocator/supply/trim.h"

uint64_t ac_allocator_decay(ac_allocator_t *allocator, uint32_t epochs) {
    uint64_t freed = 0;
    ac_lock(&allocator->lock);
    allocator->epoch++;
    ac_unlock(&allocator->lock);
    ac_caches_recall(allocator, NULL); /* what waits there is pending from now on */
    /* Freed memory that work may still reach is neither in use nor idle, and no request may come
     * that would ask for a fence: so this does. */
    bool may = ac_fence_calm();
    ac_lock(&allocator->lock);
    ac_allocator_drain(allocator);
    allocator->owed_epochs = may ? 0 : epochs;
    ac_unlock(&allocator->lock);
    if (!may) {
        ac_trim_owe(allocator);
        return 0;
    }
    for (ac_arena_t *arena = allocator->arenas; arena; arena = arena->next) {
        freed += ac_trim_tainted(arena);
        freed += ac_trim_aged(arena, epochs);
        freed += ac_expand_trim_aged(arena, epochs);
    }
    return freed;
}

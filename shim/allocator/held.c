/* All blocks that the program holds (allocator.h). */
#include "allocator/allocator_int.h"

typedef struct {
    ac_held_visit_fn *visit;
    void *arg;
} walk_t;

/* Owners of caches change these fields without the lock: each is read once. */
static void visit_block(ac_block_t *block, void *arg) {
    const walk_t *walk = arg;
    if (atomic_load_explicit(&block->state, memory_order_relaxed) != AC_BLOCK_ALLOCATED)
        return;
    ac_held_t held = {.address = ac_block_address(block),
                      .size = block->size,
                      .requested = atomic_load_explicit(&block->requested, memory_order_relaxed),
                      .module = atomic_load_explicit(&block->module, memory_order_relaxed)};
    walk->visit(&held, walk->arg);
}

bool ac_allocator_held(ac_allocator_t *allocator, const struct timespec *deadline,
                       ac_held_visit_fn *visit, void *arg) {
    walk_t walk = {visit, arg};
    if (!ac_lock_until(&allocator->lock, deadline))
        return false;
    for (ac_arena_t *arena = allocator->arenas; arena; arena = arena->next)
        for (const ac_segment_t *s = arena->segments; s; s = s->next)
            ac_segment_each(s, visit_block, &walk);
    ac_unlock(&allocator->lock);
    return true;
}

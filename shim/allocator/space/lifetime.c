/* Lifetimes of blocks that others know of (lifetime.h). */
#include "allocator/space/lifetime.h"

#include "allocator/carve.h"
#include "allocator/space/space.h"

enum { CHUNK = 32 };

void (*ac_lifetime_notify)(uint64_t exported, uint64_t serial);

static ac_lifetime_t *new_record(ac_store_t *store) {
    if (!store->spare_lifetimes) {
        ac_lifetime_t *chunk = ac_carve(CHUNK * sizeof *chunk);
        for (int i = 0; chunk && i < CHUNK; i++) {
            chunk[i].next = store->spare_lifetimes;
            store->spare_lifetimes = &chunk[i];
        }
    }
    ac_lifetime_t *lifetime = store->spare_lifetimes;
    if (lifetime)
        store->spare_lifetimes = lifetime->next;
    return lifetime;
}

ac_lifetime_t *ac_lifetime_begin(ac_block_t *block) {
    static _Atomic uint64_t serials;
    if (block->lifetime)
        return block->lifetime;
    ac_lifetime_t *lifetime = new_record(block->segment->space->store);
    if (!lifetime)
        return NULL;
    *lifetime = (ac_lifetime_t){.serial = atomic_fetch_add(&serials, 1) + 1};
    AC_BLOCK_SET(block, owner_arena, 0);
    block->lifetime = lifetime;
    return lifetime;
}

void ac_lifetime_end(ac_block_t *block) {
    ac_store_t *store = block->segment->space->store;
    ac_lifetime_t *lifetime = block->lifetime;
    if (lifetime->exported)
        ac_lifetime_notify(lifetime->exported, 0);
    block->lifetime = NULL;
    lifetime->next = store->spare_lifetimes;
    store->spare_lifetimes = lifetime;
}

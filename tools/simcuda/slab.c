/* Slots behind handles: see sim_object_t in sim.h.  Global lock. */
#include <string.h>
#include <sys/mman.h>

#include "sim.h"

uint64_t sim_next_id(void) {
    static uint64_t last;
    return ++last;
}

void *sim_slab_take(sim_slab_t *slab) {
    sim_object_t *object = slab->free;
    if (object) {
        slab->free = object->next_free;
    } else {
        if (!slab->base) {
            slab->stride = (slab->stride + 63) / 64 * 64;
            void *base = sim_reserve(slab->stride * slab->capacity, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
            if (base == MAP_FAILED)
                return NULL;
            slab->base = base;
        }
        if (slab->used == slab->capacity)
            return NULL;
        object = (sim_object_t *)(void *)(slab->base + slab->stride * slab->used++);
    }
    memset(object, 0, slab->stride);
    object->id = sim_next_id();
    object->live = true;
    slab->live++;
    return object;
}

void sim_slab_give(sim_slab_t *slab, void *object) {
    sim_object_t *header = object;
    header->live = false;
    header->next_free = slab->free;
    slab->free = header;
    slab->live--;
}

bool sim_slab_has(const sim_slab_t *slab, const void *handle) {
    uintptr_t offset = (uintptr_t)handle - (uintptr_t)slab->base;
    if (!slab->base || offset >= slab->stride * slab->used || offset % slab->stride)
        return false;
    return ((const sim_object_t *)handle)->live;
}

void *sim_slab_next(const sim_slab_t *slab, size_t *at) {
    for (; *at < slab->used; ++*at) {
        sim_object_t *object = (sim_object_t *)(void *)(slab->base + slab->stride * *at);
        if (object->live) {
            ++*at;
            return object;
        }
    }
    return NULL;
}

/* Memory under a mapping: it goes when nothing uses it any more, and two addresses of the same
 * physical memory are the same memory.
 *
 * CUDA C++ Programming Guide, "Virtual Memory Management", "Freeing Memory" and "Virtual Aliasing
 * Support"; CUDA Driver API, "Virtual Memory Management", cuMemUnmap, which exhibits
 * synchronous behaviour for most use cases, but not for all. */
#include "litmus.h"

#define GRAIN ((size_t)2 << 20)

typedef struct {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at[2];
} mapped_t;

static void map(litmus_t *t, const mapped_t *m, int i) {
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, t->device[0]},
                              CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    MUST(cuMemMap(m->at[i], GRAIN, 0, m->handle, 0));
    MUST(cuMemSetAccess(m->at[i], GRAIN, &access, 1));
}

static mapped_t make(litmus_t *t) {
    mapped_t m;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, t->device[0]}};
    MUST(cuMemCreate(&m.handle, GRAIN, &prop, 0));
    for (int i = 0; i < 2; i++)
        MUST(cuMemAddressReserve(&m.at[i], GRAIN, 0, 0, 0));
    map(t, &m, 0);
    return m;
}

/* Ends the mappings: bit i of `mapped` is set if address i is mapped. */
static void end(litmus_t *t, const mapped_t *m, int mapped) {
    MUST(cuCtxSynchronize());
    for (int i = 0; i < 2; i++) {
        if (mapped & 1 << i)
            MUST(cuMemUnmap(m->at[i], GRAIN));
        MUST(cuMemAddressFree(m->at[i], GRAIN));
    }
    MUST(cuMemRelease(m->handle));
    litmus_new(t, t->free_stream[0]);
}

static void old(litmus_t *t, CUdeviceptr memory) {
    litmus_launch(t, 0, t->free_stream[0], memory, 1, true, false);
}

static void new (litmus_t *t, CUdeviceptr memory, CUstream stream) {
    litmus_launch(t, 0, stream, memory, 2, false, false);
}

static void synchronised(litmus_t *t) {
    mapped_t m = make(t);
    old(t, m.at[0]);
    MUST(cuCtxSynchronize());
    MUST(cuMemUnmap(m.at[0], GRAIN));
    end(t, &m, 0);
}

static void in_use(litmus_t *t) {
    mapped_t m = make(t);
    old(t, m.at[0]);
    MUST(cuMemUnmap(m.at[0], GRAIN));
    end(t, &m, 0);
}

/* The memory goes from one address to another, each with an owner of its own. */
static void move(litmus_t *t, int wait) {
    mapped_t m = make(t);
    litmus_own(t, m.at[0], 4096);
    old(t, m.at[0]);
    if (wait)
        MUST(cuStreamSynchronize(t->free_stream[0]));
    litmus_disown(t, m.at[0]);
    MUST(cuMemUnmap(m.at[0], GRAIN));
    map(t, &m, 1);
    litmus_own(t, m.at[1], 4096);
    new (t, m.at[1], t->free_stream[1]);
    litmus_disown(t, m.at[1]);
    end(t, &m, 2);
}

static void moved(litmus_t *t) {
    move(t, 1);
}

static void moved_in_use(litmus_t *t) {
    move(t, 0);
}

/* One piece of memory at two addresses, one owner after the other. */
static void hand_on(litmus_t *t, CUstream stream) {
    mapped_t m = make(t);
    map(t, &m, 1);
    litmus_own(t, m.at[0], 4096);
    old(t, m.at[0]);
    litmus_disown(t, m.at[0]);
    litmus_own(t, m.at[1], 4096);
    new (t, m.at[1], stream);
    litmus_disown(t, m.at[1]);
    end(t, &m, 3);
}

static void in_order(litmus_t *t) {
    hand_on(t, t->free_stream[0]);
}

static void beside(litmus_t *t) {
    hand_on(t, t->free_stream[1]);
}

static void at_once(litmus_t *t) {
    mapped_t m = make(t);
    map(t, &m, 1);
    litmus_own(t, m.at[0], 4096);
    litmus_own(t, m.at[1] + 2048, 4096);
    litmus_disown(t, m.at[0]);
    litmus_disown(t, m.at[1] + 2048);
    end(t, &m, 3);
}

static void different_parts(litmus_t *t) {
    mapped_t m = make(t);
    map(t, &m, 1);
    litmus_own(t, m.at[0], 4096);
    litmus_own(t, m.at[1] + 4096, 4096);
    old(t, m.at[0]);
    new (t, m.at[1] + 4096, t->free_stream[1]);
    litmus_disown(t, m.at[0]);
    litmus_disown(t, m.at[1] + 4096);
    end(t, &m, 3);
}

/* The driver knows the owner by the memory, whatever the address. */
static void one_owner(litmus_t *t) {
    mapped_t m = make(t);
    map(t, &m, 1);
    old(t, m.at[0]);
    new (t, m.at[1], t->free_stream[1]);
    end(t, &m, 3);
}

/* Taking one address away leaves the other. */
static void other_address_in_use(litmus_t *t) {
    mapped_t m = make(t);
    map(t, &m, 1);
    old(t, m.at[0]);
    MUST(cuMemUnmap(m.at[1], GRAIN));
    end(t, &m, 1);
}

LITMUS_CASES({"unmapped after a synchronisation", synchronised, ORDERED | DIRECT},
             {"unmapped in use", in_use, RACY | DIRECT},
             {"moved after a synchronisation", moved, ORDERED | DIRECT},
             {"moved in use", moved_in_use, RACY | DIRECT},
             {"two addresses, in order", in_order, ORDERED | DIRECT},
             {"two addresses, beside each other", beside, RACY | DIRECT},
             {"two addresses, two owners at once", at_once, RACY | DIRECT},
             {"two addresses, different parts", different_parts, ORDERED | DIRECT},
             {"two addresses, one owner", one_owner, ORDERED | DIRECT},
             {"the other address in use", other_address_in_use, ORDERED | DIRECT})

/* Libraries identify memory that they opened or registered by an address and its BUFFER_ID. The
 * test churns blocks at random. A stale hit takes a block for an earlier one, and would reach
 * another owner's memory or pass the block's end.
 *
 * usage: caches        Runs without the library or under it. Exit status 0: no stale hit. */
#include <stdio.h>
#include <stdlib.h>

#include "harness.h"

enum { STEPS = 20000, LIVE = 48, ENTRIES = 4096 };

static uint64_t state = 88172645463325252u;

static uint64_t draw(uint64_t n) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % n;
}

/* A block of the program; `lifetime` is the test's own number for it. */
typedef struct {
    CUdeviceptr base;
    size_t size;
    uint64_t lifetime;
    bool async;
} block_t;

static block_t live[LIVE];
static unsigned lives;
static uint64_t lifetimes;
static CUstream stream;

static void take(void) {
    /* Few sizes, so that addresses come back, whole and in other sizes. */
    static const size_t sizes[] = {512, 1000, 4096, 8192, 65536, 70000, 1 << 20, 3 << 20};
    block_t *block = &live[lives++];
    *block = (block_t){.size = sizes[draw(sizeof sizes / sizeof *sizes)],
                       .lifetime = ++lifetimes,
                       .async = draw(4) == 0};
    MUST(block->async ? cuMemAllocAsync(&block->base, block->size, stream)
                      : cuMemAlloc_v2(&block->base, block->size));
}

static void give(void) {
    unsigned i = (unsigned)draw(lives);
    block_t block = live[i];
    live[i] = live[--lives];
    MUST(block.async ? cuMemFreeAsync(block.base, stream) : cuMemFree_v2(block.base));
}

static CUresult id_of(CUdeviceptr address, unsigned long long *id) {
    return cuPointerGetAttribute(id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address);
}

typedef struct {
    CUdeviceptr base;
    size_t size;
    unsigned long long id;
    uint64_t lifetime;
} entry_t;

typedef struct {
    const char *name;
    entry_t entry[ENTRIES];
    unsigned entries;
    unsigned long hits, misses, stale;
} cache_t;

static void drop(cache_t *cache, unsigned i) {
    cache->entry[i] = cache->entry[--cache->entries];
}

static bool overlap(const entry_t *a, const entry_t *b) {
    return a->base < b->base + b->size && b->base < a->base + a->size;
}

static void judge(cache_t *cache, const entry_t *hit, const entry_t *wanted) {
    cache->hits++;
    if (hit->lifetime != wanted->lifetime ||
        wanted->base + wanted->size > hit->base + hit->size) {
        if (!cache->stale++)
            fprintf(stderr, "%s: %zu bytes at %llx reached by what was known of %zu at %llx\n",
                    cache->name, wanted->size, (unsigned long long)wanted->base, hit->size,
                    (unsigned long long)hit->base);
    }
}

static void put(cache_t *cache, const entry_t *wanted) {
    cache->misses++;
    if (cache->entries == ENTRIES)
        drop(cache, (unsigned)draw(ENTRIES));
    cache->entry[cache->entries++] = *wanted;
}

/* uct_cuda_ipc_map_memhandle (cuda_ipc_cache.c): the region around the base hits if its id is
 * equal. If not, this region and all that overlap are closed, and the new one is opened. */
static void ucx(cache_t *cache, const entry_t *wanted) {
    for (unsigned i = 0; i < cache->entries; i++) {
        const entry_t *entry = &cache->entry[i];
        if (wanted->base - entry->base >= entry->size)
            continue;
        if (entry->id == wanted->id) {
            judge(cache, entry, wanted);
            return;
        }
        break;
    }
    for (unsigned i = 0; i < cache->entries;)
        if (overlap(&cache->entry[i], wanted))
            drop(cache, i);
        else
            i++;
    put(cache, wanted);
}

/* MPIDI_GPU ipc handle caches: look up by base alone, and renew the entry if the id has changed. */
static void mpich(cache_t *cache, const entry_t *wanted) {
    for (unsigned i = 0; i < cache->entries; i++) {
        const entry_t *entry = &cache->entry[i];
        if (entry->base != wanted->base)
            continue;
        if (entry->id == wanted->id) {
            judge(cache, entry, wanted);
            return;
        }
        drop(cache, i);
        break;
    }
    put(cache, wanted);
}

/* cuda_mm_valid (cuda_mem_monitor.c): reads the id at the registered address again. The
 * registration is valid while the id is unchanged. */
static void libfabric(cache_t *cache, const entry_t *wanted) {
    for (unsigned i = 0; i < cache->entries;) {
        const entry_t *entry = &cache->entry[i];
        unsigned long long now = 0;
        if (!overlap(entry, wanted)) {
            i++;
            continue;
        }
        if (id_of(entry->base, &now) != CUDA_SUCCESS || now != entry->id) {
            drop(cache, i);
            continue;
        }
        judge(cache, entry, wanted);
        return;
    }
    put(cache, wanted);
}

static cache_t caches[3] = {{.name = "UCX"}, {.name = "MPICH"}, {.name = "libfabric"}};

static void send(const block_t *block) {
    entry_t wanted = {.lifetime = block->lifetime};
    CUdeviceptr inside = block->base + draw(block->size);
    MUST(cuMemGetAddressRange_v2(&wanted.base, &wanted.size, inside));
    MUST(id_of(inside, &wanted.id));
    EXPECT(wanted.base == block->base && wanted.size == block->size);
    ucx(&caches[0], &wanted);
    mpich(&caches[1], &wanted);
    libfabric(&caches[2], &wanted);
}

int main(void) {
    unsigned long stale = 0;
    test_device(0);
    stream = test_stream();
    for (unsigned step = 0; step < STEPS; step++) {
        uint64_t dice = draw(10);
        if (dice < 3 && lives < LIVE)
            take();
        else if (dice < 6 && lives)
            give();
        else if (lives)
            send(&live[draw(lives)]);
    }
    for (unsigned i = 0; i < 3; i++) {
        stale += caches[i].stale;
        printf("%s: %lu hits, %lu misses, %lu stale\n", caches[i].name, caches[i].hits,
               caches[i].misses, caches[i].stale);
        NEED(caches[i].hits > 500 && caches[i].misses > 500);
    }
    return stale ? TEST_WRONG : TEST_GOOD;
}

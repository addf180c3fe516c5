/* Caches of opened mappings, as importing libraries keep them, over random allocations of the
 * exporter. The contents differ if a cached mapping no longer belongs to the block. */
#include <stdlib.h>
#include <string.h>

#include "actor.h"
#include "cases.h"
#include "harness.h"

#define KIB 1024ull

enum { BLOCKS = 24, TURNS = 400, CACHED = 64 };

typedef struct {
    uint64_t base, size;
    uint32_t word;
} block_t;

/* Message of a transfer to the other side. */
typedef struct {
    handle_t handle;
    uint64_t base, size, id;
    uint32_t word;
} offer_t;

typedef struct {
    offer_t offer;
    uint64_t view; /* 0: the entry is free */
} mapping_t;

static actor_t *exporter, *importer;
static block_t blocks[BLOCKS];
static mapping_t cache[CACHED];
static uint64_t chance = 1;
static unsigned hits;

static unsigned below(unsigned n) {
    chance = chance * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(chance >> 33) % n;
}

/* Frees one block and allocates another one, often at its address and of another size. */
static void churn(uint32_t word) {
    static const uint64_t sizes[] = {512, 2 * KIB, 4 * KIB, 40 * KIB, 300 * KIB, 2048 * KIB};
    block_t *block = &blocks[below(BLOCKS)];
    if (block->base)
        GOOD(exporter, DO_FREE, block->base);
    *block = (block_t){.size = sizes[below(6)], .word = word};
    block->base = memory_of(exporter, block->size, word);
}

/* Makes the offer like a library: it queries base and size by an address inside the block. */
static offer_t offer_of(const block_t *block) {
    answer_t range = ASK(exporter, DO_RANGE, block->base + block->size / 2);
    MUST(range.result);
    EXPECT(range.address == block->base && range.value == block->size);
    offer_t offer = {.base = range.address, .size = range.value, .word = block->word};
    offer.id = VALUE(exporter, DO_ID, block->base + 4);
    offer.handle = handle_of(exporter, offer.base);
    return offer;
}

static void forget(mapping_t *mapping) {
    GIVES(RESULT(importer, DO_CLOSE, mapping->view), CUDA_SUCCESS);
    mapping->view = 0;
}

static uint64_t enter(const offer_t *offer) {
    unsigned at = 0;
    while (at < CACHED && cache[at].view)
        at++;
    if (at == CACHED)
        forget(&cache[at = below(CACHED)]);
    cache[at].view = open_of(importer, offer->handle);
    cache[at].offer = *offer;
    return cache[at].view;
}

typedef uint64_t find_fn(const offer_t *offer);

static void transfers(find_fn *find) {
    exporter = actor_start(AS_CASE);
    importer = actor_start(AS_CASE);
    for (uint32_t turn = 1; turn <= TURNS; turn++) {
        churn(turn);
        const block_t *block = &blocks[below(BLOCKS)];
        if (!block->base)
            continue;
        offer_t offer = offer_of(block);
        EXPECT(reads(importer, find(&offer), offer.size, offer.word));
    }
    EXPECT(hits > TURNS / 20); /* otherwise the test shows nothing */
    for (unsigned i = 0; i < CACHED; i++)
        if (cache[i].view)
            forget(&cache[i]);
    clean_end(exporter, importer);
}

/* Models uct_cuda_ipc_cache: it searches overlapping regions by address. An equal id is a hit
 * for any size, another id drops the region. */
static uint64_t find_ucx(const offer_t *offer) {
    for (unsigned i = 0; i < CACHED; i++) {
        mapping_t *old = &cache[i];
        if (!old->view || old->offer.base >= offer->base + offer->size ||
            offer->base >= old->offer.base + old->offer.size)
            continue;
        if (old->offer.id == offer->id) {
            EXPECT(old->offer.word == offer->word); /* one ID belongs to one lifetime */
            hits++;
            return old->view + (offer->base - old->offer.base);
        }
        forget(old);
    }
    return enter(offer);
}

void case_cache_ucx(void) {
    transfers(find_ucx);
}

/* Models MPL and libfabric: they search by base address, and compare the ID. */
static uint64_t find_id(const offer_t *offer) {
    for (unsigned i = 0; i < CACHED; i++)
        if (cache[i].view && cache[i].offer.base == offer->base) {
            if (cache[i].offer.id == offer->id) {
                EXPECT(cache[i].offer.word == offer->word);
                hits++;
                return cache[i].view;
            }
            forget(&cache[i]);
        }
    return enter(offer);
}

void case_cache_id(void) {
    transfers(find_id);
}

/* Models PyTorch: it compares only the bytes of the handle. */
static uint64_t find_handle(const offer_t *offer) {
    for (unsigned i = 0; i < CACHED; i++)
        if (cache[i].view &&
            !memcmp(&cache[i].offer.handle, &offer->handle, sizeof offer->handle)) {
            EXPECT(cache[i].offer.word == offer->word);
            hits++;
            return cache[i].view;
        }
    return enter(offer);
}

void case_cache_handle(void) {
    transfers(find_handle);
}

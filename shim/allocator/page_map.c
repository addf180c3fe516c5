/* The radix tree of page_map.h. */
#include "allocator/page_map.h"

#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>

enum {
    NODE_BITS = 14,
    ROOT_BITS = 14,
    NODE_SIZE = 1 << NODE_BITS,
    ROOT_SIZE = 1 << ROOT_BITS,
    LEAF_SIZE = 1 << (AC_PAGE_BITS - AC_GRANULE_BITS),
    WORDS = LEAF_SIZE / 64
};
#define ADDRESS_LIMIT ((uint64_t)1 << (ROOT_BITS + NODE_BITS + AC_PAGE_BITS))

typedef struct {
    _Atomic uint64_t starts[WORDS]; /* bit set: a block starts there; for searches backwards */
    struct ac_block *_Atomic slot[LEAF_SIZE];
} leaf_t;

typedef struct {
    leaf_t *_Atomic leaf[NODE_SIZE];
    struct ac_arena *_Atomic owner[NODE_SIZE];
} node_t;

static node_t *_Atomic root[ROOT_SIZE];

/* Zeroed host memory that is never given back; NULL when short. */
static void *map_zeroed(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static node_t *node_of(uint64_t address) {
    if (address >= ADDRESS_LIMIT)
        return NULL;
    return atomic_load_explicit(&root[address >> (AC_PAGE_BITS + NODE_BITS)],
                                memory_order_acquire);
}

static unsigned page_of(uint64_t address) {
    return (unsigned)(address >> AC_PAGE_BITS) & (NODE_SIZE - 1);
}

static unsigned slot_of(uint64_t address) {
    return (unsigned)(address >> AC_GRANULE_BITS) & (LEAF_SIZE - 1);
}

static leaf_t *leaf_of(uint64_t address) {
    node_t *node = node_of(address);
    return node ? atomic_load_explicit(&node->leaf[page_of(address)], memory_order_acquire)
                : NULL;
}

/* Two allocators may build the same node at once: the loser's memory is unmapped. */
static void *build(void *_Atomic *place, size_t bytes) {
    void *seen = atomic_load_explicit(place, memory_order_acquire);
    if (seen)
        return seen;
    void *fresh = map_zeroed(bytes);
    if (!fresh)
        return NULL;
    if (atomic_compare_exchange_strong(place, &seen, fresh))
        return fresh;
    munmap(fresh, bytes);
    return seen;
}

bool ac_page_map_cover(uint64_t address, uint64_t bytes, struct ac_arena *owner) {
    if (address >= ADDRESS_LIMIT || bytes > ADDRESS_LIMIT - address)
        return false;
    for (uint64_t page = address; page < address + bytes; page += AC_SEGMENT_ALIGN) {
        node_t *node =
            build((void *_Atomic *)&root[page >> (AC_PAGE_BITS + NODE_BITS)], sizeof *node);
        if (!node || !build((void *_Atomic *)&node->leaf[page_of(page)], sizeof(leaf_t))) {
            ac_page_map_uncover(address, page - address);
            return false;
        }
        atomic_store_explicit(&node->owner[page_of(page)], owner, memory_order_release);
    }
    return true;
}

void ac_page_map_uncover(uint64_t address, uint64_t bytes) {
    for (uint64_t page = address; page < address + bytes; page += AC_SEGMENT_ALIGN)
        atomic_store_explicit(&node_of(page)->owner[page_of(page)], NULL, memory_order_release);
}

void ac_page_map_set(uint64_t address, struct ac_block *block) {
    leaf_t *leaf = leaf_of(address);
    unsigned slot = slot_of(address);
    _Atomic uint64_t *word = &leaf->starts[slot / 64];
    uint64_t bit = (uint64_t)1 << (slot % 64);
    uint64_t bits = atomic_load_explicit(word, memory_order_relaxed);
    atomic_store_explicit(word, block ? bits | bit : bits & ~bit, memory_order_relaxed);
    atomic_store_explicit(&leaf->slot[slot], block, memory_order_release);
}

struct ac_block *ac_page_map_get(uint64_t address) {
    leaf_t *leaf = address % AC_GRANULE ? NULL : leaf_of(address);
    return leaf ? atomic_load_explicit(&leaf->slot[slot_of(address)], memory_order_acquire)
                : NULL;
}

struct ac_arena *ac_page_map_owner(uint64_t address) {
    node_t *node = node_of(address);
    return node ? atomic_load_explicit(&node->owner[page_of(address)], memory_order_acquire)
                : NULL;
}

struct ac_block *ac_page_map_find(uint64_t address) {
    unsigned slot = slot_of(address);
    struct ac_arena *owner = ac_page_map_owner(address);
    while (owner && ac_page_map_owner(address) == owner) {
        leaf_t *leaf = leaf_of(address);
        for (int word = (int)(slot / 64); word >= 0; word--) {
            uint64_t bits = atomic_load_explicit(&leaf->starts[word], memory_order_relaxed);
            if (word == (int)(slot / 64) && slot % 64 != 63)
                bits &= ((uint64_t)2 << (slot % 64)) - 1;
            if (bits)
                return atomic_load_explicit(&leaf->slot[word * 64 + 63 - __builtin_clzll(bits)],
                                            memory_order_acquire);
        }
        uint64_t page = address & ~(AC_SEGMENT_ALIGN - 1);
        if (page < AC_SEGMENT_ALIGN)
            break;
        address = page - 1;
        slot = LEAF_SIZE - 1;
    }
    return NULL;
}

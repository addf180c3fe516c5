/* The radix tree of page_map.h. */
#include "allocator/page_map.h"

#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>

#include "allocator/carve.h"

enum {
    NODE_BITS = 14,
    ROOT_BITS = 14,
    CHUNK_BITS = 16,
    NODE_SIZE = 1 << NODE_BITS,
    ROOT_SIZE = 1 << ROOT_BITS,
    LEAF_SIZE = 1 << (AC_PAGE_BITS - CHUNK_BITS),
    TABLE_SIZE = 1 << (CHUNK_BITS - AC_GRANULE_BITS)
};
#define ADDRESS_LIMIT ((uint64_t)1 << (ROOT_BITS + NODE_BITS + AC_PAGE_BITS))

/* The starts of one chunk that has, or had, more than two of them. */
typedef struct {
    _Atomic uint64_t starts[TABLE_SIZE / 64]; /* bit set: a block starts there */
    struct ac_block *_Atomic slot[TABLE_SIZE];
} table_t;

/* A word is 0, a start (the record's address, seven bits of place in the chunk, and 1), or in
 * word[0] a table (its address and a zero byte).  With a table word[1] means nothing, but keeps
 * what it held for readers that saw word[0] before. */
typedef struct {
    _Atomic uint64_t word[2];
} chunk_t;

typedef struct {
    chunk_t chunk[LEAF_SIZE];
    _Atomic uint32_t filled; /* bit set: a block starts in the chunk; for searches backwards */
} leaf_t;

typedef struct {
    struct ac_arena *_Atomic owner;
    leaf_t *_Atomic leaf; /* made for the first start */
} page_t;

typedef struct {
    page_t page[NODE_SIZE];
} node_t;

static node_t *_Atomic root[ROOT_SIZE];

/* --- words --- */

static unsigned key_of(uint64_t address) {
    unsigned place = (unsigned)(address >> AC_GRANULE_BITS) & (TABLE_SIZE - 1);
    return place << 1 | 1;
}

static uint64_t word_of(const void *record) {
    return (uint64_t)(uintptr_t)record << 8; /* no process has memory at 2^56 and above */
}

static void *record_in(uint64_t word) {
    return (void *)(uintptr_t)(word >> 8);
}

static bool has_key(uint64_t word, unsigned key) {
    return (word & 255) == key;
}

static bool is_table(uint64_t word) {
    return word && !(word & 1);
}

static uint64_t load(const _Atomic uint64_t *word) {
    return atomic_load_explicit(word, memory_order_acquire);
}

/* --- the way down --- */

static page_t *page_of(uint64_t address) {
    if (address >= ADDRESS_LIMIT)
        return NULL;
    node_t *node =
        atomic_load_explicit(&root[address >> (AC_PAGE_BITS + NODE_BITS)], memory_order_acquire);
    return node ? &node->page[(address >> AC_PAGE_BITS) & (NODE_SIZE - 1)] : NULL;
}

static leaf_t *leaf_in(const page_t *page) {
    return atomic_load_explicit(&page->leaf, memory_order_acquire);
}

static struct ac_arena *owner_in(const page_t *page) {
    return atomic_load_explicit(&page->owner, memory_order_acquire);
}

static unsigned chunk_of(uint64_t address) {
    return (unsigned)(address >> CHUNK_BITS) & (LEAF_SIZE - 1);
}

static struct ac_block *slot_in(uint64_t word, unsigned key) {
    const table_t *table = record_in(word);
    return atomic_load_explicit(&table->slot[key >> 1], memory_order_acquire);
}

/* What starts there; `address` is a multiple of the granule. */
static struct ac_block *start_in(const leaf_t *leaf, uint64_t address) {
    const chunk_t *chunk = &leaf->chunk[chunk_of(address)];
    unsigned key = key_of(address);
    uint64_t word = load(&chunk->word[0]);
    if (is_table(word))
        return slot_in(word, key);
    if (!has_key(word, key))
        word = load(&chunk->word[1]);
    return has_key(word, key) ? record_in(word) : NULL;
}

struct ac_block *ac_page_map_get(uint64_t address) {
    const page_t *page = address % AC_GRANULE ? NULL : page_of(address);
    const leaf_t *leaf = page ? leaf_in(page) : NULL;
    return leaf ? start_in(leaf, address) : NULL;
}

struct ac_block *ac_page_map_look(uint64_t address, const struct ac_arena *owner) {
    const page_t *page = address % AC_GRANULE ? NULL : page_of(address);
    if (!page || owner_in(page) != owner)
        return NULL;
    const leaf_t *leaf = leaf_in(page);
    return leaf ? start_in(leaf, address) : NULL;
}

struct ac_arena *ac_page_map_owner(uint64_t address) {
    const page_t *page = page_of(address);
    return page ? owner_in(page) : NULL;
}

/* --- pages --- */

/* Two allocators may build the same node at once: the loser's memory is unmapped. */
static bool have_node(node_t *_Atomic *place) {
    node_t *seen = atomic_load_explicit(place, memory_order_acquire);
    if (seen)
        return true;
    void *fresh = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fresh == MAP_FAILED)
        return false;
    if (!atomic_compare_exchange_strong(place, &seen, fresh))
        munmap(fresh, sizeof *seen);
    return true;
}

bool ac_page_map_cover(uint64_t address, uint64_t bytes, struct ac_arena *owner) {
    if (address >= ADDRESS_LIMIT || bytes > ADDRESS_LIMIT - address)
        return false;
    for (uint64_t at = address; at < address + bytes; at += AC_SEGMENT_ALIGN) {
        if (!have_node(&root[at >> (AC_PAGE_BITS + NODE_BITS)])) {
            ac_page_map_uncover(address, at - address);
            return false;
        }
        atomic_store_explicit(&page_of(at)->owner, owner, memory_order_release);
    }
    return true;
}

void ac_page_map_uncover(uint64_t address, uint64_t bytes) {
    for (uint64_t at = address; at < address + bytes; at += AC_SEGMENT_ALIGN)
        atomic_store_explicit(&page_of(at)->owner, NULL, memory_order_release);
}

/* --- starts --- */

static void set_slot(table_t *table, unsigned key, struct ac_block *block) {
    unsigned place = key >> 1;
    _Atomic uint64_t *word = &table->starts[place / 64];
    uint64_t bit = (uint64_t)1 << (place % 64);
    uint64_t bits = atomic_load_explicit(word, memory_order_relaxed);
    atomic_store_explicit(word, block ? bits | bit : bits & ~bit, memory_order_relaxed);
    atomic_store_explicit(&table->slot[place], block, memory_order_release);
}

/* Both words are taken: a table with what they hold. */
static table_t *to_table(chunk_t *chunk) {
    table_t *table = ac_carve(sizeof *table);
    for (int i = 0; table && i < 2; i++) {
        uint64_t word = load(&chunk->word[i]);
        set_slot(table, word & 255, record_in(word));
    }
    if (table)
        atomic_store_explicit(&chunk->word[0], word_of(table), memory_order_release);
    return table;
}

bool ac_page_map_set(uint64_t address, struct ac_block *block) {
    page_t *page = page_of(address);
    leaf_t *leaf = leaf_in(page);
    if (!leaf) {
        leaf = ac_carve(sizeof *leaf);
        if (!leaf)
            return false;
        atomic_store_explicit(&page->leaf, leaf, memory_order_release);
    }
    unsigned at = chunk_of(address), key = key_of(address);
    chunk_t *chunk = &leaf->chunk[at];
    uint64_t first = load(&chunk->word[0]);
    if (is_table(first)) {
        set_slot(record_in(first), key, block);
    } else if (!first || !load(&chunk->word[1])) {
        atomic_store_explicit(&chunk->word[first != 0], word_of(block) | key,
                              memory_order_release);
    } else {
        table_t *table = to_table(chunk);
        if (!table)
            return false;
        set_slot(table, key, block);
    }
    uint32_t filled = atomic_load_explicit(&leaf->filled, memory_order_relaxed);
    atomic_store_explicit(&leaf->filled, filled | (uint32_t)1 << at, memory_order_relaxed);
    return true;
}

void ac_page_map_clear(uint64_t address) {
    leaf_t *leaf = leaf_in(page_of(address));
    unsigned at = chunk_of(address), key = key_of(address);
    chunk_t *chunk = &leaf->chunk[at];
    uint64_t first = load(&chunk->word[0]);
    bool empty;
    if (is_table(first)) {
        table_t *table = record_in(first);
        set_slot(table, key, NULL);
        empty = !(load(&table->starts[0]) | load(&table->starts[1]));
    } else {
        unsigned own = !has_key(first, key);
        atomic_store_explicit(&chunk->word[own], 0, memory_order_release);
        empty = !load(&chunk->word[!own]);
    }
    if (empty) {
        uint32_t filled = atomic_load_explicit(&leaf->filled, memory_order_relaxed);
        atomic_store_explicit(&leaf->filled, filled & ~((uint32_t)1 << at), memory_order_relaxed);
    }
}

/* --- searching backwards --- */

/* The last start at or before the place of `key`. */
static struct ac_block *last_in(const chunk_t *chunk, unsigned key) {
    uint64_t first = load(&chunk->word[0]), second = load(&chunk->word[1]);
    if (!is_table(first)) {
        /* Places compare as the low bytes do; an empty word has none. */
        bool one = first && (first & 255) <= key, other = second && (second & 255) <= key;
        if (one && other && (second & 255) > (first & 255))
            one = false;
        return one ? record_in(first) : other ? record_in(second) : NULL;
    }
    const table_t *table = record_in(first);
    unsigned place = key >> 1;
    for (int word = (int)(place / 64); word >= 0; word--) {
        uint64_t bits = atomic_load_explicit(&table->starts[word], memory_order_relaxed);
        if (word == (int)(place / 64) && place % 64 != 63)
            bits &= ((uint64_t)2 << (place % 64)) - 1;
        if (bits)
            return atomic_load_explicit(&table->slot[word * 64 + 63 - __builtin_clzll(bits)],
                                        memory_order_acquire);
    }
    return NULL;
}

/* The last start in the leaf before chunk `at`. */
static struct ac_block *last_before(const leaf_t *leaf, unsigned at) {
    uint32_t filled = atomic_load_explicit(&leaf->filled, memory_order_relaxed);
    if (at < LEAF_SIZE)
        filled &= ((uint32_t)1 << at) - 1;
    return filled ? last_in(&leaf->chunk[31 - __builtin_clz(filled)], 255) : NULL;
}

struct ac_block *ac_page_map_find(uint64_t address) {
    const page_t *page = page_of(address);
    struct ac_arena *owner = page ? owner_in(page) : NULL;
    if (!owner)
        return NULL;
    const leaf_t *leaf = leaf_in(page);
    unsigned at = chunk_of(address);
    struct ac_block *block = leaf ? last_in(&leaf->chunk[at], key_of(address)) : NULL;
    if (!block && leaf)
        block = last_before(leaf, at);
    uint64_t start = address & ~(AC_SEGMENT_ALIGN - 1);
    while (!block && start) {
        start -= AC_SEGMENT_ALIGN;
        page = page_of(start);
        if (!page || owner_in(page) != owner)
            break;
        leaf = leaf_in(page);
        block = leaf ? last_before(leaf, LEAF_SIZE) : NULL;
    }
    return block;
}

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

/* A word is 0, a start (the record's address, its granule in the page, and 1), or in word[0] of a
 * chunk a table (its address and zeros).  With a table word[1] means nothing, but keeps what it
 * held for readers that saw word[0] before. */
typedef struct {
    _Atomic uint64_t word[2];
} chunk_t;

typedef struct {
    chunk_t chunk[LEAF_SIZE];
    _Atomic uint32_t filled; /* bit set: a block starts in the chunk; for searches backwards */
} leaf_t;

/* Half a cache line: for large blocks, which seldom share a page with two others, this is all. */
typedef struct {
    struct ac_arena *_Atomic owner;
    _Atomic uint64_t word[2];
    leaf_t *_Atomic leaf; /* made for the third start; what came before stays in `word` */
} page_t;

typedef struct {
    page_t page[NODE_SIZE];
} node_t;

static node_t *_Atomic root[ROOT_SIZE];

/* --- words --- */

enum { KEY_BITS = AC_PAGE_BITS - AC_GRANULE_BITS + 1 };
#define KEY_MASK (((uint64_t)1 << KEY_BITS) - 1)

static uint64_t key_of(uint64_t address) {
    return (address >> (AC_GRANULE_BITS - 1) & KEY_MASK) | 1;
}

/* The records lie below 2^51, like all that is mapped without asking for a higher place. */
static uint64_t word_of(const void *record) {
    return (uint64_t)(uintptr_t)record << KEY_BITS;
}

static void *record_in(uint64_t word) {
    return (void *)(uintptr_t)(word >> KEY_BITS);
}

static bool has_key(uint64_t word, uint64_t key) {
    return (word & KEY_MASK) == key;
}

static bool is_table(uint64_t word) {
    return word && !(word & 1);
}

static unsigned place_of(uint64_t key) {
    return (unsigned)(key >> 1) & (TABLE_SIZE - 1);
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

static struct ac_block *load_slot(const table_t *table, unsigned place) {
    return atomic_load_explicit(&table->slot[place], memory_order_acquire);
}

static struct ac_block *start_in_leaf(const leaf_t *leaf, uint64_t address) {
    const chunk_t *chunk = &leaf->chunk[chunk_of(address)];
    uint64_t key = key_of(address), word = load(&chunk->word[0]);
    if (is_table(word))
        return load_slot(record_in(word), place_of(key));
    if (!has_key(word, key))
        word = load(&chunk->word[1]);
    return has_key(word, key) ? record_in(word) : NULL;
}

/* What starts there; `address` is a multiple of the granule. */
static struct ac_block *start_in(const page_t *page, uint64_t address) {
    uint64_t key = key_of(address), word = load(&page->word[0]);
    if (has_key(word, key))
        return record_in(word);
    word = load(&page->word[1]);
    if (has_key(word, key))
        return record_in(word);
    const leaf_t *leaf = leaf_in(page);
    return leaf ? start_in_leaf(leaf, address) : NULL;
}

struct ac_block *ac_page_map_get(uint64_t address) {
    const page_t *page = address % AC_GRANULE ? NULL : page_of(address);
    return page ? start_in(page, address) : NULL;
}

struct ac_block *ac_page_map_look(uint64_t address, const struct ac_arena *owner) {
    const page_t *page = address % AC_GRANULE ? NULL : page_of(address);
    return page && owner_in(page) == owner ? start_in(page, address) : NULL;
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

static void put(_Atomic uint64_t *word, uint64_t value) {
    atomic_store_explicit(word, value, memory_order_release);
}

static void set_slot(table_t *table, uint64_t key, struct ac_block *block) {
    unsigned place = place_of(key);
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
        set_slot(table, word & KEY_MASK, record_in(word));
    }
    if (table)
        put(&chunk->word[0], word_of(table));
    return table;
}

static bool set_in_leaf(leaf_t *leaf, uint64_t address, struct ac_block *block) {
    unsigned at = chunk_of(address);
    uint64_t key = key_of(address);
    chunk_t *chunk = &leaf->chunk[at];
    uint64_t first = load(&chunk->word[0]);
    if (is_table(first)) {
        set_slot(record_in(first), key, block);
    } else if (!first || !load(&chunk->word[1])) {
        put(&chunk->word[first != 0], word_of(block) | key);
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

bool ac_page_map_set(uint64_t address, struct ac_block *block) {
    page_t *page = page_of(address);
    for (int i = 0; i < 2; i++)
        if (!load(&page->word[i])) {
            put(&page->word[i], word_of(block) | key_of(address));
            return true;
        }
    leaf_t *leaf = leaf_in(page);
    if (!leaf) {
        leaf = ac_carve(sizeof *leaf);
        if (!leaf)
            return false;
        atomic_store_explicit(&page->leaf, leaf, memory_order_release);
    }
    return set_in_leaf(leaf, address, block);
}

static void clear_in_leaf(leaf_t *leaf, uint64_t address) {
    unsigned at = chunk_of(address);
    uint64_t key = key_of(address);
    chunk_t *chunk = &leaf->chunk[at];
    uint64_t first = load(&chunk->word[0]);
    bool empty;
    if (is_table(first)) {
        table_t *table = record_in(first);
        set_slot(table, key, NULL);
        empty = !(load(&table->starts[0]) | load(&table->starts[1]));
    } else {
        unsigned own = !has_key(first, key);
        put(&chunk->word[own], 0);
        empty = !load(&chunk->word[!own]);
    }
    if (empty) {
        uint32_t filled = atomic_load_explicit(&leaf->filled, memory_order_relaxed);
        atomic_store_explicit(&leaf->filled, filled & ~((uint32_t)1 << at), memory_order_relaxed);
    }
}

void ac_page_map_clear(uint64_t address) {
    page_t *page = page_of(address);
    uint64_t key = key_of(address);
    for (int i = 0; i < 2; i++)
        if (has_key(load(&page->word[i]), key)) {
            put(&page->word[i], 0);
            return;
        }
    clear_in_leaf(leaf_in(page), address);
}

/* --- searching backwards --- */

/* The later of two words that are starts no later than `key`; 0: neither. */
static uint64_t later(uint64_t word, uint64_t best, uint64_t key) {
    if (!word || (word & KEY_MASK) > key)
        return best;
    return best && (best & KEY_MASK) > (word & KEY_MASK) ? best : word;
}

/* The last start of the chunk up to `key`, as a word. */
static uint64_t last_in(const chunk_t *chunk, uint64_t key) {
    uint64_t first = load(&chunk->word[0]);
    if (!is_table(first))
        return later(first, later(load(&chunk->word[1]), 0, key), key);
    const table_t *table = record_in(first);
    unsigned place = place_of(key);
    for (int word = (int)(place / 64); word >= 0; word--) {
        uint64_t bits = atomic_load_explicit(&table->starts[word], memory_order_relaxed);
        if (word == (int)(place / 64) && place % 64 != 63)
            bits &= ((uint64_t)2 << (place % 64)) - 1;
        if (!bits)
            continue;
        unsigned found = (unsigned)word * 64 + 63 - (unsigned)__builtin_clzll(bits);
        uint64_t chunks = key & KEY_MASK & ~(uint64_t)(2 * TABLE_SIZE - 1);
        return word_of(load_slot(table, found)) | chunks | found << 1 | 1;
    }
    return 0;
}

/* The last start of the page up to `key`. */
static struct ac_block *last_of(const page_t *page, uint64_t key) {
    uint64_t best = later(load(&page->word[0]), later(load(&page->word[1]), 0, key), key);
    const leaf_t *leaf = leaf_in(page);
    if (leaf) {
        unsigned at = (unsigned)(key >> 1) / TABLE_SIZE;
        uint32_t filled = atomic_load_explicit(&leaf->filled, memory_order_relaxed);
        uint64_t found = last_in(&leaf->chunk[at], key);
        filled &= ((uint32_t)1 << at) - 1;
        if (!found && filled) {
            at = 31 - (unsigned)__builtin_clz(filled);
            found = last_in(&leaf->chunk[at], ((uint64_t)at + 1) * (2 * TABLE_SIZE) - 1);
        }
        best = later(found, best, key);
    }
    return record_in(best);
}

struct ac_block *ac_page_map_find(uint64_t address) {
    const page_t *page = page_of(address);
    struct ac_arena *owner = page ? owner_in(page) : NULL;
    if (!owner)
        return NULL;
    struct ac_block *block = last_of(page, key_of(address));
    uint64_t start = address & ~(AC_SEGMENT_ALIGN - 1);
    while (!block && start) {
        start -= AC_SEGMENT_ALIGN;
        page = page_of(start);
        if (!page || owner_in(page) != owner)
            break;
        block = last_of(page, KEY_MASK);
    }
    return block;
}

/* The radix tree of page_map.h. */
#include "allocator/space/page_map.h"

#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>

#include "allocator/carve.h"
#include "failpoint.h"

enum {
    NODE_BITS = AC_NODE_BITS,
    ROOT_BITS = AC_ROOT_BITS,
    NODE_SIZE = 1 << NODE_BITS,
    PLACE_BITS = AC_PAGE_BITS - AC_GRANULE_BITS, /* of a granule in its page */
    KEY_BITS = PLACE_BITS + 1,
    LINE_WORDS = 8,
    LINES_LOG = PLACE_BITS - 3, /* lines that have room for all places */
    LINES_STEP = 3,             /* the number of lines grows by this many powers of two */
    NEAR = 16                   /* places that a search visits one by one */
};
#define ADDRESS_LIMIT ((uint64_t)1 << (ROOT_BITS + NODE_BITS + AC_PAGE_BITS))
#define KEY_MASK      (((uint64_t)1 << KEY_BITS) - 1)

/* Records and lines lie below 2^51, like all that is mapped without asking for a higher place. */
enum { POINTER_BITS = 64 - KEY_BITS, ALIGN_BITS = 6 };
#define POINTER_MASK (((uint64_t)1 << POINTER_BITS) - ((uint64_t)1 << ALIGN_BITS))

/* A word is 0 or a start: the record's address, its place in the page, and 1. */
typedef struct {
    _Atomic uint64_t word[LINE_WORDS];
} line_t;
_Static_assert(sizeof(line_t) == 1 << ALIGN_BITS, "a line is not a cache line");
_Static_assert(LINES_LOG == 3 * LINES_STEP, "a page's tables are four: 64 bytes, 512, 4 KiB, 32 KiB");

enum { NEAR_WORDS = AC_NEAR_WORDS, NEAR_MASK = (1 << NEAR_WORDS) - 1 };
typedef struct ac_slab *_Atomic slab_place_t;
_Static_assert(NEAR_MASK < (int)AC_CARVE_ALIGN, "the bits of words are those of an address");
_Static_assert(sizeof(ac_page_t) == 64, "a page is not a cache line");

typedef struct ac_node node_t;
#define root ac_page_map_root
ac_node_place_t root[1 << ROOT_BITS];

/* --- words --- */

static uint64_t key_of(uint64_t address) {
    return (address >> (AC_GRANULE_BITS - 1) & KEY_MASK) | 1;
}

static uint64_t word_of(const void *record) {
    return (uint64_t)(uintptr_t)record << KEY_BITS;
}

static struct ac_block *record_in(uint64_t word) {
    return (struct ac_block *)(uintptr_t)(word >> KEY_BITS);
}

static bool has_key(uint64_t word, uint64_t key) {
    return (word & KEY_MASK) == key;
}

static uint64_t load(const _Atomic uint64_t *word) {
    return atomic_load_explicit(word, memory_order_acquire);
}

static void put(_Atomic uint64_t *word, uint64_t value) {
    atomic_store_explicit(word, value, memory_order_release);
}

/* --- lines --- */

static unsigned log_in(uint64_t lines) {
    return lines & 15;
}

static unsigned starts_in(uint64_t lines) {
    return (unsigned)(lines >> POINTER_BITS);
}

static line_t *first_in(uint64_t lines) {
    return (line_t *)(uintptr_t)(lines & POINTER_MASK);
}

/* Returns which of 2^log lines has a start.  The factor is odd, so that places map one to one and the most lines
 * have room for all.  It is near the golden section, so that runs of places spread. */
static unsigned line_of(uint64_t key, unsigned log) {
    unsigned mixed = (unsigned)(key >> 1) * 2531 & ((1 << PLACE_BITS) - 1);
    return mixed >> (PLACE_BITS - log);
}

/* --- the way down --- */

static ac_page_t *page_of(uint64_t address) {
    return ac_page_map_page(address);
}

static struct ac_arena *owner_in(const ac_page_t *page) {
    return atomic_load_explicit(&page->owner, memory_order_acquire);
}

/* Returns the page of a covered address. */
static ac_page_t *covered_page_of(uint64_t address) {
    node_t *node =
        atomic_load_explicit(&root[address >> (AC_PAGE_BITS + NODE_BITS)], memory_order_acquire);
    return &node->page[(address >> AC_PAGE_BITS) & (NODE_SIZE - 1)];
}

/* Returns the record of the start among some words, or NULL. The loop is unrolled.  A word that differs from the
 * key only in the bits of the record has it, and the difference is the record's pointer. */
__attribute__((always_inline)) static inline struct ac_block *
among(const _Atomic uint64_t *words, int n, uint64_t key) {
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) {
        uint64_t differs = load(&words[i]) ^ key;
        if (!(differs & KEY_MASK))
            return record_in(differs);
    }
    return NULL;
}

static struct ac_block *in_lines(uint64_t lines, uint64_t key) {
    return among(first_in(lines)[line_of(key, log_in(lines))].word, LINE_WORDS, key);
}

/* Returns the block that starts at `address`, a multiple of the granule.  If most starts of the page lie in lines,
 * the search begins with the lines. */
static struct ac_block *start_in(const ac_page_t *page, uint64_t address) {
    uint64_t key = key_of(address), lines = load(&page->lines);
    bool most = starts_in(lines) > NEAR_WORDS;
    struct ac_block *record = most ? in_lines(lines, key) : NULL;
    if (!record)
        record = among(page->word, NEAR_WORDS, key);
    return record || most || !lines ? record : in_lines(lines, key);
}

struct ac_block *ac_page_map_get(uint64_t address) {
    const ac_page_t *page = address % AC_GRANULE ? NULL : page_of(address);
    return page ? start_in(page, address) : NULL;
}

struct ac_block *ac_page_map_look(uint64_t address, const struct ac_arena *owner) {
    const ac_page_t *page = address % AC_GRANULE ? NULL : page_of(address);
    return page && owner_in(page) == owner ? start_in(page, address) : NULL;
}

/* --- pages --- */

/* Two allocators may build the same node at once: the loser's memory is unmapped. */
static bool have_node(ac_node_place_t *place) {
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

/* The first address of the next node. */
static uint64_t node_end(uint64_t address) {
    const uint64_t bytes = (uint64_t)NODE_SIZE << AC_PAGE_BITS;
    return (address / bytes + 1) * bytes;
}

/* Returns the end of the pages within the node; NULL if `first` is NULL, because there is no node. */
static ac_page_t *pages_behind(ac_page_t *first, uint64_t bytes) {
    return first ? first + (bytes >> AC_PAGE_BITS) : NULL;
}

static void set_owner(uint64_t from, uint64_t to, struct ac_arena *owner) {
    while (from < to) {
        uint64_t end = node_end(from) < to ? node_end(from) : to;
        ac_page_t *page = page_of(from), *last = pages_behind(page, end - from);
        for (; page != last; page++)
            atomic_store_explicit(&page->owner, owner, memory_order_release);
        from = end;
    }
}

bool ac_page_map_cover(uint64_t address, uint64_t bytes, struct ac_arena *owner) {
    if (address >= ADDRESS_LIMIT || bytes > ADDRESS_LIMIT - address)
        return false;
    for (uint64_t at = address; at < address + bytes; at = node_end(at))
        if (!have_node(&root[at >> (AC_PAGE_BITS + NODE_BITS)]))
            return false;
    set_owner(address, address + bytes, owner);
    return true;
}

bool ac_page_map_is_owned(uint64_t address, uint64_t bytes) {
    for (uint64_t from = address; from < address + bytes; from = node_end(from)) {
        uint64_t end = node_end(from) < address + bytes ? node_end(from) : address + bytes;
        ac_page_t *page = page_of(from), *last = pages_behind(page, end - from);
        for (; page != last; page++)
            if (owner_in(page))
                return true;
    }
    return false;
}

bool ac_page_map_cover_new(uint64_t address, uint64_t bytes, struct ac_arena *owner) {
    return !ac_page_map_is_owned(address, bytes) && ac_page_map_cover(address, bytes, owner);
}

void ac_page_map_uncover(uint64_t address, uint64_t bytes) {
    set_owner(address, address + bytes, NULL);
}

/* --- starts --- */

static bool put_in(line_t *line, uint64_t word) {
    for (int i = 0; i < LINE_WORDS; i++)
        if (!load(&line->word[i])) {
            put(&line->word[i], word);
            return true;
        }
    return false;
}

/* Returns true if the starts of the old lines, and one more, have room in 2^log lines. */
static bool fits(uint64_t old, uint64_t key, unsigned log) {
    uint8_t taken[1 << LINES_LOG] = {0};
    taken[line_of(key, log)]++;
    for (unsigned i = 0; old && i < (unsigned)LINE_WORDS << log_in(old); i++) {
        uint64_t word = load(&first_in(old)[i / LINE_WORDS].word[i % LINE_WORDS]);
        if (word && ++taken[line_of(word & KEY_MASK, log)] > LINE_WORDS)
            return false;
    }
    return true;
}

/* Makes more lines with the page's starts.  The old lines stay as they are: readers may be in them.  Returns 0 if
 * host memory is short. */
static uint64_t more_lines(ac_page_t *page, uint64_t key) {
    uint64_t old = load(&page->lines);
    unsigned log = old ? log_in(old) + LINES_STEP : 0;
    while (log < LINES_LOG && !fits(old, key, log))
        log += LINES_STEP;
    line_t *lines = ac_carve(sizeof *lines << log);
    if (!lines)
        return 0;
    uint64_t more = (uint64_t)starts_in(old) << POINTER_BITS | (uint64_t)(uintptr_t)lines | log;
    if (AC_FAILPOINT(lines_before_starts))
        put(&page->lines, more);
    AC_WINDOW(lines_grow);
    for (unsigned i = 0; old && i < (unsigned)LINE_WORDS << log_in(old); i++) {
        uint64_t word = load(&first_in(old)[i / LINE_WORDS].word[i % LINE_WORDS]);
        if (word)
            put_in(&lines[line_of(word & KEY_MASK, log)], word);
    }
    return more;
}

void ac_page_map_touch(uint64_t address) {
    __builtin_prefetch(page_of(address), 1);
}

ac_page_t *ac_page_map_touch_covered(uint64_t address) {
    ac_page_t *page = covered_page_of(address);
    __builtin_prefetch(page, 1);
    return page;
}

bool ac_page_map_set(uint64_t address, struct ac_block *block) {
    return ac_page_map_set_on(covered_page_of(address), address, block) != AC_PLACE_NONE;
}

/* Not inline, like the next one: it would save registers before the page itself is read. */
__attribute__((noinline)) static unsigned set_in_more_lines(ac_page_t *page, uint64_t key,
                                                            uint64_t word) {
    uint64_t lines = more_lines(page, key);
    if (!lines)
        return AC_PLACE_NONE;
    put_in(first_in(lines) + line_of(key, log_in(lines)), word);
    put(&page->lines, lines + ((uint64_t)1 << POINTER_BITS));
    return AC_PLACE_FAR;
}

__attribute__((noinline)) static unsigned set_in_lines(ac_page_t *page, uint64_t key,
                                                       uint64_t word) {
    uint64_t lines = load(&page->lines);
    if (!lines || !put_in(first_in(lines) + line_of(key, log_in(lines)), word))
        return set_in_more_lines(page, key, word);
    put(&page->lines, lines + ((uint64_t)1 << POINTER_BITS));
    return AC_PLACE_FAR;
}

unsigned ac_page_map_set_on(ac_page_t *page, uint64_t address, struct ac_block *block) {
    uint64_t key = key_of(address), word = word_of(block) | key;
    uint64_t slabs = load(&page->slabs), vacant = ~slabs & NEAR_MASK;
    if (!vacant)
        return set_in_lines(page, key, word);
    unsigned i = (unsigned)__builtin_ctzll(vacant);
    put(&page->word[i], word);
    put(&page->slabs, slabs | (vacant & -vacant));
    return i;
}

static bool clear_near(ac_page_t *page, unsigned i, uint64_t key) {
    bool found = has_key(load(&page->word[i]), key);
    if (found) {
        put(&page->word[i], 0);
        put(&page->slabs, load(&page->slabs) & ~((uint64_t)1 << i));
    }
    return found;
}

__attribute__((noinline)) static bool clear_in_lines(ac_page_t *page, uint64_t key) {
    uint64_t lines = load(&page->lines);
    line_t *line = first_in(lines) + line_of(key, log_in(lines));
    for (int i = 0; starts_in(lines) && i < LINE_WORDS; i++)
        if (has_key(load(&line->word[i]), key)) {
            put(&line->word[i], 0);
            put(&page->lines, lines - ((uint64_t)1 << POINTER_BITS));
            return true;
        }
    return false;
}

void ac_page_map_clear(uint64_t address) {
    ac_page_t *page = covered_page_of(address);
    uint64_t key = key_of(address);
    for (unsigned i = 0; i < NEAR_WORDS; i++)
        if (clear_near(page, i, key))
            return;
    clear_in_lines(page, key);
}

void ac_page_map_clear_at(uint64_t address, unsigned place) {
    ac_page_t *page = covered_page_of(address);
    uint64_t key = key_of(address);
    bool cleared = place < NEAR_WORDS       ? clear_near(page, place, key)
                   : place == AC_PLACE_FAR && clear_in_lines(page, key);
    if (__builtin_expect(!cleared, 0))
        ac_page_map_clear(address);
}

/* --- slabs --- */

static unsigned slab_place(uint64_t address) {
    return address >> AC_SLAB_BITS & (AC_SLAB_PLACES - 1);
}

static slab_place_t *slabs_in(uint64_t word) {
    return (slab_place_t *)(uintptr_t)(word & ~(uint64_t)NEAR_MASK);
}

bool ac_page_map_set_slab(uint64_t address, struct ac_slab *slab) {
    ac_page_t *page = page_of(address);
    uint64_t word = load(&page->slabs);
    slab_place_t *slabs = slabs_in(word);
    if (!slabs) {
        slabs = ac_carve(AC_SLAB_PLACES * sizeof *slabs);
        if (!slabs)
            return false;
        put(&page->slabs, word | (uint64_t)(uintptr_t)slabs);
    }
    atomic_store_explicit(&slabs[slab_place(address)], slab, memory_order_release);
    return true;
}

static struct ac_slab *slab_in(const ac_page_t *page, uint64_t address) {
    const slab_place_t *slabs = slabs_in(load(&page->slabs));
    return slabs ? atomic_load_explicit(&slabs[slab_place(address)], memory_order_acquire) : NULL;
}

struct ac_slab *ac_page_map_slab(uint64_t address) {
    const ac_page_t *page = page_of(address);
    return page ? slab_in(page, address) : NULL;
}

struct ac_block *ac_page_map_get_or_slab(uint64_t address, struct ac_slab **slab) {
    const ac_page_t *page = page_of(address);
    *slab = page ? slab_in(page, address) : NULL;
    return page && !*slab && address % AC_GRANULE == 0 ? start_in(page, address) : NULL;
}

/* --- searching backwards --- */

/* The later of two words that are starts no later than `key`; 0: neither. */
static uint64_t later(uint64_t word, uint64_t best, uint64_t key) {
    if (!word || (word & KEY_MASK) > key)
        return best;
    return (best & KEY_MASK) > (word & KEY_MASK) ? best : word;
}

/* The last start of the page up to `key`. */
static struct ac_block *last_of(const ac_page_t *page, uint64_t key) {
    uint64_t best = 0;
    for (int i = 0; i < NEAR_WORDS; i++)
        best = later(load(&page->word[i]), best, key);
    uint64_t lines = load(&page->lines);
    if (starts_in(lines))
        for (unsigned i = 0; i < (unsigned)LINE_WORDS << log_in(lines); i++)
            best = later(load(&first_in(lines)[i / LINE_WORDS].word[i % LINE_WORDS]), best, key);
    return record_in(best);
}

/* Starts of small blocks are near. */
static struct ac_block *near(const ac_page_t *page, uint64_t address) {
    for (int i = 0; i < NEAR; i++, address -= AC_GRANULE) {
        struct ac_block *block = start_in(page, address);
        if (block || address % AC_SEGMENT_ALIGN == 0)
            return block;
    }
    return NULL;
}

struct ac_block *ac_page_map_find(uint64_t address) {
    const ac_page_t *page = page_of(address);
    struct ac_arena *owner = page ? owner_in(page) : NULL;
    if (!owner)
        return NULL;
    address &= ~(AC_GRANULE - 1);
    struct ac_block *block = near(page, address);
    if (!block)
        block = last_of(page, key_of(address));
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

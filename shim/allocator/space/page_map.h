/* Device address -> block, for every block that starts in one of our segments.
 *
 * A radix tree over the address: root (2^14 entries, static) -> node (2^14 pages of 2 MiB). A page has its owner
 * and up to five starts itself, enough for memory in large blocks.  Further starts lie in a hash table of the page:
 * cache lines of eight starts, of which a lookup reads one.  If a line is full the table grows, up to a line per
 * eight granules, which has room for all places.  The tables of a page stay with its addresses for later blocks: 64
 * bytes, 512, 4 KiB and 32 KiB, at most 37,440 bytes for 2 MiB. If small blocks of a program use new pages again
 * and again, the library's host memory rises slowly up to that.
 *
 * Lookups take no lock.  Nothing is ever given back, and arena records are permanent, so the answer is at worst
 * outdated.  A caller that needs the truth locks the owner's allocator and asks again.  A lookup finds every start
 * that does not change meanwhile: a start stays in its word, and a larger table is complete before it replaces
 * another.  The lock of the allocator that owns a page guards writes to its words: segments are whole pages.
 *
 * Addresses of 2^49 and above are never ours: ac_page_map_cover refuses them. */
#ifndef AC_PAGE_MAP_H
#define AC_PAGE_MAP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/device.h"

struct ac_arena;
struct ac_block;
struct ac_slab;

enum { AC_GRANULE_BITS = 9 };
#define AC_GRANULE ((uint64_t)1 << AC_GRANULE_BITS)

/* Slabs lie at multiples of their size. */
enum { AC_SLAB_BITS = 16, AC_SLAB_PLACES = 1 << (AC_PAGE_BITS - AC_SLAB_BITS) };
#define AC_SLAB_SIZE ((uint64_t)1 << AC_SLAB_BITS)

/* One cache line, enough for blocks of a megabyte and more: they seldom share a page with many others.  `lines` is
 * 0, or has how many starts lie in lines, their address, and the logarithm of their number.  `slabs` is made with
 * the page's first slab, and stays.  Its lowest bits tell a writer which words are starts: a search for an absent
 * start would be a branch that no processor predicts. */
enum { AC_ROOT_BITS = 14, AC_NODE_BITS = 14, AC_NEAR_WORDS = 5 };
typedef struct ac_page {
    _Alignas(64) struct ac_arena *_Atomic owner;
    _Atomic uint64_t word[AC_NEAR_WORDS];
    _Atomic uint64_t lines;
    _Atomic uint64_t slabs;
} ac_page_t;
struct ac_node {
    ac_page_t page[1 << AC_NODE_BITS];
};
typedef struct ac_node *_Atomic ac_node_place_t;
extern AC_HIDDEN ac_node_place_t ac_page_map_root[1 << AC_ROOT_BITS];

/* The page of an address; NULL: there is none. */
static inline ac_page_t *ac_page_map_page(uint64_t address) {
    uint64_t place = address >> (AC_PAGE_BITS + AC_NODE_BITS);
    struct ac_node *node =
        place < 1 << AC_ROOT_BITS
            ? atomic_load_explicit(&ac_page_map_root[place], memory_order_acquire)
            : NULL;
    return node ? &node->page[(address >> AC_PAGE_BITS) & ((1 << AC_NODE_BITS) - 1)] : NULL;
}

/* Declare the pages of a new segment `owner`'s.  False when host memory is short or the address
 * is beyond the map: the segment cannot be used.  Both figures are multiples of AC_SEGMENT_ALIGN.
 */
bool ac_page_map_cover(uint64_t address, uint64_t bytes, struct ac_arena *owner);

/* Covers pages that belong to no arena.  Returns false, too, if one is an arena's: see ac_page_map_is_owned. */
bool ac_page_map_cover_new(uint64_t address, uint64_t bytes, struct ac_arena *owner);

/* Returns true if an arena owns one of the pages. */
bool ac_page_map_is_owned(uint64_t address, uint64_t bytes);

/* Uncovers the pages of a segment, whose starts were cleared before.  Other pages stay as they are. */
void ac_page_map_uncover(uint64_t address, uint64_t bytes);

/* Prefetches the entry of `address` for a lookup or a change.  _covered: of a covered page, which it returns. */
void ac_page_map_touch(uint64_t address);
ac_page_t *ac_page_map_touch_covered(uint64_t address);

/* Notes that `block` starts at `address`, in a covered page, where no block started.  Returns false if host memory
 * is short: nothing has changed. */
bool ac_page_map_set(uint64_t address, struct ac_block *block);

/* Notes a start on the page of ac_page_map_touch_covered.  Returns its place for ac_page_map_clear_at: a small
 * number, or AC_PLACE_FAR. AC_PLACE_NONE: host memory is short. */
enum { AC_PLACE_FAR = 6, AC_PLACE_NONE = 7 };
unsigned ac_page_map_set_on(ac_page_t *page, uint64_t address, struct ac_block *block);

/* Forgets the start at `address`. */
void ac_page_map_clear(uint64_t address);

/* Forgets the start at `address`. The search begins at the place that ac_page_map_set_on returned.  Any other
 * number costs time only. */
void ac_page_map_clear_at(uint64_t address, unsigned place);

/* The block that starts at `address`, or NULL.  Under the owner's lock. */
struct ac_block *ac_page_map_get(uint64_t address);

/* Returns the block that starts at `address` without a lock, if the page is `owner`'s; else NULL. */
struct ac_block *ac_page_map_look(uint64_t address, const struct ac_arena *owner);

/* Returns the arena with a segment around `address`, or NULL. */
static inline struct ac_arena *ac_page_map_owner(uint64_t address) {
    const ac_page_t *page = ac_page_map_page(address);
    return page ? atomic_load_explicit(&page->owner, memory_order_acquire) : NULL;
}

/* Returns the block with the highest start <= `address` within the covered pages around it, or NULL. Under the
 * owner's lock. */
struct ac_block *ac_page_map_find(uint64_t address);

/* The slab around `address`, in a covered page, is this one; NULL: there is none any more.  False
 * when host memory is short: only for a page's first slab. */
bool ac_page_map_set_slab(uint64_t address, struct ac_slab *slab);

/* The slab around `address`, or NULL.  Without a lock it may be outdated: slabs stay readable. */
struct ac_slab *ac_page_map_slab(uint64_t address);

/* Sets *slab to the slab around the address.  If there is none, returns what ac_page_map_get does, else NULL. */
struct ac_block *ac_page_map_get_or_slab(uint64_t address, struct ac_slab **slab);

#endif

/* Device address -> block, for every block that starts in one of our segments.
 *
 * A radix tree over the address: root (2^14 entries, static) -> node (2^14 pages of 2 MiB).  A
 * page names its owner and up to five starts itself: memory in large blocks needs no more.
 * Further starts lie in a hash table of the page: cache lines of eight, one to be looked at per
 * lookup.  Where a line is full the table grows, at the most to a line per eight granules, where
 * all places have room.  The tables of a page stay with its addresses, for the blocks that lie there next:
 * 64 bytes, 512, 4 KiB and 32 KiB, so 37,440 bytes for 2 MiB at the most.  A program whose small blocks come to
 * lie in ever new pages sees the library's host memory rise slowly, up to that.
 *
 * Lookups take no lock: nothing is ever given back, and arena records stay for ever, so the
 * answer is at worst outdated: a caller that needs the truth locks the owner's allocator and asks
 * again.  A start that does not change during a lookup is found whatever else does: it stays in
 * the word where it was put, also when a larger table takes over, and that one is complete when
 * it does.  Words of one page are written under the lock of the one allocator that owns the page:
 * segments are whole pages.
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

/* A cache line: for blocks of a megabyte and more, which seldom share a page with many others,
 * this is all.  `lines` is 0, or how many starts lie in lines, their address, and the logarithm
 * of their number.  `slabs`, which is made with the page's first slab, and stays; in its lowest bits,
 * for who writes, which words are starts: to look for one that is not would be a branch that no
 * processor foresees. */
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

/* The same for pages that are no arena's.  False, too, where one is: ac_page_map_is_owned. */
bool ac_page_map_cover_new(uint64_t address, uint64_t bytes, struct ac_arena *owner);

/* Whether one of the pages is an arena's. */
bool ac_page_map_is_owned(uint64_t address, uint64_t bytes);

/* The segment is gone; all its starts were cleared before.  What was not covered stays so. */
void ac_page_map_uncover(uint64_t address, uint64_t bytes);

/* What starts at `address` is about to be looked up or changed: the processor may fetch it
 * meanwhile.  _covered: of a covered page, which it returns. */
void ac_page_map_touch(uint64_t address);
ac_page_t *ac_page_map_touch_covered(uint64_t address);

/* `block` starts at `address`, inside a covered page, where none did.  False when host memory is
 * short: nothing has changed. */
bool ac_page_map_set(uint64_t address, struct ac_block *block);

/* The same on the page of ac_page_map_touch_covered.  Returns where it was put, for
 * ac_page_map_clear_at: a small number, AC_PLACE_FAR; AC_PLACE_NONE: host memory is short. */
enum { AC_PLACE_FAR = 6, AC_PLACE_NONE = 7 };
unsigned ac_page_map_set_on(ac_page_t *page, uint64_t address, struct ac_block *block);

/* No block starts at `address` any more. */
void ac_page_map_clear(uint64_t address);

/* The same, looked for at the place that ac_page_map_set_on returned first; any other number costs
 * time alone. */
void ac_page_map_clear_at(uint64_t address, unsigned place);

/* The block that starts at `address`, or NULL.  Under the owner's lock. */
struct ac_block *ac_page_map_get(uint64_t address);

/* The same without a lock, if the page is `owner`'s: NULL where it is not. */
struct ac_block *ac_page_map_look(uint64_t address, const struct ac_arena *owner);

/* The arena whose segment `address` lies in; NULL: not ours. */
static inline struct ac_arena *ac_page_map_owner(uint64_t address) {
    const ac_page_t *page = ac_page_map_page(address);
    return page ? atomic_load_explicit(&page->owner, memory_order_acquire) : NULL;
}

/* The block with the highest start <= `address` within the covered pages around it; NULL
 * where there is none.  Under the owner's lock. */
struct ac_block *ac_page_map_find(uint64_t address);

/* The slab around `address`, in a covered page, is this one; NULL: there is none any more.  False
 * when host memory is short: only for a page's first slab. */
bool ac_page_map_set_slab(uint64_t address, struct ac_slab *slab);

/* The slab around `address`, or NULL.  Without a lock it may be outdated: slabs stay readable. */
struct ac_slab *ac_page_map_slab(uint64_t address);

/* The same in *slab; where there is none it returns what ac_page_map_get does, else NULL. */
struct ac_block *ac_page_map_get_or_slab(uint64_t address, struct ac_slab **slab);

#endif

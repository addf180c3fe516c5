/* Slabs: blocks of up to 4 KiB lie side by side in pieces of 64 KiB, each for one size.
 *
 * A block of its own record costs more host memory than a quarter of its 512 bytes.  In a slab a
 * block is a *slot* of 16 bytes, and has a record only while something happens to it: while it is
 * new, in a thread's cache, pending or held.
 * Elsewhere such a record is a block as any other, but that it has no neighbours and that
 * ac_segment_coalesce gives its slot back.  Records of blocks that the program just holds return
 * to their slots when there are many (ac_slabs_drop_records).
 *
 * Only the sizes that are multiples of the granule anyway: nothing is rounded up for a slab.  Not
 * for requests that name a stream, whose memory is cut and joined in its order.
 *
 * A slab is an ordinary block to its segment, in state AC_BLOCK_SLAB.  It serves lowest address
 * first, as far as eight looks tell, and goes back with its last block.  Before a request fails,
 * slabs become ordinary blocks again.  All under the allocator's lock, unless said otherwise. */
#ifndef AC_SLAB_H
#define AC_SLAB_H

#include "allocator/space/space.h"

enum { AC_SLAB_SLOTS = 1 << (AC_SLAB_BITS - AC_GRANULE_BITS) };
#define AC_SLAB_LARGEST (AC_SLAB_CLASSES * AC_GRANULE)

/* `word`: 0, free; the record of the block; or, with the lowest bit set, twice the bytes asked
 * for, and from bit 48 on the module that asked, of a block without one, which the program holds
 * and was handed at `clock`.  `at`: of the record the pointer to it among all records of slots, which are
 * linked by bin_next; bin_at is the caches'. */
typedef struct {
    _Atomic uint64_t word;
    union {
        uint64_t clock;
        ac_block_t **at;
    };
} ac_slot_t;

/* Invariants (ac_slab_check): `free` counts the bits of `vacant`, which are the free slots; slabs
 * with some are in their arena's list of the size, but for those of tainted segments and those that
 * are put aside.  `size` and `slots` never change: threads look into slabs without the lock. */
struct ac_slab {
    ac_block_t *block; /* what it lies in */
    ac_slab_t *prev, *next;
    uint32_t size; /* bytes of a slot */
    uint16_t slots, free;
    bool listed;
    uint64_t vacant[AC_SLAB_SLOTS / 64];
    ac_slot_t slot[];
};

static inline bool ac_slab_serves(uint64_t size) {
    return size <= AC_SLAB_LARGEST;
}

static inline bool ac_slab_is_slot(const ac_block_t *block) {
    return atomic_load_explicit(&block->slab, memory_order_relaxed) &&
           block->state != AC_BLOCK_SLAB;
}

static inline bool ac_block_is_slab(const ac_block_t *block) {
    return block->state == AC_BLOCK_SLAB;
}

/* A free slot as ac_segment_carve leaves a block.  NULL: none in the free memory of the small
 * pool, or host memory is short. */
ac_block_t *ac_slab_carve(ac_space_t *space, uint64_t size);

/* The slot is free again, and its record a spare one; `slot` may be what ac_slab_at shows. */
void ac_slab_coalesce(ac_block_t *slot);

/* The block that is allocated at `address` in a slab, with a record from now on.  AC_BAD_ADDRESS;
 * AC_OOM: host memory is short. */
ac_status_t ac_slab_get(uint64_t address, ac_block_t **found);

/* The record of what starts at `address`, in a slab or not, or NULL: without a lock, at worst
 * outdated. */
ac_block_t *ac_slab_look(uint64_t address);

/* Call `visit` for each slot of the slab, and what is left behind them; those without a record
 * show one that lasts as long as the call. */
void ac_slab_each(const ac_block_t *block, ac_block_visit_fn *visit, void *arg);

/* What such a call shows of the slot around `address`; in *shown where there is no record. */
const ac_block_t *ac_slab_at(const ac_block_t *block, uint64_t address, ac_block_t *shown);

/* Whether the program or a captured graph has the block, or a slot of it. */
bool ac_block_in_use(const ac_block_t *block);

/* Whether the block is a slab of which the program was handed any with `clock` or a later one, or
 * a graph has. */
bool ac_slab_in_use_since(const ac_block_t *block, uint64_t clock);

/* Returns true if the slab is put aside: it serves nothing while its block has a ticket, and stays even
 * if all slots are free. */
static inline bool ac_slab_is_aside(const ac_block_t *block) {
    return ac_block_is_slab(block) && block->ticket.key != AC_KEY_NONE;
}

/* Puts aside slabs of segments whose stamp is above `reached`: `visit` gives each block its ticket. */
void ac_slabs_put_aside(ac_space_t *space, uint64_t reached, ac_block_visit_fn *visit, void *arg);

/* Puts the slab, which is in no ledger any more, back into service. */
void ac_slab_take_back(ac_block_t *block);

/* Make ordinary blocks of the slabs with free slots, where host memory allows: what is free in
 * them may serve any size.  True if there was any. */
bool ac_slabs_dissolve(ac_space_t *space);

/* The segment serves no more. */
void ac_slab_taint(ac_block_t *block);

/* No cache owns a slot of it any more. */
void ac_slab_disown(const ac_block_t *block);

/* The segment is lost: call `visit` as ac_slab_each does, and forget the slots.  The block
 * remains. */
void ac_slab_lose(ac_block_t *block, ac_block_visit_fn *visit, void *arg);

/* Whether ac_slabs_drop_records is worth its while: 512 KiB of records, and twice as many as before. */
static inline bool ac_slabs_crowded(const ac_slots_t *slots) {
    return slots->count >= 4096 && slots->count >= 2 * slots->left;
}

/* Records of blocks that the program holds go.  While all threads keep out of their caches. */
void ac_slabs_drop_records(ac_slots_t *slots);

/* NULL, or what is wrong with the slab. */
const char *ac_slab_check(const ac_block_t *block);

#endif

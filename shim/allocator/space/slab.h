/* Slabs: blocks of up to 4 KiB lie side by side in pieces of 64 KiB, each for one size.
 *
 * A record costs more host memory than a quarter of a block of 512 bytes.  In a slab a block is a *slot* of 16
 * bytes.  It has a record only while something happens to it: while it is new, in a thread's cache, pending or
 * held.  Elsewhere its record is a block like any other, but it has no neighbours, and ac_segment_coalesce gives
 * its slot back.  If there are many records of blocks that the program just holds, they return to their slots
 * (ac_slabs_drop_records).
 *
 * Slabs have sizes that are multiples of the granule, so nothing is rounded up for a slab.  Requests that name a
 * stream do not use them: their memory is split and joined in the stream's order.
 *
 * To its segment, a slab is an ordinary block in state AC_BLOCK_SLAB. The slab with the lowest address serves
 * first, within a few looks.  A slab goes back with its last block.  Before a request fails, slabs become ordinary
 * blocks again.  All functions need the allocator's lock, unless they say otherwise. */
#ifndef AC_SLAB_H
#define AC_SLAB_H

#include "allocator/space/space.h"

enum { AC_SLAB_SLOTS = 1 << (AC_SLAB_BITS - AC_GRANULE_BITS) };
#define AC_SLAB_LARGEST (AC_SLAB_CLASSES * AC_GRANULE)

/* `word` is 0: the slot is free; or a pointer to the block's record; or an odd number: the program holds a block
 * without a record, with twice the requested bytes, the module from bit 48 on, and the time of the request in
 * `clock`. `at`: the pointer to the record in the list of all records of slots (bin_next); bin_at belongs to the
 * caches. */
typedef struct {
    _Atomic uint64_t word;
    union {
        uint64_t clock;
        ac_block_t **at;
    };
} ac_slot_t;

/* Invariants (ac_slab_check): `free` counts the bits of `vacant`, which are the free slots.  A slab with free slots
 * is in its arena's list of the size, unless its segment is tainted or it is put aside.  `size` and `slots` never
 * change: threads read slabs without the lock. */
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

/* Calls `visit` for each slot of the slab, and for the rest behind them.  A slot without a record gets one for the
 * call. */
void ac_slab_each(const ac_block_t *block, ac_block_visit_fn *visit, void *arg);

/* Returns the record that such a call has for the slot around `address`: *shown if the slot has none. */
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

/* Puts aside slabs of segments with a stamp above `reached`: `visit` gives each block its ticket. */
void ac_slabs_put_aside(ac_space_t *space, uint64_t reached, ac_block_visit_fn *visit, void *arg);

/* Puts the slab, which is in no ledger any more, back into service. */
void ac_slab_take_back(ac_block_t *block);

/* Makes ordinary blocks of the slabs with free slots, as far as host memory allows, so that their free memory
 * serves any size.  Returns true if there was any. */
bool ac_slabs_dissolve(ac_space_t *space);

/* The segment serves no more. */
void ac_slab_taint(ac_block_t *block);

/* Takes all slots of the slab out of the caches' ownership. */
void ac_slab_disown(const ac_block_t *block);

/* The segment is lost: call `visit` as ac_slab_each does, and forget the slots.  The block
 * remains. */
void ac_slab_lose(ac_block_t *block, ac_block_visit_fn *visit, void *arg);

/* Returns true if ac_slabs_drop_records is worth its time: 512 KiB of records, and twice as many as before. */
static inline bool ac_slabs_crowded(const ac_slots_t *slots) {
    return slots->count >= 4096 && slots->count >= 2 * slots->left;
}

/* Records of blocks that the program holds go.  While all threads keep out of their caches. */
void ac_slabs_drop_records(ac_slots_t *slots);

/* NULL, or what is wrong with the slab. */
const char *ac_slab_check(const ac_block_t *block);

#endif

/* Slabs (slab.h). */
#include "allocator/space/slab.h"

#include "allocator/carve.h"
#include "allocator/space/records.h"
#include "allocator/space/segment.h"
#include "allocator/space/size.h"
#include "failpoint.h"

_Static_assert(sizeof(ac_slot_t) == 16, "more host memory than is promised");

/* --- slots --- */

static unsigned class_of(uint64_t size) {
    return (unsigned)(size >> AC_GRANULE_BITS) - 1;
}

static unsigned slots_of(uint64_t size) {
    return (unsigned)(AC_SLAB_SIZE / size);
}

static ac_slab_t *slab_of(const ac_block_t *block) {
    return atomic_load_explicit(&block->slab, memory_order_acquire);
}

static uint64_t address_of(const ac_slab_t *slab, unsigned i) {
    return slab->block->address + (uint64_t)i * slab->size;
}

static uint64_t word_of(const ac_slab_t *slab, unsigned i) {
    return atomic_load_explicit(&slab->slot[i].word, memory_order_acquire);
}

static void set_word(ac_slab_t *slab, unsigned i, uint64_t word) {
    atomic_store_explicit(&slab->slot[i].word, word, memory_order_release);
}

static ac_block_t *record_in(uint64_t word) {
    return word & 1 ? NULL : (ac_block_t *)(uintptr_t)word;
}

static bool is_vacant(const ac_slab_t *slab, unsigned i) {
    return slab->vacant[i / 64] >> i % 64 & 1;
}

static unsigned first_vacant(const ac_slab_t *slab) {
    return slab->vacant[0] ? (unsigned)__builtin_ctzll(slab->vacant[0])
                           : 64 + (unsigned)__builtin_ctzll(slab->vacant[1]);
}

/* The slot around an address in the slab; `slots` and more: behind them. */
static unsigned slot_around(const ac_slab_t *slab, uint64_t address) {
    return (unsigned)(address & (AC_SLAB_SIZE - 1)) / slab->size;
}

/* The slot that starts there; `slots`: none does. */
static unsigned slot_at(const ac_slab_t *slab, uint64_t address) {
    unsigned i = slot_around(slab, address);
    bool starts = (address & (AC_SLAB_SIZE - 1)) == i * slab->size;
    return i < slab->slots && starts ? i : slab->slots;
}

/* --- records --- */

/* Returns the word of a slot for a block without a record. */
enum { MODULE_SHIFT = 48 };
static uint64_t word_for(const ac_block_t *record) {
    return (uint64_t)record->module << MODULE_SHIFT | record->requested << 1 | 1;
}
static uint64_t requested_in(uint64_t word) {
    return (word & (((uint64_t)1 << MODULE_SHIFT) - 1)) >> 1;
}

/* Returns the pointer to this record in the list of all records. */
static ac_block_t ***at_of(const ac_block_t *record) {
    ac_slab_t *slab = slab_of(record);
    return &slab->slot[slot_at(slab, record->address)].at;
}

static void records_link(ac_block_t **at, ac_block_t *record) {
    *at = record;
    if (record)
        *at_of(record) = at;
}

static void records_add(ac_slots_t *slots, ac_block_t *record) {
    records_link(&record->bin_next, slots->records);
    records_link(&slots->records, record);
    slots->count++;
}

static void records_remove(ac_slots_t *slots, const ac_block_t *record) {
    records_link(*at_of(record), record->bin_next);
    slots->count--;
}

static ac_slots_t *records_of(const ac_slab_t *slab) {
    return &slab->block->segment->space->store->slots;
}

/* Fills a record of the slot.  The address comes last: the thread that got the block may know the record from
 * before.  It frees the block without the lock as soon as the record has its address (ac_cache_owns). */
static void describe(ac_block_t *record, ac_slab_t *slab, unsigned i) {
    ac_segment_t *segment = slab->block->segment;
    uint64_t word = word_of(slab, i), address = address_of(slab, i);
    ac_block_init(record, AC_FAILPOINT(record_address_first) ? address : address | 1, slab->size,
                  segment);
    AC_BLOCK_SET(record, slab, slab);
    if (word) {
        ac_block_set_state(record, AC_BLOCK_ALLOCATED);
        record->home = NULL;
        AC_BLOCK_SET(record, owner_arena, ac_block_is_plain(record) ? segment->space->number : 0);
    }
    AC_WINDOW(record_described);
    AC_BLOCK_SET(record, requested, requested_in(word));
    AC_BLOCK_SET(record, module, (uint8_t)(word >> MODULE_SHIFT));
    AC_BLOCK_SET(record, ticket.epoch, word & 1 ? slab->slot[i].clock : 0); /* else a former `at` */
    atomic_store_explicit(&record->address, address, memory_order_release);
}

/* The slot's record from now on; NULL when host memory is short. */
static ac_block_t *give_record(ac_slab_t *slab, unsigned i) {
    ac_block_t *record = ac_record_block(slab->block->segment->space->store);
    if (!record)
        return NULL;
    describe(record, slab, i);
    records_add(records_of(slab), record);
    set_word(slab, i, (uint64_t)(uintptr_t)record);
    return record;
}

/* The record becomes a spare one, and the slot's word is another one. */
static void take_record(ac_slab_t *slab, unsigned i, uint64_t word) {
    ac_block_t *record = record_in(word_of(slab, i));
    records_remove(records_of(slab), record);
    set_word(slab, i, word);
    AC_BLOCK_SET(record, slab, NULL);
    ac_record_block_return(slab->block->segment->space->store, record);
}

/* --- lists --- */

AC_LIST(slabs, ac_slab_t, )

static ac_slab_t **list_of(const ac_slab_t *slab) {
    ac_slabs_t *lists = &slab->block->segment->space->slabs;
    return &lists->partial[class_of(slab->size)];
}

/* Enters the slab behind those of the first few slabs that have lower addresses. */
static void list_enter(ac_slab_t *slab) {
    ac_slab_t *prev = NULL, *next = *list_of(slab);
    for (int i = 0; i < AC_SLAB_LOOKS && next && next->block->address < slab->block->address; i++) {
        prev = next;
        next = next->next;
    }
    slabs_put_after(list_of(slab), prev, slab);
    slab->listed = true;
}

static void list_leave(ac_slab_t *slab) {
    if (!slab->listed)
        return;
    slabs_remove(list_of(slab), slab);
    slab->listed = false;
}

static void spare(ac_store_t *store, ac_slab_t *slab) {
    ac_slab_t **list = &store->slots.spare[class_of(slab->size)];
    slab->next = *list;
    *list = slab;
}

/* Removes the slab: it is in no list, and holds no block. */
static void retire(ac_slab_t *slab) {
    AC_BLOCK_SET(slab->block, slab, NULL);
    ac_page_map_set_slab(slab->block->address, NULL);
    spare(slab->block->segment->space->store, slab);
}

/* The empty slab is free memory again. */
static void give_back(ac_slab_t *slab) {
    ac_block_t *block = slab->block;
    list_leave(slab);
    retire(slab);
    ac_block_set_state(block, AC_BLOCK_TRANSIT);
    ac_segment_put_back(block);
}

/* --- making slabs --- */

static ac_slab_t *new_slab(ac_store_t *store, uint64_t size) {
    ac_slab_t **list = &store->slots.spare[class_of(size)], *slab = *list;
    if (slab) {
        *list = slab->next;
        return slab;
    }
    unsigned slots = slots_of(size);
    slab = ac_carve(sizeof *slab + slots * sizeof slab->slot[0]);
    if (slab) {
        slab->size = (uint32_t)size;
        slab->slots = (uint16_t)slots;
    }
    return slab;
}

/* Returns the bytes from the block's start to the first place for a slab. */
static uint64_t lead_of(const ac_block_t *block) {
    return -block->address & (AC_SLAB_SIZE - 1);
}

/* A free block that a slab fits into. */
static ac_block_t *find_room(ac_space_t *space) {
    const ac_settings_t *settings = &space->store->settings;
    ac_free_index_t *index = &space->index[AC_POOL_SMALL];
    ac_fit_t fit = ac_size_fit(settings, AC_SLAB_SIZE);
    ac_block_t *block = ac_free_index_find(index, &fit, false);
    if (block && block->size < lead_of(block) + AC_SLAB_SIZE) {
        fit = ac_size_fit(settings, 2 * AC_SLAB_SIZE - AC_GRANULE);
        block = ac_free_index_find(index, &fit, false);
    }
    return block;
}

/* Cut a slab's block out of the free block; NULL when host memory is short. */
static ac_block_t *cut(ac_block_t *block) {
    uint64_t lead = lead_of(block);
    ac_block_t *front = NULL;
    if (lead) {
        front = block;
        ac_segment_carve(front, lead);
        block = front->size == lead ? front->next : NULL;
    }
    if (block) {
        ac_segment_carve(block, AC_SLAB_SIZE);
        if (block->size != AC_SLAB_SIZE) {
            ac_segment_put_back(block);
            block = NULL;
        }
    }
    if (front)
        ac_segment_put_back(front);
    return block;
}

static ac_slab_t *make(ac_space_t *space, uint64_t size) {
    ac_block_t *block = find_room(space);
    ac_slab_t *slab = block ? new_slab(space->store, size) : NULL;
    if (!slab)
        return NULL;
    slab->block = cut(block);
    if (!slab->block || !ac_page_map_set_slab(slab->block->address, slab)) {
        if (slab->block)
            ac_segment_put_back(slab->block);
        spare(space->store, slab);
        return NULL;
    }
    slab->free = slab->slots;
    for (unsigned word = 0; word < AC_SLAB_SLOTS / 64; word++) {
        unsigned left = slab->slots > 64 * word ? slab->slots - 64 * word : 0;
        slab->vacant[word] = left >= 64 ? UINT64_MAX : ((uint64_t)1 << left) - 1;
    }
    AC_BLOCK_SET(slab->block, requested, 0);
    AC_BLOCK_SET(slab->block, slab, slab);
    ac_block_set_state(slab->block, AC_BLOCK_SLAB);
    list_enter(slab);
    return slab;
}

/* --- taking and giving back slots --- */

static ac_slab_t *with_room(ac_space_t *space, uint64_t size) {
    ac_slab_t *slab = space->slabs.partial[class_of(size)];
    return slab ? slab : make(space, size);
}

ac_block_t *ac_slab_carve(ac_space_t *space, uint64_t size) {
    ac_slab_t *slab = with_room(space, size);
    if (!slab)
        return NULL;
    unsigned i = first_vacant(slab);
    ac_block_t *record = give_record(slab, i);
    if (!record) {
        if (slab->free == slab->slots)
            give_back(slab);
        return NULL;
    }
    slab->vacant[i / 64] &= ~((uint64_t)1 << i % 64);
    if (--slab->free == 0)
        list_leave(slab);
    return record;
}

void ac_slab_coalesce(ac_block_t *slot) {
    ac_slab_t *slab = slab_of(slot);
    unsigned i = slot_at(slab, slot->address);
    if (record_in(word_of(slab, i)))
        take_record(slab, i, 0);
    else
        set_word(slab, i, 0);
    slab->vacant[i / 64] |= (uint64_t)1 << i % 64;
    slab->free++;
    if (ac_slab_is_aside(slab->block))
        return;
    if (slab->free == slab->slots)
        give_back(slab);
    else if (!slab->listed && !slab->block->segment->tainted)
        list_enter(slab);
}

/* --- lookups --- */

ac_status_t ac_slab_get(uint64_t address, ac_block_t **found) {
    ac_slab_t *slab = ac_page_map_slab(address);
    if (!slab)
        return AC_BAD_ADDRESS;
    unsigned i = slot_at(slab, address);
    uint64_t word = i < slab->slots ? word_of(slab, i) : 0;
    *found = word & 1 ? give_record(slab, i) : record_in(word);
    if (*found && (*found)->state == AC_BLOCK_ALLOCATED)
        return AC_OK;
    return word & 1 ? AC_OOM : AC_BAD_ADDRESS;
}

ac_block_t *ac_slab_look(uint64_t address) {
    ac_slab_t *slab;
    ac_block_t *block = ac_page_map_get_or_slab(address, &slab);
    if (slab) {
        unsigned i = slot_at(slab, address);
        if (i < slab->slots)
            block = record_in(word_of(slab, i));
    }
    /* Fetches its second line, too: otherwise that is missed after the first one arrived. */
    if (block)
        __builtin_prefetch(&block->requested);
    return block;
}

/* The slot's record, or what one would say. */
static ac_block_t *show(ac_slab_t *slab, unsigned i, ac_block_t *shown) {
    ac_block_t *record = record_in(word_of(slab, i));
    if (record)
        return record;
    ac_block_blank(shown);
    describe(shown, slab, i);
    if (!word_of(slab, i))
        ac_block_set_state(shown, AC_BLOCK_FREE);
    return shown;
}

/* The rest behind the slots. */
static bool rest_of(const ac_slab_t *slab, ac_block_t *rest) {
    uint64_t used = (uint64_t)slab->slots * slab->size;
    if (used == AC_SLAB_SIZE)
        return false;
    ac_block_blank(rest);
    ac_block_init(rest, slab->block->address + used, AC_SLAB_SIZE - used, slab->block->segment);
    ac_block_set_state(rest, AC_BLOCK_FREE);
    AC_BLOCK_SET(rest, requested, 0);
    return true;
}

void ac_slab_each(const ac_block_t *block, ac_block_visit_fn *visit, void *arg) {
    ac_slab_t *slab = slab_of(block);
    ac_block_t shown;
    for (unsigned i = 0; i < slab->slots; i++)
        visit(show(slab, i, &shown), arg);
    if (rest_of(slab, &shown))
        visit(&shown, arg);
}

const ac_block_t *ac_slab_at(const ac_block_t *block, uint64_t address, ac_block_t *shown) {
    ac_slab_t *slab = slab_of(block);
    unsigned i = slot_around(slab, address);
    if (i < slab->slots)
        return show(slab, i, shown);
    rest_of(slab, shown);
    return shown;
}

static bool is_in_use(const ac_block_t *block) {
    return block->state == AC_BLOCK_ALLOCATED || ac_block_is_held(block);
}

bool ac_block_in_use(const ac_block_t *block) {
    if (!ac_block_is_slab(block))
        return is_in_use(block);
    const ac_slab_t *slab = slab_of(block);
    for (unsigned i = 0; i < slab->slots; i++) {
        uint64_t word = word_of(slab, i);
        const ac_block_t *record = record_in(word);
        if (word & 1 || (record && is_in_use(record)))
            return true;
    }
    return false;
}

bool ac_slab_in_use_since(const ac_block_t *block, uint64_t clock) {
    if (!ac_block_is_slab(block))
        return false;
    const ac_slab_t *slab = slab_of(block);
    for (unsigned i = 0; i < slab->slots; i++) {
        uint64_t word = word_of(slab, i);
        const ac_block_t *record = record_in(word);
        if (AC_FAILPOINT(early_slot_overlooked))
            continue;
        if ((word & 1 && slab->slot[i].clock >= clock) ||
            (record && record->state == AC_BLOCK_ALLOCATED && record->ticket.epoch >= clock) ||
            (record && ac_block_is_held(record)))
            return true;
    }
    return false;
}

/* --- slabs that serve nothing for a while --- */

void ac_slabs_put_aside(ac_space_t *space, uint64_t reached, ac_block_visit_fn *visit, void *arg) {
    for (unsigned rank = 0; rank < AC_SLAB_CLASSES; rank++)
        for (ac_slab_t *slab = space->slabs.partial[rank], *next; slab; slab = next) {
            next = slab->next;
            if (slab->block->segment->quiet <= reached)
                continue;
            list_leave(slab);
            visit(slab->block, arg);
        }
}

void ac_slab_take_back(ac_block_t *block) {
    ac_slab_t *slab = slab_of(block);
    block->ticket.key = AC_KEY_NONE;
    block->segment->space->added++; /* its free slots serve again */
    if (slab->free == slab->slots)
        give_back(slab);
    else if (!block->segment->tainted)
        list_enter(slab);
}

/* --- slabs that go --- */

void ac_slab_taint(ac_block_t *block) {
    list_leave(slab_of(block));
}

void ac_slab_disown(const ac_block_t *block) {
    const ac_slab_t *slab = slab_of(block);
    for (unsigned i = 0; i < slab->slots; i++) {
        ac_block_t *record = record_in(word_of(slab, i));
        if (record)
            AC_BLOCK_SET(record, owner_arena, 0);
    }
}

void ac_slab_lose(ac_block_t *block, ac_block_visit_fn *visit, void *arg) {
    ac_slab_t *slab = slab_of(block);
    ac_block_t shown;
    for (unsigned i = 0; i < slab->slots; i++) {
        visit(show(slab, i, &shown), arg);
        if (record_in(word_of(slab, i)))
            take_record(slab, i, 0);
        set_word(slab, i, 0);
    }
    list_leave(slab);
    retire(slab);
}

/* Makes blocks of a slab: its blocks in use, and the free memory between them, in address order. */
typedef struct {
    ac_block_t *piece[2 * AC_SLAB_SLOTS];
    unsigned n;
} ac_pieces_t;

/* A record for each; the page map has them, but what starts with the slab.  False when host
 * memory is short: then all is as before, but that blocks may have records. */
static bool take_apart(ac_slab_t *slab, ac_pieces_t *pieces) {
    ac_segment_t *segment = slab->block->segment;
    uint64_t end = slab->block->address + AC_SLAB_SIZE;
    pieces->n = 0;
    for (uint64_t at = slab->block->address, next; at < end; at = next) {
        unsigned i = slot_around(slab, at);
        bool gap = i >= slab->slots || is_vacant(slab, i);
        for (next = at + slab->size, i++; gap && i < slab->slots && is_vacant(slab, i); i++)
            next += slab->size;
        if (gap && (i >= slab->slots || next > end))
            next = end;
        ac_block_t *record = !gap && word_of(slab, i - 1) & 1 ? give_record(slab, i - 1)
                             : !gap                           ? record_in(word_of(slab, i - 1))
                                    : ac_record_block(segment->space->store);
        bool first = at == slab->block->address;
        if (!record || (!first && !ac_page_map_set(at, record))) {
            if (record && gap)
                ac_record_block_return(segment->space->store, record);
            return false;
        }
        if (gap)
            ac_block_init(record, at, next - at, segment);
        pieces->piece[pieces->n++] = record;
    }
    return true;
}

static bool is_gap(const ac_block_t *piece) {
    return !slab_of(piece);
}

static void put_together(ac_slab_t *slab, const ac_pieces_t *pieces) {
    for (unsigned i = 0; i < pieces->n; i++) {
        ac_block_t *piece = pieces->piece[i];
        if (i)
            ac_page_map_clear(piece->address);
        if (is_gap(piece))
            ac_record_block_return(slab->block->segment->space->store, piece);
    }
}

/* Into the place of the slab's block. */
static void put_in_place(ac_slab_t *slab, const ac_pieces_t *pieces) {
    const ac_block_t *block = slab->block;
    ac_segment_t *segment = block->segment;
    ac_block_t *prev = block->prev;
    ac_page_map_clear(block->address);
    for (unsigned i = 0; i < pieces->n; i++) {
        ac_block_t *piece = pieces->piece[i];
        if (i == 0)
            ac_page_map_set(piece->address, piece); /* there is room: one just left */
        piece->prev = prev;
        *(prev ? &prev->next : &segment->first) = piece;
        prev = piece;
    }
    prev->next = block->next;
    if (block->next)
        block->next->prev = prev;
    segment->busy += pieces->n - 1;
}

static bool dissolve(ac_slab_t *slab) {
    ac_block_t *block = slab->block;
    ac_store_t *store = block->segment->space->store;
    ac_pieces_t pieces;
    if (!take_apart(slab, &pieces)) {
        put_together(slab, &pieces);
        return false;
    }
    put_in_place(slab, &pieces);
    list_leave(slab);
    for (unsigned i = 0; i < slab->slots; i++)
        set_word(slab, i, 0);
    for (unsigned i = 0; i < pieces.n; i++)
        if (!is_gap(pieces.piece[i]))
            records_remove(&store->slots, pieces.piece[i]);
    retire(slab);
    ac_record_block_return(store, block);
    for (unsigned i = 0; i < pieces.n; i++) {
        ac_block_t *piece = pieces.piece[i];
        if (is_gap(piece))
            ac_segment_put_back(piece);
        else /* from now on caches may write to bin_next, which was read before */
            atomic_store_explicit(&piece->slab, NULL, memory_order_release);
    }
    return true;
}

bool ac_slabs_dissolve(ac_space_t *space) {
    bool any = false;
    for (unsigned rank = 0; rank < AC_SLAB_CLASSES; rank++)
        while (space->slabs.partial[rank] && dissolve(space->slabs.partial[rank]))
            any = true;
    return any;
}

/* --- fewer records --- */

void ac_slabs_drop_records(ac_slots_t *slots) {
    for (ac_block_t *record = slots->records, *next; record; record = next) {
        next = record->bin_next;
        ac_slab_t *slab = slab_of(record);
        unsigned i = slot_at(slab, record->address);
        if (record->state != AC_BLOCK_ALLOCATED || record->mempool || record->lifetime ||
            record->ticket.key != AC_KEY_NONE)
            continue;
        uint64_t clock = record->ticket.epoch;
        take_record(slab, i, word_for(record));
        slab->slot[i].clock = clock;
    }
}

const char *ac_slab_check(const ac_block_t *block) {
    const ac_slab_t *slab = slab_of(block);
    unsigned vacant = 0;
    if (!slab || slab->block != block || block->address % AC_SLAB_SIZE ||
        block->size != AC_SLAB_SIZE || slab->slots != slots_of(slab->size))
        return "slab";
    for (unsigned i = 0; i < slab->slots; i++) {
        uint64_t word = word_of(slab, i);
        const ac_block_t *record = record_in(word);
        vacant += is_vacant(slab, i);
        if (is_vacant(slab, i) != (word == 0))
            return "free slot";
        if (record &&
            (record->address != address_of(slab, i) || record->slab != slab ||
             record->size != slab->size || record->segment != block->segment || record->prev ||
             record->next || record->state == AC_BLOCK_FREE ||
             (record->state == AC_BLOCK_RETIRED && ac_key_is_stream(record->ticket.key))))
            return "record of a slot";
    }
    bool aside = ac_slab_is_aside(block);
    if (vacant != slab->free || (vacant == slab->slots && !aside))
        return "free slots";
    if (slab->listed != (slab->free && !block->segment->tainted && !aside))
        return "list of slabs";
    return NULL;
}

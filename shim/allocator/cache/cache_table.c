/* The table of a thread's cache (thread_cache.h): entries by key (a size, and a stream's number), and the
 * budget of what is ready in them. */
#include "allocator/cache/cache_int.h"
#include "allocator/cache/lane.h"
#include "allocator/retired/retired.h"
#include "allocator/space/segment.h"
#include "failpoint.h"

/* Limits of a fetch of small blocks.  Each miss fetches twice as many blocks as the one before.  A fetch has at most
 * FETCH_BYTES; this limit is at least FETCH_LEAST and at most FETCH_MOST blocks. */
enum { FETCH_MOST = 16, FETCH_LEAST = 2 };
#define FETCH_BYTES ((uint64_t)64 << 10)

/* Number of refusals after which all are forgotten, because a later phase of the program may need these sizes. */
enum { REFUSALS = 4096 };

/* --- entries --- */

static void note_empty_word(ac_cache_t *cache, int class, size_t word) {
    cache->words[class] &= (uint8_t) ~(1 << word);
    if (!cache->words[class])
        cache->classes &= (uint16_t) ~(1 << class);
}

/* Sets the bit that says if the entry may have blocks. */
static inline void set_bit(ac_cache_t *cache, const ac_entry_t *entry, bool set) {
    size_t i = (size_t)(entry - cache->entry);
    int class = entry->class;
    uint64_t *word = &cache->kept[class][i / 64], bit = (uint64_t)1 << i % 64;
    if (set) {
        *word |= bit;
        cache->words[class] |= (uint8_t)(1 << i / 64);
        cache->classes |= (uint16_t)(1 << class);
    } else if ((*word &= ~bit) == 0) {
        note_empty_word(cache, class, i / 64);
    }
}

/* Returns a bit for each class of small or of large plain sizes with entries that may have blocks. */
static unsigned classes_of(const ac_cache_t *cache, int flow) {
    return cache->classes & (flow ? (1u << AC_CACHE_STREAMS) - 2 : 1u);
}

/* Loops over the numbers of all entries of the class that may have blocks.  The body may take these away. */
#define EACH_KEPT(cache, class, i)                                                               \
    for (unsigned words = (cache)->words[class]; words; words &= words - 1)                      \
        for (uint64_t left = (cache)->kept[class][__builtin_ctz(words)];                         \
             left && ((i) = __builtin_ctz(words) * 64 + __builtin_ctzll(left), true);            \
             left &= left - 1)

static bool may_have(const ac_entry_t *entry) {
    return entry->size && !(entry->size & AC_ENTRY_EMPTY);
}

/* Swaps two entries of a bucket.  Both have their bits in one word. */
static void change_places(ac_cache_t *cache, ac_entry_t *one, ac_entry_t *other) {
    ac_block_t **a = ac_cache_wait(cache, one), **b = ac_cache_wait(cache, other), *wait = *a;
    size_t i = (size_t)(one - cache->entry), k = (size_t)(other - cache->entry);
    uint64_t both = (uint64_t)1 << i % 64 | (uint64_t)1 << k % 64;
    ac_entry_t entry = *one;
    if (may_have(one))
        cache->kept[one->class][i / 64] ^= both;
    if (may_have(other))
        cache->kept[other->class][i / 64] ^= both;
    *one = *other;
    *other = entry;
    *a = *b;
    *b = wait;
    if (*a || *b)
        cache->parked[i / 64] |= both;
}

static inline ac_entry_t *wake(ac_cache_t *cache, ac_entry_t *own) {
    if (own->size & AC_ENTRY_EMPTY) {
        own->size &= ~(uint64_t)AC_ENTRY_EMPTY;
        set_bit(cache, own, may_have(own));
    }
    return own;
}

/* Finds the entry elsewhere in its bucket.  Not inline: other callers would save registers for it. */
__attribute__((noinline)) static ac_entry_t *find_beside(ac_cache_t *cache, ac_entry_t *entry,
                                                         ac_entry_t *own) {
    change_places(cache, entry, own);
    return wake(cache, own);
}

ac_entry_t *ac_cache_find(ac_cache_t *cache, uint64_t key) {
    ac_entry_t *own = ac_cache_entry(cache, key);
    if (ac_entry_key(own) == key)
        return wake(cache, own);
    ac_entry_t *entry = ac_cache_peek(cache, key);
    return entry ? find_beside(cache, entry, own) : NULL;
}

static uint64_t frees(const ac_cache_t *cache) {
    return cache->tally->side[0].flow.given + cache->tally->side[1].flow.given;
}

ac_entry_t *ac_cache_keeps(ac_cache_t *cache, uint64_t key) {
    ac_entry_t *entry = ac_cache_find(cache, key);
    if (!entry || !(entry->size & AC_ENTRY_REFUSED))
        return entry;
    cache->refused = key;
    cache->refused_at = frees(cache);
    cache->refusals++;
    return NULL;
}

bool ac_cache_each(ac_cache_t *cache, int flow, bool act(ac_cache_t *, ac_entry_t *)) {
    bool any = false;
    unsigned left = flow == AC_FLOWS ? 1u << AC_CACHE_STREAMS : classes_of(cache, flow);
    for (; left; left &= left - 1) {
        int class = __builtin_ctz(left), i;
        EACH_KEPT(cache, class, i)
            any |= act(cache, &cache->entry[i]);
    }
    return any;
}

static bool has_blocks(ac_cache_t *cache, const ac_entry_t *entry) {
    return entry->top || *ac_cache_wait(cache, entry);
}

/* Returns an entry without blocks of the key's bucket, one that is not in use or the own place first; NULL: all
 * have blocks. */
static ac_entry_t *spare_entry(ac_cache_t *cache, uint64_t key) {
    ac_entry_t *own = ac_cache_entry(cache, key), *bucket = ac_cache_bucket(cache, own);
    ac_entry_t *spare = has_blocks(cache, own) ? NULL : own;
    for (int i = 0; i < AC_CACHE_WAYS && (!spare || spare->size); i++)
        if (!bucket[i].size || (!spare && !has_blocks(cache, &bucket[i])))
            spare = &bucket[i];
    return spare;
}

/* Makes an entry for a key that has none.  If all entries of its bucket have blocks, the key gets none. */
static void make_entry(ac_cache_t *cache, uint64_t key) {
    uint64_t size = ac_key_size(key);
    ac_entry_t *entry = spare_entry(cache, key);
    if (!entry)
        return;
    set_bit(cache, entry, false);
    *entry = (ac_entry_t){.size = key,
                          .charge = ac_cache_charge(size),
                          .class = (uint8_t)(key == size ? ac_cache_class(size) : AC_CACHE_STREAMS),
                          .side = &cache->tally->side[ac_cache_flow(size)]};
    set_bit(cache, entry, true);
    cache->made |= (uint64_t)1 << (entry - cache->entry) / AC_CACHE_PART;
}
_Static_assert(AC_CACHE_PART % AC_CACHE_WAYS == 0, "entries that change places are in one part");

/* --- blocks --- */

void ac_cache_put(ac_cache_t *cache, ac_entry_t *entry, ac_block_t *block) {
    cache->room -= entry->charge;
    if (block->home != cache) /* posted blocks have it already; do not write that cache line (block.h) */
        block->home = cache;
    block->link = entry->top;
    entry->top = block;
}

/* Frees ready blocks of the entry until the cache has `room`. */
static inline void release(ac_cache_t *cache, ac_entry_t *entry, int64_t room, uint64_t quiet) {
    uint64_t size = ac_entry_size(entry);
    int64_t blocks = 0;
    while (entry->top && cache->room < room) {
        ac_block_t *block = entry->top;
        entry->top = block->link;
        cache->room += entry->charge;
        blocks++;
        ac_block_uncache(block);
        ac_segment_coalesce(block, quiet);
    }
    ac_cache_count_moved(cache, -blocks, size);
}

/* Counts a block that was ready and waits from now on: it is active again. */
static void count_active(const ac_block_t *block) {
    ac_allocator_t *allocator = block->segment->arena->allocator;
    ac_device_stats_t *s = allocator->stats;
    int pool = block->segment->pool;
    bool *due = &allocator->peaks_due;
    ac_stat_pools_rise(s->active, pool, 1, AC_STAT_UNSEEN_BLOCKS, due);
    ac_stat_pools_rise(s->active_bytes, pool, (int64_t)block->size, AC_STAT_UNSEEN_BYTES, due);
    ac_stat_pools_rise(s->requested_bytes, pool, (int64_t)block->requested, AC_STAT_UNSEEN_BYTES,
                       due);
}

static ac_lane_t *lane_in(ac_lanes_t *lanes, uint64_t key) {
    return &lanes->lane[((key & (AC_GRANULE - 1)) >> AC_KEY_STREAM_SHIFT) - 1];
}

static bool leave_in_order(ac_cache_t *cache, ac_entry_t *entry, int64_t room) {
    ac_arena_t *arena = cache->arena;
    const ac_lane_t *lane = lane_in(cache->lanes, entry->size);
    bool any = entry->top, holds = any && ac_ordered_lane_holds(arena, &lane->order);
    for (ac_block_t *block; cache->room < room && (block = entry->top);) {
        entry->top = block->link;
        cache->room += entry->charge;
        ac_cache_count_moved(cache, -1, block->size);
        ac_block_uncache(block);
        count_active(block);
        ac_retired_late(block, arena->retired->order, holds ? lane->order.slot : AC_ORDER_NONE,
                        block->ticket.place);
    }
    return any;
}

bool ac_cache_shrink(ac_cache_t *cache, ac_entry_t *entry, int64_t room) {
    if (!entry->top || cache->room >= room)
        return false;
    if (entry->class == AC_CACHE_STREAMS)
        return leave_in_order(cache, entry, room);
    release(cache, entry, room, ac_fence_quiet(cache->timeline));
    return true;
}

/* Frees all ready blocks of the entry, including waiting blocks that became ready.  Returns true if there were
 * any. */
static inline bool empty(ac_cache_t *cache, ac_entry_t *entry, uint64_t quiet) {
    bool any = entry->top;
    if (any) {
        release(cache, entry, INT64_MAX, quiet);
        entry->fetched /= 2; /* more blocks were fetched than used */
    }
    if (*ac_cache_wait(cache, entry))
        any |= ac_cache_unpark(cache, entry, false);
    return any;
}

bool ac_cache_empty(ac_cache_t *cache, int flow) {
    uint64_t quiet = ac_fence_quiet(cache->timeline);
    bool any = false;
    for (unsigned classes = classes_of(cache, flow); classes; classes &= classes - 1) {
        int class = __builtin_ctz(classes);
        for (unsigned words = cache->words[class]; words; words &= words - 1) {
            int word = __builtin_ctz(words);
            uint64_t stays = 0;
            for (uint64_t left = cache->kept[class][word]; left; left &= left - 1) {
                ac_entry_t *entry = &cache->entry[word * 64 + __builtin_ctzll(left)];
                any |= empty(cache, entry, quiet);
                if (*ac_cache_wait(cache, entry))
                    stays |= left & -left;
                else
                    entry->size |= AC_ENTRY_EMPTY;
            }
            cache->kept[class][word] = stays;
            if (!stays)
                note_empty_word(cache, class, (size_t)word);
        }
    }
    return any;
}

void ac_cache_leave_stream(ac_cache_t *cache, uint64_t number, bool forget) {
    int i;
    EACH_KEPT(cache, AC_CACHE_STREAMS, i) {
        ac_entry_t *entry = &cache->entry[i];
        if ((ac_entry_key(entry) & (AC_GRANULE - 1)) != number)
            continue;
        leave_in_order(cache, entry, INT64_MAX);
        if (!forget)
            continue;
        set_bit(cache, entry, false);
        *entry = (ac_entry_t){.size = 0};
    }
}

static void fetch(ac_cache_t *cache, ac_entry_t *entry) {
    ac_arena_t *arena = cache->arena;
    uint64_t size = ac_entry_size(entry), most = FETCH_BYTES / size,
             wanted = 2 * (uint64_t)entry->fetched;
    most = most < FETCH_LEAST ? FETCH_LEAST : most > FETCH_MOST ? FETCH_MOST : most;
    wanted = entry->top ? 0 : wanted < 1 ? 1 : wanted > most ? most : wanted;
    entry->fetched = (uint8_t)wanted;
    cache->unseen[0] -= (int64_t)wanted * AC_CACHE_WEIGHT(size); /* each counts as a cut */
    for (; wanted && cache->room >= 0; wanted--) {
        ac_block_t *block = ac_segment_cut(&arena->space, AC_POOL_SMALL, size);
        if (!block)
            return;
        if (block->size != size) { /* no record for what is left */
            ac_segment_put_back(block);
            return;
        }
        AC_BLOCK_SET(block, owner_arena, arena->number);
        block->segment->allocated++;
        ac_cache_count_moved(cache, 1, size);
        ac_block_set_state(block, AC_BLOCK_CACHED);
        ac_cache_put(cache, entry, block);
    }
}

/* --- the budget --- */

static bool forget(ac_cache_t *cache, ac_entry_t *entry) {
    (void)cache;
    entry->size &= ~(uint64_t)AC_ENTRY_REFUSED;
    return false;
}

/* Returns the largest size with ready blocks; 0: none. */
static uint64_t largest_kept(const ac_cache_t *cache) {
    uint64_t largest = 0;
    int i;
    for (int class = AC_CACHE_STREAMS; class >= 0; class--) {
        if (largest && class < ac_cache_class(largest))
            break;
        EACH_KEPT(cache, class, i) {
            const ac_entry_t *entry = &cache->entry[i];
            if (entry->top && ac_entry_size(entry) > largest)
                largest = ac_entry_size(entry);
        }
    }
    return largest;
}

/* Gives back ready blocks down to 3/4 of the budget, the largest first.  It leaves waiting blocks, which have their
 * own limit and are not ready. */
static void sweep(ac_cache_t *cache) {
    int64_t wanted = (int64_t)(cache->budget / 4);
    for (uint64_t largest; cache->room < wanted && (largest = largest_kept(cache));) {
        int i, last = ac_cache_class(largest);
        for (int class = ac_cache_class(largest / 4 * 3); class <= AC_CACHE_STREAMS;
             class = class == last ? AC_CACHE_STREAMS : class + 1)
            EACH_KEPT(cache, class, i) {
                ac_entry_t *entry = &cache->entry[i];
                if (ac_entry_size(entry) > largest / 4 * 3 &&
                    ac_cache_shrink(cache, entry, wanted) && !entry->top)
                    entry->size |= AC_ENTRY_REFUSED;
            }
    }
}

/* Gives back ready blocks of the entry until `bytes` went.  Returns the bytes that went, at most that.
 * A large size is refused then: requests of other sizes would send it back and forth. */
static uint64_t give_some(ac_cache_t *cache, ac_entry_t *entry, uint64_t bytes) {
    uint64_t size = ac_entry_size(entry), blocks = (bytes - 1) / size + 1;
    int64_t room = cache->room;
    ac_cache_shrink(cache, entry, room + (int64_t)blocks * entry->charge);
    uint64_t given = (uint64_t)(cache->room - room) / entry->charge * size;
    if (size > AC_KEPT_CHARGE && !entry->top)
        entry->size |= AC_ENTRY_REFUSED;
    return given < bytes ? given : bytes;
}

bool ac_cache_give_way(ac_cache_t *cache, uint64_t largest, uint64_t bytes) {
    uint64_t before = bytes;
    for (int class = ac_cache_class(largest); class > 0; class--)
        for (unsigned words = cache->words[class]; words; words &= words - 1) {
            unsigned word = (unsigned)__builtin_ctz(words);
            ac_entry_t *entries = &cache->entry[word * 64];
            for (uint64_t left = cache->kept[class][word]; left; left &= left - 1) {
                ac_entry_t *entry = &entries[__builtin_ctzll(left)];
                if (!entry->top) /* of most sizes this large */
                    continue;
                if (!bytes)
                    return true;
                bytes -= give_some(cache, entry, bytes);
            }
        }
    return bytes < before;
}

ac_entry_t *ac_cache_make_room(ac_cache_t *cache, uint64_t key) {
    if (ac_key_size(key) > AC_CACHE_LARGEST || !cache->budget)
        return NULL;
    ac_entry_t *entry = ac_cache_keeps(cache, key);
    if (entry && cache->room < 0 && !ac_cache_lease(cache, false)) {
        sweep(cache);
        entry->size = key; /* clears a refusal by the sweep, because this size is freed just now */
    }
    return entry;
}

void ac_cache_expect(ac_cache_t *cache, int pool, uint64_t key, bool known) {
    ac_entry_t *own = ac_cache_entry(cache, key);
    ac_entry_t *entry = !known ? NULL : own->size == key ? own : ac_cache_find(cache, key);
    if (!entry) {
        if (known && !ac_cache_was_seen(cache, key))
            return;
        make_entry(cache, key);
        if (!(entry = ac_cache_find(cache, key)))
            return;
    }
    /* The key was refused and is requested again, with at most one free in between. */
    if (key == cache->refused && frees(cache) <= cache->refused_at + 1)
        entry->size = key;
    if (cache->refusals >= REFUSALS) {
        cache->refusals = 0;
        for (int flow = 0; flow <= AC_FLOWS; flow++)
            ac_cache_each(cache, flow, forget);
    }
    if (pool == AC_POOL_SMALL && key <= AC_SMALL_LIMIT && !(entry->size & AC_ENTRY_REFUSED))
        fetch(cache, entry);
}

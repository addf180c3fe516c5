/* The device address space: one reservation without access rights, its mirror with the contents,
 * and the free addresses.  Global lock.
 *
 * Free ranges are kept twice: by address, to coalesce, and in size bins, newest first, so that a
 * freed address is soon reused.  Small and large allocations live in different parts.  All sizes
 * and addresses in the large part are multiples of 2 MiB. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "state.h"
#include "tsan.h"

typedef struct range {
    sim_node_t node; /* key: first address; must be first */
    uint64_t size;
    struct range *next, **link; /* bin */
} range_t;

enum { SUB_BITS = 2, BINS = 64 << SUB_BITS };

typedef struct {
    uint64_t first, end;
    uint64_t grain;
    sim_node_t *by_address;
    range_t *bins[BINS];
    uint64_t used_bins[BINS / 64];
} arena_t;

int64_t sim_mirror_delta;
int sim_mirror_fd = -1;
static uint64_t space_base, space_size;
static arena_t small_arena = {.grain = SIM_SMALL_ALIGN}, large_arena = {.grain = SIM_LARGE_ALIGN};

uint64_t sim_space_base(void) {
    return space_base;
}

bool sim_space_holds(uint64_t address) {
    return address - space_base < space_size;
}

void *sim_reserve(uint64_t size, int protection, int flags, int file_or_none) {
    static uint64_t next = SIM_FIRST_ADDRESS;
    uint64_t wanted = next;
    next += (size + (1ull << 30) - 1) >> 30 << 30;
    void *at = MAP_FAILED;
    if (sim_config.virtual_clock && next <= SIM_LAST_ADDRESS)
        at = mmap((void *)(uintptr_t)wanted, size, protection, flags | MAP_FIXED_NOREPLACE,
                  file_or_none, 0);
    return at == MAP_FAILED ? mmap(NULL, size, protection, flags, file_or_none, 0) : at;
}

static unsigned bin_of(uint64_t size) {
    unsigned log = 63 - (unsigned)__builtin_clzll(size);
    return log << SUB_BITS | (unsigned)(size >> (log - SUB_BITS) & ((1 << SUB_BITS) - 1));
}

static void put(arena_t *arena, range_t *range) {
    unsigned bin = bin_of(range->size);
    range->next = arena->bins[bin];
    range->link = &arena->bins[bin];
    if (range->next)
        range->next->link = &range->next;
    arena->bins[bin] = range;
    arena->used_bins[bin / 64] |= 1ull << bin % 64;
    sim_tree_insert(&arena->by_address, &range->node);
}

static void take_out(arena_t *arena, range_t *range) {
    unsigned bin = bin_of(range->size);
    *range->link = range->next;
    if (range->next)
        range->next->link = range->link;
    if (!arena->bins[bin])
        arena->used_bins[bin / 64] &= ~(1ull << bin % 64);
    sim_tree_remove(&arena->by_address, &range->node);
}

static bool add_free(arena_t *arena, uint64_t first, uint64_t size) {
    range_t *range = size ? calloc(1, sizeof *range) : NULL;
    if (!range)
        return !size;
    range->node.key = first;
    range->size = size;
    put(arena, range);
    return true;
}

static uint64_t round_up(uint64_t value, uint64_t align) {
    return (value + align - 1) & ~(align - 1);
}

/* Returns a range of one bin that can hold the request, after a search of `most` of them. */
static range_t *find_in(const arena_t *arena, unsigned bin, uint64_t size, uint64_t align,
                        unsigned most) {
    for (range_t *range = arena->bins[bin]; range && most; range = range->next, most--) {
        uint64_t at = round_up(range->node.key, align);
        if (at + size <= range->node.key + range->size)
            return range;
    }
    return NULL;
}

/* Returns the first range of the bins that can hold the request; NULL: none.  In the bin of the
 * size itself many ranges may be too small, so only a few are tried unless nothing else is left. */
static range_t *find(const arena_t *arena, uint64_t size, uint64_t align) {
    enum { FEW = 16 };
    unsigned own = bin_of(size);
    range_t *range = find_in(arena, own, size, align, FEW);
    for (unsigned bin = own + 1; !range && bin < BINS; bin++) {
        uint64_t later = arena->used_bins[bin / 64] >> bin % 64;
        if (!later) {
            bin |= 63;
            continue;
        }
        bin += (unsigned)__builtin_ctzll(later);
        range = find_in(arena, bin, size, align, UINT32_MAX);
    }
    return range ? range : find_in(arena, own, size, align, UINT32_MAX);
}

/* Cuts [at, at + size) out of a free range that contains it. */
static bool cut(arena_t *arena, range_t *range, uint64_t at, uint64_t size) {
    uint64_t before = at - range->node.key;
    uint64_t after = range->node.key + range->size - at - size;
    if (before && after) { /* adds a range: memory comes first, the rest cannot fail */
        if (!add_free(arena, at + size, after))
            return false;
        after = 0;
        take_out(arena, range);
        range->size = before;
        put(arena, range);
        return true;
    }
    take_out(arena, range);
    if (!before && !after) {
        free(range);
        return true;
    }
    if (after)
        range->node.key = at + size;
    range->size = before + after;
    put(arena, range);
    return true;
}

uint64_t sim_range_take(uint64_t size, uint64_t align, uint64_t hint) {
    if (!size || size > space_size)
        return 0;
    bool large = size >= SIM_LARGE_SIZE || align >= SIM_LARGE_ALIGN;
    arena_t *arena = large ? &large_arena : &small_arena;
    if (align < arena->grain)
        align = arena->grain;
    size = round_up(size, align);
    if (hint && hint % align == 0) {
        range_t *range = (range_t *)(void *)sim_tree_floor(arena->by_address, hint);
        if (range && hint + size <= range->node.key + range->size)
            return cut(arena, range, hint, size) ? hint : 0;
    }
    range_t *range = find(arena, size, align);
    if (!range)
        return 0;
    uint64_t at = round_up(range->node.key, align);
    return cut(arena, range, at, size) ? at : 0;
}

void sim_range_give(uint64_t address, uint64_t size) {
    bool large = address >= large_arena.first;
    arena_t *arena = large ? &large_arena : &small_arena;
    size = round_up(size, arena->grain);
    range_t *before = (range_t *)(void *)sim_tree_floor(arena->by_address, address);
    range_t *after = (range_t *)(void *)sim_tree_find(arena->by_address, address + size);
    if (before && before->node.key + before->size == address) {
        take_out(arena, before);
        before->size += size;
    } else {
        before = NULL;
    }
    if (after) {
        take_out(arena, after);
        size += after->size;
        if (before) {
            before->size += after->size;
            free(after);
        } else {
            after->node.key = address;
            after->size = size;
            before = after;
        }
    }
    if (before)
        put(arena, before);
    else
        add_free(arena, address, size); /* without memory only the addresses are lost */
}

void sim_mirror_discard(uint64_t address, uint64_t size) {
    char *at = (char *)(uintptr_t)(address + (uint64_t)sim_mirror_delta);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t first = round_up(address, page), end = (address + size) & ~(page - 1);
    if (first >= end)
        return; /* shares its pages with neighbours */
    madvise(at + (first - address), end - first,
            sim_mirror_fd >= 0 ? MADV_REMOVE : MADV_DONTNEED);
}

void sim_mirror_restore(uint64_t address, uint64_t size) {
    char *at = (char *)(uintptr_t)(address + (uint64_t)sim_mirror_delta);
    int flags = MAP_FIXED | MAP_NORESERVE;
    flags |= sim_mirror_fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    mmap(at, size, PROT_READ | PROT_WRITE, flags, sim_mirror_fd,
         sim_mirror_fd >= 0 ? (off_t)(address - space_base) : 0);
    sim_mirror_discard(address, size);
}

void sim_mirror_bar(uint64_t address, uint64_t size, bool barred) {
    mprotect((char *)(uintptr_t)(address + (uint64_t)sim_mirror_delta), size,
             barred ? PROT_NONE : PROT_READ | PROT_WRITE);
}

/* Maps the mirror as a memory file, which other processes can map, too.  If file sizes are limited,
 * an anonymous mirror does everything else. */
static void *map_mirror(uint64_t size) {
    struct rlimit limit;
    sim_mirror_fd = -1;
    if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur >= size)
        sim_mirror_fd = memfd_create("simcuda", MFD_CLOEXEC);
    if (sim_mirror_fd >= 0 && ftruncate(sim_mirror_fd, (off_t)size)) {
        close(sim_mirror_fd);
        sim_mirror_fd = -1;
    }
    int flags = sim_mirror_fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    void *mirror =
        sim_reserve(size, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, sim_mirror_fd);
    if (mirror == MAP_FAILED && sim_mirror_fd >= 0) {
        close(sim_mirror_fd);
        sim_mirror_fd = -1;
    }
    return mirror;
}

/* Reserves the device's address space, as much as the host allows: ulimit -v and valgrind limit it.
 * SIMCUDA_SPACE_GB is the upper limit, because emulators of other machines pay for every page. */
bool sim_space_start(void) {
    if (space_base)
        return true;
    uint64_t wanted = 32 * sim_config.devices * sim_config.memory; /* programs reserve some */
    uint64_t size = 256ull << 30;
    const char *most = getenv("SIMCUDA_SPACE_GB");
    while (size < wanted && size < 16ull << 40)
        size *= 2;
    if (most && atoll(most) > 0 && atoll(most) < (long long)(size >> 30))
        size = (uint64_t)atoll(most) << 30;
    for (; size >= 64ull << 20; size /= 2) {
        char *reserved = sim_reserve(size + SIM_LARGE_ALIGN, PROT_NONE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
        if (reserved == MAP_FAILED)
            continue;
        void *mirror = map_mirror(size);
        if (mirror == MAP_FAILED) {
            munmap(reserved, size + SIM_LARGE_ALIGN);
            continue;
        }
        madvise(mirror, size, MADV_DONTDUMP);
        space_base = round_up((uint64_t)(uintptr_t)reserved, SIM_LARGE_ALIGN);
        space_size = size;
        sim_mirror_delta = (int64_t)((uint64_t)(uintptr_t)mirror - space_base);
        small_arena.first = space_base;
        small_arena.end = large_arena.first = space_base + size / 8;
        large_arena.end = space_base + size;
        return add_free(&small_arena, small_arena.first, size / 8) &&
               add_free(&large_arena, large_arena.first, size - size / 8);
    }
    return false;
}

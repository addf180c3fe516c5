/* Compares the chosen place in a range with all possible places. */
#include <check.h>
#include <stdlib.h>

#include "allocator/allocator_int.h"
#include "allocator/space/place.h"
#include "run_suite.h"

#define MIB  ((uint64_t)1 << 20)
#define BASE ((uint64_t)0x300000000000)

enum { MOST = 64 };

static ac_segment_t segment;
static ac_range_t range;
static ac_block_t block[MOST];
static unsigned blocks;
static uint64_t seed;

static uint64_t draw(uint64_t below) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

static void start(void) {
    range = (ac_range_t){.address = BASE, .segment = &segment};
    segment = (ac_segment_t){.address = BASE, .range = &range};
    blocks = 0;
}

static void add(ac_block_state_t state, uint64_t size) {
    ck_assert_uint_lt(blocks, MOST);
    ac_block_t *b = &block[blocks], *prev = blocks ? b - 1 : NULL;
    *b = (ac_block_t){.address = BASE + range.size,
                      .size = size,
                      .prev = prev,
                      .segment = &segment,
                      .state = state};
    if (prev)
        prev->next = b;
    if (state == AC_BLOCK_UNMAPPED) {
        b->list_next = range.unmapped;
        range.unmapped = b;
    }
    range.size += size;
    blocks++;
}

/* Lays a range out. `text`: F free, U unmapped, A allocated, each with its size in MiB. */
static void lay_out(const char *text) {
    start();
    for (char *end; *text; text = end) {
        char kind = *text;
        uint64_t size = strtoull(text + 1, &end, 10) * MIB;
        add(kind == 'F'   ? AC_BLOCK_FREE
            : kind == 'U' ? AC_BLOCK_UNMAPPED
                          : AC_BLOCK_ALLOCATED,
            size);
    }
}

static void expect(const char *text, uint64_t size, uint64_t page, uint64_t at,
                   uint64_t missing) {
    ac_place_t place;
    lay_out(text);
    ck_assert_msg(ac_place_find(&range, size * MIB, page * MIB, &place), "%s: no place", text);
    ck_assert_msg(place.missing == missing * MIB, "%s: %llu MiB missing, not %llu", text,
                  (unsigned long long)(place.missing / MIB), (unsigned long long)missing);
    ck_assert_msg(place.address == BASE + at * MIB, "%s: at %llu MiB, not %llu", text,
                  (unsigned long long)((place.address - BASE) / MIB), (unsigned long long)at);
}

START_TEST(chosen) {
    expect("U64", 10, 8, 0, 16);          /* the beginning */
    expect("A3F5U56", 13, 8, 3, 8);       /* the free part in front helps */
    expect("A8U16F8A8U64", 12, 8, 20, 8); /* right-aligned: the free part is behind */
    expect("A8U8F8A8F4U60", 10, 8, 8, 8); /* equally few pages: the smaller run */
    expect("A2U16A8", 8, 8, 8, 8);        /* one whole page, not parts of two */
    expect("A8U8F7A1U8F8A8", 15, 8, 8, 8);
    expect("A8U16A8F8U8F8A8U64", 24, 8, 32, 8);  /* over a gap */
    expect("A8U16A8U8F40U8A8U64", 44, 8, 32, 8); /* one end of two */
    expect("A2U6A8", 5, 8, 2, 6);                /* cuts pages at the end of others */
    expect("A8U64", 9, 2, 8, 10);
    ac_place_t place;
    lay_out("A8F8A8U8A8");
    ck_assert(!ac_place_find(&range, 9 * MIB, 2 * MIB, &place));
    lay_out("A8F8A8");
    ck_assert(!ac_place_find(&range, MIB, 2 * MIB, &place)); /* needs no place in a range */
}
END_TEST

/* Makes a random realistic layout: unmapped blocks consist of whole units, and two open blocks
 * of a kind are not adjacent. */
static void random_layout(uint64_t page) {
    start();
    ac_block_state_t last = AC_BLOCK_UNUSED;
    unsigned parts = 4 + (unsigned)draw(20);
    uint64_t odd = 0; /* bytes beyond a whole unit so far */
    for (unsigned i = 0; i < parts; i++) {
        static const ac_block_state_t states[] = {AC_BLOCK_FREE, AC_BLOCK_UNMAPPED,
                                                  AC_BLOCK_ALLOCATED, AC_BLOCK_RETIRED,
                                                  AC_BLOCK_MOVING};
        ac_block_state_t state = states[draw(draw(2) ? 2 : 5)];
        uint64_t size = (1 + draw(24)) * AC_GRANULE * 1024;
        if (state == last && (state == AC_BLOCK_FREE || state == AC_BLOCK_UNMAPPED))
            continue;
        if (state == AC_BLOCK_UNMAPPED) {
            if (odd)
                continue;
            uint64_t unit = draw(4) ? page : AC_SEGMENT_ALIGN;
            size = (1 + draw(4)) * unit;
        }
        add(state, size);
        odd = range.size % AC_SEGMENT_ALIGN;
        last = state;
    }
}

/* Returns the bytes of pages missing in [at, at + size); UINT64_MAX: a block is in the way. */
static uint64_t lacks(uint64_t at, uint64_t size, uint64_t page) {
    uint64_t missing = 0;
    for (unsigned i = 0; i < blocks; i++) {
        const ac_block_t *b = &block[i];
        uint64_t end = b->address + b->size;
        if (end <= at || b->address >= at + size)
            continue;
        if (b->state == AC_BLOCK_UNMAPPED) {
            uint64_t from = at > b->address ? BASE + (at - BASE) / page * page : b->address;
            uint64_t to =
                at + size < end ? BASE + (at + size - BASE + page - 1) / page * page : end;
            missing += (to < end ? to : end) - (from > b->address ? from : b->address);
        } else if (b->state != AC_BLOCK_FREE) {
            return UINT64_MAX;
        }
    }
    return missing;
}

START_TEST(least_of_all) {
    unsigned found = 0;
    seed = 77 + (uint64_t)_i;
    for (int round = 0; round < 300; round++) {
        uint64_t page = draw(2) ? 8 * MIB : AC_SEGMENT_ALIGN, least = UINT64_MAX;
        uint64_t size = (1 + draw(80)) * AC_GRANULE * 1024;
        random_layout(page);
        for (uint64_t at = BASE; at + size <= BASE + range.size; at += AC_GRANULE * 1024) {
            uint64_t missing = lacks(at, size, page);
            least = missing && missing < least ? missing : least; /* 0: free memory fits */
        }
        ac_place_t place;
        if (!ac_place_find(&range, size, page, &place)) {
            ck_assert_uint_eq(least, UINT64_MAX);
            continue;
        }
        found++;
        uint64_t here = lacks(place.address, size, page);
        ck_assert_uint_eq(place.missing, here);
        ck_assert_uint_le(here, least);
        ck_assert_uint_le(place.from, place.address);
        ck_assert_uint_ge(place.to, place.address + size);
        ck_assert(place.block->address <= place.address && place.from >= place.block->address &&
                  place.from < place.block->address + place.block->size);
        ck_assert_uint_eq(lacks(place.from, place.to - place.from, page), here);
    }
    ck_assert_uint_gt(found, 50);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("place");
    TCase *tests = tcase_create("place");
    tcase_add_test(tests, chosen);
    tcase_add_loop_test(tests, least_of_all, 0, 8);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}

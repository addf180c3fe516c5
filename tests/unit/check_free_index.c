/* The free index against a plain list: each found block fits and is near the best, and no fitting
 * block is missed. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/space/free_index.h"
#include "run_suite.h"

enum { BLOCKS = 600 };
static ac_block_t *bins[AC_BINS];
static ac_free_index_t free_blocks = {.bin = bins};
static ac_block_t block[BLOCKS];
static bool inside[BLOCKS];
static uint64_t state = 88172645463325252u;

static uint64_t draw(uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

START_TEST(bins_grow_with_the_size) {
    unsigned last = ac_free_index_bin(AC_GRANULE);
    ck_assert_uint_gt(last, 0);
    for (uint64_t size = AC_GRANULE; size < (uint64_t)1 << 50;
         size += (size / 256 / AC_GRANULE + 1) * AC_GRANULE) {
        unsigned bin = ac_free_index_bin(size);
        ck_assert_uint_ge(bin, last);
        ck_assert_uint_lt(bin, AC_BINS - 1); /* for sizes that cannot occur */
        last = bin;
    }
    for (uint64_t power = (uint64_t)64 * AC_GRANULE; power < (uint64_t)1 << 49; power *= 2)
        ck_assert_uint_eq(ac_free_index_bin(2 * power) - ac_free_index_bin(power), 64);
    ck_assert_uint_eq(ac_free_index_bin((uint64_t)1 << 62), AC_BINS - 1);
}
END_TEST

static ac_block_t *best(const ac_fit_t *fit) {
    ac_block_t *found = NULL;
    for (int i = 0; i < BLOCKS; i++)
        if (inside[i] && block[i].size >= fit->size && block[i].size >= fit->least &&
            block[i].size < fit->below && (!found || block[i].size < found->size))
            found = &block[i];
    return found;
}

START_TEST(finds_what_fits) {
    for (unsigned step = 0; step < 200000; step++) {
        unsigned i = (unsigned)draw(BLOCKS);
        if (inside[i]) {
            ac_free_index_remove(&free_blocks, &block[i]);
        } else {
            block[i].size = (1 + draw((uint64_t)1 << (1 + draw(20)))) * AC_GRANULE;
            ac_free_index_insert(&free_blocks, &block[i]);
        }
        inside[i] = !inside[i];

        ac_fit_t fit = {(1 + draw((uint64_t)1 << (1 + draw(20)))) * AC_GRANULE, 0, UINT64_MAX, 0};
        if (draw(4) == 0)
            fit.below = fit.size + draw(fit.size) + 1;
        if (draw(8) == 0)
            fit.least = fit.size + draw(fit.size);
        ac_block_t *exact = best(&fit);
        ac_block_t *found = ac_free_index_find(&free_blocks, &fit, true);
        ck_assert((exact == NULL) == (found == NULL)); /* no fitting block is missed */
        if (found) {
            ck_assert(found->size >= fit.size && found->size >= fit.least &&
                      found->size < fit.below);
            ck_assert_uint_eq(found->size, exact->size); /* the whole bin was searched */
        }
        found = ac_free_index_find(&free_blocks, &fit, false);
        if (found) {
            ck_assert(found->size >= fit.size && found->size >= fit.least &&
                      found->size < fit.below);
            uint64_t from = fit.size > fit.least ? fit.size : fit.least;
            if (ac_free_index_bin(exact->size) >
                ac_free_index_bin(from)) /* the scan did not miss it */
                ck_assert_uint_eq(ac_free_index_bin(found->size), ac_free_index_bin(exact->size));
        }
        if (!found && fit.below == UINT64_MAX && exact) /* only a long own bin may hide it */
            ck_assert_uint_eq(ac_free_index_bin(exact->size),
                              ac_free_index_bin(fit.size > fit.least ? fit.size : fit.least));
    }
}
END_TEST

START_TEST(an_exact_fit_wins) {
    static const uint64_t sizes[] = {70, 65, 64, 66, 71};
    for (int i = 0; i < 5; i++) {
        block[i].size = sizes[i] * AC_GRANULE;
        ac_free_index_insert(&free_blocks, &block[i]);
    }
    ac_fit_t fit = {64 * AC_GRANULE, 0, UINT64_MAX, 0};
    ck_assert_ptr_eq(ac_free_index_find(&free_blocks, &fit, false), &block[2]);
    fit.size = 65 * AC_GRANULE;
    ck_assert_ptr_eq(ac_free_index_find(&free_blocks, &fit, false), &block[1]);
    fit.size = 72 * AC_GRANULE;
    ck_assert_ptr_null(ac_free_index_find(&free_blocks, &fit, true));
}
END_TEST

START_TEST(the_scan_is_bounded) {
    for (int i = 0; i < 40; i++) { /* all in one bin; the fitting block is the oldest */
        block[i].size = (i == 0 ? 4159 : 4096) * AC_GRANULE;
        ac_free_index_insert(&free_blocks, &block[i]);
    }
    ac_fit_t fit = {4150 * AC_GRANULE, 0, UINT64_MAX, 0};
    ck_assert_ptr_null(ac_free_index_find(&free_blocks, &fit, false));
    ck_assert_ptr_eq(ac_free_index_find(&free_blocks, &fit, true), &block[0]);
}
END_TEST

/* Mirror of the blocks in an index of their own, updated by remove and insert only. */
static ac_block_t *plain_bins[AC_BINS];
static ac_free_index_t plain = {.bin = plain_bins};
static ac_block_t plain_block[BLOCKS];

static void same_order(unsigned bin) {
    const ac_block_t *one = bins[bin], *other = plain_bins[bin];
    for (; one && other; one = one->bin_next, other = other->bin_next) {
        ck_assert_int_eq(one - block, other - plain_block);
        ck_assert_uint_eq(one->bin, bin);
        ck_assert(one->bin_next == NULL || one->bin_next->bin_at == &one->bin_next);
    }
    ck_assert(!one && !other);
    ck_assert_uint_eq(free_blocks.nonempty[bin / 64] >> bin % 64 & 1, bins[bin] != NULL);
}

/* Grows the block. If it is in the index, its place is as if it had left and come again. */
static void grow(unsigned i) {
    if (!plain_block[i].size)
        return;
    unsigned old = block[i].bin;
    ac_free_index_remove(&plain, &plain_block[i]);
    block[i].size = plain_block[i].size += draw(4) * AC_GRANULE;
    ac_free_index_insert(&plain, &plain_block[i]);
    ac_free_index_replace(&free_blocks, &block[i], &block[i]);
    same_order(old);
    same_order(block[i].bin);
}

/* The rest of a block lies in its bin as if the block had left and the rest had come. The order
 * in a bin decides which block is found. */
START_TEST(a_rest_takes_the_place_of_the_whole) {
    enum { WHOLE = BLOCKS / 2 };
    unsigned in_place = 0;
    for (int i = 0; i < WHOLE; i++) {
        block[i].size = plain_block[i].size =
            (1 + draw((uint64_t)1 << (1 + draw(14)))) * AC_GRANULE;
        ac_free_index_insert(&free_blocks, &block[i]);
        ac_free_index_insert(&plain, &plain_block[i]);
    }
    for (unsigned step = 0; step < 20000; step++) {
        int from = (int)draw(BLOCKS), to = (int)draw(BLOCKS);
        if (!plain_block[from].size || plain_block[to].size) /* 0: not in the index */
            continue;
        uint64_t size = block[from].size,
                 rest = size - draw(size / AC_GRANULE / 16 + 1) * AC_GRANULE;
        unsigned old = block[from].bin, new = ac_free_index_bin(rest);
        in_place += old == new && block[from].bin_at == &bins[old];
        block[to].size = plain_block[to].size = rest;
        ac_free_index_replace(&free_blocks, &block[from], &block[to]);
        ac_free_index_remove(&plain, &plain_block[from]);
        ac_free_index_insert(&plain, &plain_block[to]);
        plain_block[from].size = 0;
        if (rest < 64 * AC_GRANULE) { /* otherwise all of them would end there */
            ac_free_index_remove(&free_blocks, &block[to]);
            ac_free_index_remove(&plain, &plain_block[to]);
            block[to].size = plain_block[to].size = (1 + draw(1 << 14)) * AC_GRANULE;
            ac_free_index_insert(&free_blocks, &block[to]);
            ac_free_index_insert(&plain, &plain_block[to]);
        }
        same_order(old);
        same_order(new);
        grow((unsigned)draw(BLOCKS));
        ac_fit_t fit = {(1 + draw(1 << 14)) * AC_GRANULE, 0, UINT64_MAX, 0};
        ck_assert_ptr_eq(ac_free_index_first(&free_blocks, fit.size, fit.below),
                         ac_free_index_find(&free_blocks, &fit, false));
    }
    for (unsigned bin = 0; bin < AC_BINS; bin++)
        same_order(bin);
    ck_assert_uint_gt(in_place, 200);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("free_index");
    TCase *tests = tcase_create("free_index");
    tcase_add_test(tests, bins_grow_with_the_size);
    tcase_add_test(tests, finds_what_fits);
    tcase_add_test(tests, an_exact_fit_wins);
    tcase_add_test(tests, the_scan_is_bounded);
    tcase_add_test(tests, a_rest_takes_the_place_of_the_whole);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}

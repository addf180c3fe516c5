/* The page map: what is set is found, exactly and from inside, and nothing else. */
#include <check.h>
#include <stdlib.h>

#include "allocator/page_map.h"

#define PAGE AC_SEGMENT_ALIGN
/* Only addresses of these are used. */
static char owner_a, owner_b, block_x, block_y, block_z;
#define OWNER(name) ((struct ac_arena *)(void *)&owner_##name)
#define BLOCK(name) ((struct ac_block *)(void *)&block_##name)

/* Where two nodes of the tree meet. */
static const uint64_t bases[] = {PAGE, (uint64_t)1 << 35, ((uint64_t)1 << 35) - 2 * PAGE,
                                 ((uint64_t)1 << 49) - 8 * PAGE};
enum { BASES = 4 };

START_TEST(covered_pages_have_an_owner) {
    uint64_t base = bases[_i];
    ck_assert(ac_page_map_cover(base, 4 * PAGE, OWNER(a)));
    ck_assert_ptr_eq(ac_page_map_owner(base), OWNER(a));
    ck_assert_ptr_eq(ac_page_map_owner(base + 4 * PAGE - 1), OWNER(a));
    ck_assert_ptr_null(ac_page_map_owner(base - 1));
    ck_assert_ptr_null(ac_page_map_owner(base + 4 * PAGE));
    ac_page_map_uncover(base, 4 * PAGE);
    ck_assert_ptr_null(ac_page_map_owner(base));
    ck_assert_ptr_null(ac_page_map_owner(base + 3 * PAGE));
}
END_TEST

START_TEST(blocks_are_found_exactly) {
    uint64_t base = bases[_i];
    ck_assert(ac_page_map_cover(base, 4 * PAGE, OWNER(a)));
    for (unsigned slot = 0; slot < 4 * (PAGE >> AC_GRANULE_BITS); slot += 61) {
        uint64_t address = base + ((uint64_t)slot << AC_GRANULE_BITS);
        ck_assert_ptr_null(ac_page_map_get(address));
        ac_page_map_set(address, BLOCK(x));
        ck_assert_ptr_eq(ac_page_map_get(address), BLOCK(x));
        ck_assert_ptr_null(ac_page_map_get(address + 1));
        ck_assert_ptr_null(ac_page_map_get(address + AC_GRANULE / 2));
        ac_page_map_set(address, NULL);
        ck_assert_ptr_null(ac_page_map_get(address));
    }
    ac_page_map_uncover(base, 4 * PAGE);
}
END_TEST

/* Three blocks; the middle one starts in a page's last word and spans whole pages. */
START_TEST(blocks_are_found_from_inside) {
    uint64_t base = bases[_i];
    uint64_t x = base, y = base + PAGE - AC_GRANULE, z = base + 3 * PAGE + 64 * AC_GRANULE;
    ck_assert(ac_page_map_cover(base, 4 * PAGE, OWNER(a)));
    ac_page_map_set(x, BLOCK(x));
    ac_page_map_set(y, BLOCK(y));
    ac_page_map_set(z, BLOCK(z));
    for (uint64_t at = base; at < base + 4 * PAGE; at += AC_GRANULE - 1) {
        struct ac_block *want = at < y ? BLOCK(x) : at < z ? BLOCK(y) : BLOCK(z);
        ck_assert_ptr_eq(ac_page_map_find(at), want);
    }
    ac_page_map_set(y, NULL);
    ck_assert_ptr_eq(ac_page_map_find(z - 1), BLOCK(x));
    ac_page_map_set(z, NULL);
    ck_assert_ptr_eq(ac_page_map_find(base + 4 * PAGE - 1), BLOCK(x));
    ac_page_map_set(x, NULL);
    ck_assert_ptr_null(ac_page_map_find(base + 4 * PAGE - 1));
    ac_page_map_uncover(base, 4 * PAGE);
}
END_TEST

START_TEST(a_search_stops_at_foreign_pages) {
    uint64_t base = bases[1];
    ck_assert(ac_page_map_cover(base, PAGE, OWNER(a)));
    ck_assert(ac_page_map_cover(base + PAGE, PAGE, OWNER(b)));
    ac_page_map_set(base, BLOCK(x));
    ck_assert_ptr_null(ac_page_map_find(base + PAGE));
    ck_assert_ptr_null(ac_page_map_find(base + 2 * PAGE));
    ck_assert_ptr_eq(ac_page_map_find(base + PAGE - 1), BLOCK(x));
}
END_TEST

START_TEST(addresses_beyond_the_map_are_refused) {
    uint64_t limit = (uint64_t)1 << 49;
    ck_assert(!ac_page_map_cover(limit, PAGE, OWNER(a)));
    ck_assert(!ac_page_map_cover(limit - PAGE, 2 * PAGE, OWNER(a)));
    ck_assert(!ac_page_map_cover(UINT64_MAX - PAGE + 1, PAGE, OWNER(a)));
    static const uint64_t strange[] = {
        0, 1, 512, (uint64_t)1 << 49, UINT64_MAX, UINT64_MAX - 511};
    for (unsigned i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        ck_assert_ptr_null(ac_page_map_owner(strange[i]));
        ck_assert_ptr_null(ac_page_map_get(strange[i]));
        ck_assert_ptr_null(ac_page_map_find(strange[i]));
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("page_map");
    TCase *tests = tcase_create("page_map");
    tcase_add_loop_test(tests, covered_pages_have_an_owner, 0, BASES);
    tcase_add_loop_test(tests, blocks_are_found_exactly, 0, BASES);
    tcase_add_loop_test(tests, blocks_are_found_from_inside, 0, BASES);
    tcase_add_test(tests, a_search_stops_at_foreign_pages);
    tcase_add_test(tests, addresses_beyond_the_map_are_refused);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}

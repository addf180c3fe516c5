/* The page map: every block that was set is found, by its address and from inside, and no other. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "allocator/space/page_map.h"
#include "run_suite.h"

#define PAGE AC_SEGMENT_ALIGN
/* Only the addresses of these are used. */
static char owner_a, owner_b, block_x, block_y, block_z;
#define OWNER(name) ((struct ac_arena *)(void *)&owner_##name)
#define BLOCK(name) ((struct ac_block *)(void *)&block_##name)

/* Places at which two nodes of the tree meet. */
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
        ck_assert(ac_page_map_set(address, BLOCK(x)));
        ck_assert_ptr_eq(ac_page_map_get(address), BLOCK(x));
        ck_assert_ptr_null(ac_page_map_get(address + 1));
        ck_assert_ptr_null(ac_page_map_get(address + AC_GRANULE / 2));
        ac_page_map_clear(address);
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
    ck_assert(ac_page_map_set(x, BLOCK(x)));
    ck_assert(ac_page_map_set(y, BLOCK(y)));
    ck_assert(ac_page_map_set(z, BLOCK(z)));
    for (uint64_t at = base; at < base + 4 * PAGE; at += AC_GRANULE - 1) {
        struct ac_block *want = at < y ? BLOCK(x) : at < z ? BLOCK(y) : BLOCK(z);
        ck_assert_ptr_eq(ac_page_map_find(at), want);
    }
    ac_page_map_clear(y);
    ck_assert_ptr_eq(ac_page_map_find(z - 1), BLOCK(x));
    ac_page_map_clear(z);
    ck_assert_ptr_eq(ac_page_map_find(base + 4 * PAGE - 1), BLOCK(x));
    ac_page_map_clear(x);
    ck_assert_ptr_null(ac_page_map_find(base + 4 * PAGE - 1));
    ac_page_map_uncover(base, 4 * PAGE);
}
END_TEST

START_TEST(a_search_stops_at_foreign_pages) {
    uint64_t base = bases[1];
    ck_assert(ac_page_map_cover(base, PAGE, OWNER(a)));
    ck_assert(ac_page_map_cover(base + PAGE, PAGE, OWNER(b)));
    ck_assert(ac_page_map_set(base, BLOCK(x)));
    ck_assert_ptr_null(ac_page_map_find(base + PAGE));
    ck_assert_ptr_null(ac_page_map_find(base + 2 * PAGE));
    ck_assert_ptr_eq(ac_page_map_find(base + PAGE - 1), BLOCK(x));
}
END_TEST

START_TEST(only_the_owner_finds_its_blocks) {
    uint64_t base = bases[1];
    ck_assert(ac_page_map_cover(base, PAGE, OWNER(a)));
    ck_assert(ac_page_map_set(base + AC_GRANULE, BLOCK(x)));
    ck_assert_ptr_eq(ac_page_map_look(base + AC_GRANULE, OWNER(a)), BLOCK(x));
    ck_assert_ptr_null(ac_page_map_look(base + AC_GRANULE + 1, OWNER(a)));
    ck_assert_ptr_null(ac_page_map_look(base, OWNER(a)));
    ck_assert_ptr_null(ac_page_map_look(base + AC_GRANULE, OWNER(b)));
    ck_assert_ptr_null(ac_page_map_look(base - PAGE, OWNER(a)));
    ck_assert_ptr_null(ac_page_map_look((uint64_t)1 << 49, OWNER(a)));
    ac_page_map_clear(base + AC_GRANULE);
    ac_page_map_uncover(base, PAGE);
    ck_assert_ptr_null(ac_page_map_look(base + AC_GRANULE, OWNER(a)));
}
END_TEST

/* From empty over a few starts in a page to many, compared with a plain array. */
START_TEST(any_mixture_is_found) {
    enum { PAGES = 3, SLOTS = PAGES * (int)(PAGE >> AC_GRANULE_BITS), STEPS = 60000 };
    static bool there[SLOTS];
    static char record[SLOTS];
    static uint8_t put[SLOTS];      /* where */
    const uint64_t base = bases[2]; /* two nodes meet here */
    uint64_t state = 88172645463325252u;
    ck_assert(ac_page_map_cover(base, PAGES * PAGE, OWNER(a)));
    for (int step = 0; step < STEPS; step++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        /* One page fills up before the others. */
        int slot = (int)(state >> 33) % (step % 2 ? SLOTS : 700);
        uint64_t at = base + ((uint64_t)slot << AC_GRANULE_BITS);
        struct ac_block *block = (struct ac_block *)(void *)&record[slot];
        if (there[slot] && step % 3)
            ac_page_map_clear_at(at, step % 3 == 1 ? put[slot] : (unsigned)(step / 3 % 8));
        else if (there[slot])
            ac_page_map_clear(at);
        else
            put[slot] = (uint8_t)ac_page_map_set_on(ac_page_map_touch_covered(at), at, block);
        ck_assert_uint_ne(put[slot], AC_PLACE_NONE);
        there[slot] = !there[slot];
        int from = (int)(state >> 20 & 0xffff) % SLOTS, want = from;
        void *exact = there[from] ? &record[from] : NULL;
        while (want >= 0 && !there[want])
            want--;
        uint64_t place = base + ((uint64_t)from << AC_GRANULE_BITS);
        ck_assert_ptr_eq(ac_page_map_get(place), exact);
        ck_assert_ptr_eq(ac_page_map_find(place + 511), want < 0 ? NULL : &record[want]);
    }
    for (int slot = 0; slot < SLOTS; slot++)
        if (there[slot])
            ac_page_map_clear(base + ((uint64_t)slot << AC_GRANULE_BITS));
    ck_assert_ptr_null(ac_page_map_find(base + PAGES * PAGE - 1));
    ac_page_map_uncover(base, PAGES * PAGE);
}
END_TEST

START_TEST(a_page_holds_a_start_in_every_granule) {
    enum { SLOTS = (int)(PAGE >> AC_GRANULE_BITS) };
    static char record[SLOTS];
    const uint64_t base = bases[0];
    ck_assert(ac_page_map_cover(base, PAGE, OWNER(a)));
    for (int i = 0; i < SLOTS; i++) { /* an odd factor: each slot once, far from the last */
        int slot = i * 1237 % SLOTS;
        ck_assert(ac_page_map_set(base + (uint64_t)slot * AC_GRANULE,
                                  (struct ac_block *)(void *)&record[slot]));
    }
    for (int i = 0; i < SLOTS; i++) {
        uint64_t at = base + (uint64_t)i * AC_GRANULE;
        ck_assert_ptr_eq(ac_page_map_get(at), &record[i]);
        ck_assert_ptr_eq(ac_page_map_find(at + 1), &record[i]);
    }
    for (int i = 0; i < SLOTS; i++) {
        ac_page_map_clear(base + (uint64_t)i * AC_GRANULE);
        ck_assert_ptr_null(ac_page_map_get(base + (uint64_t)i * AC_GRANULE));
    }
    ck_assert_ptr_null(ac_page_map_find(base + PAGE - 1));
    ac_page_map_uncover(base, PAGE);
}
END_TEST

/* --- lookups without the lock --- */

enum { PAGES = 256 };
static _Atomic uint64_t watched; /* a page's address; 0: no more */

/* A lasting start is found while others come and go around it, and while a larger table replaces the
 * old one. */
static void *look_up(void *unused) {
    uintptr_t missed = 0;
    uint64_t page;
    (void)unused;
    while ((page = atomic_load(&watched))) {
        uint64_t at = page + 64 * AC_GRANULE;
        struct ac_block *passing = ac_page_map_look(at + AC_GRANULE, OWNER(a));
        missed += passing && passing != BLOCK(y);
        missed += ac_page_map_look(at, OWNER(a)) != BLOCK(x);
    }
    return (void *)missed;
}

static void come_and_go(uint64_t page, unsigned crowd) {
    ck_assert(ac_page_map_set(page + 65 * AC_GRANULE, BLOCK(y)));
    for (unsigned i = 1; i < crowd; i++)
        ck_assert(ac_page_map_set(page + i * AC_GRANULE, BLOCK(z)));
    for (unsigned i = 1; i < crowd; i++)
        ac_page_map_clear(page + i * AC_GRANULE);
    ac_page_map_clear(page + 65 * AC_GRANULE);
}

START_TEST(what_stays_is_found_without_the_lock) {
    const uint64_t base = bases[1];
    pthread_t reader[2];
    ck_assert(ac_page_map_cover(base, PAGES * PAGE, OWNER(a)));
    for (uint64_t page = base; page < base + PAGES * PAGE; page += PAGE) {
        for (unsigned i = 1; i < 3; i++) /* the page's own words are in use */
            ck_assert(ac_page_map_set(page + i * 1000 * AC_GRANULE, BLOCK(y)));
        ck_assert(ac_page_map_set(page + 64 * AC_GRANULE, BLOCK(x)));
    }
    atomic_store(&watched, base);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&reader[i], NULL, look_up, NULL), 0);
    for (uint64_t page = base; page < base + PAGES * PAGE; page += PAGE) {
        atomic_store(&watched, page);
        for (unsigned turn = 0; turn < 16; turn++)
            come_and_go(page, turn < 8 ? 4 : 60); /* the table grows twice */
    }
    atomic_store(&watched, 0);
    for (int i = 0; i < 2; i++) {
        void *missed;
        pthread_join(reader[i], &missed);
        ck_assert_ptr_null(missed);
    }
}
END_TEST

/* A few starts at a time never move to distant entries, however often they change, even next to a
 * slab. */
START_TEST(a_place_that_was_left_serves_again) {
    uint64_t base = bases[1] + 16 * PAGE, address[5];
    struct ac_slab *slab = (struct ac_slab *)(void *)&block_z;
    unsigned place[5] = {0};
    ck_assert(ac_page_map_cover(base, PAGE, OWNER(a)));
    ac_page_t *page = ac_page_map_touch_covered(base);
    for (unsigned i = 0; i < 400; i++) {
        unsigned k = i % 5;
        if (i >= 5 && i % 2)
            ac_page_map_clear_at(address[k], place[k]);
        else if (i >= 5)
            ac_page_map_clear(address[k]);
        if (i == 200)
            ck_assert(ac_page_map_set_slab(base, slab));
        address[k] = base + (i * 37 % 4096) * AC_GRANULE;
        place[k] = ac_page_map_set_on(page, address[k], BLOCK(x));
        ck_assert_uint_lt(place[k], AC_PLACE_FAR);
        for (unsigned j = 0; j < 5 && j <= i; j++)
            ck_assert_ptr_eq(ac_page_map_get(address[j]), BLOCK(x));
        ck_assert_ptr_eq(ac_page_map_slab(base), i < 200 ? NULL : slab);
    }
    uint64_t sixth = base + 4000 * AC_GRANULE + AC_GRANULE;
    ck_assert_uint_eq(ac_page_map_set_on(page, sixth, BLOCK(y)), AC_PLACE_FAR);
    ck_assert_ptr_eq(ac_page_map_get(sixth), BLOCK(y));
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
    tcase_add_test(tests, only_the_owner_finds_its_blocks);
    tcase_add_test(tests, any_mixture_is_found);
    tcase_add_test(tests, a_page_holds_a_start_in_every_granule);
    tcase_add_test(tests, what_stays_is_found_without_the_lock);
    tcase_add_test(tests, a_place_that_was_left_serves_again);
    tcase_add_test(tests, addresses_beyond_the_map_are_refused);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}

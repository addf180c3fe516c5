/* What physical memory and arrays are held by (observe/beside.h): ends by the last handle and the last mapping,
 * numbers that the driver gives again, a table that grows. */
#include <check.h>

#include "observe/beside.h"
#include "run_suite.h"

enum { MIB = 1 << 20 };
#define AT ((uint64_t)1 << 40)

static ac_beside_t ended;

static bool begin(unsigned kind, uint64_t handle, uint64_t bytes, const void *context) {
    return ac_beside_begin(&(ac_beside_t){.kind = (uint8_t)kind,
                                          .handle = handle,
                                          .bytes = bytes,
                                          .context = context,
                                          .device = 3},
                           &ended);
}

static bool release(uint64_t handle) {
    return ac_beside_end(AC_BESIDE_PHYSICAL, handle, ac_beside_serial(AC_BESIDE_PHYSICAL, handle),
                         &ended);
}

static unsigned unmap(uint64_t at, uint64_t bytes) {
    uint64_t next = at;
    unsigned count = 0;
    while (ac_beside_unmap(&next, at + bytes, &ended))
        count++;
    return count;
}

START_TEST(ends_with_its_last_handle) {
    ck_assert(!begin(AC_BESIDE_PHYSICAL, 7, 2 * MIB, NULL));
    ac_beside_retain(7);
    ck_assert(!release(7));
    ck_assert(release(7));
    ck_assert_uint_eq(ended.bytes, 2 * MIB);
    ck_assert_uint_eq(ended.device, 3);
    ck_assert_uint_eq(ac_beside_serial(AC_BESIDE_PHYSICAL, 7), 0);
    ck_assert(!release(7));
}
END_TEST

START_TEST(ends_with_its_last_mapping) {
    begin(AC_BESIDE_PHYSICAL, 1, 2 * MIB, NULL);
    begin(AC_BESIDE_PHYSICAL, 2, 2 * MIB, NULL);
    ac_beside_map(AT, 2 * MIB, 1);
    ac_beside_map(AT + 4 * MIB, 2 * MIB, 2);
    ac_beside_map(AT + 6 * MIB, 2 * MIB, 1);
    ck_assert(!release(1));
    ck_assert_uint_eq(unmap(AT, 6 * MIB), 0); /* one mapping and one handle are left; 2 MiB are unknown */
    ck_assert_uint_eq(unmap(AT + 6 * MIB, 2 * MIB), 1);
    ck_assert_uint_eq(ended.handle, 1);
    ck_assert(release(2));
}
END_TEST

/* Released and unmapped by one thread, while another one gets the number anew before that is noted. */
START_TEST(a_number_that_is_given_again) {
    begin(AC_BESIDE_PHYSICAL, 5, 2 * MIB, NULL);
    ac_beside_map(AT, 2 * MIB, 5);
    uint64_t serial = ac_beside_serial(AC_BESIDE_PHYSICAL, 5);
    ck_assert(begin(AC_BESIDE_PHYSICAL, 5, 4 * MIB, NULL));
    ck_assert_uint_eq(ended.bytes, 2 * MIB);
    ck_assert(!ac_beside_end(AC_BESIDE_PHYSICAL, 5, serial, &ended));
    ck_assert_uint_eq(unmap(AT, 2 * MIB), 0);
    ck_assert(release(5));
    ck_assert_uint_eq(ended.bytes, 4 * MIB);
}
END_TEST

START_TEST(arrays_go_with_their_context) {
    int one = 0, two = 0;
    begin(AC_BESIDE_ARRAY, 5, MIB, &one);
    begin(AC_BESIDE_ARRAY, 6, MIB, &two);
    begin(AC_BESIDE_ARRAY, 7, MIB, &one);
    begin(AC_BESIDE_PHYSICAL, 5, 2 * MIB, NULL);
    unsigned lost = 0;
    while (ac_beside_lost(&one, &ended))
        lost++;
    ck_assert_uint_eq(lost, 2);
    ck_assert_uint_ne(ac_beside_serial(AC_BESIDE_ARRAY, 6), 0);
    ck_assert(release(5));
}
END_TEST

/* As in a ring of pages: many at a time, gone in another order than they came. */
START_TEST(many) {
    enum { COUNT = 5000 };
    for (uint64_t i = 0; i < COUNT; i++) {
        ck_assert(!begin(AC_BESIDE_PHYSICAL, i, 2 * MIB, NULL));
        ac_beside_map(AT + i * 2 * MIB, 2 * MIB, i);
        if (i % 2)
            ck_assert(!release(i));
    }
    ck_assert_uint_eq(unmap(AT, (uint64_t)COUNT * 2 * MIB), COUNT / 2);
    for (uint64_t i = 0; i < COUNT; i++)
        ck_assert_int_eq(release(i * 7 % COUNT), i * 7 % COUNT % 2 == 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("beside");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, NULL, ac_beside_clear);
    tcase_add_test(all, ends_with_its_last_handle);
    tcase_add_test(all, ends_with_its_last_mapping);
    tcase_add_test(all, a_number_that_is_given_again);
    tcase_add_test(all, arrays_go_with_their_context);
    tcase_add_test(all, many);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}

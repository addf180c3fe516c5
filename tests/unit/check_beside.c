/* The table of physical memory and arrays (observe/beside.h): the last handle and the last mapping end an
 * entry, the driver reuses numbers, and the table grows. */
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

static unsigned lose(const void *context) {
    unsigned count = 0;
    size_t at = 0;
    while (ac_beside_lost(context, &at, &ended))
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

/* One thread releases and unmaps. Another thread gets the same number before the first thread's end is
 * recorded. */
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
    ck_assert_uint_eq(lose(&one), 2);
    ck_assert_uint_ne(ac_beside_serial(AC_BESIDE_ARRAY, 6), 0);
    ck_assert(release(5));
}
END_TEST

/* Many entries at a time, removed in another order than they came, like pages of a ring. */
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

/* The table is walked once, not once for each array, which would take some 10^10 steps. */
START_TEST(many_arrays_of_a_context) {
    enum { COUNT = 200000 };
    int one = 0, two = 0;
    for (uint64_t i = 0; i < COUNT; i++)
        ck_assert(!begin(AC_BESIDE_ARRAY, i, MIB, i % 4 ? &one : &two));
    ck_assert_uint_eq(lose(&one), COUNT / 4 * 3);
    ck_assert_uint_eq(lose(&one), 0);
    ck_assert_uint_eq(lose(&two), COUNT / 4);
}
END_TEST

/* Only two mappings are known in 64 PiB. The unmap must not visit every place at which a mapping may begin. */
START_TEST(a_range_of_which_little_is_known) {
    for (uint64_t i = 1; i <= 2; i++) {
        begin(AC_BESIDE_PHYSICAL, i, 2 * MIB, NULL);
        ac_beside_map(AT << (8 * i), 2 * MIB, i);
        ck_assert(!release(i));
    }
    ck_assert_uint_eq(unmap(AT, (AT << 16) - AT), 1);
    ck_assert_uint_eq(ended.handle, 1);
    ck_assert_uint_eq(unmap(AT, AT << 16), 1);
    ck_assert_uint_eq(ended.handle, 2);
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
    tcase_add_test(all, many_arrays_of_a_context);
    tcase_add_test(all, a_range_of_which_little_is_known);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}

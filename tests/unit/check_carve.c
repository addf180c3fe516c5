/* Carved memory is zeroed, aligned and used once, for records and tables in any order. */
#include <check.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allocator/carve.h"
#include "run_suite.h"

enum { CUTS = 4000, MOST = 64 << 10, PAGE = 4 << 10 };
static struct {
    unsigned char *memory;
    size_t bytes;
} cuts[CUTS];
static uint64_t state = 88172645463325252u;

static uint64_t draw(uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

static unsigned char mark_of(int i) {
    return (unsigned char)(1 + i % 251);
}

static bool all_are(const unsigned char *memory, size_t bytes, unsigned char value) {
    size_t at = 0;
    while (at < bytes && memory[at] == value)
        at++;
    return at == bytes;
}

START_TEST(cuts_are_apart) {
    for (int i = 0; i < CUTS; i++) {
        bool table = draw(4) == 0;
        size_t bytes = 1 + draw(draw(8) ? 3000 : MOST);
        unsigned char *memory = table ? ac_carve_table(bytes) : ac_carve(bytes);
        ck_assert_ptr_nonnull(memory);
        ck_assert_uint_eq((uintptr_t)memory % (table ? PAGE : AC_CARVE_ALIGN), 0);
        ck_assert_msg(all_are(memory, bytes, 0), "cut %d is not zeroed, or another's", i);
        memset(memory, mark_of(i), bytes);
        cuts[i].memory = memory;
        cuts[i].bytes = bytes;
        if (draw(500) == 0)
            ac_carve_fork_child();
    }
    for (int i = 0; i < CUTS; i++)
        ck_assert_msg(all_are(cuts[i].memory, cuts[i].bytes, mark_of(i)), "cut %d changed", i);
}
END_TEST

START_TEST(the_largest_fits) {
    ck_assert_ptr_nonnull(ac_carve(1)); /* a table shares its piece */
    ck_assert_ptr_nonnull(ac_carve_table(MOST));
    ck_assert_ptr_nonnull(ac_carve(MOST));
    ck_assert_ptr_null(ac_carve_table(MOST + 1));
    ck_assert_ptr_null(ac_carve(MOST + 1));
}
END_TEST

/* Returns true if huge pages were requested for the address, according to smaps. *known: smaps has
 * this information. */
static bool is_huge(const void *memory, bool *known) {
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[512];
    unsigned long begin, end;
    bool here = false, huge = false;
    *known = false;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
            here = (uintptr_t)memory >= begin && (uintptr_t)memory < end;
        else if (here && strncmp(line, "VmFlags:", 8) == 0) {
            *known = true;
            huge = strstr(line, " hg") != NULL;
        }
    }
    if (file)
        fclose(file);
    return huge;
}

/* A small program uses no huge pages; a large one has its records on them. */
START_TEST(many_records_lie_on_huge_pages) {
    bool known;
    if (getenv("AC_EMULATED"))
        return; /* qemu's smaps omits the requested flags */
    void *first = ac_carve(64), *last = first, *table = NULL;
    for (int i = 0; i < (8 << 20) / MOST; i++) {
        last = ac_carve(MOST);
        table = ac_carve_table(MOST);
        ck_assert(last && table);
    }
    ck_assert(!is_huge(first, &known));
    if (!known || access("/sys/kernel/mm/transparent_hugepage", F_OK))
        return; /* the kernel has no huge pages, or does not report them */
    ck_assert(is_huge(last, &known));
    ck_assert(!is_huge(table, &known));
    ac_carve_fork_child();
    ck_assert(is_huge(ac_carve(64), &known));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("carve");
    TCase *tests = tcase_create("carve");
    tcase_add_test(tests, cuts_are_apart);
    tcase_add_test(tests, the_largest_fits);
    tcase_add_test(tests, many_records_lie_on_huge_pages);
    suite_add_tcase(suite, tests);
    return run_suite_as(suite, CK_FORK); /* carved memory stays with its process */
}

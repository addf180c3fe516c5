/* In the library of the tests only: ACCEL_FAILPOINT=<name of a row of failpoints.def> chooses a
 * fault, ACCEL_FAILPOINT_ROW=<symbol>:<way> spoils a row of cuda_functions.def (failpoint.h).
 * ACCEL_RELY, if set, is no fault: frees rely on a stream's order wherever they may (sole.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/order/sole.h"
#include "failpoint.h"

int ac_failpoint;
void (*ac_window)(const char *name);

static const struct {
    const char *name;
    int number;
} rows[] = {
#define FAILPOINT(number, name, text) {#name, (number)},
#include "failpoints.def"
#undef FAILPOINT
};

/* Fails to compile if two rows have the same number. */
__attribute__((unused)) static void numbers_differ(int number) {
    switch (number) {
#define FAILPOINT(number, name, text) case (number):
#include "failpoints.def"
#undef FAILPOINT
    default:
        break;
    }
}

/* Called in each window (failpoint.h); the program defines it. */
extern void ac_test_window(const char *name) __attribute__((weak, visibility("default")));

__attribute__((constructor)) static void choose(void) {
    ac_window = ac_test_window;
    atomic_store(&ac_sole_eager, getenv("ACCEL_RELY") != NULL);
    const char *name = getenv("ACCEL_FAILPOINT");
    if (!name || !*name)
        return;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(name, rows[i].name))
            ac_failpoint = rows[i].number;
    if (!ac_failpoint) {
        fprintf(stderr, "ACCEL_FAILPOINT=%s: no row of failpoints.def\n", name);
        abort(); /* a misspelt fault must not pass for none */
    }
}

/* Returns true if the variable chooses this way to spoil the function. Reads it at each call,
 * because a child of the test chooses after its fork. */
int ac_row_failpoint(const char *symbol, const char *way) {
    const char *chosen = getenv("ACCEL_FAILPOINT_ROW");
    size_t length = strlen(symbol);
    return chosen && !strncmp(chosen, symbol, length) && chosen[length] == ':' &&
           !strcmp(chosen + length + 1, way);
}

/* In the library of the tests only: ACCEL_PLANT=<name of a row of plants.def> chooses a fault,
 * ACCEL_PLANT_ROW=<symbol>:<way> spoils a row of cuda_functions.def (plant.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plant.h"

int ac_plant;
void (*ac_window)(const char *name);

static const struct {
    const char *name;
    int number;
} rows[] = {
#define PLANT(number, name, text) {#name, (number)},
#include "plants.def"
#undef PLANT
};

/* Does not compile where two rows have the same number. */
__attribute__((unused)) static void numbers_differ(int number) {
    switch (number) {
#define PLANT(number, name, text) case (number):
#include "plants.def"
#undef PLANT
    default:
        break;
    }
}

/* Of the program: what it does in a window (plant.h). */
extern void ac_test_window(const char *name) __attribute__((weak, visibility("default")));

__attribute__((constructor)) static void choose(void) {
    ac_window = ac_test_window;
    const char *name = getenv("ACCEL_PLANT");
    if (!name || !*name)
        return;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(name, rows[i].name))
            ac_plant = rows[i].number;
    if (!ac_plant) {
        fprintf(stderr, "ACCEL_PLANT=%s: no row of plants.def\n", name);
        abort(); /* a misspelt fault must not pass for none */
    }
}

/* Asked anew each time: a child of the test's chooses after its fork. */
int ac_row_planted(const char *symbol, const char *way) {
    const char *chosen = getenv("ACCEL_PLANT_ROW");
    size_t length = strlen(symbol);
    return chosen && !strncmp(chosen, symbol, length) && chosen[length] == ':' &&
           !strcmp(chosen + length + 1, way);
}

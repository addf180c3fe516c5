/* `accelcache-dev bench`: instructions, counted by valgrind; see bench.h. */
#include "bench.h"
#include "command.h"

#include <stdlib.h>
#include <string.h>

enum { PARTS = 3, MAX_TURNS = 8 }; /* of callgrind's output, for each turn: see work_measure */

/* Reads the lines "totals: N" of callgrind's parts, in order.  Returns their number. */
static int read_totals(const char *text, double *total, int room) {
    int count = 0;
    while ((text = strstr(text, "totals: "))) {
        text += strlen("totals: ");
        if (count < room)
            total[count++] = strtod(text, NULL);
    }
    return count;
}

bool bench_can_count(bench_t *b, const char *name) {
    bench_child_t valgrind = {.program = "/usr/bin/env"};
    if (!b->simulated)
        bench_skip(b, name, "counted on the simulated device only (--sim)");
    else if (bench_child_time(b, &valgrind, "valgrind --version").wall_ns < 0)
        bench_skip(b, name, "valgrind is not installed");
    else
        return true;
    return false;
}

int bench_count(bench_t *b, const bench_child_t *child, const char *arguments, double *each,
                int room, char **error) {
    double total[PARTS * MAX_TURNS] = {0};
    bench_child_t counting = *child;
    int turns = 0;
    size_t name = strcspn(arguments, " ");
    char *whole = cmd_format("%.*s counted=1 pairs=%ld%s", (int)name, arguments, b->pairs,
                             arguments + name);
    counting.count = true;
    json_t *all = bench_child_run(b, &counting, whole, error), *turn;
    size_t i;
    if (all && read_totals(counting.counted, total, PARTS * MAX_TURNS) <
                   PARTS * (int)json_array_size(all))
        *error = cmd_format("callgrind wrote fewer counts than there were marks");
    json_array_foreach(*error ? NULL : all, i, turn) {
        double pairs = json_number_value(json_object_get(turn, "counted"));
        if (turns < room)
            each[turns++] = (total[PARTS * i + 2] - total[PARTS * i + 1]) / pairs;
    }
    json_decref(all);
    free(counting.counted);
    free(whole);
    return turns;
}

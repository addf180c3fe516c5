/* gpu_costs: command line and series of figures (costs.h). */
#include "costs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void costs_add(costs_series_t *series, double ns, unsigned calls) {
    if (series->count < COSTS_PASSES)
        series->ns[series->count++] = ns / calls;
}

void costs_print(const costs_series_t *series) {
    if (!series->count)
        return;
    printf("{\"call\": \"%s\", \"kind\": \"%s\", \"bytes\": %llu, \"ns\": [", series->call,
           series->kind, (unsigned long long)series->bytes);
    for (unsigned i = 0; i < series->count; i++)
        printf("%s%.1f", i ? ", " : "", series->ns[i]);
    printf("]}\n");
    fflush(stdout);
}

static int usage(void) {
    fprintf(stderr, "usage: gpu_costs calls|hooks [PASSES]\n       gpu_costs device\n");
    return 2;
}

int main(int argc, char **argv) {
    char name[128] = "", *end = NULL;
    int version = 0;
    if (argc < 2 || argc > 3)
        return usage();
    long passes = argc > 2 ? strtol(argv[2], &end, 10) : 15;
    bool calls = !strcmp(argv[1], "calls"), hooks = !strcmp(argv[1], "hooks");
    if ((end && *end) || passes < 1 || passes > COSTS_PASSES ||
        (!calls && !hooks && (argc > 2 || strcmp(argv[1], "device") != 0)))
        return usage();
    if (!costs_open(name, sizeof name, &version)) {
        fprintf(stderr, "gpu_costs: no driver or no device\n");
        return 77;
    }
    if (calls)
        costs_calls((unsigned)passes);
    else if (hooks)
        costs_hooks((unsigned)passes);
    else
        printf("{\"device\": \"%s\", \"driver\": %d}\n", name, version);
    return 0;
}

/* Costs of driver calls: a csv table with the columns function,ns_fixed,ns_per_mib,source.  The
 * column ns_per_page (for each page beyond the first) may stand before the source.  The published
 * table is built into the library from costs/published.csv, its single source. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"

/* The unchanged file, put into the read-only data by the assembler. */
__asm__(".pushsection .rodata\n"
        ".hidden sim_published_costs\n"
        ".globl sim_published_costs\n"
        "sim_published_costs:\n"
        ".incbin \"" SIM_PUBLISHED_COSTS "\"\n"
        ".byte 0\n"
        ".popsection\n");
extern const char sim_published_costs[];

static struct { uint64_t fixed, per_mib, per_page; } costs[SIM_FN_COUNT];
static bool any;

/* Adds a row.  It names a function with all its versions, or one symbol. */
static bool add_row(const char *line) {
    char name[96];
    size_t length = strcspn(line, ",");
    if (!line[length] || length >= sizeof name)
        return false;
    memcpy(name, line, length);
    name[length] = 0;
    char *end;
    uint64_t fixed = strtoull(line + length + 1, &end, 10);
    if (*end != ',')
        return false;
    uint64_t per_mib = strtoull(end + 1, &end, 10);
    if (*end && *end != ',' && *end != '\r')
        return false;
    uint64_t per_page = 0;
    if (*end == ',') { /* the source is text */
        char *more;
        uint64_t value = strtoull(end + 1, &more, 10);
        per_page = more > end + 1 && (!*more || *more == ',') ? value : 0;
    }
    bool known = false;
    for (unsigned i = 0; i < SIM_FN_COUNT; i++) {
        if (strcmp(sim_fn_name(i), name) != 0 && strcmp(sim_fn_symbol(i), name) != 0)
            continue;
        costs[i].fixed = fixed;
        costs[i].per_mib = per_mib;
        costs[i].per_page = per_page;
        known = any = true;
    }
    return known;
}

static bool add_rows(const char *text, const char *where) {
    char *copy = strdup(text), *rest = copy;
    bool good = copy;
    unsigned number = 0;
    for (char *line; good && (line = strsep(&rest, "\n"));) {
        number++;
        if (number == 1 || !*line || *line == '#')
            continue;
        good = add_row(line);
        if (!good)
            fprintf(stderr,
                    "simcuda: ACCEL_SIM: costs: %s line %u is not function,ns_fixed,ns_per_mib,"
                    "source with a driver function\n",
                    where, number);
    }
    free(copy);
    return good;
}

bool sim_costs_load(const char *which) {
    if (!strcmp(which, "none"))
        return true;
    if (!strcmp(which, "published"))
        return add_rows(sim_published_costs, "the published table");
    FILE *file = fopen(which, "r");
    if (!file) {
        fprintf(stderr,
                "simcuda: ACCEL_SIM: costs: cannot read %s; it takes none, published or "
                "a csv file\n",
                which);
        return false;
    }
    static char text[65536]; /* under cuInit's lock */
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    return add_rows(text, which);
}

bool sim_costs_any(void) {
    return any;
}

uint64_t sim_cost_fixed(sim_fn_t fn) {
    return costs[fn].fixed;
}

uint64_t sim_cost_per_mib(sim_fn_t fn) {
    return costs[fn].per_mib;
}

uint64_t sim_cost_per_page(sim_fn_t fn) {
    return costs[fn].per_page;
}

/* See sites.h. */
#include "read/sites.h"
#include "command.h"

#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b) {
    const cmd_site_t *x = a, *y = b;
    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int by_bytes(const void *a, const void *b) {
    const cmd_site_t *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return by_name(a, b);
}

/* Takes over `name`. */
static void add(cmd_sites_t *sites, char *name, int64_t device, int64_t blocks, int64_t bytes) {
    sites->site[sites->count++] = (cmd_site_t){name, device, blocks, bytes};
    sites->blocks = cmd_sum(sites->blocks, blocks, 1);
    sites->bytes = cmd_sum(sites->bytes, bytes, 1);
}

/* Adds up sites of one name, and sorts. */
static void join(cmd_sites_t *sites) {
    size_t kept = 0;
    if (sites->count)
        qsort(sites->site, sites->count, sizeof *sites->site, by_name);
    for (size_t i = 0; i < sites->count; i++) {
        cmd_site_t *last = kept ? &sites->site[kept - 1] : NULL;
        if (!last || by_name(last, &sites->site[i]) != 0) {
            sites->site[kept++] = sites->site[i];
            continue;
        }
        last->blocks = cmd_sum(last->blocks, sites->site[i].blocks, 1);
        last->bytes = cmd_sum(last->bytes, sites->site[i].bytes, 1);
        free(sites->site[i].name);
    }
    sites->count = kept;
    if (kept)
        qsort(sites->site, kept, sizeof *sites->site, by_bytes);
}

bool cmd_sites_at(const cmd_history_t *history, cmd_moment_t moment, cmd_sites_t *sites, char **error) {
    cmd_stacks_t stacks;
    *sites = (cmd_sites_t){0};
    if (!cmd_stacks_sites(history, moment, &stacks, error))
        return false;
    sites->site = cmd_alloc((stacks.count + 1) * sizeof *sites->site);
    for (size_t i = 0; i < stacks.count; i++) {
        cmd_stack_t *stack = &stacks.stack[i];
        if (stack->bytes <= 0)
            continue;
        add(sites, stack->site, 0, stack->blocks, stack->bytes);
        stack->site = NULL;
    }
    cmd_stacks_free(&stacks);
    join(sites);
    return true;
}

void cmd_sites_recorded(const json_t *document, int64_t device, cmd_sites_t *sites) {
    json_t *rows = json_object_get(json_object_get(document, "recorded"), "sites"), *row;
    size_t index;
    *sites = (cmd_sites_t){.site = cmd_alloc((json_array_size(rows) + 1) * sizeof *sites->site)};
    json_array_foreach(rows, index, row) {
        int64_t ordinal = cmd_integer(row, "device");
        if (device < 0 || device == ordinal)
            add(sites, cmd_format("%s", cmd_recorded_site(document, cmd_integer(row, "stack"))), ordinal,
                cmd_integer(row, "blocks"), cmd_integer(row, "bytes"));
    }
    join(sites);
}

void cmd_sites_free(cmd_sites_t *sites) {
    for (size_t i = 0; i < sites->count; i++)
        free(sites->site[i].name);
    free(sites->site);
    *sites = (cmd_sites_t){0};
}

/* ------------------------------------------------------------------ for people */

static void print_rows(const cmd_sites_t *sites, unsigned most, bool shares) {
    char bytes[CMD_FIGURE], blocks[CMD_FIGURE];
    cmd_table_t *table = cmd_table_new(shares ? "rrrl" : "rrl");
    for (size_t i = 0; i < sites->count && i < most; i++) {
        const cmd_site_t *site = &sites->site[i];
        char *share = cmd_format("%.1f %%", 100 * (double)site->bytes / (double)sites->bytes);
        char *number = cmd_format("%s block%s", cmd_text_count(blocks, site->blocks),
                                  site->blocks == 1 ? "" : "s");
        cmd_text_bytes(bytes, site->bytes);
        if (shares)
            cmd_table_row(table, bytes, share, number, site->name);
        else
            cmd_table_row(table, bytes, number, site->name);
        free(number);
        free(share);
    }
    cmd_table_print(table, 2);
    if (sites->count > most)
        printf("  and %zu more: %s has all\n", sites->count - most,
               shares ? "--sites --json" : "the JSON");
}

static void print_moment(cmd_moment_t moment, const cmd_sites_t *sites, unsigned most) {
    char bytes[CMD_FIGURE], blocks[CMD_FIGURE];
    printf("\n%s%s, by call site%s  %s in %s block%s\n", cmd_bold(), cmd_moment_text(moment), cmd_plain(),
           cmd_text_bytes(bytes, sites->bytes), cmd_text_count(blocks, sites->blocks),
           sites->blocks == 1 ? "" : "s");
    print_rows(sites, most, true);
}

static bool same(const cmd_sites_t *a, const cmd_sites_t *b) {
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (by_bytes(&a->site[i], &b->site[i]) != 0)
            return false;
    return true;
}

/* The end and the leaked blocks differ if contexts took blocks along. */
void cmd_sites_print(const cmd_history_t *history, unsigned most) {
    static const cmd_moment_t moments[] = {CMD_AT_PEAK, CMD_AT_END, CMD_AT_LEAKED};
    cmd_sites_t of[3];
    char *error = NULL;
    for (cmd_moment_t i = CMD_AT_END; i <= CMD_AT_LEAKED; i++)
        if (!cmd_sites_at(history, i, &of[i], &error)) {
            free(error);
            error = NULL;
        }
    for (unsigned i = 0; i < 3; i++)
        if (of[moments[i]].count &&
            (moments[i] != CMD_AT_LEAKED || !same(&of[CMD_AT_LEAKED], &of[CMD_AT_END])))
            print_moment(moments[i], &of[moments[i]], most);
    for (unsigned i = 0; i < 3; i++)
        cmd_sites_free(&of[i]);
}

void cmd_sites_recorded_print(const json_t *document, int64_t device, const char *heading, unsigned most) {
    cmd_sites_t sites;
    cmd_sites_recorded(document, device, &sites);
    if (sites.count) {
        printf("\n%s%s%s\n", cmd_bold(), heading, cmd_plain());
        print_rows(&sites, most, false);
    }
    cmd_sites_free(&sites);
}

/* ------------------------------------------------------------------ for machines */

static json_t *rows_json(const cmd_sites_t *sites, bool devices) {
    json_t *rows = json_array();
    for (size_t i = 0; i < sites->count; i++) {
        const cmd_site_t *site = &sites->site[i];
        json_t *row = json_object();
        if (devices)
            json_object_set_new(row, "device", json_integer(site->device));
        json_object_set_new(row, "site", cmd_json_text(site->name));
        json_object_set_new(row, "blocks", json_integer(site->blocks));
        json_object_set_new(row, "bytes", json_integer(site->bytes));
        json_array_append_new(rows, row);
    }
    return rows;
}

static json_t *moment_json(const cmd_history_t *history, cmd_moment_t moment) {
    cmd_sites_t sites;
    char *error = NULL;
    if (!cmd_sites_at(history, moment, &sites, &error)) {
        free(error);
        return json_null();
    }
    json_t *all = json_pack("{s:I, s:I, s:o}", "blocks", (json_int_t)sites.blocks, "bytes",
                            (json_int_t)sites.bytes, "sites", rows_json(&sites, false));
    cmd_sites_free(&sites);
    return all;
}

json_t *cmd_sites_json(const cmd_history_t *history) {
    return json_pack("{s:o, s:o, s:o}", "peak", moment_json(history, CMD_AT_PEAK), "end",
                     moment_json(history, CMD_AT_END), "leaked",
                     moment_json(history, CMD_AT_LEAKED));
}

json_t *cmd_sites_recorded_json(const json_t *document, int64_t device) {
    cmd_sites_t sites;
    cmd_sites_recorded(document, device, &sites);
    json_t *rows = rows_json(&sites, true);
    cmd_sites_free(&sites);
    return rows;
}

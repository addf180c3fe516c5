/* See holders.h. */
#include "read/holders.h"
#include "command.h"

#include <stdlib.h>
#include <string.h>

static int by_bytes(const void *a, const void *b) {
    const cmd_holder_t *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return strcmp(x->site, y->site);
}

bool cmd_holders(const cmd_history_t *history, cmd_moment_t moment, cmd_holders_t *holders,
                 char **error) {
    cmd_stacks_t stacks;
    *holders = (cmd_holders_t){0};
    if (!cmd_stacks_sites(history, moment, &stacks, error))
        return false;
    holders->holder = cmd_alloc((stacks.count + 1) * sizeof *holders->holder);
    for (size_t i = 0; i < stacks.count; i++) {
        cmd_stack_t *stack = &stacks.stack[i];
        if (stack->bytes <= 0)
            continue;
        holders->holder[holders->count++] =
            (cmd_holder_t){stack->site, stack->blocks, stack->bytes};
        holders->blocks = cmd_sum(holders->blocks, stack->blocks, 1);
        holders->bytes = cmd_sum(holders->bytes, stack->bytes, 1);
        stack->site = NULL;
    }
    cmd_stacks_free(&stacks);
    if (holders->count)
        qsort(holders->holder, holders->count, sizeof *holders->holder, by_bytes);
    return true;
}

void cmd_holders_free(cmd_holders_t *holders) {
    for (size_t i = 0; i < holders->count; i++)
        free(holders->holder[i].site);
    free(holders->holder);
    *holders = (cmd_holders_t){0};
}

/* ------------------------------------------------------------------ for people */

static void print_table(const char *title, const cmd_holders_t *holders, unsigned most) {
    char bytes[CMD_FIGURE], blocks[CMD_FIGURE];
    printf("\n%s%s, by call site%s  %s in %s block%s\n", cmd_bold(), title, cmd_plain(),
           cmd_text_bytes(bytes, holders->bytes), cmd_text_count(blocks, holders->blocks),
           holders->blocks == 1 ? "" : "s");
    cmd_table_t *table = cmd_table_new("rrrl");
    for (size_t i = 0; i < holders->count && i < most; i++) {
        const cmd_holder_t *holder = &holders->holder[i];
        char *share = cmd_format("%.1f %%", 100 * (double)holder->bytes / (double)holders->bytes);
        char *number = cmd_format("%s block%s", cmd_text_count(blocks, holder->blocks),
                                  holder->blocks == 1 ? "" : "s");
        cmd_table_row(table, cmd_text_bytes(bytes, holder->bytes), share, number, holder->site);
        free(number);
        free(share);
    }
    cmd_table_print(table, 2);
    if (holders->count > most)
        printf("  and %zu more: --sites --json has all\n", holders->count - most);
}

static bool same(const cmd_holders_t *a, const cmd_holders_t *b) {
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (by_bytes(&a->holder[i], &b->holder[i]) != 0)
            return false;
    return true;
}

/* What is held at the end and what was never freed differ if contexts took blocks along. */
void cmd_holders_print(const cmd_history_t *history, unsigned most) {
    static const cmd_moment_t moments[] = {CMD_AT_PEAK, CMD_AT_END, CMD_AT_LEAKED};
    cmd_holders_t of[3];
    char *error = NULL;
    for (cmd_moment_t i = CMD_AT_END; i <= CMD_AT_LEAKED; i++)
        if (!cmd_holders(history, i, &of[i], &error)) {
            free(error);
            error = NULL;
        }
    for (unsigned i = 0; i < 3; i++)
        if (of[moments[i]].count &&
            (moments[i] != CMD_AT_LEAKED || !same(&of[CMD_AT_LEAKED], &of[CMD_AT_END])))
            print_table(cmd_moment_text(moments[i]), &of[moments[i]], most);
    for (unsigned i = 0; i < 3; i++)
        cmd_holders_free(&of[i]);
}

/* ------------------------------------------------------------------ for machines */

static json_t *moment_json(const cmd_history_t *history, cmd_moment_t moment) {
    cmd_holders_t holders;
    char *error = NULL;
    if (!cmd_holders(history, moment, &holders, &error)) {
        free(error);
        return json_null();
    }
    json_t *sites = json_array();
    for (size_t i = 0; i < holders.count; i++)
        json_array_append_new(sites, json_pack("{s:o, s:I, s:I}", "site",
                                               cmd_json_text(holders.holder[i].site), "blocks",
                                               (json_int_t)holders.holder[i].blocks, "bytes",
                                               (json_int_t)holders.holder[i].bytes));
    json_t *all = json_pack("{s:I, s:I, s:o}", "blocks", (json_int_t)holders.blocks, "bytes",
                            (json_int_t)holders.bytes, "sites", sites);
    cmd_holders_free(&holders);
    return all;
}

json_t *cmd_holders_json(const cmd_history_t *history) {
    return json_pack("{s:o, s:o, s:o}", "peak", moment_json(history, CMD_AT_PEAK), "end",
                     moment_json(history, CMD_AT_END), "leaked",
                     moment_json(history, CMD_AT_LEAKED));
}

/* See changes.h. */
#include "read/changes.h"
#include "command.h"

#include <stdlib.h>
#include <string.h>

static void drop_offsets(char *site) {
    char *out = site;
    for (const char *at = site; *at;) {
        size_t digits = strncmp(at, "+0x", 3) ? 0 : strspn(at + 3, "0123456789abcdef");
        if (digits)
            at += 3 + digits;
        else
            *out++ = *at++;
    }
    *out = '\0';
}

static int by_site(const void *a, const void *b) {
    return strcmp(((const cmd_change_t *)a)->site, ((const cmd_change_t *)b)->site);
}

static int64_t amount(const cmd_change_t *change) {
    return llabs(change->bytes[1] - change->bytes[0]);
}

static int by_amount(const void *a, const void *b) {
    const cmd_change_t *x = a, *y = b;
    if (amount(x) != amount(y))
        return amount(x) < amount(y) ? 1 : -1;
    return by_site(a, b);
}

static void add(cmd_changes_t *changes, const cmd_sites_t *sites, int which) {
    changes->change = cmd_resize(changes->change,
                                 (changes->count + sites->count + 1) * sizeof *changes->change);
    for (size_t i = 0; i < sites->count; i++) {
        cmd_change_t *change = &changes->change[changes->count++];
        *change = (cmd_change_t){.site = cmd_format("%s", sites->site[i].name)};
        drop_offsets(change->site);
        change->bytes[which] = sites->site[i].bytes;
        change->blocks[which] = sites->site[i].blocks;
    }
    changes->bytes[which] = sites->bytes;
}

static void join(cmd_changes_t *changes) {
    size_t kept = 0;
    if (changes->count)
        qsort(changes->change, changes->count, sizeof *changes->change, by_site);
    for (size_t i = 0; i < changes->count; i++) {
        cmd_change_t *from = &changes->change[i], *to = kept ? &changes->change[kept - 1] : NULL;
        if (!to || by_site(to, from) != 0) {
            changes->change[kept++] = *from;
            continue;
        }
        for (int k = 0; k < 2; k++) {
            to->bytes[k] = cmd_sum(to->bytes[k], from->bytes[k], 1);
            to->blocks[k] = cmd_sum(to->blocks[k], from->blocks[k], 1);
        }
        free(from->site);
    }
    changes->count = kept;
    if (kept)
        qsort(changes->change, kept, sizeof *changes->change, by_amount);
}

bool cmd_changes(const cmd_history_t *const history[2], cmd_moment_t moment,
                 cmd_changes_t *changes, int *wrong, char **error) {
    *changes = (cmd_changes_t){0};
    for (*wrong = 0; *wrong < 2; ++*wrong) {
        cmd_sites_t sites;
        if (!cmd_sites_at(history[*wrong], moment, &sites, error)) {
            cmd_changes_free(changes);
            return false;
        }
        add(changes, &sites, *wrong);
        cmd_sites_free(&sites);
    }
    join(changes);
    return true;
}

void cmd_changes_free(cmd_changes_t *changes) {
    for (size_t i = 0; i < changes->count; i++)
        free(changes->change[i].site);
    free(changes->change);
    *changes = (cmd_changes_t){0};
}

const char *cmd_change_word(const cmd_change_t *change) {
    return !change->bytes[0]                     ? "new"
           : !change->bytes[1]                   ? "gone"
           : change->bytes[1] > change->bytes[0] ? "grew"
           : change->bytes[1] < change->bytes[0] ? "shrank"
                                                 : "same";
}

/* See option.h. */
#include "base/option.h"
#include "command.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Letters to insert, remove, replace or swap until one text is the other, in either case. */
static unsigned distance(const char *a, const char *b) {
    enum { MOST = 40 };
    unsigned row[3][MOST + 1];
    size_t m = strlen(a), n = strlen(b);
    if (m > MOST || n > MOST)
        return MOST;
    for (unsigned j = 0; j <= n; j++)
        row[0][j] = j;
    for (unsigned i = 1; i <= m; i++) {
        unsigned *above = row[(i - 1) % 3], *now = row[i % 3];
        now[0] = i;
        for (unsigned j = 1; j <= n; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            unsigned least = above[j - 1] + (x != y);
            least = above[j] + 1 < least ? above[j] + 1 : least;
            least = now[j - 1] + 1 < least ? now[j - 1] + 1 : least;
            bool swapped = i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
                           y == tolower((unsigned char)a[i - 2]);
            if (swapped && row[(i - 2) % 3][j - 2] + 1 < least)
                least = row[(i - 2) % 3][j - 2] + 1;
            now[j] = least;
        }
    }
    return row[m % 3][n];
}

const char *cmd_nearest(const char *text, const char *const *names, size_t size) {
    const char *nearest = NULL, *name;
    size_t length = strlen(text);
    unsigned best = (unsigned)(length / 3 + 1); /* more is another word */
    for (; (name = *names); names = (const char *const *)((const char *)names + size)) {
        unsigned d = distance(text, name);
        if (length >= 3 && d > 1 && !strncmp(name, text, length))
            d = 1;
        if (d <= best && (!nearest || d < best)) {
            best = d;
            nearest = name;
        }
    }
    return nearest;
}

int cmd_usage_names(const char *what, const char *given, const char *const *names, size_t size,
                    int count) {
    char *list = cmd_format("%s", *names);
    for (int i = 1; i < count; i++) {
        names = (const char *const *)((const char *)names + size);
        char *longer = cmd_format("%s, %s", list, *names);
        free(list);
        list = longer;
    }
    int status = cmd_usage("there is no %s \"%s\"; there are %s", what, given, list);
    free(list);
    return status;
}

/* What is wrong with the long option `given`, "--name" or "--name=value". */
static void say_long(const char *given, const struct option *options) {
    size_t length = strcspn(given + 2, "=");
    char *name = cmd_format("%.*s", (int)length, given + 2);
    const struct option *meant = NULL;
    unsigned found = 0;
    for (const struct option *o = options; o->name; o++) {
        if (strncmp(o->name, name, length) != 0)
            continue;
        bool whole = !o->name[length];
        meant = o;
        found = whole ? 1 : found + 1;
        if (whole)
            break;
    }
    const char *near = found ? NULL : cmd_nearest(name, &options->name, sizeof *options);
    if (found > 1)
        cmd_say("--%s may be several options: write it in full", name);
    else if (found && meant->has_arg == required_argument)
        cmd_say("--%s needs a value behind it", meant->name);
    else if (found)
        cmd_say("--%s takes no value", meant->name);
    else
        cmd_say("unknown option --%s%s%s%s", name, near ? "; did you mean --" : "",
                near ? near : "", near ? "?" : "");
    free(name);
}

/* Whether getopt stopped at the long option `given`: of an unknown one it tells nothing, of one
 * with a wrong value `val`. */
static bool is_long(const char *given, const struct option *options) {
    if (strncmp(given, "--", 2) != 0 || !given[2])
        return false;
    if (!optopt)
        return true;
    size_t length = strcspn(given + 2, "=");
    for (const struct option *o = options; o->name; o++)
        if (o->val == optopt && !strncmp(o->name, given + 2, length))
            return true;
    return false;
}

int cmd_option(int argc, char **argv, const char *letters, const struct option *options) {
    opterr = 0;
    optopt = 0;
    int option = getopt_long(argc, argv, letters, options, NULL);
    if (option != '?')
        return option;
    const char *given = argv[optind - 1];
    if (is_long(given, options))
        say_long(given, options);
    else if (optopt != '+' && strchr(letters, optopt))
        cmd_say("-%c needs a value behind it", optopt);
    else
        cmd_say("unknown option -%c", optopt);
    return option;
}

bool cmd_option_json(int argc, char **argv, const char *help, bool *json, int *status) {
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    int option;
    *json = false;
    while ((option = cmd_option(argc, argv, "hj", options)) != -1) {
        *json |= option == 'j';
        if (option == 'j')
            continue;
        if (option == 'h')
            fputs(help, stdout);
        *status = option == 'h' ? CMD_OK : cmd_usage_hint();
        return false;
    }
    return true;
}

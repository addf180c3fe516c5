/* See option.h. */
#include "base/option.h"
#include "command.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
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

/* Says what is wrong with the long option `given`, "--name" or "--name=value". */
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

/* ------------------------------------------------------------------ the table */

enum { MOST_OPTIONS = 30, LONG = 256 };

/* The table in the form that getopt takes.  A long option has the value LONG and its row. */
typedef struct {
    struct option options[MOST_OPTIONS + 2]; /* --help and the end */
    char letters[2 * MOST_OPTIONS + 3];
    unsigned count;
} getopt_t;

static void prepare(getopt_t *g, const cmd_option_t *table, bool command, bool help) {
    char *letter = g->letters;
    *letter = '+';
    letter += command;
    for (g->count = 0; table[g->count].name && g->count < MOST_OPTIONS; g->count++) {
        const cmd_option_t *o = &table[g->count];
        bool value = o->text || o->number || o->real || o->take;
        int argument = !value ? no_argument : o->flag ? optional_argument : required_argument;
        g->options[g->count] = (struct option){o->name, argument, NULL, LONG + (int)g->count};
        if (o->letter)
            *letter++ = o->letter;
        if (o->letter && value)
            *letter++ = ':';
    }
    if (help)
        *letter++ = 'h';
    *letter = '\0';
    g->options[g->count] = help ? (struct option){"help", no_argument, NULL, 'h'} : (struct option){0};
    g->options[g->count + 1] = (struct option){0};
}

/* Says what getopt refused.  For an unknown long option getopt tells nothing, for one with a wrong value its
 * number. */
static void say_wrong(const getopt_t *g, const char *given) {
    bool is_long = !strncmp(given, "--", 2) && given[2];
    if (is_long && (!optopt || optopt >= LONG || optopt == 'h'))
        say_long(given, g->options);
    else if (optopt != '+' && optopt < LONG && strchr(g->letters, optopt))
        cmd_say("-%c needs a value behind it", optopt);
    else
        cmd_say("unknown option -%c", optopt);
}

/* Returns CMD_OK, or CMD_USAGE after a message. */
static int take(const cmd_option_t *o, const char *value) {
    char *end = NULL;
    double number = 0;
    if (o->flag)
        *o->flag = true;
    if (o->text)
        *o->text = value;
    if (o->take)
        return o->take(value, o->arg);
    if (!o->number && !o->real)
        return CMD_OK;
    errno = 0;
    if (o->number)
        number = (double)(*o->number = strtoull(value, &end, 10));
    else
        number = *o->real = strtod(value, &end);
    bool digit = *value >= '0' && *value <= '9', good = digit || (o->real && *value == '.');
    if (good && !*end && !errno && number >= o->low && number <= o->high)
        return CMD_OK;
    return cmd_usage("--%s %s: %s", o->name, value, o->expected);
}

static bool read_all(int argc, char **argv, const cmd_option_t *table, bool command, const char *help,
                     int *status) {
    getopt_t g;
    int option;
    prepare(&g, table, command, help != NULL);
    opterr = optopt = 0;
    while ((option = getopt_long(argc, argv, g.letters, g.options, NULL)) != -1) {
        unsigned i = (unsigned)option - LONG;
        if (option == '?') {
            say_wrong(&g, argv[optind - 1]);
            *status = cmd_usage_hint();
            return false;
        }
        if (help && option == 'h') {
            fputs(help, stdout);
            *status = CMD_OK;
            return false;
        }
        for (unsigned k = 0; option < LONG && k < g.count; k++)
            i = table[k].letter == option ? k : i;
        *status = table[i].stop ? table[i].stop() : take(&table[i], optarg);
        if (*status || table[i].stop)
            return false;
        optopt = 0;
    }
    return true;
}

bool cmd_options(int argc, char **argv, const cmd_option_t *table, const char *help, int *status) {
    return read_all(argc, argv, table, false, help, status);
}

bool cmd_options_of_command(int argc, char **argv, const cmd_option_t *table, const char *help, int *status) {
    return read_all(argc, argv, table, true, help, status);
}

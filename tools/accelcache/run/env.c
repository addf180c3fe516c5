/* `accelcache env`: the lines that put the library under everything that a shell starts. */
#include "command.h"
#include "config/config.h"
#include "base/option.h"
#include "run/place.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "Usage: accelcache env [OPTION...]\n"
    "Prints shell commands that put the library under every program which that\n"
    "shell starts later: eval \"$(accelcache env)\".\n"
    "\n"
    "  --conf STRING   set ACCEL_ALLOC_CONF to this, instead of leaving it as it is\n"
    "  --lib FILE      the library to preload, instead of the one next to this\n"
    "                  command\n"
    "  --sim[=SPEC]    add the simulated device; SPEC becomes ACCEL_SIM\n"
    "  --format sh|csh|fish|plain\n"
    "                  the shell (sh); plain: NAME=VALUE, for Docker's --env-file\n"
    "                  and systemd's EnvironmentFile\n"
    "  --unset         undo it; other preloaded libraries stay\n"
    "\n"
    "Exit status: 0, 1 the library was not found, 2 wrong usage.\n";

/* How a shell sets a variable, and how it forgets one; `quote`: what stands for a quote between quotes (NULL:
 * values are not quoted); `also`: other characters that need quotes. */
static const struct format {
    const char *name, *set, *end, *unset, *quote, *also;
} formats[] = {{"sh", "export %s=", "\n", "unset %s\n", "'\\''", ""},
               {"csh", "setenv %s ", ";\n", "unsetenv %s;\n", "'\\''", "!"},
               {"fish", "set -gx %s ", ";\n", "set -e %s;\n", "\\'", "\\"},
               {"plain", "%s=", "\n", "%s=\n", NULL, ""},
               {NULL, NULL, NULL, NULL, NULL, NULL}};

static void print_name(const char *pattern, const char *name) {
    const char *at = strstr(pattern, "%s");
    printf("%.*s%s%s", (int)(at - pattern), pattern, name, at + 2);
}

static void print_value(const struct format *format, const char *value) {
    if (!format->quote) {
        fputs(value, stdout);
        return;
    }
    putchar('\'');
    for (; *value; value++)
        if (*value == '\'')
            fputs(format->quote, stdout);
        else if (strchr(format->also, *value))
            printf("\\%c", *value);
        else
            putchar(*value);
    putchar('\'');
}

static void print_set(const struct format *format, const char *name, const char *value) {
    print_name(format->set, name);
    print_value(format, value);
    fputs(format->end, stdout);
}

/* The loader's separators between entries.  A folder's name may have a blank in it. */
#define PRELOADS ": \t"
#define FOLDERS  ":;"

/* The entries of `list` but `gone`; malloc'd. */
static char *without(const char *list, const char *gone, const char *between) {
    char *rest = cmd_format("%s", "");
    while (list && *list) {
        size_t length = strcspn(list, between);
        if (length && (length != strlen(gone) || strncmp(list, gone, length) != 0)) {
            char *longer = cmd_format("%s%s%.*s", rest, *rest ? ":" : "", (int)length, list);
            free(rest);
            rest = longer;
        }
        list += length + (list[length] != '\0');
    }
    return rest;
}

/* Prints a variable without one of its entries, or unsets it if none is left. */
static void print_without(const struct format *format, const char *name, const char *gone,
                          const char *between) {
    const char *list = getenv(name);
    if (!list)
        return;
    char *rest = without(list, gone, between);
    if (*rest)
        print_set(format, name, rest);
    else
        print_name(format->unset, name);
    free(rest);
}

static int take_format(const char *name, void *format) {
    for (const struct format *f = formats; f->name; f++)
        if (!strcmp(f->name, name)) {
            *(const struct format **)format = f;
            return CMD_OK;
        }
    return cmd_usage("--format: expected sh, csh, fish or plain, got \"%s\"", name);
}

static int print_failed(char *error) {
    cmd_say("%s", error);
    free(error);
    return CMD_FAILED;
}

typedef struct {
    const struct format *format;
    const char *conf, *library, *spec;
    bool simulated, unset;
} settings_t;

static int print_lines(const settings_t *s) {
    char *error = NULL, *simulator = NULL;
    char *library = cmd_place_library(s->library, &error);
    if (!library)
        return print_failed(error);
    if ((s->simulated || s->unset) && !(simulator = cmd_place_simulator(&error)) &&
        s->simulated) {
        free(library);
        return print_failed(error);
    }
    if (s->unset) {
        print_without(s->format, "LD_PRELOAD", library, PRELOADS);
        if (simulator)
            print_without(s->format, "LD_LIBRARY_PATH", simulator, FOLDERS);
        print_name(s->format->unset, "ACCEL_ALLOC_CONF");
        print_name(s->format->unset, "ACCEL_SIM");
    } else {
        /* Twice in a shell is as once. */
        char *paths = simulator ? without(getenv("LD_LIBRARY_PATH"), simulator, FOLDERS) : NULL;
        char *path = simulator ? cmd_place_prepend(simulator, paths) : NULL;
        char *preload = cmd_place_preload(library, getenv("LD_PRELOAD"));
        print_set(s->format, "LD_PRELOAD", preload);
        if (s->conf)
            print_set(s->format, "ACCEL_ALLOC_CONF", s->conf);
        if (path)
            print_set(s->format, "LD_LIBRARY_PATH", path);
        if (s->spec)
            print_set(s->format, "ACCEL_SIM", s->spec);
        free(preload);
        free(path);
        free(paths);
    }
    free(simulator);
    free(library);
    return CMD_OK;
}

int cmd_env(int argc, char **argv) {
    settings_t s = {.format = formats};
    int status;
    const cmd_option_t options[] = {{"conf", .text = &s.conf},
                                    {"lib", .text = &s.library},
                                    {"sim", .flag = &s.simulated, .text = &s.spec},
                                    {"format", .take = take_format, .arg = &s.format},
                                    {"unset", .flag = &s.unset},
                                    {.name = NULL}};
    if (!cmd_options(argc, argv, options, help, &status))
        return status;
    if (optind < argc)
        return cmd_usage("there is nothing to name but options: \"%s\"", argv[optind]);
    if (s.unset && (s.conf || s.simulated))
        return cmd_usage("--unset goes with neither --conf nor --sim");
    if ((s.conf && strpbrk(s.conf, "\n")) || (s.spec && strpbrk(s.spec, "\n")))
        return cmd_usage("a value cannot hold the end of a line");
    ac_config_t config;
    ac_config_error_t wrong;
    if (s.conf && ac_config_parse(s.conf, &config, &wrong, NULL))
        return cmd_usage("--conf: %s", wrong.text);
    return print_lines(&s);
}

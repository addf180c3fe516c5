/* `accelcache config`: the keys of ACCEL_ALLOC_CONF, and the tables for the README. */
#include "command.h"
#include "read/document.h"
#include "config/config.h"

#include "base/option.h"
#include "run/settings.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char help[] =
    "Usage: accelcache config [OPTION...] [STRING|KEY]\n"
    "Checks STRING and shows which keys it changes, or what is wrong with it.  The\n"
    "default is ACCEL_ALLOC_CONF of the environment, over the machine's defaults in\n"
    "/etc/accelcache.conf.  With the name of a key it shows that key, and without\n"
    "any string every key: its range, its default and its effect.\n"
    "\n"
    "  --all         every key, with its value in STRING\n"
    "  --json        every key, and the fault of STRING, as JSON\n"
    "  --json --stats\n"
    "                the rows of statistics and counters, with their texts, as JSON\n"
    "  --markdown    the table of keys in the form of the README\n"
    "  --markdown --stats\n"
    "                the tables of statistics and counters in that form\n"
    "\n"
    "Exit status: 0, 1 if the string is wrong, 2 wrong usage.\n";

static const char fixed[] = "Cannot change once the cache is active.";

/* ------------------------------------------------------------------ human */

/* The key with its value; with `described` also its values and effect, and with settings from a file the source
 * of the value. */
static void print_key(const ac_config_row_t *row, const ac_config_t *config, bool described,
                      const cmd_settings_t *settings) {
    ac_config_t defaults;
    char value[AC_CONFIG_PATH] = "", usual[AC_CONFIG_PATH] = "";
    ac_config_default(&defaults);
    ac_config_value(config, row->key, value, sizeof value);
    ac_config_value(&defaults, row->key, usual, sizeof usual);
    bool changed = strcmp(value, usual) != 0;
    if (!changed && !described)
        return;
    printf("%s%-28s%s ", cmd_bold(), row->key, cmd_plain());
    cmd_print_safe(value);
    const char *source =
        settings && settings->file ? cmd_settings_source(settings, row->key) : NULL;
    if (changed || source)
        printf("   (default %s%s%s)", row->default_text, source ? ", from " : "",
               source ? source : "");
    putchar('\n');
    if (!described)
        return;
    char *accepts = cmd_format("accepts %s", row->range);
    cmd_print_paragraph(accepts, 4);
    if (row->trait == AC_TRAIT_FIXED)
        cmd_print_paragraph(fixed, 4);
    cmd_print_paragraph(row->doc, 4);
    free(accepts);
}

/* That the string is good, and what it changes. */
static void print_good(const char *source, const ac_config_t *config,
                       const cmd_settings_t *settings) {
    ac_config_t defaults;
    unsigned changed = 0;
    ac_config_default(&defaults);
    for (unsigned i = 0; i < ac_config_row_count; i++) {
        char value[AC_CONFIG_PATH] = "", usual[AC_CONFIG_PATH] = "";
        if (ac_config_rows[i].foreign)
            continue;
        ac_config_value(config, ac_config_rows[i].key, value, sizeof value);
        ac_config_value(&defaults, ac_config_rows[i].key, usual, sizeof usual);
        changed += strcmp(value, usual) != 0;
    }
    if (changed)
        printf("ok: %s is good, and changes %u key%s:\n", source, changed,
               changed == 1 ? "" : "s");
    else
        printf("ok: %s is good, and every key has its default\n", source);
    for (unsigned i = 0; i < ac_config_row_count; i++)
        if (!ac_config_rows[i].foreign)
            print_key(&ac_config_rows[i], config, false, settings);
    puts("accelcache config KEY says what a key does, --all shows them all");
}

static const ac_config_row_t *row_of(const char *key) {
    for (unsigned i = 0; i < ac_config_row_count; i++)
        if (!strcasecmp(ac_config_rows[i].key, key))
            return &ac_config_rows[i];
    return NULL;
}

static int print_one(const ac_config_row_t *row, const ac_config_t *config,
                     const cmd_settings_t *settings) {
    if (row->foreign)
        printf("%s is PyTorch's and has no effect: %s\n", row->key, row->doc);
    else
        print_key(row, config, true, settings);
    return CMD_OK;
}

static void print_keys(const ac_config_t *config, const cmd_settings_t *settings) {
    for (unsigned i = 0; i < ac_config_row_count; i++)
        if (!ac_config_rows[i].foreign)
            print_key(&ac_config_rows[i], config, true, settings);
    printf("\n%sKeys of PyTorch's without effect here%s (warned about, never an error)\n",
           cmd_bold(), cmd_plain());
    cmd_table_t *table = cmd_table_new("ll");
    for (unsigned i = 0; i < ac_config_row_count; i++)
        if (ac_config_rows[i].foreign)
            cmd_table_row(table, ac_config_rows[i].key, ac_config_rows[i].doc);
    cmd_table_print(table, 2);
}

/* ------------------------------------------------------------------ JSON */

static int print_json(const char *string, const ac_config_t *config,
                      const ac_config_error_t *error, const ac_config_warnings_t *warnings,
                      const cmd_settings_t *settings) {
    json_t *keys = json_array();
    for (unsigned i = 0; i < ac_config_row_count; i++) {
        const ac_config_row_t *row = &ac_config_rows[i];
        char value[AC_CONFIG_PATH] = "";
        const char *source =
            settings && !row->foreign ? cmd_settings_source(settings, row->key) : NULL;
        bool known = !row->foreign && ac_config_value(config, row->key, value, sizeof value) >= 0;
        json_array_append_new(
            keys, json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:s, s:b, s:b}", "key", row->key,
                            "type", row->type, "range", row->range, "default", row->default_text,
                            "value", known ? cmd_json_text(value) : json_null(), "source",
                            source ? cmd_json_text(source) : json_null(), "doc", row->doc,
                            "foreign", row->foreign, "fixed", row->trait == AC_TRAIT_FIXED));
    }
    json_t *said = json_array();
    for (unsigned i = 0; i < warnings->count; i++)
        json_array_append_new(said, cmd_json_text(warnings->text[i]));
    json_t *wrong = error ? json_pack("{s:I, s:o}", "position", (json_int_t)error->position,
                                      "text", cmd_json_text(error->text))
                          : json_null();
    json_t *whole =
        json_pack("{s:o, s:o, s:o, s:o}", "string", string ? cmd_json_text(string) : json_null(),
                  "error", wrong, "warnings", said, "keys", keys);
    json_object_set_new(whole, "file",
                        settings && settings->file ? cmd_json_text(settings->file) : json_null());
    bool refused = settings && settings->refused;
    json_object_set_new(whole, "file_error",
                        refused ? cmd_json_text(settings->why) : json_null());
    return cmd_print_json(whole, 0) || error || refused ? CMD_FAILED : CMD_OK;
}

static void put_row(json_t *whole, const char *group, const char *name, const char *kind,
                    const char *unit, const char *doc) {
    json_array_append_new(
        json_object_get(whole, group),
        json_pack("{s:s, s:s, s:s, s:s}", "name", name, "kind", kind, "unit", unit, "doc", doc));
}

static int print_json_stats(void) {
    json_t *whole = json_pack("{s:[], s:[], s:[], s:[]}", "stats", "device_counters",
                              "pinned_stats", "counters");
#define STAT_COUNT(name, doc)        put_row(whole, "stats", #name, "count", "", doc);
#define STAT_SETTING(name, doc)      put_row(whole, "stats", #name, "setting", "", doc);
#define STAT_POOLS(name, unit, doc)  put_row(whole, "stats", #name, "pools", #unit, doc);
#define STAT_SINGLE(name, unit, doc) put_row(whole, "stats", #name, "stat", #unit, doc);
#include "observe/stats.def"
#define DEVICE_COUNTER(name, unit, doc)                                                          \
    put_row(whole, "device_counters", #name, "count", #unit, doc);
#define PROCESS_COUNTER(name, unit, doc) put_row(whole, "counters", #name, "count", #unit, doc);
#include "observe/counters.def"
#define HOST_COUNT(name, doc)      put_row(whole, "pinned_stats", #name, "count", "", doc);
#define HOST_STAT(name, unit, doc) put_row(whole, "pinned_stats", #name, "stat", #unit, doc);
#include "observe/host_stats.def"
    return cmd_print_json(whole, 0);
}

/* ------------------------------------------------------------------ markdown */

/* A cell: | would end it. */
static void print_cell(const char *text) {
    for (; *text; text++) {
        if (*text == '|')
            putchar('\\');
        putchar(*text);
    }
}

static void print_cells(unsigned count, const char *const *cell) {
    for (unsigned i = 0; i < count; i++) {
        fputs(i ? " | " : "| ", stdout);
        print_cell(cell[i]);
    }
    puts(" |");
}

static void print_markdown_keys(void) {
    puts("| key | default | accepts | what it does |\n|---|---|---|---|");
    for (unsigned i = 0; i < ac_config_row_count; i++) {
        const ac_config_row_t *row = &ac_config_rows[i];
        if (i == ac_config_first_rows)
            puts("\n## Settings for experts\n\n"
                 "| key | default | accepts | what it does |\n|---|---|---|---|");
        if (row->foreign)
            continue;
        char key[80], usual[AC_CONFIG_PATH + 2];
        snprintf(key, sizeof key, "`%s`", row->key);
        snprintf(usual, sizeof usual, "`%s`", row->default_text);
        char *doc = cmd_format("%s%s%s", row->doc, row->trait == AC_TRAIT_FIXED ? " " : "",
                               row->trait == AC_TRAIT_FIXED ? fixed : "");
        print_cells(4, (const char *const[]){key, usual, row->range, doc});
        free(doc);
    }
    fputs("\nThese keys of PyTorch are known and have no effect here; they cause a warning:", stdout);
    const char *separator = " ";
    for (unsigned i = 0; i < ac_config_row_count; i++) {
        if (!ac_config_rows[i].foreign)
            continue;
        printf("%s`%s`", separator, ac_config_rows[i].key);
        separator = ",\n";
    }
    puts(".");
}

static void print_markdown_row(const char *name, const char *unit, const char *doc) {
    char key[160];
    snprintf(key, sizeof key, "`%s`", name);
    print_cells(3, (const char *const[]){key, unit, doc});
}

static void print_markdown_stats(void) {
    puts("Statistics of a device (`devices[].stats`):\n\n| name | unit | what it says |\n"
         "|---|---|---|");
#define STAT_COUNT(name, doc) print_markdown_row(#name, "", doc);
#define STAT_POOLS(name, unit, doc)                                                              \
    print_markdown_row(#name ".{all,small_pool,large_pool}.{current,peak,allocated,freed}",      \
                       #unit, doc);
#define STAT_SINGLE(name, unit, doc)                                                             \
    print_markdown_row(#name ".{current,peak,allocated,freed}", #unit, doc);
#include "observe/stats.def"
    puts("\nCounters of a device (`devices[].counters`):\n\n| name | unit | what it says |\n"
         "|---|---|---|");
#define DEVICE_COUNTER(name, unit, doc) print_markdown_row(#name, #unit, doc);
#include "observe/counters.def"
    puts("\nStatistics of pinned memory (`pinned.stats`), with pinned_cache:\n\n"
         "| name | unit | what it says |\n|---|---|---|");
#define HOST_COUNT(name, doc) print_markdown_row(#name, "", doc);
#define HOST_STAT(name, unit, doc)                                                               \
    print_markdown_row(#name ".{current,peak,allocated,freed}", #unit, doc);
#include "observe/host_stats.def"
    puts("\nCounters of the process (`counters`):\n\n| name | unit | what it says |\n"
         "|---|---|---|");
#define PROCESS_COUNTER(name, unit, doc) print_markdown_row(#name, #unit, doc);
#include "observe/counters.def"
}

/* ------------------------------------------------------------------ */

int cmd_config(int argc, char **argv) {
    bool json = false, markdown = false, stats = false, all = false;
    int status;
    const cmd_option_t options[] = {{"json", 'j', .flag = &json},
                                    {"markdown", .flag = &markdown},
                                    {"stats", .flag = &stats},
                                    {"all", .flag = &all},
                                    {.name = NULL}};
    if (!cmd_options(argc, argv, options, help, &status))
        return status;
    if (argc - optind > 1)
        return cmd_usage("one STRING at most; quote it when it has blanks");
    if ((markdown && (json || optind < argc)) || (stats && !markdown && (!json || optind < argc)))
        return cmd_usage("--markdown goes alone or with --stats, --stats with it or --json");
    if (markdown) {
        if (stats)
            print_markdown_stats();
        else
            print_markdown_keys();
        return CMD_OK;
    }
    if (stats)
        return print_json_stats();
    const char *outside = getenv("ACCEL_ALLOC_CONF");
    const ac_config_row_t *row = optind < argc && !json ? row_of(argv[optind]) : NULL;
    const char *string = optind < argc && !row ? argv[optind] : outside;
    /* A string that was given is judged by itself. */
    cmd_settings_t *here = string == outside ? malloc(sizeof *here) : NULL;
    ac_config_t config;
    ac_config_error_t error;
    ac_config_warnings_t warnings = {0};
    ac_config_default(&config);
    bool wrong = ac_config_parse(string, &config, &error, &warnings) != 0;
    if (here) {
        cmd_settings_read(here);
        config = here->config;
    }
    status = here && here->refused ? CMD_FAILED : CMD_OK;
    if (json) {
        status = print_json(string, &config, wrong ? &error : NULL, &warnings, here);
        free(here);
        return status;
    }
    if (status)
        cmd_say("%s is not applied: %s", here->refused, here->why);
    for (unsigned i = 0; here && i < here->warnings_of_file.count; i++)
        cmd_say("%s: %s", here->file, here->warnings_of_file.text[i]);
    const char *source = string != outside ? "the string" : "ACCEL_ALLOC_CONF";
    if (wrong) {
        cmd_say("%s: %s", source, error.text);
        cmd_say_position(string, error.position);
        free(here);
        return CMD_FAILED;
    }
    for (unsigned i = 0; i < warnings.count; i++)
        cmd_say("%s: %s", source, warnings.text[i]);
    bool given = (string && *string) || (here && here->file);
    if (row)
        print_one(row, &config, here);
    else {
        if (given)
            print_good(!here || !here->file ? source
                       : string && *string  ? "ACCEL_ALLOC_CONF over the machine's file"
                                            : here->file,
                       &config, here);
        if (all || !given)
            print_keys(&config, here);
    }
    free(here);
    return status;
}

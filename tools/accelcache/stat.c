/* `accelcache stat`: dumps, running processes, and processes that were killed. */
#include "command.h"
#include "document.h"
#include "render.h"

#include <errno.h>
#include <fnmatch.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

static const char help[] =
    "Usage: accelcache stat [--json] [FILE|DIR|PID]...\n"
    "Shows statistics dumps.\n\n"
    "  FILE   a dump; one alone is shown in full, several in a line each with their sum\n"
    "  DIR    every accelcache-*.json in it\n"
    "  PID    a process that runs under the library, or was killed (write ./123 for a file);\n"
    "         what is left of a killed one is removed once it was shown\n"
    "  none   lists the processes of this user, running and killed\n\n"
    "  --json the documents as they are: one object for a single FILE or PID, else an array\n\n"
    "fenced_frees and ordered_frees count the frees that found work pending: where both are 0,\n"
    "free_sync:true changes nothing.  accelcache doctor --dump FILE says what figures advise.\n\n"
    "Exit status: 0, 1 when something could not be read (the rest is shown), 2 wrong usage.\n";

typedef struct {
    cmd_rendered_t *document;
    unsigned count;
    int *collect; /* pids of dead processes that are shown now */
    unsigned collect_count;
    bool failed;
} shown_t;

static void shown_add(shown_t *shown, json_t *document, const char *source) {
    shown->document = cmd_resize(shown->document, (shown->count + 1) * sizeof *shown->document);
    shown->document[shown->count++] = (cmd_rendered_t){document, cmd_format("%s", source)};
}

static void shown_fail(shown_t *shown, const char *source, char *error) {
    cmd_say("%s: %s", source, error);
    free(error);
    shown->failed = true;
}

static void shown_clear(shown_t *shown) {
    for (unsigned i = 0; i < shown->count; i++) {
        json_decref(shown->document[i].document);
        free(shown->document[i].source);
    }
    free(shown->document);
    free(shown->collect);
}

/* ------------------------------------------------------------------ arguments */

static void take_file(shown_t *shown, const char *path) {
    char *error;
    json_t *document = cmd_document_load(path, &error);
    if (document)
        shown_add(shown, document, path);
    else
        shown_fail(shown, path, error);
}

static int is_dump(const struct dirent *entry) {
    return fnmatch("accelcache-*.json", entry->d_name, 0) == 0;
}

static void take_folder(shown_t *shown, const char *path) {
    struct dirent **entry;
    int count = scandir(path, &entry, is_dump, versionsort);
    if (count < 0) {
        shown_fail(shown, path, cmd_format("%s", strerror(errno)));
        return;
    }
    if (count == 0)
        shown_fail(shown, path,
                   cmd_format("no accelcache-*.json there: nothing used CUDA, or the key `dump` "
                              "names another place"));
    for (int i = 0; i < count; i++) {
        size_t length = strlen(path);
        char *file = cmd_format("%s%s%s", path, length && path[length - 1] == '/' ? "" : "/",
                                entry[i]->d_name);
        take_file(shown, file);
        free(file);
        free(entry[i]);
    }
    free(entry);
}

static void take_process(shown_t *shown, int pid) {
    char *error, source[64];
    bool alive;
    json_t *document = cmd_document_live(pid, &alive, &error);
    snprintf(source, sizeof source, "process %d", pid);
    if (!document) {
        cmd_say("%s", error); /* names the process or its page */
        free(error);
        shown->failed = true;
        return;
    }
    shown_add(shown, document, source);
    if (!alive) {
        shown->collect =
            cmd_resize(shown->collect, (shown->collect_count + 1) * sizeof *shown->collect);
        shown->collect[shown->collect_count++] = pid;
    }
}

/* A process id: digits alone. 0 for anything else. */
static int read_pid(const char *text) {
    char *end;
    long pid = strtol(text, &end, 10);
    return *text >= '1' && *text <= '9' && !*end && pid <= INT_MAX ? (int)pid : 0;
}

static bool is_folder(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static int print_json(const shown_t *shown, bool single) {
    json_t *whole = NULL;
    if (single && shown->count == 1) {
        whole = json_incref(shown->document[0].document);
    } else if (!single) {
        whole = json_array();
        for (unsigned i = 0; i < shown->count; i++)
            json_array_append(whole, shown->document[i].document);
    }
    if (!whole)
        return CMD_FAILED;
    return cmd_print_json(whole, JSON_PRESERVE_ORDER);
}

static int show(char **argument, int count, bool json) {
    shown_t shown = {0};
    for (int i = 0; i < count; i++) {
        int pid = read_pid(argument[i]);
        if (pid)
            take_process(&shown, pid);
        else if (is_folder(argument[i]))
            take_folder(&shown, argument[i]);
        else
            take_file(&shown, argument[i]);
    }
    int status = shown.failed ? CMD_FAILED : CMD_OK;
    if (json) {
        if (print_json(&shown, count == 1 && !is_folder(argument[0])))
            status = CMD_FAILED;
    } else if (shown.count == 1) {
        cmd_render(shown.document[0].document, shown.document[0].source);
    } else if (shown.count > 1) {
        cmd_render_many(shown.document, shown.count);
    }
    /* What was not printed must not be lost. */
    if (fflush(stdout) == 0 && !ferror(stdout))
        for (unsigned i = 0; i < shown.collect_count; i++)
            ac_live_collect(shown.collect[i]);
    shown_clear(&shown);
    return status;
}

/* ------------------------------------------------------------------ the list */

enum { MOST_DEAD = 16 }; /* killed processes kept for the list; older ones are collected */

typedef struct {
    int pid;
    bool alive;
    json_t *document;
} entry_t;

typedef struct {
    entry_t *entry;
    unsigned count;
    unsigned collected;
} list_t;

static void list_visit(int pid, void *arg) {
    list_t *list = arg;
    bool alive;
    char *error;
    json_t *document = cmd_document_live(pid, &alive, &error);
    if (!document) {
        /* Another version's, or torn: of no use once its process is gone. */
        if (ac_live_collect(pid) == 0)
            list->collected++;
        else
            cmd_say("%s", error);
        free(error);
        return;
    }
    list->entry = cmd_resize(list->entry, (list->count + 1) * sizeof *list->entry);
    list->entry[list->count++] = (entry_t){pid, alive, document};
}

static const char *start_time(const entry_t *entry) {
    const char *text = json_string_value(
        json_object_get(json_object_get(entry->document, "process"), "start_time"));
    return text ? text : "";
}

/* Running ones first, then the newest. */
static int by_age(const void *a, const void *b) {
    const entry_t *x = a, *y = b;
    if (x->alive != y->alive)
        return x->alive ? -1 : 1;
    int order = strcmp(start_time(y), start_time(x));
    return order ? order : y->pid - x->pid;
}

static void print_list(const list_t *list) {
    if (!list->count) {
        puts("no process of this user runs under accelcache, and none was killed");
        return;
    }
    cmd_table_t *table = cmd_table_new("rlrrrll");
    cmd_table_row(table, "pid", "state", "devices", "reserved", "allocated", "started",
                  "program");
    for (unsigned i = 0; i < list->count; i++) {
        const entry_t *entry = &list->entry[i];
        cmd_figures_t f = {0};
        cmd_figures_add(&f, entry->document);
        char pid[CMD_FIGURE], devices[CMD_FIGURE], reserved[CMD_FIGURE], allocated[CMD_FIGURE];
        const char *exe = json_string_value(
            json_object_get(json_object_get(entry->document, "process"), "exe"));
        snprintf(pid, sizeof pid, "%d", entry->pid);
        cmd_table_row(table, pid, entry->alive ? "running" : "killed",
                      cmd_text_count(devices, (int64_t)json_array_size(
                                                  json_object_get(entry->document, "devices"))),
                      cmd_text_bytes(reserved, f.reserved),
                      cmd_text_bytes(allocated, f.allocated), start_time(entry), exe ? exe : "");
    }
    cmd_table_print(table, 0);
}

static int list_json(const list_t *list) {
    json_t *whole = json_array();
    for (unsigned i = 0; i < list->count; i++) {
        const entry_t *entry = &list->entry[i];
        json_t *exe = json_object_get(json_object_get(entry->document, "process"), "exe");
        cmd_figures_t f = {0};
        cmd_figures_add(&f, entry->document);
        json_array_append_new(
            whole, json_pack("{s:i, s:s, s:O?, s:s, s:I, s:I}", "pid", entry->pid, "state",
                             entry->alive ? "running" : "killed", "exe", exe, "start_time",
                             start_time(entry), "reserved_bytes", (json_int_t)f.reserved,
                             "allocated_bytes", (json_int_t)f.allocated));
    }
    return cmd_print_json(whole, 0);
}

static int show_list(bool json) {
    list_t list = {0};
    int status = CMD_OK;
    ac_live_each(list_visit, &list);
    if (list.count)
        qsort(list.entry, list.count, sizeof *list.entry, by_age);
    unsigned dead = 0, kept = 0;
    for (unsigned i = 0; i < list.count; i++) {
        entry_t *entry = &list.entry[i];
        if (!entry->alive && ++dead > MOST_DEAD && ac_live_collect(entry->pid) == 0) {
            json_decref(entry->document);
            list.collected++;
        } else {
            list.entry[kept++] = *entry;
        }
    }
    list.count = kept;
    if (json)
        status = list_json(&list);
    else
        print_list(&list);
    if (list.collected)
        cmd_say("%u stale page%s collected", list.collected, list.collected == 1 ? "" : "s");
    for (unsigned i = 0; i < list.count; i++)
        json_decref(list.entry[i].document);
    free(list.entry);
    return status;
}

int cmd_stat(int argc, char **argv) {
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    bool json = false;
    int option;
    while ((option = getopt_long(argc, argv, "hj", options, NULL)) != -1) {
        if (option == 'h') {
            fputs(help, stdout);
            return CMD_OK;
        }
        if (option != 'j')
            return cmd_usage("wrong option");
        json = true;
    }
    return optind == argc ? show_list(json) : show(argv + optind, argc - optind, json);
}

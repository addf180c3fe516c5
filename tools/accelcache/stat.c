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
    "Usage: accelcache stat [--json] [--remove] [FILE|DIR|PID]...\n"
    "Shows statistics dumps.\n\n"
    "  FILE   a dump; one alone is shown in full, several in a line each with their sum\n"
    "  DIR    every accelcache-*.json in it that is a regular file, and processes that were to\n"
    "         write there (their key dump says so) and were killed or ended by _exit\n"
    "  PID    a process that runs under the library, or was killed (write ./123 for a file);\n"
    "         PID@NAMESPACE for one of another pid namespace (a container), as the list names "
    "it\n"
    "  none   lists the processes of this user, running and killed; for root those of all "
    "users\n\n"
    "  --json the documents as they are: one object for a single FILE or PID, else an array\n"
    "  --remove\n"
    "         remove what killed processes left, once it was shown: that of each PID named, "
    "with\n"
    "         none that of all of this user's.  What is not removed stays until there are more\n"
    "         than 64 files of one user: then the oldest go when a program starts\n\n"
    "fenced_frees and ordered_frees count the frees that found work pending: where both are 0,\n"
    "free_sync:true changes nothing.  accelcache doctor --dump FILE says what figures advise.\n\n"
    "Exit status: 0, 1 when something could not be read (the rest is shown), 2 wrong usage.\n";

typedef struct {
    cmd_rendered_t *document;
    unsigned count;
    ac_live_name_t *killed; /* pages of dead processes that are shown now */
    unsigned killed_count;
    bool failed;
} shown_t;

static void shown_add(shown_t *shown, json_t *document, const char *source) {
    shown->document = cmd_resize(shown->document, (shown->count + 1) * sizeof *shown->document);
    shown->document[shown->count++] = (cmd_rendered_t){document, cmd_format("%s", source)};
}

static void shown_killed(shown_t *shown, const ac_live_name_t *name) {
    shown->killed = cmd_resize(shown->killed, (shown->killed_count + 1) * sizeof *shown->killed);
    shown->killed[shown->killed_count++] = *name;
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
    free(shown->killed);
}

/* ------------------------------------------------------------------ arguments */

/* `error` with what may be behind it; it is freed. */
static char *hinted(char *error, const char *hint) {
    char *whole = cmd_format("%s; %s", error, hint);
    free(error);
    return whole;
}

static void take_file(shown_t *shown, const char *path) {
    char *error;
    json_t *document = cmd_document_load(path, &error);
    if (document)
        shown_add(shown, document, path);
    else
        shown_fail(shown, path,
                   access(path, F_OK) == 0
                       ? error
                       : hinted(error, "a process that a signal or _exit ended writes none: "
                                       "accelcache stat lists it"));
}

static int is_dump(const struct dirent *entry) {
    return fnmatch("accelcache-*.json", entry->d_name, 0) == 0;
}

/* Others may have put something into a folder that keeps its reader waiting, or a link to it. */
static bool is_file(const char *path) {
    struct stat status;
    if (lstat(path, &status) != 0)
        return true; /* gone meanwhile: to read it says so */
    if (S_ISLNK(status.st_mode) && status.st_uid == geteuid() && stat(path, &status) != 0)
        return true;
    return S_ISREG(status.st_mode);
}

/* Processes that were to write their dump into a folder and cannot any more. */
typedef struct {
    struct {
        char *file;
        json_t *document;
        ac_live_name_t name;
    } * page;
    unsigned count;
} unwritten_t;

static void note_unwritten(const ac_live_name_t *name, json_t *document, bool alive,
                           const char *file, void *arg) {
    unwritten_t *list = arg;
    if (alive) {
        json_decref(document);
        return;
    }
    list->page = cmd_resize(list->page, (list->count + 1) * sizeof *list->page);
    list->page[list->count].file = cmd_format("%s", file);
    list->page[list->count].document = document;
    list->page[list->count++].name = *name;
}

static bool is_unwritten(const unwritten_t *list, const char *file) {
    for (unsigned i = 0; i < list->count; i++)
        if (!strcmp(list->page[i].file, file))
            return true;
    return false;
}

/* What they counted, in place of what they may have written earlier. */
static void take_unwritten(shown_t *shown, const unwritten_t *list) {
    for (unsigned i = 0; i < list->count; i++) {
        char *source = cmd_format("process %d, not written", list->page[i].name.pid);
        shown_add(shown, list->page[i].document, source);
        shown_killed(shown, &list->page[i].name);
        free(source);
        free(list->page[i].file);
    }
    free(list->page);
}

static void take_folder(shown_t *shown, const char *path) {
    struct dirent **entry;
    int count = scandir(path, &entry, is_dump, versionsort);
    if (count < 0) {
        shown_fail(shown, path, cmd_format("%s", strerror(errno)));
        return;
    }
    unwritten_t unwritten = {0};
    cmd_pages_of_folder(path, note_unwritten, &unwritten);
    if (count + (int)unwritten.count == 0)
        shown_fail(shown, path,
                   cmd_format("no accelcache-*.json there: nothing used CUDA, or the key `dump` "
                              "names another place; a process that a signal or _exit ended "
                              "writes none: accelcache stat lists it"));
    unsigned skipped = 0;
    for (int i = 0; i < count; i++) {
        size_t length = strlen(path);
        char *file = cmd_format("%s%s%s", path, length && path[length - 1] == '/' ? "" : "/",
                                entry[i]->d_name);
        if (!is_file(file))
            skipped++;
        else if (!is_unwritten(&unwritten, entry[i]->d_name))
            take_file(shown, file);
        free(file);
        free(entry[i]);
    }
    take_unwritten(shown, &unwritten);
    if (skipped)
        cmd_say("%s: %u of accelcache-*.json skipped: no regular file%s", path, skipped,
                skipped == 1 ? "" : "s");
    free(entry);
}

static void take_process(shown_t *shown, int pid, uint64_t space) {
    char *error = NULL, source[64];
    bool alive;
    ac_live_name_t name;
    json_t *document = NULL;
    if (cmd_page_find(pid, space, &name, &error))
        document = cmd_document_live(&name, &alive, &error);
    snprintf(source, sizeof source, "process %d", pid);
    if (!document) {
        cmd_say("%s", error); /* names the process or its page */
        free(error);
        shown->failed = true;
        return;
    }
    shown_add(shown, document, source);
    if (!alive)
        shown_killed(shown, &name);
}

/* A process id, digits alone, with a pid namespace behind an @ or without one (0). */
static bool read_pid(const char *text, int *pid, uint64_t *space) {
    char *end;
    long number = strtol(text, &end, 10);
    *pid = (int)number;
    *space = 0;
    if (*text < '1' || *text > '9' || number > INT_MAX)
        return false;
    if (*end == '@' && end[1] >= '1' && end[1] <= '9')
        *space = strtoull(end + 1, &end, 10);
    return !*end;
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

/* Removes pages of killed processes, none of one that runs; `failed` is set where that cannot be.
 */
static unsigned remove_all(const ac_live_name_t *name, unsigned count, bool *failed) {
    unsigned removed = 0;
    for (unsigned i = 0; i < count; i++) {
        int error = ac_live_remove(&name[i]);
        removed += !error;
        if (error && error != ENOENT && error != EBUSY) {
            cmd_say("what process %d left could not be removed: %s", name[i].pid,
                    strerror(error));
            *failed = true;
        }
    }
    return removed;
}

static int show(char **argument, int count, bool json, bool remove) {
    shown_t shown = {0};
    for (int i = 0; i < count; i++) {
        int pid;
        uint64_t space;
        if (read_pid(argument[i], &pid, &space))
            take_process(&shown, pid, space);
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
    bool failed = false;
    if (remove && fflush(stdout) == 0 && !ferror(stdout))
        remove_all(shown.killed, shown.killed_count, &failed);
    shown_clear(&shown);
    return failed ? CMD_FAILED : status;
}

/* ------------------------------------------------------------------ the list */

typedef struct {
    ac_live_name_t name;
    bool alive;
    json_t *document;
} entry_t;

typedef struct {
    entry_t *entry;
    unsigned count;
    ac_live_name_t *dead; /* what may go, whether it can be shown or not */
    unsigned dead_count;
} list_t;

static void list_dead(list_t *list, const ac_live_name_t *name) {
    if (name->user != geteuid()) /* root names those of others one by one */
        return;
    list->dead = cmd_resize(list->dead, (list->dead_count + 1) * sizeof *list->dead);
    list->dead[list->dead_count++] = *name;
}

static void list_visit(const ac_live_name_t *name, void *arg) {
    list_t *list = arg;
    bool alive;
    char *error;
    json_t *document = cmd_document_live(name, &alive, &error);
    if (!document) {
        cmd_say("%s", error);
        free(error);
        list_dead(list, name); /* where it is not, it will not be removed */
        return;
    }
    if (!alive)
        list_dead(list, name);
    list->entry = cmd_resize(list->entry, (list->count + 1) * sizeof *list->entry);
    list->entry[list->count++] = (entry_t){*name, alive, document};
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
    return order ? order : y->name.pid - x->name.pid;
}

static void print_list(const list_t *list) {
    if (!list->count) {
        puts(geteuid() ? "no process of this user runs under accelcache, and none was killed"
                       : "no process of any user runs under accelcache, and none was killed");
        return;
    }
    bool others = false;
    for (unsigned i = 0; i < list->count; i++)
        others |= list->entry[i].name.user != geteuid();
    cmd_table_t *table = cmd_table_new(others ? "rlrrrlrl" : "rlrrrll");
    const char *user = others ? "user" : "program";
    cmd_table_row(table, "pid", "state", "devices", "reserved", "allocated", "started", user,
                  "program");
    for (unsigned i = 0; i < list->count; i++) {
        const entry_t *entry = &list->entry[i];
        const ac_live_name_t *name = &entry->name;
        cmd_figures_t f = {0};
        cmd_figures_add(&f, entry->document);
        char pid[CMD_FIGURE], devices[CMD_FIGURE], reserved[CMD_FIGURE], allocated[CMD_FIGURE];
        char owner[CMD_FIGURE];
        const char *exe = json_string_value(
            json_object_get(json_object_get(entry->document, "process"), "exe"));
        snprintf(pid, sizeof pid, "%d", name->pid);
        if (name->space && !name->here)
            snprintf(pid, sizeof pid, "%d@%llu", name->pid, (unsigned long long)name->space);
        snprintf(owner, sizeof owner, "%u", name->user);
        exe = exe ? exe : "";
        cmd_table_row(
            table, pid, entry->alive ? "running" : "killed",
            cmd_text_count(devices,
                           (int64_t)json_array_size(json_object_get(entry->document, "devices"))),
            cmd_text_bytes(reserved, f.reserved), cmd_text_bytes(allocated, f.allocated),
            start_time(entry), others ? owner : exe, exe);
    }
    cmd_table_print(table, 0);
}

static int list_json(const list_t *list) {
    json_t *whole = json_array();
    for (unsigned i = 0; i < list->count; i++) {
        const entry_t *entry = &list->entry[i];
        const ac_live_name_t *name = &entry->name;
        json_t *exe = json_object_get(json_object_get(entry->document, "process"), "exe");
        json_t *space = name->space ? json_integer((json_int_t)name->space) : json_null();
        cmd_figures_t f = {0};
        cmd_figures_add(&f, entry->document);
        json_array_append_new(
            whole, json_pack("{s:i, s:o, s:I, s:s, s:O?, s:s, s:I, s:I}", "pid", name->pid,
                             "pid_namespace", space, "user", (json_int_t)name->user, "state",
                             entry->alive ? "running" : "killed", "exe", exe, "start_time",
                             start_time(entry), "reserved_bytes", (json_int_t)f.reserved,
                             "allocated_bytes", (json_int_t)f.allocated));
    }
    return cmd_print_json(whole, 0);
}

static int show_list(bool json, bool remove) {
    list_t list = {0};
    int status = CMD_OK;
    ac_live_each(list_visit, &list);
    if (list.count)
        qsort(list.entry, list.count, sizeof *list.entry, by_age);
    if (json)
        status = list_json(&list);
    else
        print_list(&list);
    if (remove && fflush(stdout) == 0 && !ferror(stdout)) {
        bool failed = false;
        unsigned removed = remove_all(list.dead, list.dead_count, &failed);
        cmd_say("removed what %u killed process%s left", removed, removed == 1 ? "" : "es");
        status = failed ? CMD_FAILED : status;
    }
    for (unsigned i = 0; i < list.count; i++)
        json_decref(list.entry[i].document);
    free(list.entry);
    free(list.dead);
    return status;
}

int cmd_stat(int argc, char **argv) {
    static const struct option options[] = {{"json", no_argument, NULL, 'j'},
                                            {"remove", no_argument, NULL, 'r'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    bool json = false, remove = false;
    int option;
    while ((option = getopt_long(argc, argv, "hj", options, NULL)) != -1) {
        if (option == 'h') {
            fputs(help, stdout);
            return CMD_OK;
        }
        if (option != 'j' && option != 'r')
            return cmd_usage_hint();
        json |= option == 'j';
        remove |= option == 'r';
    }
    return optind == argc ? show_list(json, remove)
                          : show(argv + optind, argc - optind, json, remove);
}

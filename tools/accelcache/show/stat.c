/* `accelcache stat`: dumps, running processes, and processes that were killed. */
#include "command.h"
#include "read/document.h"
#include "show/growth.h"
#include "read/headline.h"
#include "read/history.h"
#include "read/processes.h"
#include "show/render.h"
#include "show/stat_sites.h"
#include "show/summary.h"
#include "base/terminal.h"
#include "read/trace_read.h"

#include <errno.h>
#include <fnmatch.h>
#include "base/option.h"
#include <stdlib.h>
#include <string.h>
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

static const char help[] =
    "Usage: accelcache stat [OPTION...] [FILE|DIR|PID]...\n"
    "Shows statistics dumps: what the cache gained, how much memory it took, whether\n"
    "anything went wrong, which call sites held the memory, and the figures that are\n"
    "not 0.  For a trace, a history or a snapshot it shows the call sites.  A\n"
    "terminal gets the first page.\n"
    "\n"
    "  FILE       a dump.  One is shown in full.  Several get a line each, their\n"
    "             sum, min and max, and those that stand apart: of four or more, off\n"
    "             the median by a tenth of it and by five times the median distance.\n"
    "             Two are followed by what differs between them\n"
    "  DIR        every accelcache-*.json in it that is a regular file, and killed\n"
    "             processes with a key dump that names a file there\n"
    "  PID        a process that runs under the library, or was killed (./123 for a\n"
    "             file); PID@NAMESPACE for one of another pid namespace (container)\n"
    "  none       lists the processes of this user, running and killed; for root\n"
    "             those of all users\n"
    "\n"
    "  --all      every figure of one document, whatever its length\n"
    "  --brief    the first four lines of each document\n"
    "  --sites    holders of memory of one FILE or PID: call sites at the peak,\n"
    "             at the end, and what the program never freed\n"
    "  --diff     of two documents, what differs and nothing else\n"
    "  --summary  no line for each, but sum, min, max and median\n"
    "  --growth   modules and call sites with rising memory: in several dumps of one\n"
    "             process, or in a running PID, which is read --looks times (10),\n"
    "             --interval seconds apart (1).  Call sites of a PID need\n"
    "             ACCEL_ALLOC_CONF=control:true,stacks:sampled\n"
    "  --json     as JSON: the documents as they are (one object for a single FILE\n"
    "             or PID, else an array), or what the other options ask for\n"
    "  --remove   remove what killed processes left, after it was shown in full: of\n"
    "             each PID named, or of all this user's.  What stays is removed when\n"
    "             there are more than 64 files of one user, the oldest first\n"
    "\n"
    "fenced_frees and ordered_frees count frees that found pending work.  If both\n"
    "are 0, free_sync changes nothing.  free_waits counts the frees that waited.\n"
    "accelcache doctor --dump FILE says what the figures advise.\n"
    "\n"
    "Exit status: 0 done, 1 something could not be read (the rest is shown), 2 wrong\n"
    "usage.\n";

typedef struct {
    cmd_rendered_t *document;
    unsigned count;
    ac_live_name_t *killed; /* pages of dead processes that are shown now */
    unsigned killed_count;
    cmd_history_t
        *recording; /* a trace or snapshot, which is no document; NULL: none was named */
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

/* Reads a file that is no dump: NULL, and *error is what keeps it from being a recording, if it looks like one. */
static cmd_history_t *recording_of(const char *path, char **error) {
    char *why = NULL;
    cmd_history_t *history = access(path, F_OK) == 0 ? cmd_history_read(path, &why) : NULL;
    cmd_bar_end();
    if (history || (why && cmd_trace_is(path))) {
        free(*error);
        *error = why;
    } else {
        free(why);
    }
    return history;
}

static void take_file(shown_t *shown, const char *path) {
    char *error;
    cmd_history_t *history;
    json_t *document = cmd_document_load(path, &error);
    if (document)
        shown_add(shown, document, path);
    else if ((history = recording_of(path, &error))) {
        if (shown->recording)
            cmd_history_free(history);
        else
            shown->recording = history;
    } else
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

/* Their last counts, instead of earlier files. */
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

static bool is_folder(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* Options about the output. */
typedef struct {
    bool json, remove, difference, summary, all, brief, sites;
} wanted_t;

/* The first lines of each document. */
static json_t *headlines(const shown_t *shown, bool single) {
    json_t *list = json_array();
    for (unsigned i = 0; i < shown->count; i++) {
        cmd_headline_t headline;
        cmd_headline(&headline, shown->document[i].document);
        json_t *one = cmd_headline_json(&headline);
        json_object_set_new(one, "source", cmd_json_text(shown->document[i].source));
        json_array_append_new(list, one);
    }
    if (!single)
        return list;
    json_t *one = json_incref(json_array_get(list, 0)); /* NULL: none could be read */
    json_decref(list);
    return one;
}

static int print_json(const shown_t *shown, const wanted_t *wanted, bool single) {
    json_t *whole = NULL;
    if (wanted->brief) {
        whole = headlines(shown, single);
    } else if (wanted->difference) {
        if (shown->count == 2)
            whole = cmd_difference_json(&shown->document[0], &shown->document[1]);
    } else if (wanted->summary) {
        if (shown->count)
            whole = cmd_summary_json(shown->document, shown->count);
    } else if (single && shown->count == 1) {
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

/* Removes pages of killed processes, none of one that runs.  Sets `failed` if one cannot be removed. */
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

static void print_brief(const shown_t *shown) {
    for (unsigned i = 0; i < shown->count; i++) {
        if (shown->count > 1) {
            printf("%s%s", i ? "\n" : "", cmd_bold());
            cmd_print_safe(shown->document[i].source);
            puts(cmd_plain());
        }
        cmd_render(shown->document[i].document, shown->document[i].source, CMD_RENDER_BRIEF);
    }
}

static void print_one(const cmd_rendered_t *document, const wanted_t *wanted) {
    if (!wanted->all && !wanted->remove) /* a second call could not show the rest */
        cmd_page_begin();
    cmd_render(document->document, document->source,
               wanted->all ? CMD_RENDER_ALL : CMD_RENDER_USUAL);
    cmd_page_end("accelcache stat --all shows everything");
}

/* `two`: two documents were named.  CMD_FAILED: there was nothing to show. */
static int print_text(const shown_t *shown, const wanted_t *wanted, bool two) {
    bool compared = two && shown->count == 2 && !wanted->summary;
    if (wanted->brief) {
        print_brief(shown);
        return CMD_OK;
    }
    if (!shown->count || (wanted->difference && !compared))
        return CMD_FAILED;
    if (compared && !wanted->all && !wanted->difference && !wanted->remove)
        cmd_page_begin();
    if (wanted->summary && shown->count)
        cmd_render_many(shown->document, shown->count, true);
    else if (shown->count == 1 && !wanted->difference)
        print_one(&shown->document[0], wanted);
    else if (shown->count > 1 && !wanted->difference)
        cmd_render_many(shown->document, shown->count, false);
    if (compared)
        cmd_render_difference(&shown->document[0], &shown->document[1]);
    cmd_page_end("accelcache stat --all shows everything");
    return CMD_OK;
}

/* Takes over `history`. */
static int show_recording(cmd_history_t *history, const char *path, const wanted_t *wanted) {
    int status = cmd_stat_sites(history, path, wanted->json, wanted->all);
    cmd_history_free(history);
    return status;
}

static int show_sites(const char *path, const wanted_t *wanted) {
    char *error;
    cmd_history_t *history = cmd_history_read(path, &error);
    if (history)
        return show_recording(history, path, wanted);
    cmd_bar_end();
    cmd_say("%s", error);
    free(error);
    return CMD_FAILED;
}

static int show(char **argument, int count, const wanted_t *wanted) {
    shown_t shown = {0};
    bool two = count == 2;
    if (wanted->sites)
        return show_sites(argument[0], wanted);
    for (int i = 0; i < count; i++) {
        int pid;
        uint64_t space;
        bool folder = false;
        if (cmd_process_read(argument[i], &pid, &space))
            take_process(&shown, pid, space);
        else if ((folder = is_folder(argument[i])))
            take_folder(&shown, argument[i]);
        else
            take_file(&shown, argument[i]);
        two &= !folder;
    }
    bool alone = count == 1 && !wanted->brief && !wanted->summary && !wanted->remove;
    if (shown.recording && alone)
        return show_recording(shown.recording, argument[0], wanted);
    if (shown.recording) {
        shown_fail(&shown, "a trace or snapshot",
                   cmd_format("it is shown alone, and accelcache diff compares two"));
        cmd_history_free(shown.recording);
    }
    int printed = wanted->json ? print_json(&shown, wanted, count == 1 && !is_folder(argument[0]))
                               : print_text(&shown, wanted, two);
    int status = shown.failed || printed ? CMD_FAILED : CMD_OK;
    /* Figures that were not printed must not be lost. */
    bool failed = false;
    if (wanted->remove && !printed && fflush(stdout) == 0 && !ferror(stdout))
        remove_all(shown.killed, shown.killed_count, &failed);
    shown_clear(&shown);
    return failed ? CMD_FAILED : status;
}

/* ------------------------------------------------------------------ the list */

static void print_list(const cmd_processes_t *list) {
    if (!list->count) {
        puts(geteuid() ? "no process of this user runs under accelcache, and none was killed"
                       : "no process of any user runs under accelcache, and none was killed");
        return;
    }
    bool others = false;
    for (unsigned i = 0; i < list->count; i++)
        others |= list->process[i].name.user != geteuid();
    cmd_table_t *table = cmd_table_new(others ? "rlrrrlrl" : "rlrrrll");
    cmd_table_row(table, "pid", "state", "devices", "reserved", "allocated", "started",
                  others ? "user" : "program", "program");
    for (unsigned i = 0; i < list->count; i++) {
        const cmd_process_t *process = &list->process[i];
        const json_t *devices = json_object_get(process->document, "devices");
        cmd_figures_t f = {0};
        cmd_figures_add(&f, process->document);
        char pid[CMD_PROCESS_ID], count[CMD_FIGURE], reserved[CMD_FIGURE], allocated[CMD_FIGURE];
        char owner[CMD_FIGURE];
        snprintf(owner, sizeof owner, "%u", process->name.user);
        cmd_table_row(table, cmd_process_id(pid, process), cmd_process_state(process),
                      cmd_text_count(count, (int64_t)json_array_size(devices)),
                      cmd_text_bytes(reserved, f.reserved),
                      cmd_text_bytes(allocated, f.allocated), cmd_process_start_time(process),
                      others ? owner : cmd_process_exe(process), cmd_process_exe(process));
    }
    cmd_table_print(table, 0);
}

static int show_list(bool json, bool remove) {
    cmd_processes_t list = {.quiet = false};
    cmd_processes_find(&list);
    int status = list.unread ? CMD_FAILED : CMD_OK;
    if (!json)
        print_list(&list);
    else if (cmd_print_json(cmd_processes_json(&list, false), 0))
        status = CMD_FAILED;
    if (remove && fflush(stdout) == 0 && !ferror(stdout)) {
        bool failed = false;
        unsigned removed = remove_all(list.dead, list.dead_count, &failed);
        cmd_say("removed what %u killed process%s left", removed, removed == 1 ? "" : "es");
        status = failed ? CMD_FAILED : status;
    }
    cmd_processes_clear(&list);
    return status;
}

/* Options of --growth; 0: not given. */
typedef struct {
    bool wanted;
    uint64_t looks;
    double interval;
} growth_options_t;

static int show_growth(char **argument, int count, const growth_options_t *growth, bool json) {
    shown_t shown = {0};
    int pid;
    uint64_t space;
    if (count == 1 && cmd_process_read(argument[0], &pid, &space))
        return cmd_growth_watch(pid, space, growth->looks ? (unsigned)growth->looks : 10,
                                growth->interval > 0 ? growth->interval : 1, json);
    if (growth->looks || growth->interval > 0)
        return cmd_usage("--looks and --interval belong to --growth of one PID");
    for (int i = 0; i < count; i++)
        take_file(&shown, argument[i]);
    int status = shown.failed ? CMD_FAILED : cmd_growth_of(shown.document, shown.count, json);
    shown_clear(&shown);
    return status;
}

int cmd_stat(int argc, char **argv) {
    wanted_t wanted = {0};
    growth_options_t growth = {0};
    int status;
    const cmd_option_t options[] = {
        {"json", 'j', .flag = &wanted.json},
        {"remove", .flag = &wanted.remove},
        {"diff", .flag = &wanted.difference},
        {"summary", .flag = &wanted.summary},
        {"all", .flag = &wanted.all},
        {"brief", .flag = &wanted.brief},
        {"sites", .flag = &wanted.sites},
        {"growth", .flag = &growth.wanted},
        {"looks", .number = &growth.looks, .low = 2, .high = 100000, .expected = "a number from 2 to 100000"},
        {"interval", .real = &growth.interval, .low = 0.05, .high = 3600, .expected = "seconds from 0.05 to 3600"},
        {.name = NULL}};
    if (!cmd_options(argc, argv, options, help, &status))
        return status;
    int count = argc - optind;
    if (growth.wanted || growth.looks || growth.interval > 0) {
        if (!growth.wanted || !count || wanted.remove || wanted.difference || wanted.summary ||
            wanted.all || wanted.brief || wanted.sites)
            return cmd_usage("--growth takes FILEs of one process or a PID, and of the other "
                             "options --json, --looks and --interval");
        return show_growth(argv + optind, count, &growth, wanted.json);
    }
    if (wanted.difference &&
        (count != 2 || is_folder(argv[optind]) || is_folder(argv[optind + 1])))
        return cmd_usage("--diff takes two of FILE and PID");
    if (wanted.summary && (!count || wanted.difference))
        return cmd_usage("--summary takes FILEs, PIDs or a DIR, and no --diff");
    if (wanted.brief && (!count || wanted.difference || wanted.summary || wanted.all))
        return cmd_usage(
            "--brief takes FILEs, PIDs or a DIR, and none of --diff, --summary, --all");
    if (wanted.sites && (count != 1 || is_folder(argv[optind]) || wanted.difference ||
                         wanted.summary || wanted.brief || wanted.remove))
        return cmd_usage(
            "--sites takes one FILE or PID, and of the other options --json and --all");
    return count ? show(argv + optind, count, &wanted) : show_list(wanted.json, wanted.remove);
}

/* `accelcache ctl`: ask a running process to do something. */
#include "command.h"
#include "read/control.h"
#include "read/document.h"
#include "base/option.h"
#include "read/processes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "Usage: accelcache ctl [--json] PID dump|trim|reset-peaks\n"
    "       accelcache ctl [--json] PID snapshot FILE\n"
    "       accelcache ctl [--json] [--force] PID set KEY:VALUE[,KEY:VALUE...]\n"
    "       accelcache ctl [--json] PID history on|off\n"
    "Sends a request to a process of the same user, started with control:true in\n"
    "ACCEL_ALLOC_CONF.  A thread of the library answers: the program's own threads\n"
    "do not wait.\n"
    "\n"
    "  dump         write the statistics to the file that its key dump names\n"
    "  snapshot     write them to FILE, with all segments and blocks, for accelcache\n"
    "               where\n"
    "  trim         return idle memory to the driver, except memory with pending\n"
    "               work\n"
    "  reset-peaks  reset peaks to the current values, on every device\n"
    "  set          change settings; the others stay.  Keys that cannot change once\n"
    "               the cache is active are refused (accelcache config KEY)\n"
    "  history      start or stop to record events for dumps and snapshots: as many\n"
    "               as the key history says, or 65,536 of each device\n"
    "\n"
    "  --json       the answer as JSON\n"
    "  --force      set a memory_limit below what the program holds: its next\n"
    "               request for new memory fails\n"
    "\n"
    "PID may be PID@NAMESPACE, as accelcache ps names processes of containers.\n"
    "\n"
    "Exit status: 0 done; 1 refused, or not answered within a second: the reason is\n"
    "on stderr; 2 wrong usage.\n";

static const struct verb {
    const char *name;
    ac_control_verb_t verb;
    const char *takes; /* what has to follow, NULL: nothing */
} verbs[] = {{"dump", AC_CONTROL_DUMP, NULL},
             {"snapshot", AC_CONTROL_SNAPSHOT, "the name of a file"},
             {"trim", AC_CONTROL_TRIM, NULL},
             {"reset-peaks", AC_CONTROL_RESET_PEAKS, NULL},
             {"set", AC_CONTROL_SET, "KEY:VALUE, without blanks or quoted"},
             {"history", AC_CONTROL_HISTORY, "on or off"},
             {NULL, 0, NULL}};

static const struct verb *find_verb(const char *name) {
    for (const struct verb *v = verbs; v->name; v++)
        if (!strcmp(v->name, name))
            return v;
    return NULL;
}

static bool writes(const struct verb *verb) {
    return verb->verb == AC_CONTROL_DUMP || verb->verb == AC_CONTROL_SNAPSHOT;
}

static int print_done(const struct verb *verb, int pid, const ac_control_answer_t *answer,
                      bool json) {
    char bytes[CMD_FIGURE];
    if (json)
        return cmd_print_json(
            json_pack("{s:i, s:s, s:b, s:o, s:o}", "pid", pid, "request", verb->name, "done", 1,
                      "dump", writes(verb) ? cmd_json_text(answer->text) : json_null(),
                      "trimmed_bytes",
                      verb->verb == AC_CONTROL_TRIM ? json_integer((json_int_t)answer->bytes)
                                                    : json_null()),
            0);
    switch (verb->verb) {
    case AC_CONTROL_DUMP:
    case AC_CONTROL_SNAPSHOT:
        printf("process %d wrote ", pid);
        cmd_print_safe(answer->text);
        putchar('\n');
        break;
    case AC_CONTROL_TRIM:
        printf("process %d gave back %s\n", pid, cmd_text_bytes(bytes, (int64_t)answer->bytes));
        break;
    case AC_CONTROL_RESET_PEAKS:
        printf("process %d: peaks are reset\n", pid);
        break;
    case AC_CONTROL_SET:
        printf("process %d: the settings are changed\n", pid);
        break;
    case AC_CONTROL_HISTORY:
        printf("process %d: the history is switched\n", pid);
        break;
    case AC_CONTROL_WHERE: /* requests of `accelcache where` and `stat --growth` */
    case AC_CONTROL_RECORDED:
    case AC_CONTROL_FIGURES:
        break;
    }
    return CMD_OK;
}

/* The argument of the request; malloc'd.  NULL: *error. */
static char *prepare(const struct verb *verb, const ac_live_name_t *name, const char *given,
                     char **error) {
    if (verb->verb == AC_CONTROL_SET)
        return cmd_control_settings(name, given, error);
    if (*given == '/' || verb->verb == AC_CONTROL_HISTORY)
        return cmd_format("%s", given);
    char *folder = getcwd(NULL, 0); /* the process may be in another one */
    char *path = folder ? cmd_format("%s/%s", folder, given) : NULL;
    if (!path)
        *error = cmd_format("%s: name the file with its whole path", strerror(errno));
    free(folder);
    return path;
}

/* Says that a device holds more for the program than the memory_limit of `change` allows.  malloc'd; NULL: no device
 * does, or `change` sets no limit. */
static char *over_limit(const ac_live_name_t *name, const char *change) {
    ac_config_t config;
    ac_config_error_t fault;
    bool alive;
    char *error = NULL, *said = NULL, held[CMD_FIGURE], limit[CMD_FIGURE];
    if (ac_config_parse(change, &config, &fault, NULL) || !config.memory_limit)
        return NULL;
    json_t *document = cmd_document_live(name, &alive, &error);
    const json_t *devices = json_object_get(document, "devices");
    for (size_t i = 0; i < json_array_size(devices) && !said; i++) {
        const json_t *device = json_array_get(devices, i);
        int64_t bytes = cmd_document_stat(device, "allocated_bytes", "all", "current");
        if ((uint64_t)bytes > (uint64_t)config.memory_limit)
            said = cmd_format("process %d holds %s on device %lld, more than memory_limit %s: its next request for "
                              "new memory would fail; set it with --force, or after the program has freed",
                              name->pid, cmd_text_bytes(held, bytes),
                              (long long)cmd_integer(device, "ordinal"),
                              cmd_text_bytes(limit, (int64_t)config.memory_limit));
    }
    json_decref(document);
    free(error);
    return said;
}

static int ask(const struct verb *verb, int pid, uint64_t space, const char *given, bool json, bool force) {
    ac_live_name_t name;
    ac_control_answer_t answer;
    char *error = NULL, *text = NULL;
    bool done = cmd_control_find(pid, space, &name, &error);
    if (done && given) {
        text = prepare(verb, &name, given, &error);
        done = text != NULL;
    }
    if (done && verb->verb == AC_CONTROL_SET && !force) {
        error = over_limit(&name, given);
        done = !error;
    }
    done = done && cmd_control(&name, verb->verb, text, &answer, &error);
    int status = CMD_FAILED;
    if (done)
        status = print_done(verb, pid, &answer, json);
    else if (json)
        cmd_print_json(json_pack("{s:i, s:s, s:b, s:o}", "pid", pid, "request", verb->name,
                                 "done", 0, "error", cmd_json_text(error)),
                       0);
    if (!done)
        cmd_say("%s", error);
    free(text);
    free(error);
    return status;
}

int cmd_ctl(int argc, char **argv) {
    bool json = false, force = false;
    int pid, status;
    uint64_t space;
    const cmd_option_t options[] = {
        {"force", .flag = &force}, {"json", 'j', .flag = &json}, {.name = NULL}};
    if (!cmd_options(argc, argv, options, help, &status))
        return status;
    int count = argc - optind;
    char **argument = argv + optind;
    if (count < 1 || !cmd_process_read(argument[0], &pid, &space))
        return cmd_usage(count < 1 ? "PID is missing" : "\"%s\" is no process id", argument[0]);
    if (count < 2)
        return cmd_usage(
            "what is asked for is missing: dump, snapshot, trim, reset-peaks, set or history");
    const struct verb *verb = find_verb(argument[1]);
    if (!verb) {
        const char *near = cmd_nearest(argument[1], &verbs[0].name, sizeof *verbs);
        return cmd_usage("there is no request \"%s\"%s%s%s", argument[1],
                         near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
    }
    if (force && verb->verb != AC_CONTROL_SET)
        return cmd_usage("--force goes with set");
    if (count != 2 + (verb->takes != NULL))
        return cmd_usage("%s takes %s", verb->name,
                         verb->takes ? verb->takes : "nothing behind it");
    return ask(verb, pid, space, verb->takes ? argument[2] : NULL, json, force);
}

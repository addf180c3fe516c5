/* `accelcache ctl`: ask a running process to do something. */
#include "command.h"
#include "control.h"
#include "document.h"
#include "option.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char help[] =
    "Usage: accelcache ctl [--json] PID dump|trim|reset-peaks\n"
    "       accelcache ctl [--json] PID set KEY:VALUE[,KEY:VALUE...]\n"
    "Asks a process of the same user, started with control:true in ACCEL_ALLOC_CONF.  It answers "
    "by\n"
    "a thread of the library: its own threads do not wait.\n\n"
    "  dump         write the statistics to the place that its key dump names\n"
    "  trim         give idle memory back to the driver, as far as no work is pending on it\n"
    "  reset-peaks  begin peaks anew at what is held now, on every device\n"
    "  set          change settings; the others stay.  Keys that cannot change once the cache "
    "is\n"
    "               active are refused (accelcache config KEY)\n\n"
    "  --json       the answer as JSON\n\n"
    "PID may be PID@NAMESPACE, as accelcache ps names processes of containers.\n\n"
    "Exit status: 0 done; 1 refused, or not answered within a second: the reason is on stderr;\n"
    "2 wrong usage.\n";

static const struct verb {
    const char *name;
    ac_control_verb_t verb;
    bool takes_settings;
} verbs[] = {{"dump", AC_CONTROL_DUMP, false},
             {"trim", AC_CONTROL_TRIM, false},
             {"reset-peaks", AC_CONTROL_RESET_PEAKS, false},
             {"set", AC_CONTROL_SET, true},
             {NULL, 0, false}};

static const struct verb *find_verb(const char *name) {
    for (const struct verb *v = verbs; v->name; v++)
        if (!strcmp(v->name, name))
            return v;
    return NULL;
}

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

/* Another user's process has a page that is not shown to us. */
static bool is_of_another(int pid) {
    struct stat status;
    char *path = cmd_format("/proc/%d", pid);
    bool other = geteuid() && stat(path, &status) == 0 && status.st_uid != geteuid();
    free(path);
    return other;
}

static bool find_process(int pid, uint64_t space, ac_live_name_t *name, char **error) {
    if (!space && is_of_another(pid)) {
        *error =
            cmd_format("process %d belongs to another user: it listens to that user alone", pid);
        return false;
    }
    return cmd_page_find(pid, space, name, error);
}

static int print_done(const struct verb *verb, int pid, const ac_control_answer_t *answer,
                      bool json) {
    char bytes[CMD_FIGURE];
    if (json)
        return cmd_print_json(
            json_pack("{s:i, s:s, s:b, s:o, s:o}", "pid", pid, "request", verb->name, "done", 1,
                      "dump",
                      verb->verb == AC_CONTROL_DUMP ? cmd_json_text(answer->text) : json_null(),
                      "trimmed_bytes",
                      verb->verb == AC_CONTROL_TRIM ? json_integer((json_int_t)answer->bytes)
                                                    : json_null()),
            0);
    switch (verb->verb) {
    case AC_CONTROL_DUMP:
        printf("process %d wrote ", pid);
        cmd_print_safe(answer->text);
        putchar('\n');
        break;
    case AC_CONTROL_TRIM:
        printf("process %d gave back %s\n", pid, cmd_text_bytes(bytes, (int64_t)answer->bytes));
        break;
    case AC_CONTROL_RESET_PEAKS:
        printf("process %d: peaks begin anew\n", pid);
        break;
    case AC_CONTROL_SET:
        printf("process %d: the settings are changed\n", pid);
        break;
    }
    return CMD_OK;
}

static int ask(const struct verb *verb, int pid, uint64_t space, const char *change, bool json) {
    ac_live_name_t name;
    ac_control_answer_t answer;
    char *error = NULL, *settings = NULL;
    bool done = find_process(pid, space, &name, &error);
    if (done && change) {
        settings = cmd_control_settings(&name, change, &error);
        done = settings != NULL;
    }
    done = done && cmd_control(&name, verb->verb, settings, &answer, &error);
    int status = CMD_FAILED;
    if (done)
        status = print_done(verb, pid, &answer, json);
    else if (json)
        cmd_print_json(json_pack("{s:i, s:s, s:b, s:o}", "pid", pid, "request", verb->name,
                                 "done", 0, "error", cmd_json_text(error)),
                       0);
    else
        cmd_say("%s", error);
    free(settings);
    free(error);
    return status;
}

int cmd_ctl(int argc, char **argv) {
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    bool json = false;
    int option, pid;
    uint64_t space;
    while ((option = cmd_option(argc, argv, "hj", options)) != -1) {
        if (option == 'h') {
            fputs(help, stdout);
            return CMD_OK;
        }
        if (option != 'j')
            return cmd_usage_hint();
        json = true;
    }
    int count = argc - optind;
    char **argument = argv + optind;
    if (count < 1 || !read_pid(argument[0], &pid, &space))
        return cmd_usage(count < 1 ? "PID is missing" : "\"%s\" is no process id", argument[0]);
    if (count < 2)
        return cmd_usage("what is asked for is missing: dump, trim, reset-peaks or set");
    const struct verb *verb = find_verb(argument[1]);
    if (!verb) {
        const char *near = cmd_nearest(argument[1], &verbs[0].name, sizeof *verbs);
        return cmd_usage("there is no request \"%s\"%s%s%s", argument[1],
                         near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
    }
    if (count != 2 + verb->takes_settings)
        return cmd_usage(verb->takes_settings ? "set takes KEY:VALUE, without blanks or quoted"
                                              : "%s takes nothing behind it",
                         verb->name);
    return ask(verb, pid, space, verb->takes_settings ? argument[2] : NULL, json);
}

/* See labels.h. */
#include "labels.h"
#include "command.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PID, HOST, PROGRAM, RANK, JOB, POD, CONTAINER };
const char *const cmd_label_name[CMD_LABELS] = {"pid", "host", "program",  "rank",
                                                "job", "pod",  "container"};

/* Variables that say so, the first that is set. */
static const struct {
    unsigned label;
    const char *variable;
} variables[] = {
    {JOB, "SLURM_JOB_ID"},
    {JOB, "PBS_JOBID"},
    {JOB, "LSB_JOBID"},
    {JOB, "JOB_NAME"},
    {POD, "POD_NAME"},
    {POD, "K8S_POD_NAME"},
    {POD, "MY_POD_NAME"},
    {CONTAINER, "CONTAINER_NAME"},
    {CONTAINER, "K8S_CONTAINER_NAME"},
};

/* The value of a variable in /proc/PID/environ, malloc'd; NULL: it has none. */
static char *variable_of(const char *environment, size_t length, const char *name) {
    size_t n = strlen(name);
    for (size_t at = 0; at < length; at += strlen(environment + at) + 1)
        if (!strncmp(environment + at, name, n) && environment[at + n] == '=')
            return cmd_format("%s", environment + at + n + 1);
    return NULL;
}

static void set(char **value, char *text) {
    if (*value || !text || !*text)
        free(text);
    else
        *value = text;
}

/* What follows `mark` in a path of control groups, as long as `more` are letters of it. */
static char *part_of(const char *path, const char *mark, const char *more) {
    const char *at = strstr(path, mark);
    if (!at)
        return NULL;
    at += strlen(mark);
    return cmd_format("%.*s", (int)strspn(at, more), at);
}

/* The last run of 64 hexadecimal digits: how container runtimes name what they start.  The first
 * 12 of them, as docker ps shows. */
static char *container_of(const char *path) {
    enum { ID = 64, SHOWN = 12 };
    const char *found = NULL;
    for (const char *at = path; *at;) {
        size_t n = strspn(at, "0123456789abcdef");
        if (n == ID)
            found = at;
        at += n ? n : 1;
    }
    return found ? cmd_format("%.*s", SHOWN, found) : NULL;
}

static void take_group(cmd_labels_t *labels, const char *path) {
    static const char hex[] = "0123456789abcdef-_";
    set(&labels->value[JOB], part_of(path, "/job_", "0123456789"));
    /* Of the cgroupfs and the systemd driver: /pod1234-.., -pod1234_... */
    char *pod = part_of(path, "/pod", hex);
    pod = pod ? pod : part_of(path, "-pod", hex);
    for (char *at = pod; at && *at; at++)
        *at = *at == '_' ? '-' : *at;
    set(&labels->value[POD], pod);
    set(&labels->value[CONTAINER], container_of(path));
}

/* "self", or a process id. */
static void take_process(cmd_labels_t *labels, const char *process) {
    char *path = cmd_format("/proc/%s/environ", process), *file;
    size_t length;
    char *environment = cmd_file_read(path, &length);
    for (size_t i = 0; environment && i < sizeof variables / sizeof *variables; i++)
        set(&labels->value[variables[i].label],
            variable_of(environment, length, variables[i].variable));
    /* A pod's host name is its own. */
    char *inside =
        environment ? variable_of(environment, length, "KUBERNETES_SERVICE_HOST") : NULL;
    if (inside)
        set(&labels->value[POD], cmd_format("%s", labels->value[HOST]));
    free(inside);
    free(environment);
    free(path);
    path = cmd_format("/proc/%s/cgroup", process);
    file = cmd_file_read(path, &length);
    if (file)
        take_group(labels, file);
    free(file);
    free(path);
}

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

cmd_labels_t cmd_labels(const cmd_history_t *history) {
    cmd_labels_t labels = {{NULL}};
    const json_t *process = json_object_get(history->document, "process");
    const json_t *rank = json_object_get(process, "rank");
    const char *exe = text_of(process, "exe"), *slash = strrchr(exe, '/');
    const char *reason = text_of(history->document, "reason");
    char host[256] = "";
    labels.value[PID] = cmd_format("%d", history->pid);
    labels.value[HOST] = cmd_format("%s", history->host);
    labels.value[PROGRAM] = cmd_format("%s", slash ? slash + 1 : exe);
    if (json_is_integer(rank))
        labels.value[RANK] = cmd_format("%lld", (long long)json_integer_value(rank));
    gethostname(host, sizeof host - 1);
    if (!strcmp(reason, "running"))
        take_process(&labels, labels.value[PID]);
    else if (!strcmp(host, history->host))
        take_process(&labels, "self");
    for (unsigned i = 0; i < CMD_LABELS; i++) {
        char *text = labels.value[i];
        labels.value[i] = text ? cmd_safe(text) : NULL;
        free(text);
    }
    return labels;
}

void cmd_labels_free(cmd_labels_t *labels) {
    for (unsigned i = 0; i < CMD_LABELS; i++)
        free(labels->value[i]);
}

/* See labels.h. */
#include "write/labels.h"
#include "command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* "self", or a process id. */
static void take_process(ac_labels_t *labels, const char *process) {
    char *path = cmd_format("/proc/%s/environ", process);
    size_t length;
    char *text = cmd_file_read(path, &length);
    if (text)
        ac_labels_environment(labels, text, length);
    free(text);
    free(path);
    path = cmd_format("/proc/%s/cgroup", process);
    text = cmd_file_read(path, &length);
    if (text)
        ac_labels_group(labels, text);
    free(text);
    free(path);
}

static void set(ac_labels_t *labels, unsigned label, const char *text) {
    snprintf(labels->value[label], AC_LABEL_SIZE, "%s", text);
}

void cmd_labels(const cmd_history_t *history, ac_labels_t *labels) {
    const json_t *process = json_object_get(history->document, "process");
    const json_t *rank = json_object_get(process, "rank");
    const char *exe = cmd_text(process, "exe"), *slash = strrchr(exe, '/');
    const char *reason = cmd_text(history->document, "reason");
    char host[256] = "", number[24];
    *labels = (ac_labels_t){{""}};
    snprintf(number, sizeof number, "%d", history->pid);
    set(labels, AC_LABEL_PID, number);
    set(labels, AC_LABEL_HOST, history->host);
    set(labels, AC_LABEL_PROGRAM, slash ? slash + 1 : exe);
    snprintf(number, sizeof number, "%lld", (long long)json_integer_value(rank));
    if (json_is_integer(rank))
        set(labels, AC_LABEL_RANK, number);
    gethostname(host, sizeof host - 1);
    if (!strcmp(reason, "running"))
        take_process(labels, labels->value[AC_LABEL_PID]);
    else if (!strcmp(host, history->host))
        take_process(labels, "self");
    ac_labels_clean(labels);
}

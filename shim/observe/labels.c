/* See labels.h. */
#include "observe/labels.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "observe/json.h"

const char *const ac_label_name[AC_LABELS] = {"pid", "host", "program",  "rank",
                                              "job", "pod",  "container"};

/* Environment variables for each label; the first one that is set counts. */
static const struct {
    unsigned label;
    const char *variable;
} variables[] = {
    {AC_LABEL_JOB, "SLURM_JOB_ID"},
    {AC_LABEL_JOB, "PBS_JOBID"},
    {AC_LABEL_JOB, "LSB_JOBID"},
    {AC_LABEL_JOB, "JOB_NAME"},
    {AC_LABEL_POD, "POD_NAME"},
    {AC_LABEL_POD, "K8S_POD_NAME"},
    {AC_LABEL_POD, "MY_POD_NAME"},
    {AC_LABEL_CONTAINER, "CONTAINER_NAME"},
    {AC_LABEL_CONTAINER, "K8S_CONTAINER_NAME"},
};

/* Returns the value of a variable; NULL if it is not set. */
static const char *variable_of(const char *text, size_t length, const char *name) {
    size_t n = strlen(name);
    for (size_t at = 0; at < length; at += strlen(text + at) + 1)
        if (!strncmp(text + at, name, n) && text[at + n] == '=')
            return text + at + n + 1;
    return NULL;
}

static void set(char value[AC_LABEL_SIZE], const char *text, size_t length) {
    if (!*value)
        snprintf(value, AC_LABEL_SIZE, "%.*s", (int)length, text);
}

void ac_labels_environment(ac_labels_t *labels, const char *text, size_t length) {
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *value = variable_of(text, length, variables[i].variable);
        if (value)
            set(labels->value[variables[i].label], value, strlen(value));
    }
    if (variable_of(text, length, "KUBERNETES_SERVICE_HOST"))
        set(labels->value[AC_LABEL_POD], labels->value[AC_LABEL_HOST], AC_LABEL_SIZE);
}

/* Copies the part of a control group path after `mark`, up to the first character that is not in `more`.  Returns
 * false if it is empty. */
static bool take_part(char value[AC_LABEL_SIZE], const char *path, const char *mark,
                      const char *more) {
    const char *at = strstr(path, mark);
    if (!at)
        return false;
    at += strlen(mark);
    set(value, at, strspn(at, more));
    return true;
}

/* Finds the last run of 64 hexadecimal digits, which is the container's id, and copies the first 12 digits, as
 * docker ps shows them. */
static void take_container(char value[AC_LABEL_SIZE], const char *path) {
    enum { ID = 64, SHOWN = 12 };
    const char *found = NULL;
    for (const char *at = path; *at;) {
        size_t n = strspn(at, "0123456789abcdef");
        if (n == ID)
            found = at;
        at += n ? n : 1;
    }
    if (found)
        set(value, found, SHOWN);
}

void ac_labels_group(ac_labels_t *labels, const char *text) {
    static const char hex[] = "0123456789abcdef-_";
    char *pod = labels->value[AC_LABEL_POD];
    take_part(labels->value[AC_LABEL_JOB], text, "/job_", "0123456789");
    /* The cgroupfs driver writes /pod1234-.., the systemd driver -pod1234_... */
    if (!*pod && (take_part(pod, text, "/pod", hex) || take_part(pod, text, "-pod", hex)))
        for (char *at = pod; *at; at++)
            *at = *at == '_' ? '-' : *at;
    take_container(labels->value[AC_LABEL_CONTAINER], text);
}

void ac_labels_clean(ac_labels_t *labels) {
    for (unsigned i = 0; i < AC_LABELS; i++) {
        char clean[AC_LABEL_SIZE];
        size_t used = 0, left = strlen(labels->value[i]), n;
        const unsigned char *at = (const unsigned char *)labels->value[i];
        for (; left && used < sizeof clean - 5; at += n, left -= n) {
            n = ac_json_sequence(at, left);
            bool good = n && *at >= ' ' && *at != 0x7f;
            n = n ? n : 1;
            if (good)
                memcpy(clean + used, at, n);
            else
                snprintf(clean + used, 5, "\\x%02x", *at);
            used += good ? n : 4;
        }
        memcpy(labels->value[i], clean, used);
        labels->value[i][used] = '\0';
    }
}

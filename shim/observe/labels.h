/* Labels of a process's metrics: its job, pod, container and rank. */
#ifndef AC_LABELS_H
#define AC_LABELS_H

#include <stddef.h>

enum {
    AC_LABEL_PID,
    AC_LABEL_HOST,
    AC_LABEL_PROGRAM,
    AC_LABEL_RANK,
    AC_LABEL_JOB,
    AC_LABEL_POD,
    AC_LABEL_CONTAINER,
    AC_LABELS,
    AC_LABEL_SIZE = 256
};
extern const char *const ac_label_name[AC_LABELS];

/* "": not known. */
typedef struct {
    char value[AC_LABELS][AC_LABEL_SIZE];
} ac_labels_t;

/* Fills in job, pod and container if unknown.  _environment reads a text in the form of /proc/PID/environ;
 * _group, called next, reads one in the form of /proc/PID/cgroup.  Inside a pod, a known host name is the pod's
 * name. */
void ac_labels_environment(ac_labels_t *labels, const char *text, size_t length);
void ac_labels_group(ac_labels_t *labels, const char *text);

/* Replaces line breaks, other control characters and invalid UTF-8 by \xNN, and cuts long values. */
void ac_labels_clean(ac_labels_t *labels);

#endif

/* Labels of a process' metrics: which job, pod, container and rank it belongs to. */
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

/* Job, pod and container as far as they are not known yet: from a text as /proc/PID/environ has, then
 * from one as /proc/PID/cgroup.  A host that is known is the pod's name inside one. */
void ac_labels_environment(ac_labels_t *labels, const char *text, size_t length);
void ac_labels_group(ac_labels_t *labels, const char *text);

/* Line breaks, other control characters and what is no UTF-8 become \xNN; long values are cut. */
void ac_labels_clean(ac_labels_t *labels);

#endif

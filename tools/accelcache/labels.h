/* Labels of a process' metrics: which job, pod, container and rank it belongs to. */
#ifndef CMD_LABELS_H
#define CMD_LABELS_H

#include "history.h"

enum { CMD_LABELS = 7 };

/* NULL: not known.  Text as of cmd_safe. */
typedef struct {
    char *value[CMD_LABELS];
} cmd_labels_t;
extern const char *const cmd_label_name[CMD_LABELS];

/* Of the process of a dump: its id, host, rank and program from the dump.  Pod, container and job
 * from environment and control group: of the process where it still runs here, else of this
 * command's where both are on a host of the same name (a pod has a name of its own). */
cmd_labels_t cmd_labels(const cmd_history_t *history);
void cmd_labels_free(cmd_labels_t *labels);

#endif

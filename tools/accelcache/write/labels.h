/* Labels of a process' metrics (observe/labels.h), from its dump. */
#ifndef CMD_LABELS_H
#define CMD_LABELS_H

#include "read/history.h"
#include "observe/labels.h"

/* Of the process of a dump: its id, host, rank and program from the dump.  Pod, container and job
 * from environment and control group: of the process where it still runs here, else of this
 * command's where both are on a host of the same name (a pod has a name of its own). */
void cmd_labels(const cmd_history_t *history, ac_labels_t *labels);

#endif

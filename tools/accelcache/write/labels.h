/* Labels of a process' metrics (observe/labels.h), from its dump. */
#ifndef CMD_LABELS_H
#define CMD_LABELS_H

#include "read/history.h"
#include "observe/labels.h"

/* Fills in id, host, rank and program from the dump.  Pod, container and job from environment and control group:
 * of the process if it still runs here, else of this command if both hosts have one name (each pod has its own). */
void cmd_labels(const cmd_history_t *history, ac_labels_t *labels);

#endif

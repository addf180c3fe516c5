/* Stream-ordered requests that were left to the driver, and why. */
#ifndef CMD_PASSED_H
#define CMD_PASSED_H

#include "run/doctor.h"
#include "read/document.h"

enum { CMD_PASSED_TEXT = 512 };

/* "14 of 36 stream-ordered requests left to the driver: 12 exportable pool, 2 capture", most frequent
 * first; dumps of versions that did not split them have no reasons.  NULL: there were none. */
const char *cmd_passed_text(char text[CMD_PASSED_TEXT], const cmd_figures_t *figures);

/* What can be changed in the program so that they are served: a finding for each reason. */
void cmd_passed_advise(cmd_findings_t *findings, const cmd_figures_t *figures);

#endif

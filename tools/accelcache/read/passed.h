/* Stream-ordered requests that were left to the driver, and why. */
#ifndef CMD_PASSED_H
#define CMD_PASSED_H

#include "read/document.h"

enum { CMD_PASSED_TEXT = 512, CMD_PASSED_REASONS = 9 };

typedef struct {
    const char *label;
    const char *advice; /* what to change in the program; NULL: nothing can be changed */
    uint64_t count;
} cmd_passed_t;

/* Fills `rows` with the reasons that have a count, most frequent first; returns their number. */
unsigned cmd_passed(const cmd_figures_t *figures, cmd_passed_t rows[CMD_PASSED_REASONS]);

/* "14 of 36 stream-ordered requests left to the driver: 12 exportable pool, 2 capture", most frequent
 * first.  Dumps of old versions have no reasons.  NULL: no request was left to the driver. */
const char *cmd_passed_text(char text[CMD_PASSED_TEXT], const cmd_figures_t *figures);

#endif

/* Statistics documents in one table. */
#ifndef CMD_SUMMARY_H
#define CMD_SUMMARY_H

#include <jansson.h>
#include <stdbool.h>

typedef struct {
    json_t *document;
    char *source; /* its file or process */
} cmd_rendered_t;

/* To stdout: a line each (not with `totals_alone`), then sum, least and greatest of each figure (and with it the
 * median), and the outliers.  `count` is at least 1. */
void cmd_render_many(const cmd_rendered_t *documents, unsigned count, bool totals_alone);

/* The totals and the outliers as JSON. */
json_t *cmd_summary_json(const cmd_rendered_t *documents, unsigned count);

/* Figures that differ between two documents, by name: to stdout, or as JSON.  Devices are matched
 * by their number; what one of the two lacks counts as 0. */
void cmd_render_difference(const cmd_rendered_t *first, const cmd_rendered_t *second);
json_t *cmd_difference_json(const cmd_rendered_t *first, const cmd_rendered_t *second);

#endif

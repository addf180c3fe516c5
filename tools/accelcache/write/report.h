/* The parts of `accelcache report`: what of a history the page shows, as JSON for its script. */
#ifndef CMD_REPORT_H
#define CMD_REPORT_H

#include "read/history.h"

#include <jansson.h>

/* The page: HTML in which lines with "@style@", "@library@" and "@data@" alone are replaced. */
extern const char cmd_report_page[];

/* Adds to `data`, which has `advice` already: `sites`, the names of the ten call sites that hold most at the peak;
 * `series`, [{device, figures, points, peak}], bytes over time, in a column for each word of `figures` and for each
 * site, thinned out so that no extreme is lost, and never below 0; `phases`, [[name, from, to]].  `peak` where the
 * events do not tell of all that came before them: what the figures say of the whole run; 0: nothing. */
void cmd_report_series(const cmd_history_t *history, json_t *data);
/* [{label, count, bytes}] of requests by the power of two of their size, or by the power of ten of
 * their life. */
json_t *cmd_report_sizes(const cmd_history_t *history);
json_t *cmd_report_lives(const cmd_history_t *history);
/* {when, shown, of, rows}: how full each part of each segment is; and the largest blocks of that
 * moment. */
json_t *cmd_report_map(const cmd_history_t *history, const cmd_segments_t *list);
json_t *cmd_report_blocks(const cmd_history_t *history, size_t at);
/* {peak, end, leaked}, each [[frames from the outermost on, with line breaks between them; bytes in use then]],
 * the most bytes first; empty if nothing is known of that moment, or nothing was in use. */
json_t *cmd_report_stacks(const cmd_history_t *history);
/* [{level, text}]: what the figures ask for. */
json_t *cmd_report_advice(const cmd_history_t *history, const cmd_segments_t *list);
/* [{device, allocated, peak, reserved}] of a dump, as `stat` has them. */
json_t *cmd_report_figures(const cmd_history_t *history);

#endif

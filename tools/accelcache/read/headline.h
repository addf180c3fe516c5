/* The most important figures of a statistics document. */
#ifndef CMD_HEADLINE_H
#define CMD_HEADLINE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    int64_t requests, served;              /* for device memory; without a driver call */
    int64_t driver_calls, driver_ns;       /* allocations and frees that reached the driver */
    int64_t saved_calls, saved_ns;         /* that did not; an estimate of their time */
    int64_t reserved_peak, allocated_peak; /* bytes, summed over devices */
    int64_t ooms, bad_frees, internal_failures;
    int64_t leaked_blocks, leaked_bytes; /* held at exit; 0 also without the key leak_report */
    bool free_driver; /* calls cost nothing: no GPU, times say nothing */
    bool simulated;   /* a device of the simulator: times are of its table of costs */
    const char
        *not_applied; /* why the settings were refused, NULL: they were not; the document's */
} cmd_headline_t;

void cmd_headline(cmd_headline_t *headline, const json_t *document);

/* Returns true if a device with this UUID is one of the simulator. */
bool cmd_is_simulated(const char *uuid);

/* Four lines to stdout. */
void cmd_headline_print(const cmd_headline_t *headline);
json_t *cmd_headline_json(const cmd_headline_t *headline);

/* "96.8 % of 1,274 requests from cache". */
enum { CMD_HEADLINE_SHARE = 96 };
char *cmd_headline_share(char text[CMD_HEADLINE_SHARE], const cmd_headline_t *headline);

/* The part of requests served without a driver call, in per cent; 0 without requests. */
double cmd_headline_percent(const cmd_headline_t *headline);

#endif

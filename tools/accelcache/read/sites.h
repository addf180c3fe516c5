/* Call sites with the bytes that they hold. */
#ifndef CMD_SITES_H
#define CMD_SITES_H

#include "read/stacks.h"

typedef struct {
    char *name;     /* naming.h */
    int64_t device; /* of cmd_sites_recorded; else 0 */
    int64_t blocks, bytes;
} cmd_site_t;

typedef struct {
    cmd_site_t *site; /* no two of one device have the same name; the most bytes first */
    size_t count;
    int64_t blocks, bytes; /* of all of them */
} cmd_sites_t;

/* Finds the sites that hold memory at the moment.  False: the history does not tell of that moment, and *error is one
 * line, malloc'd. */
bool cmd_sites_at(const cmd_history_t *history, cmd_moment_t moment, cmd_sites_t *sites, char **error);
/* Finds the sites of a dump (`recorded`) for one device, or with -1 for all devices. */
void cmd_sites_recorded(const json_t *document, int64_t device, cmd_sites_t *sites);
void cmd_sites_free(cmd_sites_t *sites);

/* Prints tables of the largest sites, at most `most` for each moment that is known. */
void cmd_sites_print(const cmd_history_t *history, unsigned most);
/* Prints the largest sites of a dump under a heading, after an empty line; nothing if there are none. */
void cmd_sites_recorded_print(const json_t *document, int64_t device, const char *heading, unsigned most);

/* Returns {peak, end, leaked}: each an object with blocks, bytes and sites, or null if it is not known. */
json_t *cmd_sites_json(const cmd_history_t *history);
/* Returns the sites of a dump as an array. */
json_t *cmd_sites_recorded_json(const json_t *document, int64_t device);

#endif

/* PyTorch's memory snapshots, as pickle or JSON. */
#ifndef CMD_SNAPSHOT_H
#define CMD_SNAPSHOT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Returns the document of a file's text.  NULL with *error NULL: it is no snapshot.  NULL with *error, one line,
 * malloc'd: it cannot be read. */
json_t *cmd_snapshot_parse(const char *data, size_t length, char **error);

/* The newest request in its traces around the address, and its free. */
typedef struct {
    uint64_t address, bytes;
    char *asked_by, *freed_by; /* malloc'd; NULL: that is not known; freed_by: nor was it freed */
    bool freed;
} cmd_snapshot_life_t;
bool cmd_snapshot_life(const json_t *document, uint64_t address, cmd_snapshot_life_t *life);

#endif

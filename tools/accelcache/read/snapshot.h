/* Snapshots of PyTorch's, as pickle or JSON: read as a document, and as `where` looks at dumps. */
#ifndef CMD_SNAPSHOT_H
#define CMD_SNAPSHOT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* The document of a file's text.  NULL with *error NULL: it is no snapshot; else one line,
 * malloc'd. */
json_t *cmd_snapshot_parse(const char *data, size_t length, char **error);

/* Returns the snapshot as a document that has `layout` as dumps have it.  `stack` of a block is an index into
 * `site_names`, the call sites (naming.h).  Takes it over.  NULL: *error is one line, malloc'd. */
json_t *cmd_snapshot_as_dump(json_t *snapshot, char **error);

/* The newest request in its traces around the address, and its free. */
typedef struct {
    uint64_t address, bytes;
    char *asked_by, *freed_by; /* malloc'd; NULL: that is not known; freed_by: nor was it freed */
    bool freed;
} cmd_snapshot_life_t;
bool cmd_snapshot_life(const json_t *document, uint64_t address, cmd_snapshot_life_t *life);

#endif

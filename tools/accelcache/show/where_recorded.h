/* The request and the free of a block, for `accelcache where`. */
#ifndef CMD_WHERE_RECORDED_H
#define CMD_WHERE_RECORDED_H

#include "command.h"
#include "read/segments.h"

/* {"time_ns", "alloc", "free"}: what the process said ("asked" of the document), or what the file's history
 * has of the address; `block`: around it, NULL: none.  The caller decrefs. */
json_t *cmd_where_recorded(const json_t *document, const cmd_block_t *block,
                           uint64_t address);

/* Rows for one of both, with its frames; nothing if it is not known. */
void cmd_where_rows(cmd_table_t *table, const char *title, const json_t *recorded,
                    int64_t now_ns);

/* Returns it as JSON, with names of frames; null if it is not known. */
json_t *cmd_where_named(const json_t *recorded);

#endif

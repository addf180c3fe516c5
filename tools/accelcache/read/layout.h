/* Segments and blocks of a document that has them: of `ctl PID snapshot` or of a request that
 * failed (observe/layout.h). */
#ifndef CMD_LAYOUT_H
#define CMD_LAYOUT_H

#include <jansson.h>

#include "observe/layout.h"

enum { CMD_LAYOUTS = 64 };
typedef struct {
    unsigned count;
    ac_layout_t layout[CMD_LAYOUTS]; /* one for each device */
    uint64_t unlisted;               /* segments whose blocks were too many to be written */
} cmd_layouts_t;

/* From the array of segments.  False: *error is one line, malloc'd. */
bool cmd_layouts_read(cmd_layouts_t *layouts, const json_t *segments, char **error);
void cmd_layouts_free(cmd_layouts_t *layouts);

/* That of a device; NULL: nothing is known of it. */
const ac_layout_t *cmd_layouts_of(const cmd_layouts_t *layouts, int ordinal);

/* The name of a module, by the number that blocks have. */
const char *cmd_layout_module(const json_t *document, unsigned module);

#endif

/* A statistics document as text. */
#ifndef CMD_RENDER_H
#define CMD_RENDER_H

#include <jansson.h>

typedef enum {
    CMD_RENDER_BRIEF, /* what one wants to know first (headline.h) */
    CMD_RENDER_USUAL, /* with it the figures that are not 0 */
    CMD_RENDER_ALL
} cmd_render_t;

/* One document; `source` is its file or process. */
void cmd_render(json_t *document, const char *source, cmd_render_t how);

#endif

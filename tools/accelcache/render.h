/* Statistics documents as text. */
#ifndef CMD_RENDER_H
#define CMD_RENDER_H

#include <jansson.h>

/* One document in full; `source` is where it came from. */
void cmd_render(const json_t *document, const char *source);

/* Several: a line each, then their sum. */
typedef struct {
    json_t *document;
    char *source;
} cmd_rendered_t;
void cmd_render_many(const cmd_rendered_t *documents, unsigned count);

#endif

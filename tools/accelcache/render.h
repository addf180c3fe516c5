/* A statistics document as text. */
#ifndef CMD_RENDER_H
#define CMD_RENDER_H

#include <jansson.h>

/* One document in full; `source` is where it came from. */
void cmd_render(const json_t *document, const char *source);

#endif

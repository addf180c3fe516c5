/* Recorded call sites of a document (`recorded` and `history` of dump.schema.json).  symbols.h finds functions,
 * naming.h names the sites. */
#ifndef CMD_RECORDED_H
#define CMD_RECORDED_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A frame of a document: of code, or of an interpreter's function. */
typedef struct {
    const char *path; /* of the file that it lies in; NULL: not known */
    const char *id;   /* build ID of the file when it was loaded; NULL: not known */
    uint64_t offset;  /* of code */
    const char *text; /* function of an interpreter; NULL: it is code */
    uint64_t line;    /* of a text */
} cmd_frame_t;

/* Appends the frame as naming.h takes it: code becomes its function, after the functions inlined there. */
void cmd_frame_append(json_t *list, const cmd_frame_t *frame);

/* Frames as naming.h takes them, innermost first. */
json_t *cmd_frames_json(const cmd_frame_t *frame, size_t count);

/* False: the document has no stack of this number, or it has another form.  The frames belong to the caller. */
bool cmd_recorded_frames(const json_t *document, int64_t stack, cmd_frame_t **frames,
                         size_t *count);

/* The name of the call site (naming.h); "not recorded" for none.  Never released: asked for again it is the same. */
const char *cmd_recorded_site(const json_t *document, int64_t stack);

/* Reads a frame of a process's answer: [path, offset], [path, offset, null, build ID] or [function, file, line]. */
cmd_frame_t cmd_recorded_frame(const json_t *json);

#endif

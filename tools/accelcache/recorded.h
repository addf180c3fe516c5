/* What a document tells of recorded call sites (`recorded` and `history` of dump.schema.json): stacks with
 * names for their frames, which the symbol tables of the files give, as far as they are here and are
 * what they were: of a file with another build ID by now no name is given, and that is said once on
 * stderr.  C++ names are demangled where a C++ library is at hand. */
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

/* "scope::function (file.so+0x1234)", "file.so+0x1234" where no symbol is known, "function (file.py:12)".
 * Never released: asked for again it is the same. */
const char *cmd_frame_name(const cmd_frame_t *frame);

/* False: the document has no such stack, or it has another form.  The frames belong to the caller. */
bool cmd_recorded_frames(const json_t *document, int64_t stack, cmd_frame_t **frames,
                         size_t *count);

/* The name of the innermost frame; "not recorded" for none. */
const char *cmd_recorded_site(const json_t *document, int64_t stack);

/* Of an answer of a process: [path, offset], [path, offset, null, build ID] or [function, file, line]. */
cmd_frame_t cmd_recorded_frame(const json_t *json);

/* What call sites hold: by the names of their innermost frames, the most bytes first. */
typedef struct {
    const char *name;
    int64_t device, blocks, bytes;
} cmd_site_t;

/* Of the device, or with -1 of all: then each device has its own.  The caller frees. */
cmd_site_t *cmd_recorded_sites(const json_t *document, int64_t device, size_t *count);

/* A table of the largest of them under a heading, behind an empty line; nothing where there are none. */
void cmd_recorded_print(const json_t *document, int64_t device, const char *heading,
                        unsigned most);

/* For machines: an array of what cmd_recorded_sites gives. */
json_t *cmd_recorded_json(const json_t *document, int64_t device);

#endif

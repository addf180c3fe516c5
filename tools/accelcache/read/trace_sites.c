/* See trace_sites.h. */
#include "read/trace_sites.h"
#include "command.h"
#include "observe/sites.h"

#include <stdlib.h>
#include <string.h>

enum { STACKS = 1 << 16, PIECE = 16, PIECES = AC_SITE_TEXT / PIECE, NAME = AC_SITE_TEXT + 2 * PIECE };

typedef struct {
    uint64_t *frame;
    unsigned count;
} stack_frames_t;

struct cmd_trace_sites {
    stack_frames_t stack[STACKS + 1];
    char *name[2][STACKS + 1]; /* of files and of texts, [NAME] each, with two ends */
};

cmd_trace_sites_t *cmd_trace_sites_new(void) {
    cmd_trace_sites_t *sites = calloc(1, sizeof *sites);
    return sites ? sites : cmd_alloc(SIZE_MAX); /* which says so and ends */
}

void cmd_trace_sites_free(cmd_trace_sites_t *sites) {
    for (size_t i = 0; sites && i <= STACKS; i++) {
        free(sites->stack[i].frame);
        free(sites->name[0][i]);
        free(sites->name[1][i]);
    }
    free(sites);
}

bool cmd_trace_sites_frame(cmd_trace_sites_t *sites, uint64_t about, uint64_t frame) {
    uint64_t stack = about >> 16;
    unsigned place = about >> 8 & 0xff, count = about & 0xff;
    if (!stack || stack > STACKS || count > AC_SITE_FRAMES || place >= count)
        return false;
    stack_frames_t *of = &sites->stack[stack];
    if (of->count && of->count != count)
        return false;
    if (!of->frame) {
        of->frame = cmd_alloc(count * sizeof *of->frame);
        memset(of->frame, 0, count * sizeof *of->frame);
        of->count = count;
    }
    of->frame[place] = frame;
    return true;
}

bool cmd_trace_sites_piece(cmd_trace_sites_t *sites, uint64_t about, const uint64_t word[2]) {
    unsigned text = about >> 48 & 1, place = about & 0xffff;
    uint64_t number = about >> 16 & UINT32_MAX;
    if (!number || number > STACKS || place > PIECES)
        return false;
    char **name = &sites->name[text][number];
    if (!*name) {
        *name = cmd_alloc(NAME);
        memset(*name, 0, NAME);
    }
    memcpy(*name + (size_t)place * PIECE, word, PIECE);
    (*name)[NAME - 2] = (*name)[NAME - 1] = '\0';
    return true;
}

/* "function\nfile" of a text in two: the break becomes an end, once. */
static cmd_frame_t frame_of(const cmd_trace_sites_t *sites, uint64_t word, const char *program) {
    cmd_frame_t frame = {.path = NULL};
    if (word & AC_FRAME_TEXT) {
        uint64_t number = (word & ~AC_FRAME_TEXT) >> 32;
        char *text = number <= STACKS ? sites->name[1][number] : NULL;
        char *end = text ? strchr(text, '\n') : NULL;
        if (end)
            *end = '\0';
        frame.text = text ? text : "?";
        frame.path = text ? text + strlen(text) + 1 : NULL;
        frame.line = word & UINT32_MAX;
        return frame;
    }
    unsigned file = ac_frame_file(word);
    frame.path = file <= STACKS ? sites->name[0][file] : NULL;
    const char *id = frame.path ? frame.path + strlen(frame.path) + 1 : "";
    frame.id = *id ? id : NULL;
    frame.path = frame.path && !*frame.path ? program : frame.path;
    frame.offset = ac_frame_offset(word);
    return frame;
}

bool cmd_trace_sites_get(const cmd_trace_sites_t *sites, uint32_t stack, const char *program,
                         cmd_frame_t **frames, size_t *count) {
    *frames = NULL;
    *count = stack <= STACKS ? sites->stack[stack].count : 0;
    if (!*count)
        return false;
    *frames = cmd_alloc(*count * sizeof **frames);
    for (size_t i = 0; i < *count; i++)
        (*frames)[i] = frame_of(sites, sites->stack[stack].frame[i], program);
    return true;
}

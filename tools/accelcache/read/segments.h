/* Segments and blocks at one moment, as a file lists them. */
#ifndef CMD_SEGMENTS_H
#define CMD_SEGMENTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observe/layout.h"

typedef struct {
    uint64_t address, bytes;
    uint64_t requested;   /* bytes that the program asked for; 0: not known, or free */
    uint64_t stream;      /* PENDING: key of the stream that ordered the free; 0: none */
    const json_t *frames; /* of the request, innermost first; NULL: not known */
    uint64_t asked_ns, freed_ns; /* guarded block: ns before the file was written; 0: not known */
    int64_t since_ns;            /* ALLOCATED: time of the request, CLOCK_REALTIME; 0: not known */
    uint32_t stack;              /* ALLOCATED: number of the recorded stack; 0: not known */
    uint8_t state;               /* ac_laid_state_t */
    uint8_t module, freed_by;    /* numbers of modules (cmd_module_name) */
    bool async;                  /* the request named a stream */
} cmd_block_t;

/* A segment.  Its blocks are in the order of addresses. */
typedef struct {
    uint64_t address, bytes, stream;
    size_t first, blocks; /* in `block` of the list */
    int device;
    bool small, expandable, exported, guarded;
} cmd_segment_t;

enum { CMD_DEVICES = 64 };

typedef struct {
    cmd_segment_t *segment;
    cmd_block_t *block;
    size_t segments, blocks;
    size_t segment_room, block_room;
    uint64_t unlisted; /* segments without a list of blocks, because there were too many */
} cmd_segments_t;

/* Reads `layout` of a dump.  False: *error is one line, malloc'd. */
bool cmd_segments_of_dump(cmd_segments_t *list, const json_t *layout, char **error);
/* Reads `segments` of a snapshot in PyTorch's layout.  Blocks cover their segment.  False: likewise. */
bool cmd_segments_of_snapshot(cmd_segments_t *list, const json_t *segments, char **error);
void cmd_segments_free(cmd_segments_t *list);

/* Leaves the segments of one device in the list. */
void cmd_segments_keep(cmd_segments_t *list, int device);

static inline bool cmd_block_is_held(const cmd_block_t *block) {
    return block->state == AC_LAID_ALLOCATED;
}

/* True if the block was freed, but work may still use it. */
static inline bool cmd_block_waits(const cmd_block_t *block) {
    return block->state == AC_LAID_PENDING || block->state == AC_LAID_HELD;
}

/* Returns the name of a module, by the number that blocks have. */
const char *cmd_module_name(const json_t *document, unsigned module);

#endif

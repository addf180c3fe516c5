/* A copy of the segments and blocks of one device at one moment.  Dumps, answers to `accelcache where`
 * and reports of failed requests are made from it.  It is plain data; the caller that made room for it
 * frees it. */
#ifndef AC_LAYOUT_H
#define AC_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* States of a block, and their words in documents. */
#define AC_LAID_WORDS(X)                                                                         \
    X(FREE, "free")           /* free memory */                                                  \
    X(ALLOCATED, "allocated") /* the program holds it */                                         \
    X(CACHED, "cached")       /* freed; a thread keeps it for its next request */                \
    X(PENDING, "pending")     /* freed; work submitted before the free may still touch it */     \
    X(HELD, "held")           /* freed; a captured graph may use it */                           \
    X(UNMAPPED, "unmapped")   /* freed; guarded, so that its addresses have no memory now */

typedef enum {
#define X(name, word) AC_LAID_##name,
    AC_LAID_WORDS(X)
#undef X
        AC_LAID_STATES
} ac_laid_state_t;

extern const char *const ac_laid_words[AC_LAID_STATES];

typedef struct {
    uint64_t address, size; /* bytes */
    uint64_t requested;     /* bytes of the request; 0: not known, or free */
    uint64_t stream;        /* PENDING: key of the stream that ordered the free; 0: none */
    /* Guarded blocks: age of the request and of the free, in ns at the time of the layout.  0: not known. */
    uint64_t asked_ns, freed_ns;
    int64_t since_ns; /* ALLOCATED: time of the request, CLOCK_REALTIME; 0: not recorded */
    uint32_t stack;   /* ALLOCATED: stack of the request (sites.h); 0: not recorded */
    uint8_t state;    /* ac_laid_state_t */
    uint8_t module;   /* number of the module that requested the block (stats.h); unused if FREE */
    uint8_t freed_by; /* number of the module that freed the block, if freed_ns is known */
    bool async;       /* ALLOCATED: the request named a stream */
} ac_laid_block_t;

/* A segment.  Its blocks are in address order.  Parts without memory are left out, unless they were guarded
 * blocks.  Adjacent free blocks are one block. */
typedef struct {
    uint64_t address, size; /* bytes; with `paged`: of the address range */
    size_t first, count;    /* index of its first block, and number of blocks */
    bool small;             /* of the small pool */
    bool paged;             /* an expandable segment */
    bool exported;          /* known to other processes; serves no other request */
    bool guarded;           /* each block has its own pages */
    /* Private pools of the C API: id of the pool, and the device and stream that the segment serves; otherwise 0.
     * `life` distinguishes streams with the same handle. */
    uint64_t pool[2], stream, life;
    int device;
} ac_laid_segment_t;

typedef struct {
    int ordinal;     /* of the device */
    bool guarded;    /* only segments of guarded blocks are copied */
    uint64_t now_ns; /* time of the copy, by the clock of guarded blocks */
    ac_laid_segment_t *segment;
    ac_laid_block_t *block;
    size_t segments, blocks; /* number that exist; may be larger than the room */
    size_t segment_room, block_room;
} ac_layout_t;

/* Allocates room for the counted segments and blocks, and for some more.  It frees the old room and its contents.
 * Returns false if host memory is short.  _drop frees the room. */
bool ac_layout_make_room(ac_layout_t *layout);
void ac_layout_drop(ac_layout_t *layout);

/* Copies the part of a layout around `address`: its segment, the block that contains the address, and the nearest
 * held block on each side.  If no segment contains the address, it copies the nearest segment on each side.
 * The result has at most AC_NEAR_SEGMENTS segments with AC_NEAR_BLOCKS blocks each. */
enum { AC_NEAR_SEGMENTS = 2, AC_NEAR_BLOCKS = 3 };
typedef struct {
    ac_layout_t layout;
    ac_laid_segment_t segment[AC_NEAR_SEGMENTS];
    ac_laid_block_t block[AC_NEAR_SEGMENTS * AC_NEAR_BLOCKS];
} ac_near_t;
void ac_layout_near(const ac_layout_t *layout, uint64_t address, ac_near_t *near);

/* Returns the segments of `count` layouts as a malloc'd JSON array; NULL if memory is short.  The array has at
 * most `most` blocks.  A segment that would exceed this number has null as "blocks". */
char *ac_layout_text(const ac_layout_t *layout, unsigned count, size_t most, size_t *length);

#endif

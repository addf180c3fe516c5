/* The segments and blocks of one device as they lie at one moment, copied: what a dump, an answer
 * to `accelcache where` and the report of a request that failed are made of.  Plain data; who
 * made room for it frees it. */
#ifndef AC_LAYOUT_H
#define AC_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a block is to the program, and its word in documents. */
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
    uint64_t requested;     /* bytes that were asked for; 0: not known, or free */
    uint64_t stream;        /* PENDING: key of the stream in whose order it was freed; 0: none */
    /* Of a guarded block: ns before the layout was taken; freed_ns: where it was freed.  0: not known. */
    uint64_t asked_ns, freed_ns;
    int64_t since_ns; /* ALLOCATED: when, CLOCK_REALTIME; 0: not recorded */
    uint32_t stack;   /* ALLOCATED: that asked (sites.h); 0: not recorded */
    uint8_t state;    /* ac_laid_state_t */
    uint8_t module;   /* but FREE: number of the module that asked (stats.h) */
    uint8_t freed_by; /* where freed_ns is known: likewise, that freed it */
    bool async;       /* ALLOCATED: by a request that named a stream */
} ac_laid_block_t;

/* Blocks of a segment lie in address order, without those parts of it that have no memory, but for
 * guarded blocks that were there; free ones side by side are one. */
typedef struct {
    uint64_t address, size; /* bytes; with `paged`: of the addresses */
    size_t first, count;    /* its blocks */
    bool small;             /* of the small pool */
    bool paged;             /* an expandable segment */
    bool exported;          /* known outside, serves no other request */
    bool guarded;           /* each block on pages of its own */
    /* Of a private pool of the C API (else 0): its id, and the device and stream that the segment serves.  `life`
     * tells streams with the same handle from each other. */
    uint64_t pool[2], stream, life;
    int device;
} ac_laid_segment_t;

typedef struct {
    int ordinal;     /* of the device */
    bool guarded;    /* only segments of guarded blocks are taken */
    uint64_t now_ns; /* when it is taken, by the clock of guarded blocks */
    ac_laid_segment_t *segment;
    ac_laid_block_t *block;
    size_t segments, blocks; /* how many there are; may be more than there is room for */
    size_t segment_room, block_room;
} ac_layout_t;

/* Allocates room for the segments and blocks that the layout counts, and for some more.  The old room is freed, with
 * what lay there.  False: host memory is short.  _drop: frees the room. */
bool ac_layout_make_room(ac_layout_t *layout);
void ac_layout_drop(ac_layout_t *layout);

/* Keep of a layout what tells about `address`: its segment with the block around it and the nearest
 * ones beside that one that the program holds; where it lies in none, the nearest segments on both
 * sides.  At most AC_NEAR_SEGMENTS of them, with AC_NEAR_BLOCKS blocks each. */
enum { AC_NEAR_SEGMENTS = 2, AC_NEAR_BLOCKS = 3 };
typedef struct {
    ac_layout_t layout;
    ac_laid_segment_t segment[AC_NEAR_SEGMENTS];
    ac_laid_block_t block[AC_NEAR_SEGMENTS * AC_NEAR_BLOCKS];
} ac_near_t;
void ac_layout_near(const ac_layout_t *layout, uint64_t address, ac_near_t *near);

/* The segments of `count` layouts as the text of a JSON array, malloc'd; at most `most` blocks, and
 * for the segments behind that "blocks" is null.  NULL when memory is short. */
char *ac_layout_text(const ac_layout_t *layout, unsigned count, size_t most, size_t *length);

#endif

/* Call sites of requests and frees: stacks of frames.  Each stack is stored once, for the life of the process,
 * and has a number.
 *
 * A frame is one word.  It is a file of the loader and an offset, which stay right when the file is unloaded and
 * other code takes its addresses; or a text and a line, for an interpreter's frame.  The readers of documents
 * find names of frames.
 *
 * Any thread, under no lock of the library; a stack that is known takes no lock. */
#ifndef AC_SITES_H
#define AC_SITES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    AC_SITE_FRAMES = 48,      /* of a stack, innermost first; outer ones are left out */
    AC_SITE_FILES = 1 << 10,  /* number 0: code of no file */
    AC_SITE_OFFSET_BITS = 48, /* of a frame's word; above them the file */
    AC_SITE_TEXT = 2048       /* most bytes of a text */
};
#define AC_FRAME_TEXT                                                                            \
    ((uint64_t)1 << 63) /* the text in bits 32 to 62, the line in bits 0 to 31 */

static inline uint64_t ac_frame_code(unsigned file, uint64_t offset) {
    return (uint64_t)file << AC_SITE_OFFSET_BITS |
           (offset & (((uint64_t)1 << AC_SITE_OFFSET_BITS) - 1));
}
static inline uint64_t ac_frame_text(uint32_t text, uint32_t line) {
    return AC_FRAME_TEXT | (uint64_t)text << 32 | line;
}
static inline unsigned ac_frame_file(uint64_t frame) {
    return (unsigned)(frame >> AC_SITE_OFFSET_BITS);
}
static inline uint64_t ac_frame_offset(uint64_t frame) {
    return frame & (((uint64_t)1 << AC_SITE_OFFSET_BITS) - 1);
}

/* Return numbers from 1 on; 0 if there is no room, or host memory is short (counted), or the stack is empty.  The
 * path "" is the program's.  `id`: the build ID of the loaded file in hexadecimal digits; "": none. */
unsigned ac_site_file(const char *path, const char *id);
uint32_t ac_site_text(const char *text);
uint32_t ac_site_text_known(const char *text); /* 0: the text has no number yet */
uint32_t ac_site_of(const uint64_t *frame, unsigned count);

/* Adds a request to the sums of its stack. */
void ac_site_count(uint32_t stack, uint64_t bytes);

/* True with stacks:sampled or all: held blocks are followed by stack. */
extern _Atomic bool ac_sites_followed;
/* Notes a block of `bytes` that was handed out to the stack (0: not known) on a device, or with `sign` -1 its end.
 * `estimate`: bytes of all requests that the block represents. */
void ac_site_hold(uint32_t stack, unsigned device, int64_t bytes, int64_t estimate, int sign);
/* Moves a held block from its stack to another one. */
void ac_site_rename(uint32_t from, uint32_t to, unsigned device, int64_t bytes, int64_t estimate);
/* Forgets all held blocks and the peak. */
void ac_sites_empty(void);

/* --- for documents --- */

/* Memory that a stack held at the high-water mark: the first moment with the most requested bytes, of all devices
 * together.  Exact if one thread at a time requests and frees.  Otherwise blocks that other threads were taking or
 * freeing at that moment may be missing or too many. */
typedef struct {
    unsigned device;
    int64_t blocks, bytes, estimate;
} ac_site_held_t;
/* Reads the peak of a stack (from 0); `at` counts its devices.  False: there are no more. */
bool ac_site_peak(uint32_t stack, unsigned at, ac_site_held_t *held);
/* Returns the bytes of all stacks at the peak. */
int64_t ac_sites_peak(void);

const char *ac_site_file_path(unsigned file); /* NULL: unknown number */
const char *ac_site_file_id(unsigned file);   /* "": none, or unknown number */
const char *ac_site_text_of(uint32_t text);   /* NULL: unknown number */

typedef struct {
    const uint64_t *frame;
    unsigned count;
    uint64_t allocs, bytes; /* of all requests so far */
} ac_site_t;
/* Returns false for an unknown number. */
bool ac_site_get(uint32_t stack, ac_site_t *site);

/* Returns the number of stacks, files and texts without room. */
uint64_t ac_sites_lost(void);

/* Makes the lock usable in a fork child: another thread of the parent may have held it. */
void ac_sites_fork_child(void);

#endif

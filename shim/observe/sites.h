/* Where in the program's code memory is asked for and freed: stacks of frames, each of which is stored
 * once, for the life of the process, and goes by a number.
 *
 * A frame is one word: a file of the loader and an offset in it, so that it stays what it is when
 * the file is unloaded and other code comes to lie there; or a text, of an interpreter's frame, and
 * a line.  Nothing here gives a frame a name: that is done by who reads a document.
 *
 * Any thread, under no lock of the library; a stack that is known takes no lock. */
#ifndef AC_SITES_H
#define AC_SITES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    AC_SITE_FRAMES = 48,      /* of a stack, innermost first; what lies further out is left out */
    AC_SITE_FILES = 1 << 10,  /* number 0: code of no file */
    AC_SITE_OFFSET_BITS = 48, /* of a frame's word; above them the file */
    AC_SITE_TEXT = 2048       /* bytes of a text at the most */
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

/* Numbers, from 1 on; 0: there is no room for one more, or host memory is short (counted), or the
 * stack is empty.  A path "" is the program's. */
/* `id`: the build ID of what is loaded, in hexadecimal digits; "": it has none. */
unsigned ac_site_file(const char *path, const char *id);
uint32_t ac_site_text(const char *text);
uint32_t ac_site_text_known(const char *text); /* 0: the text has no number yet */
uint32_t ac_site_of(const uint64_t *frame, unsigned count);

/* A request of the stack: added to its sums. */
void ac_site_count(uint32_t stack, uint64_t bytes);

/* Whether what stacks hold is followed: with stacks:sampled or all. */
extern _Atomic bool ac_sites_followed;
/* A block of `bytes` was handed out to the stack (0: not known) on a device, or `sign` -1: is held no more.
 * `estimate`: bytes of all requests that it stands for. */
void ac_site_hold(uint32_t stack, unsigned device, int64_t bytes, int64_t estimate, int sign);
/* A block that is held was asked for by another stack than it was noted with. */
void ac_site_rename(uint32_t from, uint32_t to, unsigned device, int64_t bytes, int64_t estimate);
/* Nothing is held any more, and there was no peak. */
void ac_sites_empty(void);

/* --- for documents --- */

/* What stacks held at the high-water mark: the first moment of the most bytes as requested, of all devices
 * together.  It is exact if one thread requests and frees at a time.  Else it may lack, or have too much, the
 * blocks that other threads were taking or freeing at that very moment. */
typedef struct {
    unsigned device;
    int64_t blocks, bytes, estimate;
} ac_site_held_t;
/* Of stack 0 and on; `at` counts its devices.  False: there are no more. */
bool ac_site_peak(uint32_t stack, unsigned at, ac_site_held_t *held);
/* Bytes of all stacks then. */
int64_t ac_sites_peak(void);

const char *ac_site_file_path(unsigned file); /* NULL: there is no such number */
const char *ac_site_file_id(unsigned file);   /* "": it has none, or there is no such number */
const char *ac_site_text_of(uint32_t text);   /* as _path */

typedef struct {
    const uint64_t *frame;
    unsigned count;
    uint64_t allocs, bytes; /* of all requests so far */
} ac_site_t;
/* False: there is no such number. */
bool ac_site_get(uint32_t stack, ac_site_t *site);

/* What found no room. */
uint64_t ac_sites_lost(void);

#endif

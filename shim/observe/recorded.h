/* The recorded part of a dump: stacks and the files of their frames, the bytes that each stack holds now and has
 * requested so far, and the history of each device. */
#ifndef AC_RECORDED_H
#define AC_RECORDED_H

#include "config/config.h"
#include "observe/held.h"
#include "observe/json.h"

/* Bytes of requests that one sample represents (stacks:sampled). */
#define AC_SAMPLE_BYTES ((uint64_t)512 << 10)

/* Adds the recorded part to dumps of this process from now on.  `each` enumerates the held blocks. */
void ac_recorded_start(ac_stacks_t stacks, ac_held_each_fn *each);

/* Adds stacks, files and held memory to the document as `recorded`.  Adds nothing if nothing was recorded. */
void ac_recorded_put(json_t *root, bool *failed);

/* Returns the events as a malloc'd JSON array with one object per device.  NULL: there are none, or
 * memory is short. */
char *ac_recorded_history(size_t *length);

/* Writes the innermost frame as "libplugin.so+0x1234", or "" if the stack is not known.  Returns `text`. */
enum { AC_SITE_LABEL = 160 };
char *ac_site_label(char text[AC_SITE_LABEL], uint32_t stack);

/* Finds the call site that holds the most bytes on all devices.  Returns false if none was recorded. */
typedef struct {
    uint64_t blocks, bytes;
    uint32_t stack; /* one of the stacks with that innermost frame */
} ac_recorded_site_t;
bool ac_recorded_largest(ac_recorded_site_t *site);

#endif

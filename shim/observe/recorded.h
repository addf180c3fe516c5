/* What is recorded, as dumps show it: stacks and the files that their frames lie in, how much each stack
 * holds now and asked for so far, and the history of each device. */
#ifndef AC_RECORDED_H
#define AC_RECORDED_H

#include "config/config.h"
#include "observe/held.h"
#include "observe/json.h"

/* What a sample stands for (stacks:sampled). */
#define AC_SAMPLE_BYTES ((uint64_t)512 << 10)

/* Dumps of this process tell of it from then on, by what `each` says is held. */
void ac_recorded_start(ac_stacks_t stacks, ac_held_each_fn *each);

/* The figure of stacks, files and what they hold, as `recorded` of the document; nothing where nothing
 * was recorded. */
void ac_recorded_put(json_t *root, bool *failed);

/* The events as the text of a JSON array, one object a device; malloc'd.  NULL: there are none, or
 * memory is short. */
char *ac_recorded_history(size_t *length);

/* "libplugin.so+0x1234" of the innermost frame; "" where the stack is not known. */
enum { AC_SITE_LABEL = 160 };
char *ac_site_label(char text[AC_SITE_LABEL], uint32_t stack);

/* What the call site that holds the most bytes holds, on all devices.  False: none was recorded. */
typedef struct {
    uint64_t blocks, bytes;
    uint32_t stack; /* one with that innermost frame */
} ac_recorded_site_t;
bool ac_recorded_largest(ac_recorded_site_t *site);

#endif

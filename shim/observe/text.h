/* Text that grows, for parts of documents that would be too many objects of jansson's. */
#ifndef AC_TEXT_H
#define AC_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Zero at first; the caller frees `data`. */
typedef struct {
    char *data;
    size_t length, size;
    bool failed; /* memory was short: what was added since is missing */
} ac_text_t;

/* At most 511 bytes at a time. */
__attribute__((format(printf, 2, 3))) void ac_text_add(ac_text_t *text, const char *format, ...);

/* The text and its length; NULL, and nothing to free, where memory was short. */
char *ac_text_take(ac_text_t *text, size_t *length);

#endif

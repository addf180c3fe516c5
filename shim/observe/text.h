/* A growing text, for parts of documents that would need too many jansson objects. */
#ifndef AC_TEXT_H
#define AC_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* A text; zero-initialised.  The caller frees `data`. */
typedef struct {
    char *data;
    size_t length, size;
    bool failed; /* memory was short; later additions are missing */
} ac_text_t;

/* Appends formatted text, at most 511 bytes per call. */
__attribute__((format(printf, 2, 3))) void ac_text_add(ac_text_t *text, const char *format, ...);

/* Returns the text and its length.  Returns NULL if memory was short; then the caller frees nothing. */
char *ac_text_take(ac_text_t *text, size_t *length);

#endif

/* Text that grows (text.h). */
#include "observe/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void ac_text_add(ac_text_t *text, const char *format, ...) {
    enum { MOST = 512 };
    va_list args;
    if (text->failed)
        return;
    if (text->size - text->length < MOST) {
        size_t size = 2 * text->size + 8192;
        char *grown = realloc(text->data, size);
        if (!grown) {
            text->failed = true;
            return;
        }
        text->data = grown;
        text->size = size;
    }
    va_start(args, format);
    text->length += (size_t)vsnprintf(text->data + text->length, MOST, format, args);
    va_end(args);
}

char *ac_text_take(ac_text_t *text, size_t *length) {
    if (text->failed) {
        free(text->data);
        return NULL;
    }
    *length = text->length;
    return text->data;
}

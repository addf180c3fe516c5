/* libFuzzer target for the pickle reader. An accepted pickle is nested no deeper than jansson can
 * read, and a refusal has a reason. Sanitizers check the rest. */
#include "command.h"
#include "read/pickle.h"

#include <stdlib.h>

enum { MOST_DEPTH = 2048 };

/* Replaces the command's function, which would end with a message. */
void *cmd_resize(void *memory, size_t size) {
    void *result = realloc(memory, size);
    return result ? result : (abort(), NULL);
}

char *cmd_format(const char *format, ...) {
    va_list args;
    char *text = NULL;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        abort();
    va_end(args);
    return text;
}

/* Follows the first element of each level. A walk over all elements could take forever. */
static unsigned depth_of(const json_t *value) {
    unsigned depth = 0;
    while (value && (json_is_array(value) || json_is_object(value))) {
        depth++;
        value = json_is_array(value)
                    ? json_array_get(value, 0)
                    : json_object_iter_value(json_object_iter((json_t *)(uintptr_t)value));
    }
    return depth;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *error = NULL;
    json_t *value = cmd_pickle_read((const char *)data, size, &error);
    if (!value == !error || depth_of(value) > MOST_DEPTH)
        abort();
    json_decref(value);
    free(error);
    return 0;
}

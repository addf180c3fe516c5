/* Value types of configuration keys: one reader and one writer each.  Internal to config/.  They use no
 * locale, no allocation and no I/O: the host may be in any state. */
#ifndef AC_CONFIG_VALUE_H
#define AC_CONFIG_VALUE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    const char *at;
    size_t length;
} ac_token_t;

typedef struct {
    double low, high;
} ac_bounds_t;

/* The reason for a refusal: `at` points into the token; `hint` replaces the row's range text, unless it is
 * NULL. */
typedef struct {
    const char *at;
    const char *hint;
} ac_refusal_t;

/* Reads `token` into the field.  If it returns false the field has any state. */
typedef bool ac_value_read_fn(ac_token_t token, ac_bounds_t bounds, void *field,
                              ac_refusal_t *refusal);
/* Writes the field as text that the reader accepts.  Returns a length like snprintf. */
typedef int ac_value_write_fn(const void *field, char *text, size_t size);

typedef struct {
    ac_value_read_fn *read;
    ac_value_write_fn *write;
} ac_value_type_t;

enum {
    AC_VALUE_BOOL,
    AC_VALUE_MEGABYTES,
    AC_VALUE_MEGABYTES_OR_NONE,
    AC_VALUE_BYTES,
    AC_VALUE_BOOL_OR_BYTES,
    AC_VALUE_NUMBER,
    AC_VALUE_DIVISIONS,
    AC_VALUE_FRACTION,
    AC_VALUE_SECONDS,
    AC_VALUE_MILLISECONDS,
    AC_VALUE_FENCE,
    AC_VALUE_DEEPBIND,
    AC_VALUE_IPC,
    AC_VALUE_VIEW,
    AC_VALUE_DUMP_FORMAT,
    AC_VALUE_PAGES,
    AC_VALUE_FREE_SYNC,
    AC_VALUE_LEAK_REPORT,
    AC_VALUE_STACKS,
    AC_VALUE_FILL,
    AC_VALUE_SAMPLE,
    AC_VALUE_PATTERN,
    AC_VALUE_SIGNAL,
    AC_VALUE_LOG_LEVEL,
    AC_VALUE_TYPES
};
extern const ac_value_type_t ac_value_types[AC_VALUE_TYPES];

/* Letters of both cases are equal. */
bool ac_token_is(ac_token_t token, const char *word);
/* In the C locale. */
char ac_lower(char c);
/* Returns true for white space of the C locale. */
bool ac_is_space(char c);
/* Removes white space at both ends. */
ac_token_t ac_token_trim(ac_token_t token);

#endif

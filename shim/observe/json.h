/* The few functions of jansson that the dump needs, and a builder that remembers the first
 * failure, so that call sites stay free of checks.  Writing only: parsing is the command's
 * business.  Internal to observe/ (and the C API's texts).
 *
 * Where no jansson archive links into a shared library, AC_JANSSON_DLOPEN is defined and
 * json_load.c finds the functions in libjansson.so.4 at run time; call sites are the same. */
#ifndef AC_JSON_H
#define AC_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#ifdef AC_JANSSON_DLOPEN
#define AC_JSON_FUNCTIONS(X)                                                                     \
    X(void, json_object_seed, (size_t seed))                                                     \
    X(json_t *, json_object, (void))                                                             \
    X(json_t *, json_array, (void))                                                              \
    X(json_t *, json_stringn, (const char *value, size_t length))                                \
    X(json_t *, json_integer, (json_int_t value))                                                \
    X(json_t *, json_true, (void))                                                               \
    X(json_t *, json_false, (void))                                                              \
    X(json_t *, json_null, (void))                                                               \
    X(int, json_object_set_new, (json_t * object, const char *key, json_t *value))               \
    X(json_t *, json_object_get, (const json_t *object, const char *key))                        \
    X(int, json_array_append_new, (json_t * array, json_t * value))                              \
    X(int, json_dump_callback,                                                                   \
      (const json_t *json, json_dump_callback_t callback, void *data, size_t flags))             \
    X(void, json_delete, (json_t * json))

typedef struct {
#define X(result, name, args) result(*name##_) args;
    AC_JSON_FUNCTIONS(X)
#undef X
} ac_json_table_t;
extern ac_json_table_t ac_json_table;

#define json_object()                  ac_json_table.json_object_()
#define json_array()                   ac_json_table.json_array_()
#define json_stringn(v, n)             ac_json_table.json_stringn_(v, n)
#define json_integer(v)                ac_json_table.json_integer_(v)
#define json_true()                    ac_json_table.json_true_()
#define json_false()                   ac_json_table.json_false_()
#define json_null()                    ac_json_table.json_null_()
#define json_object_set_new(o, k, v)   ac_json_table.json_object_set_new_(o, k, v)
#define json_object_get(o, k)          ac_json_table.json_object_get_(o, k)
#define json_array_append_new(a, v)    ac_json_table.json_array_append_new_(a, v)
#define json_dump_callback(j, c, d, f) ac_json_table.json_dump_callback_(j, c, d, f)
#endif

/* Make the functions callable; false (and nothing else here may be called) where there is no
 * jansson.  Thread-safe, cheap after the first call. */
bool ac_json_ready(void);

/* Drop a reference; NULL is fine. */
void ac_json_free(json_t *json);

/* Every function below takes over `value`, and sets *failed where memory is short. */
void ac_json_put(json_t *object, const char *key, json_t *value, bool *failed);
void ac_json_put_integer(json_t *object, const char *key, int64_t value, bool *failed);
void ac_json_put_text(json_t *object, const char *key, const char *text, bool *failed);
void ac_json_append(json_t *array, json_t *value, bool *failed);
/* A new empty object under `key`; it belongs to `object`. */
json_t *ac_json_put_object(json_t *object, const char *key, bool *failed);

/* Length of the UTF-8 sequence at `at`, 0 if there is none within `room` bytes: no overlong forms,
 * no surrogates, nothing past U+10FFFF, no NUL. */
size_t ac_json_sequence(const unsigned char *at, size_t room);

/* A string of `length` bytes; what is not UTF-8 becomes U+FFFD, byte by byte, because file names
 * and arguments may hold anything. */
json_t *ac_json_text(const char *text, size_t length);

/* The document as text with a newline at its end: malloc'd, NUL-terminated; NULL when memory is
 * short. */
char *ac_json_dump(const json_t *json, size_t *length);

#endif

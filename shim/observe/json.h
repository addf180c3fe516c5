/* A JSON builder on top of jansson.  It remembers the first failure, so that call sites need no checks.  It
 * only writes; the command parses.  Internal to observe/ and the C API.
 *
 * If the system's jansson archive cannot be linked into a shared library, AC_JANSSON_DLOPEN is defined.
 * Then json_load.c finds the functions in libjansson.so.4 at run time.  Call sites are the same. */
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

/* Makes the functions callable.  Returns false if there is no jansson; then no other function of this file may be
 * called.  Thread-safe, and cheap after the first call. */
bool ac_json_ready(void);

/* Drops a reference; NULL is allowed. */
void ac_json_free(json_t *json);

/* Each function below takes ownership of `value`, and sets *failed if memory is short. */
void ac_json_put(json_t *object, const char *key, json_t *value, bool *failed);
void ac_json_put_integer(json_t *object, const char *key, int64_t value, bool *failed);
void ac_json_put_text(json_t *object, const char *key, const char *text, bool *failed);
void ac_json_append(json_t *array, json_t *value, bool *failed);
/* Adds a new empty object under `key`.  `object` owns it. */
json_t *ac_json_put_object(json_t *object, const char *key, bool *failed);

/* Returns the length of the valid UTF-8 sequence at `at`; 0 if there is none within `room` bytes.  Overlong forms,
 * surrogates, values above U+10FFFF and NUL are not valid. */
size_t ac_json_sequence(const unsigned char *at, size_t room);

/* Makes a string of `length` bytes.  Each byte that is not part of UTF-8 becomes U+FFFD, because file names and
 * arguments may contain any bytes. */
json_t *ac_json_text(const char *text, size_t length);

/* Returns the document as malloc'd, NUL-terminated text that ends with a newline; NULL if memory is short. */
char *ac_json_dump(const json_t *json, size_t *length);

#endif

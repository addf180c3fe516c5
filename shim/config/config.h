/* ACCEL_ALLOC_CONF: `key:value,key:value`; the keys are the rows of config.def.  Pure: no
 * environment, no I/O, no allocation.  The parser is strict: a mistake is an error, and the string is
 * then not applied at all.  The message names the key, the position, the expected text, and a known key
 * with a similar name. */
#ifndef AC_CONFIG_H
#define AC_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AC_CONFIG_PATH = 1024, AC_CONFIG_DIVISIONS = 16, AC_CONFIG_WARNINGS = 8 };

typedef enum { AC_FENCE_AUTO, AC_FENCE_CTX, AC_FENCE_STREAMS, AC_FENCE_SYNC } ac_fence_mode_t;
typedef enum { AC_DEEPBIND_STRIP, AC_DEEPBIND_KEEP } ac_deepbind_t;
/* A value of `fill`: this bit, with the pattern of four bytes below it. */
#define AC_FILL_SET ((uint64_t)1 << 32)

typedef enum { AC_DUMP_JSON, AC_DUMP_PROMETHEUS } ac_dump_format_t;

/* AC_LEAKS_DUMP writes leaks to the dump alone, not to stderr. */
typedef enum { AC_LEAKS_OFF, AC_LEAKS_SAY, AC_LEAKS_DUMP } ac_leak_report_t;
typedef enum { AC_STACKS_NONE, AC_STACKS_SAMPLED, AC_STACKS_ALL } ac_stacks_t;
/* AC_PAGES_AUTO ends when other code knows memory of the process by its address. */
typedef enum { AC_PAGES_OFF, AC_PAGES_ON, AC_PAGES_AUTO } ac_pages_mode_t;
/* AC_FREE_SYNC_AUTO: track/free_sync.h. */
typedef enum { AC_FREE_SYNC_OFF, AC_FREE_SYNC_ON, AC_FREE_SYNC_AUTO } ac_free_sync_t;
typedef enum { AC_IPC_AUTO, AC_IPC_OWN_SEGMENTS, AC_IPC_OFF } ac_ipc_mode_t;

typedef enum { AC_VIEW_LIMIT, AC_VIEW_DEVICE } ac_view_t;

/* The traits of config.def. */
typedef enum { AC_TRAIT_PLAIN, AC_TRAIT_FIXED, AC_TRAIT_TUNED } ac_config_trait_t;

/* The value types of config.def in C. */
#define AC_FIELD_BOOL(field)              bool field
#define AC_FIELD_MEGABYTES(field)         uint64_t field /* bytes */
#define AC_FIELD_MEGABYTES_OR_NONE(field) uint64_t field /* bytes; none: UINT64_MAX */
#define AC_FIELD_BYTES(field)             uint64_t field
#define AC_FIELD_BOOL_OR_BYTES(field)     uint64_t field /* false: 0; true: UINT64_MAX */
#define AC_FIELD_NUMBER(field)            uint64_t field
#define AC_FIELD_DIVISIONS(field)         uint32_t field[AC_CONFIG_DIVISIONS] /* by MiB octave */
#define AC_FIELD_FRACTION(field)          double field
#define AC_FIELD_SECONDS(field)           double field
#define AC_FIELD_MILLISECONDS(field)      uint64_t field
#define AC_FIELD_FENCE(field)             ac_fence_mode_t field
#define AC_FIELD_DEEPBIND(field)          ac_deepbind_t field
#define AC_FIELD_IPC(field)               ac_ipc_mode_t field
#define AC_FIELD_VIEW(field)              ac_view_t field
#define AC_FIELD_DUMP_FORMAT(field)       ac_dump_format_t field
#define AC_FIELD_PAGES(field)             ac_pages_mode_t field
#define AC_FIELD_FREE_SYNC(field)         ac_free_sync_t field
#define AC_FIELD_LEAK_REPORT(field)       ac_leak_report_t field
#define AC_FIELD_STACKS(field)            ac_stacks_t field
#define AC_FIELD_FILL(field)              uint64_t field             /* none: 0 */
#define AC_FIELD_SAMPLE(field)            uint64_t field             /* 1/N: N; off: 0 */
#define AC_FIELD_PATTERN(field)           char field[AC_CONFIG_PATH] /* "none": off */
#define AC_FIELD_SIGNAL(field)            int field                  /* 0: none */
#define AC_FIELD_LOG_LEVEL(field)         int field                  /* ac_log_level_t */

/* The values of all keys; the row's range tells whether 0 means "off" or "no limit". */
typedef struct {
#define CONFIG(key, type, field, low, high, default_text, scope, trait, range, doc)              \
    AC_FIELD_##type(field);
#include "config/config.def"
} ac_config_t;

typedef struct {
    size_t position; /* byte offset into the string */
    char text[256];  /* one sentence with cause and remedy, no newline */
} ac_config_error_t;

typedef struct {
    unsigned count;
    char text[AC_CONFIG_WARNINGS][160];
} ac_config_warnings_t;

void ac_config_default(ac_config_t *config);

/* Parses `text` (NULL or empty: the defaults) into *config, starting from the defaults.  Returns 0; or -1
 * with *error set and *config untouched.  `warnings` (may be NULL) gets known keys without effect.
 * Thread-safe. */
int ac_config_parse(const char *text, ac_config_t *config, ac_config_error_t *error,
                    ac_config_warnings_t *warnings);

/* Joins a file of defaults and a string to one string for ac_config_parse: entries of the file with keys that
 * `text` (NULL: empty) lacks, then `text`.  A wrong `text` gives no keys.  Returns 0; or -1 with *error if
 * the file is wrong or the result is too long; the text of *error begins with "line N: ".  `warnings` (may be
 * NULL) gets the warnings about the file that `text` does not settle. */
int ac_config_merge(const char *file, const char *text, char *whole, size_t size,
                    ac_config_error_t *error, ac_config_warnings_t *warnings);

/* Returns true if `text` (NULL: empty), a string or (`lines`) a file, has an entry strict:true.  The entry counts
 * even if the text is wrong elsewhere; a strict with a wrong value counts as true.  Comments of a file do not
 * count. */
bool ac_config_is_strict(const char *text, bool lines);

/* Copies the values of FIXED keys from *now to *config. */
void ac_config_take_fixed(ac_config_t *config, const ac_config_t *now);

/* Prepares *wanted to replace *now while the cache is active.  A FIXED key keeps its value if *wanted has its
 * default, which a key that was not given has.  Returns false if *wanted has another value for one: *error
 * names the key, and *wanted is unusable. */
bool ac_config_keep_fixed(ac_config_t *wanted, const ac_config_t *now, ac_config_error_t *error);

/* Returns the keys in the order of config.def; NULL after the last. */
const char *ac_config_key(unsigned row);

/* The table for `accelcache config` and generated tables. */
typedef struct {
    const char *key, *type, *default_text, *range, *doc;
    bool foreign; /* a key of PyTorch without effect here */
    ac_config_trait_t trait;
} ac_config_row_t;
extern const ac_config_row_t ac_config_rows[];
extern const unsigned ac_config_row_count;
/* Number of rows at the beginning that users need first. */
extern const unsigned ac_config_first_rows;

/* Writes the value of `key` as text that the parser accepts.  Returns the length, or -1 for an unknown or
 * foreign key. */
int ac_config_value(const ac_config_t *config, const char *key, char *text, size_t size);

#endif

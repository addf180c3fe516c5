/* The table of keys with its texts, for `accelcache config`, the pages and the man page.  A file of its
 * own, so that the library is linked without it. */
#include "config/config.h"

/* Names of the types in `accelcache config`. */
#define TYPE_NAME_BOOL              "boolean"
#define TYPE_NAME_MEGABYTES         "MiB"
#define TYPE_NAME_MEGABYTES_OR_NONE "MiB"
#define TYPE_NAME_BYTES             "bytes"
#define TYPE_NAME_BOOL_OR_BYTES     "boolean or bytes"
#define TYPE_NAME_NUMBER            "integer"
#define TYPE_NAME_DIVISIONS         "divisions"
#define TYPE_NAME_FRACTION          "fraction"
#define TYPE_NAME_SECONDS           "seconds"
#define TYPE_NAME_MILLISECONDS      "milliseconds"
#define TYPE_NAME_FENCE             "word"
#define TYPE_NAME_FILL              "pattern"
#define TYPE_NAME_SAMPLE            "share"
#define TYPE_NAME_DUMP_FORMAT       "word"
#define TYPE_NAME_LEAK_REPORT       "word"
#define TYPE_NAME_STACKS            "word"
#define TYPE_NAME_DEEPBIND          "word"
#define TYPE_NAME_IPC               "word"
#define TYPE_NAME_VIEW              "word"
#define TYPE_NAME_PAGES             "word"
#define TYPE_NAME_FREE_SYNC         "word"
#define TYPE_NAME_PATTERN           "path"
#define TYPE_NAME_SIGNAL            "signal"
#define TYPE_NAME_LOG_LEVEL         "word"

const ac_config_row_t ac_config_rows[] = {
#define CONFIG(key, type, field, low, high, default_text, scope, trait, range, doc)              \
    {#key, TYPE_NAME_##type, default_text, range, doc, false, AC_TRAIT_##trait},
#define FOREIGN(key, harmless, doc) {#key, "any", "", "any value", doc, true, AC_TRAIT_PLAIN},
#include "config/config.def"
};

enum {
#define CONFIG(key, type, field, low, high, default_text, scope, trait, range, doc) ROW_##key,
#include "config/config.def"
};
const unsigned ac_config_first_rows = ROW_control + 1;
const unsigned ac_config_row_count = sizeof ac_config_rows / sizeof *ac_config_rows;

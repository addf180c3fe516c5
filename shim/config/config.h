/* ACCEL_ALLOC_CONF: `key:value,key:value`; the keys are the rows of config.def.  Pure: no
 * environment, no I/O, no allocation.  The parser is strict: anything it does not understand
 * is an error that names the key, the position, what was expected and the nearest known key,
 * and the string is then not applied at all. */
#ifndef AC_CONFIG_H
#define AC_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AC_CONFIG_PATH = 1024, AC_CONFIG_DIVISIONS = 16, AC_CONFIG_WARNINGS = 8 };

typedef enum { AC_FENCE_AUTO, AC_FENCE_CTX, AC_FENCE_STREAMS, AC_FENCE_SYNC } ac_fence_mode_t;
typedef enum { AC_DEEPBIND_STRIP, AC_DEEPBIND_KEEP } ac_deepbind_t;

typedef struct {
    bool enabled;                /* false: count and pass through */
    bool expandable_segments;    /* memory in pages */
    uint64_t page_size;          /* bytes of a page */
    double page_budget;          /* 0: as moving costs */
    double wait_budget;          /* as a share of the most allocated */
    bool low_memory;             /* the smallest pages, exact segments */
    uint64_t max_split_size;     /* bytes; UINT64_MAX: no limit */
    uint64_t small_limit;        /* bytes: largest block of the small segments */
    uint64_t large_segment_size; /* bytes: least size of a new large segment */
    uint64_t thread_cache;       /* bytes: most that a thread keeps for itself */
    uint32_t
        divisions[AC_CONFIG_DIVISIONS];  /* roundup_power2_divisions per MB octave, 0 or 1: off */
    double garbage_collection_threshold; /* 0: off */
    double per_process_memory_fraction;  /* 1: no limit */
    uint64_t memory_limit;               /* bytes per device; 0: none */
    bool free_sync;                      /* frees synchronise the context */
    ac_fence_mode_t fence;
    bool single_stream; /* a stream's order may stand for a fence */
    ac_deepbind_t deepbind;
    char dump[AC_CONFIG_PATH];  /* pattern, "none" for off */
    int dump_signal;            /* signal number, 0: none */
    double dump_interval;       /* seconds, 0: off */
    double oom_wait;            /* seconds */
    uint64_t idle_trim_ms;      /* 0: never */
    uint64_t keep_free;         /* bytes of the device; 0: off */
    bool background_trim;       /* the writer's thread gives back what is owed */
    char trace[AC_CONFIG_PATH]; /* pattern, "none" for off */
    int log_level;              /* ac_log_level_t */
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

/* Parse `text` (NULL or empty: the defaults) into *config, starting from the defaults.
 * Returns 0; or -1 with *error set and *config untouched.  `warnings` (may be NULL) gets known
 * keys without effect.  Thread-safe. */
int ac_config_parse(const char *text, ac_config_t *config, ac_config_error_t *error,
                    ac_config_warnings_t *warnings);

/* The keys in the order of config.def; NULL behind the last. */
const char *ac_config_key(unsigned row);

/* The table, for `accelcache config`, the README and the man page. */
typedef struct {
    const char *key, *type, *default_text, *range, *doc;
    bool foreign; /* a key of PyTorch's that means nothing here */
} ac_config_row_t;
extern const ac_config_row_t ac_config_rows[];
extern const unsigned ac_config_row_count;

/* The value of `key` in *config as text that the parser accepts. Returns the length, or -1 for
 * an unknown or foreign key. */
int ac_config_value(const ac_config_t *config, const char *key, char *text, size_t size);

#endif

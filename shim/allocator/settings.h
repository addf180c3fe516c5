/* The allocator's settings, as a configuration gives them to all its rooms. */
#ifndef AC_SETTINGS_H
#define AC_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"

#define AC_UNLIMITED UINT64_MAX

enum { AC_DIVISION_SLOTS = AC_CONFIG_DIVISIONS };

#define AC_SETTING_HOST(field)
#define AC_SETTING_CACHE(field)
#define AC_SETTING_ALLOCATOR(field) field;

/* Settings; may change while running (ac_allocator_configure). */
typedef struct {
    /* Rows of config.def, as they are there, with SCOPE ALLOCATOR; max_split_size is AC_UNLIMITED
     * with expandable_segments. */
#define CONFIG(key, type, field, low, high, default_text, scope, trait, range, doc)              \
    AC_SETTING_##scope(AC_FIELD_##type(field))
#include "config/config.def"
    /* Derived from several keys, and from the device. */
    uint64_t limit;            /* most bytes reserved; AC_UNLIMITED */
    uint64_t memory;           /* bytes of the device; 0: not known */
    uint64_t page, small_page; /* bytes of a page of expandable segments, by pool */
    bool exact;                /* native segments as small, and blocks as whole, as can be */
    bool frugal;               /* `exact`, as soon as native segments serve */
} ac_settings_t;

#endif

/* What a configuration makes of an allocator, for all its rooms. */
#ifndef AC_SETTINGS_H
#define AC_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#define AC_SMALL_LIMIT        ((uint64_t)64 << 10)
#define AC_SMALL_SEGMENT      ((uint64_t)2 << 20)
#define AC_SEGMENT_MAX_GROWTH ((uint64_t)1 << 30)
#define AC_UNLIMITED          UINT64_MAX

enum { AC_DIVISION_SLOTS = 16 };

/* Settings; may change while running (ac_allocator_configure). */
typedef struct {
    uint64_t max_split_size;     /* bytes; AC_UNLIMITED */
    uint64_t large_segment_size; /* bytes */
    uint64_t small_limit;        /* bytes: the largest of the small pool; 0: AC_SMALL_LIMIT */
    uint64_t limit;              /* most bytes reserved; AC_UNLIMITED */
    uint64_t memory;             /* bytes of the device; 0: not known */
    double gc_threshold;         /* fraction of `limit`; 0: off */
    uint32_t divisions[AC_DIVISION_SLOTS];
    uint64_t cache;  /* most bytes that a thread keeps for itself; 0: none (thread_cache.h) */
    bool expandable; /* arenas grow by pages where the device has them (expand.h) */
    uint64_t page, small_page; /* bytes of a page, by pool */
    double page_budget;        /* times the high-water mark; 0: as moving costs */
    double wait_budget;        /* bytes reserved beyond it, as a share, before a request waits */
    uint64_t oom_wait;         /* ns that a request waits for work before it fails */
    bool exact;                /* native segments as small, and blocks as whole, as can be */
} ac_settings_t;

#endif

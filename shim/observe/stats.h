/* Device statistics as plain memory: the allocator writes them under its lock.  Who wants figures
 * that match copies them under it (ac_allocator_figures); another process, which cannot, reads
 * them from the shared mapping (live.h), each field by itself.  64-bit words and nothing else. */
#ifndef AC_STATS_H
#define AC_STATS_H

#include <stdint.h>

typedef struct {
    int64_t current;   /* now */
    int64_t peak;      /* highest `current` since the last peak reset */
    int64_t allocated; /* sum of all increases since the last accumulated reset */
    int64_t freed;     /* sum of all decreases; allocated - freed == current until a reset */
} ac_stat_t;

enum { AC_POOL_ALL, AC_POOL_SMALL, AC_POOL_LARGE, AC_POOL_KINDS };

typedef struct {
#define STAT_COUNT(name, doc)        int64_t name;
#define STAT_POOLS(name, unit, doc)  ac_stat_t name[AC_POOL_KINDS];
#define STAT_SINGLE(name, unit, doc) ac_stat_t name;
#include "stats.def"
#undef STAT_COUNT
#undef STAT_POOLS
#undef STAT_SINGLE
} ac_device_stats_t;

typedef struct {
#define DEVICE_COUNTER(name, unit, doc) uint64_t name;
#define PROCESS_COUNTER(name, unit, doc)
#include "counters.def"
#undef DEVICE_COUNTER
#undef PROCESS_COUNTER
} ac_device_counters_t;

static inline void ac_stat_up(ac_stat_t *s, int64_t n) {
    s->current += n;
    s->allocated += n;
    if (s->current > s->peak)
        s->peak = s->current;
}

static inline void ac_stat_down(ac_stat_t *s, int64_t n) {
    s->current -= n;
    s->freed += n;
}

/* Change `all` and one pool's entry; `pool` is AC_POOL_SMALL or AC_POOL_LARGE. */
static inline void ac_stat_pools_up(ac_stat_t s[AC_POOL_KINDS], int pool, int64_t n) {
    ac_stat_up(&s[AC_POOL_ALL], n);
    ac_stat_up(&s[pool], n);
}

static inline void ac_stat_pools_down(ac_stat_t s[AC_POOL_KINDS], int pool, int64_t n) {
    ac_stat_down(&s[AC_POOL_ALL], n);
    ac_stat_down(&s[pool], n);
}

/* peak := current, for every field.  The caller holds the lock that guards `s`. */
void ac_stats_reset_peak(ac_device_stats_t *s);

/* allocated := freed := 0 for every field, and the five event counts := 0. */
void ac_stats_reset_accumulated(ac_device_stats_t *s);

#endif

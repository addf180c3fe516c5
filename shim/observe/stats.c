/* Resets of the device statistics; the caller holds the lock that guards them. */
#include "observe/stats.h"

static void stat_reset_peak(ac_stat_t *s) {
    s->peak = s->current;
}

static void stat_reset_accumulated(ac_stat_t *s) {
    s->allocated = 0;
    s->freed = 0;
}

void ac_stats_reset_peak(ac_device_stats_t *s) {
#define STAT_COUNT(name, doc)
#define STAT_POOLS(name, unit, doc)                                                              \
    for (int i = 0; i < AC_POOL_KINDS; i++)                                                      \
        stat_reset_peak(&s->name[i]);
#define STAT_SINGLE(name, unit, doc) stat_reset_peak(&s->name);
#include "observe/stats.def"
#undef STAT_COUNT
#undef STAT_POOLS
#undef STAT_SINGLE
}

void ac_stats_reset_accumulated(ac_device_stats_t *s) {
    /* max_split_size is a STAT_COUNT too, but a setting: it stays. */
    s->num_alloc_retries = 0;
    s->num_ooms = 0;
    s->num_sync_all_streams = 0;
    s->num_device_alloc = 0;
    s->num_device_free = 0;
#define STAT_COUNT(name, doc)
#define STAT_POOLS(name, unit, doc)                                                              \
    for (int i = 0; i < AC_POOL_KINDS; i++)                                                      \
        stat_reset_accumulated(&s->name[i]);
#define STAT_SINGLE(name, unit, doc) stat_reset_accumulated(&s->name);
#include "observe/stats.def"
#undef STAT_COUNT
#undef STAT_POOLS
#undef STAT_SINGLE
}

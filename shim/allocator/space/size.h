/* The size that a request is served with, and the blocks that may serve it.  Pure functions. */
#ifndef AC_SIZE_H
#define AC_SIZE_H

#include "allocator/policy.h"
#include "allocator/space/free_index.h"

static inline uint64_t ac_size_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

/* The size that a request is served with.  roundup_power2_divisions: sizes between two powers of
 * two go up to the next of N equal steps. Slot i rules [2^i MiB, 2^(i+1) MiB); the first also
 * everything below. */
static inline uint64_t ac_size_round(const uint32_t in[AC_DIVISION_SLOTS], uint64_t bytes) {
    uint64_t mib = bytes >> 20;
    unsigned slot = mib ? 63 - (unsigned)__builtin_clzll(mib) : 0;
    if (slot >= AC_DIVISION_SLOTS)
        slot = AC_DIVISION_SLOTS - 1;
    uint32_t divisions = in[slot];
    if (divisions > 1 && bytes > AC_GRANULE * divisions && (bytes & (bytes - 1))) {
        uint64_t floor = (uint64_t)1 << (63 - __builtin_clzll(bytes));
        return ac_size_up(ac_size_up(bytes, floor / divisions), AC_GRANULE);
    }
    return ac_size_up(bytes, AC_GRANULE);
}

/* The blocks that may serve a request that would fail otherwise.  One below max_split_size accepts no block that
 * must stay whole, unless that is no larger than a new segment. */
static inline uint64_t ac_size_below_last(const ac_settings_t *settings, uint64_t size) {
    uint64_t whole = ac_size_up(size, AC_SEGMENT_ALIGN) + 1;
    return whole > settings->max_split_size ? whole : settings->max_split_size;
}

static inline ac_fit_t ac_size_fit_last(const ac_settings_t *settings, uint64_t size) {
    if (size < settings->max_split_size)
        return (ac_fit_t){size, 0, ac_size_below_last(settings, size), 0};
    uint64_t slack = settings->large_segment_size;
    return (ac_fit_t){size, settings->max_split_size,
                      size > UINT64_MAX - slack ? UINT64_MAX : size + slack, 0};
}

/* The blocks that may serve any other request.  With `low_memory`, large free blocks wait for requests that nearly
 * fill them. */
static inline uint64_t ac_size_below(const ac_settings_t *settings, uint64_t size,
                                     uint64_t last) {
    if (__builtin_expect(!settings->exact, 1))
        return last;
    uint64_t below = size <= AC_LARGE / 2 ? AC_LARGE : 2 * size + 1;
    return below < last ? below : last;
}

static inline ac_fit_t ac_size_fit(const ac_settings_t *settings, uint64_t size) {
    ac_fit_t fit = ac_size_fit_last(settings, size);
    fit.below = ac_size_below(settings, size, fit.below);
    return fit;
}

#endif

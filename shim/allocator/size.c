/* The size that a request is served with, and the blocks that may serve it. */
#include "allocator/allocator_int.h"

static uint64_t round_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

/* roundup_power2_divisions: sizes between two powers of two go up to the next of N equal steps.
 * Slot i rules [2^i MiB, 2^(i+1) MiB); the first also everything below. */
uint64_t ac_size_round(const uint32_t in[AC_DIVISION_SLOTS], uint64_t bytes) {
    uint64_t mib = bytes >> 20;
    unsigned slot = mib ? 63 - (unsigned)__builtin_clzll(mib) : 0;
    if (slot >= AC_DIVISION_SLOTS)
        slot = AC_DIVISION_SLOTS - 1;
    uint32_t divisions = in[slot];
    if (divisions > 1 && bytes > AC_GRANULE * divisions && (bytes & (bytes - 1))) {
        uint64_t floor = (uint64_t)1 << (63 - __builtin_clzll(bytes));
        return round_up(round_up(bytes, floor / divisions), AC_GRANULE);
    }
    return round_up(bytes, AC_GRANULE);
}

/* A request below max_split_size accepts no block that must stay whole, but for one no larger
 * than the segment it would get otherwise. */
ac_fit_t ac_size_fit_last(const ac_settings_t *settings, uint64_t size) {
    uint64_t whole = round_up(size, AC_SEGMENT_ALIGN) + 1;
    if (size < settings->max_split_size)
        return (ac_fit_t){size, 0,
                          whole > settings->max_split_size ? whole : settings->max_split_size, 0};
    uint64_t slack = settings->large_segment_size;
    return (ac_fit_t){size, settings->max_split_size,
                      size > UINT64_MAX - slack ? UINT64_MAX : size + slack, 0};
}

/* Large free blocks are kept for requests that nearly fill them, where memory is dear. */
ac_fit_t ac_size_fit(const ac_settings_t *settings, uint64_t size) {
    const uint64_t large = (uint64_t)32 << 20;
    ac_fit_t fit = ac_size_fit_last(settings, size);
    uint64_t below = size <= large / 2 ? large : 2 * size + 1;
    if (settings->exact && below < fit.below)
        fit.below = below;
    return fit;
}

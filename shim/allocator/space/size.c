/* The size that a request is served with, the blocks that may serve it, and the segment that is
 * asked for where there are none. */
#include "allocator/space/size.h"

static uint64_t round_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

static uint64_t max(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static uint64_t at_most(uint64_t a, uint64_t b) {
    return a < b ? a : b;
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

/* Large free blocks are kept for requests that nearly fill them, where memory is short. */
ac_fit_t ac_size_fit(const ac_settings_t *settings, uint64_t size) {
    const uint64_t large = (uint64_t)32 << 20;
    ac_fit_t fit = ac_size_fit_last(settings, size);
    uint64_t below = size <= large / 2 ? large : 2 * size + 1;
    if (settings->exact && below < fit.below)
        fit.below = below;
    return fit;
}

/* A whole number of requests in at most `most` bytes, and what is left of the segment for them:
 * compared by the share that it loses. */
typedef struct {
    uint64_t bytes, segment;
} packing_t;

static packing_t pack(uint64_t size, uint64_t count) {
    return (packing_t){size * count, round_up(size * count, AC_SEGMENT_ALIGN)};
}

static bool loses_less(packing_t a, packing_t b) {
    return (a.segment - a.bytes) * b.bytes < (b.segment - b.bytes) * a.bytes;
}

/* Of the largest numbers of requests in `most` bytes the one that leaves least over. */
static uint64_t pack_many(uint64_t size, uint64_t most) {
    enum { TRIES = 16 };
    uint64_t count = most / size, least = count > TRIES ? count - TRIES : 1;
    packing_t best = pack(size, count > 1 ? count : 1);
    for (; count > least; count--)
        if (loses_less(pack(size, count - 1), best))
            best = pack(size, count - 1);
    return best.segment;
}

/* The least number that leaves no more than a 64th over; where `most` bytes do not hold so many,
 * the one that leaves least. */
static uint64_t pack_few(uint64_t size, uint64_t most) {
    packing_t best = pack(size, 1);
    for (uint64_t count = 2; count <= most / size; count++) {
        if (best.segment - best.bytes <= best.bytes / 64)
            break;
        if (loses_less(pack(size, count), best))
            best = pack(size, count);
    }
    return best.segment;
}

/* What is left over of a segment is lost to requests that it does not fit.  So growth beyond the
 * budget takes few requests at a time, and so does any growth that takes much of what the device
 * has left. */
uint64_t ac_size_segment(const ac_settings_t *settings, uint64_t size, uint64_t reserved,
                         ac_snug_t snug) {
    uint64_t whole = settings->memory && settings->memory < settings->limit ? settings->memory
                                                                            : settings->limit;
    uint64_t room = whole > reserved ? whole - reserved : 0;
    uint64_t most = reserved / 8;
    if (snug == AC_SNUG_EXACT || settings->exact || size >= settings->max_split_size)
        return round_up(size, AC_SEGMENT_ALIGN);
    if (most > room / 8)
        snug = AC_SNUG_FEW;
    if (snug == AC_SNUG_FEW)
        most = reserved / 16;
    most = max(most, settings->large_segment_size);
    most = at_most(at_most(most, AC_SEGMENT_MAX_GROWTH), room / 16);
    /* A segment that reaches max_split_size would be a block that small requests may not use. */
    most = at_most(most, settings->max_split_size - 1);
    most = most / AC_SEGMENT_ALIGN * AC_SEGMENT_ALIGN;
    if (snug == AC_SNUG_FEW)
        return pack_few(size, most);
    /* A small program: what some of its small requests leave over serves others. */
    bool first = most <= settings->large_segment_size && size <= most / 4;
    return first ? most : pack_many(size, most);
}

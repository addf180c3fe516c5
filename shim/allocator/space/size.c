/* The segment that is asked for where no block serves a request (size.h). */
#include "allocator/space/size.h"

static uint64_t max(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static uint64_t at_most(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* A whole number of requests in at most `most` bytes, and what is left of the segment for them:
 * compared by the share that it loses. */
typedef struct {
    uint64_t bytes, segment;
} packing_t;

static packing_t pack(uint64_t size, uint64_t count) {
    return (packing_t){size * count, ac_size_up(size * count, AC_SEGMENT_ALIGN)};
}

static bool loses_less(packing_t a, packing_t b) {
    return (a.segment - a.bytes) * b.bytes < (b.segment - b.bytes) * a.bytes;
}

/* Of the largest numbers of requests in `most` bytes the one that leaves least over. */
static uint64_t pack_many(uint64_t size, uint64_t most) {
    uint64_t count = most / size, least = count > AC_PACK_TRIES ? count - AC_PACK_TRIES : 1;
    packing_t best = pack(size, count > 1 ? count : 1);
    for (; count > least; count--)
        if (loses_less(pack(size, count - 1), best))
            best = pack(size, count - 1);
    return best.segment;
}

/* The least number that leaves no more than a share over (AC_PACK_REST); where `most` bytes do not hold so many,
 * the one that leaves least. */
static uint64_t pack_few(uint64_t size, uint64_t most) {
    packing_t best = pack(size, 1);
    for (uint64_t count = 2; count <= most / size; count++) {
        if (best.segment - best.bytes <= best.bytes / AC_PACK_REST)
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
    uint64_t room = ac_size_room(settings, reserved);
    uint64_t most = reserved / AC_GROWTH_SHARE;
    if (snug == AC_SNUG_EXACT || settings->exact || size >= settings->max_split_size)
        return ac_size_up(size, AC_SEGMENT_ALIGN);
    if (most > room / (AC_ROOM_SHARE / 2))
        snug = AC_SNUG_FEW;
    if (snug == AC_SNUG_FEW)
        most /= 2;
    most = max(most, settings->large_segment_size);
    most = at_most(at_most(most, AC_GROWTH_MOST), room / AC_ROOM_SHARE);
    /* A segment that reaches max_split_size would be a block that small requests may not use. */
    most = at_most(most, settings->max_split_size - 1);
    most = most / AC_SEGMENT_ALIGN * AC_SEGMENT_ALIGN;
    if (snug == AC_SNUG_FEW)
        return pack_few(size, most);
    /* A small program: what some of its small requests leave over serves others. */
    bool first = most <= settings->large_segment_size && size <= most / 4;
    return first ? most : pack_many(size, most);
}

/* See trace_lane.h. */
#include "read/trace_lane.h"

#include "command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORDS = AC_TRACE_UNIT / sizeof(uint64_t) };

static const unsigned char words_of[AC_TRACE_KIND_COUNT] = {
#define KIND(name, value, words, doc) [AC_TRACE_##name] = words,
    AC_TRACE_KINDS(KIND)
#undef KIND
};

void cmd_trace_lane_add(cmd_trace_lane_t *lane, const cmd_trace_span_t *chunk) {
    lane->chunk = cmd_resize(lane->chunk, (lane->chunks + 1) * sizeof *lane->chunk);
    lane->chunk[lane->chunks++] = *chunk;
}

/* Copies before a front of the same ordinal. */
static int in_order(const void *a, const void *b) {
    const cmd_trace_span_t *x = a, *y = b;
    if (x->ordinal != y->ordinal)
        return x->ordinal < y->ordinal ? -1 : 1;
    return (x->front != NULL) - (y->front != NULL);
}

void cmd_trace_lane_begin(cmd_trace_lane_t *lane) {
    size_t kept = 0;
    if (lane->chunks)
        qsort(lane->chunk, lane->chunks, sizeof *lane->chunk, in_order);
    for (size_t i = 0; i < lane->chunks; i++) {
        cmd_trace_span_t chunk = lane->chunk[i];
        if (chunk.ordinal == kept) {
            lane->chunk[kept++] = chunk;
        } else {
            free(chunk.front);
            /* A front whose chunk was copied is left out; nothing else may be missing or twice.
             */
            lane->damaged = lane->damaged || !chunk.front || chunk.ordinal > kept;
        }
    }
    lane->chunks = kept;
    lane->word = cmd_alloc(AC_TRACE_UNIT);
}

static bool begin_chunk(cmd_trace_lane_t *lane) {
    ac_trace_chunk_t header;
    lane->words = lane->at = 0;
    if (lane->taken == lane->chunks)
        return false;
    const cmd_trace_span_t *chunk = &lane->chunk[lane->taken++];
    if (chunk->front) {
        memcpy(lane->word, chunk->front, AC_TRACE_UNIT);
        lane->words = WORDS;
    }
    while (lane->words < WORDS) {
        size_t had = lane->words * sizeof *lane->word;
        ssize_t n = pread(lane->fd, (char *)lane->word + had, AC_TRACE_UNIT - had,
                          (off_t)(chunk->offset + had));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < (ssize_t)sizeof *lane->word)
            break; /* the file was cut short here */
        lane->words += (size_t)n / sizeof *lane->word;
    }
    lane->damaged = lane->damaged || lane->words < WORDS;
    if (lane->words < sizeof header / sizeof *lane->word)
        return false;
    memcpy(&header, lane->word, sizeof header);
    lane->at = sizeof header / sizeof *lane->word;
    lane->sequence = header.sequence;
    lane->ticks = header.ticks;
    lane->thread = header.thread;
    return true;
}

static bool define_place(cmd_trace_lane_t *lane, uint64_t about, uint64_t stream) {
    uint64_t number = about >> 32;
    if (number >= AC_TRACE_PLACES)
        return false;
    if (!lane->places) {
        lane->places = cmd_alloc((AC_TRACE_PLACES + 1) * sizeof *lane->places);
        memset(lane->places, 0, (AC_TRACE_PLACES + 1) * sizeof *lane->places);
    }
    lane->places[number] = (cmd_trace_place_t){.stream = stream,
                                               .device = (unsigned)(about >> 16 & 0xffff),
                                               .context = (unsigned)(about & 0xffff),
                                               .defined = true};
    return true;
}

/* The place that the event names, by number; AC_TRACE_PLACES: it names none. */
static unsigned number_of(unsigned kind, uint64_t about, uint64_t third) {
    switch (kind) {
    case AC_TRACE_ALLOC:
    case AC_TRACE_MANAGED:
    case AC_TRACE_FAILED:
    case AC_TRACE_FREE_ON:
        return ac_trace_size_place(third);
    case AC_TRACE_SYNC:
    case AC_TRACE_SYNC_STREAM:
    case AC_TRACE_GONE:
        return about < AC_TRACE_NOWHERE ? (unsigned)about : AC_TRACE_NOWHERE;
    default:
        return AC_TRACE_PLACES;
    }
}

typedef enum { DEFINED, EVENT, END, DAMAGED } step_t;

/* Take one event of the current chunk. */
static step_t step(cmd_trace_lane_t *lane, cmd_trace_raw_t *raw, unsigned *number) {
    if (lane->at == lane->words || lane->word[lane->at] == 0)
        return END;
    unsigned kind = ac_trace_kind(lane->word[lane->at]);
    if (kind >= AC_TRACE_KIND_COUNT || !words_of[kind])
        return DAMAGED;
    if (lane->words - lane->at < words_of[kind])
        return DAMAGED;
    const uint64_t *word = lane->word + lane->at;
    uint64_t about = ac_trace_about(word[0]), third = words_of[kind] > 2 ? word[2] : 0;
    lane->at += words_of[kind];
    switch (kind) {
    case AC_TRACE_BASE:
        lane->sequence = word[1];
        lane->ticks = third;
        return DEFINED;
    case AC_TRACE_THREAD:
        lane->thread = word[1];
        return DEFINED;
    case AC_TRACE_PLACE:
        return define_place(lane, about, word[1]) ? DEFINED : DAMAGED;
    case AC_TRACE_SITE:
        lane->site = (uint32_t)about;
        return DEFINED;
    case AC_TRACE_FRAME:
        return cmd_trace_sites_frame(lane->sites, about, word[1]) ? DEFINED : DAMAGED;
    case AC_TRACE_PIECE:
        return cmd_trace_sites_piece(lane->sites, about, word + 1) ? DEFINED : DAMAGED;
    default:
        break;
    }
    *number = number_of(kind, about, third);
    if (*number > AC_TRACE_PLACES ||
        (*number < AC_TRACE_PLACES && (!lane->places || !lane->places[*number].defined)))
        return DAMAGED;
    *raw = (cmd_trace_raw_t){.kind = kind,
                             .about = about,
                             .sequence = lane->sequence + (uint32_t)word[1],
                             .ticks = lane->ticks + ((word[1] >> 32) << lane->time_shift),
                             .bytes = ac_trace_size_bytes(third),
                             .stack = kind == AC_TRACE_ALLOC ? lane->site : 0,
                             .thread = lane->thread};
    if (kind == AC_TRACE_ALLOC)
        lane->site = 0;
    return EVENT;
}

static bool decode(cmd_trace_lane_t *lane, cmd_trace_raw_t *raw, unsigned *number) {
    for (;;) {
        step_t result = step(lane, raw, number);
        if (result == EVENT)
            return true;
        if (result == DAMAGED) {
            /* The meaning of places is not known from here on. */
            lane->damaged = true;
            lane->taken = lane->chunks;
        }
        if (result != DEFINED && !begin_chunk(lane))
            return false;
    }
}

bool cmd_trace_lane_next(cmd_trace_lane_t *lane, cmd_trace_raw_t *raw) {
    unsigned number;
    for (;;) {
        if (lane->pending) {
            *raw = lane->ahead;
            number = lane->ahead_number;
            lane->pending = false;
        } else if (!decode(lane, raw, &number)) {
            return false;
        }
        /* Whether a free was refused stands right behind it.  A copy of its current place, since reading on may
         * redefine it. */
        if (raw->kind == AC_TRACE_UNFREE)
            continue; /* of a free that is not there */
        if (number < AC_TRACE_PLACES)
            raw->place = &lane->places[number];
        if (raw->kind != AC_TRACE_FREE && raw->kind != AC_TRACE_FREE_ON)
            return true;
        if (number < AC_TRACE_PLACES) {
            lane->places[AC_TRACE_PLACES] = lane->places[number];
            raw->place = &lane->places[AC_TRACE_PLACES];
        }
        lane->pending = decode(lane, &lane->ahead, &lane->ahead_number);
        if (!lane->pending || lane->ahead.kind != AC_TRACE_UNFREE)
            return true;
        lane->pending = false;
        lane->refused++;
    }
}

void cmd_trace_lane_clear(cmd_trace_lane_t *lane) {
    for (size_t i = 0; i < lane->chunks; i++)
        free(lane->chunk[i].front);
    free(lane->chunk);
    free(lane->word);
    free(lane->places);
}

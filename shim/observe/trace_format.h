/* Format of the file that `trace:FILE` writes: every allocation and free of one process, in the byte order
 * of its machine.  trace.c writes the file; `accelcache trace` and `accelcache replay` read it.
 *
 * A file consists of units of AC_TRACE_UNIT bytes.  The first unit is the header.  Each other unit is a chunk of
 * a lane.  A lane is a sequence of chunks, numbered from 0, to which one thread at a time writes.
 * The lane writes into its front, a chunk that is mapped into the process.  A full front is copied to a
 * permanent chunk, and the front begins the next chunk.  So the front has the lane's last events, after a normal
 * end and after a kill.  If there is a copy with the ordinal of the front, readers ignore the front.
 * Units of other contents may lie between these, and the last unit may be cut short.
 * Lanes are numbered in the order in which they get their fronts.  A lane's number is below the number of units.
 *
 * The header of a chunk is followed by events of two or three 64-bit words.  The first word of an event is never
 * 0 and is written last.  The first 0 word ends the chunk.  So a killed process leaves only whole events.
 *
 *   word 0   kind in the highest 8 bits; subject in the other 56.
 *   word 1   stamp: the time in the high half, the sequence number in the low half.  Both are differences
 *            to the lane's base.  Each chunk's header sets the base, and a BASE event changes it.
 *   word 2   ALLOC..: the place in the highest 16 bits, bytes in the other 48.
 *
 * Sequence numbers are unique in the file.  A free gets its number before it takes effect, and an allocation
 * after it took effect.  So in the order of numbers an address is freed before it is handed out again, in
 * whichever threads.  Exceptions are a block that was freed by a call without a hook, and a free with an event
 * that a kill cut off.  Numbers rise within a lane; some may be missing.
 * The time is for people.  It is in ticks of the clock that the header names, and may run backwards a little
 * between threads.
 *
 * A place is the context, device and stream of an allocation or synchronisation.  Events name it by a number
 * below AC_TRACE_PLACES.  An earlier PLACE event of the same lane defines the number; a later one may redefine
 * it. */
#ifndef AC_TRACE_FORMAT_H
#define AC_TRACE_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#define AC_TRACE_MAGIC      0x0a45434152544341ull /* "ACTRACE\n" in little-endian order */
#define AC_TRACE_BYTE_ORDER 0x01020304u

enum {
    AC_TRACE_VERSION = 1,
    AC_TRACE_VERSION_SITES = 2, /* with stacks (SITE, FRAME, PIECE); older readers refuse it */
    AC_TRACE_UNIT = 65536, /* at least a page, on any machine */
    AC_TRACE_DEVICES = 64,
    AC_TRACE_PLACES = 1024,
    AC_TRACE_MOST_WORDS = 3 /* of an event */
};

/*   KIND(name, value, words, doc)   value: never changes, because old files contain it */
#define AC_TRACE_KINDS(KIND)                                                                     \
    KIND(ALLOC, 1, 3, "an allocation at the address in word 0")                                  \
    KIND(MANAGED, 2, 3, "the same of managed memory")                                            \
    KIND(FAILED, 3, 3, "an allocation that failed; word 0: the driver's error")                  \
    KIND(FREE, 4, 2, "a free of the address in word 0 is about to be made")                      \
    KIND(FREE_ON, 5, 3, "the same in the order of a stream, that of the place in word 2")        \
    KIND(UNFREE, 6, 2, "the lane's event before this one, a free, was refused")                  \
    KIND(SYNC, 7, 2, "the program waited for a whole context; word 0: a place in it")            \
    KIND(SYNC_STREAM, 8, 2, "the program waited for a stream; word 0: its place")                \
    KIND(SYNC_EVENT, 9, 2, "the program waited for an event; word 0: its handle")                \
    KIND(GONE, 10, 2, "a context and all its memory are gone; word 0: a place in it")            \
    KIND(PLACE, 11, 2, "defines a place: see ac_trace_place_word; word 1: its stream")           \
    KIND(THREAD, 12, 2, "from here on another thread's events; word 0: tid, word 1: number")     \
    KIND(BASE, 13, 3, "a new base; word 1: sequence number, word 2: ticks")                      \
    KIND(SITE, 14, 2, "the lane's next allocation was asked for by the stack in word 0")         \
    KIND(FRAME, 15, 2, "a frame of a stack: see ac_trace_frame_word; word 1: sites.h")           \
    KIND(PIECE, 16, 3, "16 bytes of a name: see ac_trace_piece_word; words 1 and 2")

enum {
#define KIND(name, value, words, doc) AC_TRACE_##name = value,
    AC_TRACE_KINDS(KIND)
#undef KIND
        AC_TRACE_KIND_COUNT
};

/* Keys of streams in places.  0: the call names no stream, for example cudaMalloc.  1: the legacy default stream.
 * A key with the value 2 in its low AC_TRACE_STREAM_SHIFT bits is the per-thread default stream of a thread.
 * Other keys are handles.  The driver may reuse the handle of a destroyed stream. */
enum { AC_TRACE_STREAM_SHIFT = 2 };

static inline uint64_t ac_trace_word(unsigned kind, uint64_t about) {
    return (uint64_t)kind << 56 | (about & 0xffffffffffffffull);
}
static inline unsigned ac_trace_kind(uint64_t word) {
    return (unsigned)(word >> 56);
}
static inline uint64_t ac_trace_about(uint64_t word) {
    return word & 0xffffffffffffffull;
}

/* Makes word 2 of an allocation.  The size is at most 2^48 - 1 bytes; larger sizes are cut. */
static inline uint64_t ac_trace_size_word(unsigned place, uint64_t bytes) {
    const uint64_t most = 0xffffffffffffull;
    return (uint64_t)place << 48 | (bytes < most ? bytes : most);
}
static inline unsigned ac_trace_size_place(uint64_t word) {
    return (unsigned)(word >> 48);
}
static inline uint64_t ac_trace_size_bytes(uint64_t word) {
    return word & 0xffffffffffffull;
}

/* Makes word 0 of a PLACE.  `context` distinguishes the living contexts of the process; its number may be reused
 * after GONE.  AC_TRACE_NOWHERE as device and context: not known. */
enum { AC_TRACE_NOWHERE = 0xffff };
static inline uint64_t ac_trace_place_word(unsigned number, unsigned device, unsigned context) {
    return ac_trace_word(AC_TRACE_PLACE,
                         (uint64_t)number << 32 | (uint64_t)device << 16 | context);
}

/* Stacks (key `stacks`).  A lane defines each stack, frame by frame, before its first use there.  Names of files
 * and texts come before the frames that use them.  All lanes use the numbers of sites.h.
 *
 * Word 0 of a FRAME: the stack, the index of the frame (0: innermost) and the number of frames.
 * Word 0 of a PIECE: a flag for texts, the number of the file or text, and the index of the piece.  The last
 * piece has a 0 byte.  The build ID of a file follows the 0 byte of its name and also ends with a 0 byte. */
static inline uint64_t ac_trace_frame_word(uint32_t stack, unsigned place, unsigned count) {
    return ac_trace_word(AC_TRACE_FRAME, (uint64_t)stack << 16 | (uint64_t)place << 8 | count);
}
static inline uint64_t ac_trace_piece_word(bool text, uint32_t number, unsigned place) {
    return ac_trace_word(AC_TRACE_PIECE, (uint64_t)text << 48 | (uint64_t)number << 16 | place);
}

typedef enum {
    AC_TRACE_CLOCK_NS = 1, /* ticks are nanoseconds of CLOCK_MONOTONIC, in coarse steps */
    AC_TRACE_CLOCK_TICKS   /* ticks of the processor's counter; two ac_trace_time_t give the rate */
} ac_trace_clock_t;

typedef enum {
    AC_TRACE_OPEN = 1, /* being written, or its process was killed */
    AC_TRACE_COMPLETE, /* the process ended normally */
    AC_TRACE_STOPPED   /* writing ended early: `stop_error` */
} ac_trace_state_t;

typedef struct {
    uint64_t ticks;
    uint64_t monotonic_ns; /* of the same moment */
} ac_trace_time_t;

typedef struct {
    uint32_t used; /* 0: the device was not used */
    int32_t ordinal;
    char name[96];
    unsigned char uuid[16];
    uint64_t total_memory; /* bytes */
} ac_trace_device_t;

typedef struct {
    uint64_t magic; /* written last */
    uint32_t version;
    uint32_t byte_order;  /* AC_TRACE_BYTE_ORDER, as the machine has it */
    uint32_t header_size; /* of this structure */
    uint32_t unit;        /* AC_TRACE_UNIT */
    uint32_t state;       /* ac_trace_state_t */
    int32_t stop_error;   /* errno value */
    int32_t pid, ppid;
    uint64_t opened_ns;        /* CLOCK_BOOTTIME at activation: a later start is a reused pid */
    int64_t start_time_ns;     /* CLOCK_REALTIME at `start` */
    uint32_t clock;            /* ac_trace_clock_t */
    uint32_t time_shift;       /* a stamp's time counts 1 << time_shift ticks */
    ac_trace_time_t start;     /* a base at or after this */
    ac_trace_time_t latest[2]; /* [latest_turn & 1]: a later moment, for the rate of the clock */
    uint32_t latest_turn;
    uint32_t driver_version;
    char host[256];
    char exe[1024];
    char argv[2048]; /* NUL-separated, ends with two NULs */
    char rank[32];
    char conf[4096];                            /* ACCEL_ALLOC_CONF as given */
    ac_trace_device_t device[AC_TRACE_DEVICES]; /* by ordinal; higher ones share the last */
} ac_trace_header_t;

_Static_assert(sizeof(ac_trace_header_t) <= AC_TRACE_UNIT, "the header is the first unit");

/* Types of chunks. */
#define AC_TRACE_FRONT 0x544e5246u /* the mapped chunk of a lane */
#define AC_TRACE_CHUNK 0x4b4e4843u /* a complete copy of a full front */

typedef struct {
    uint32_t magic;
    uint32_t lane;            /* from 0 */
    uint64_t ordinal;         /* of this chunk in its lane, from 0 */
    uint64_t sequence, ticks; /* the base */
    uint64_t thread;          /* number of the thread that began the chunk, from 1 */
    uint32_t tid;             /* its kernel thread id */
    uint32_t zero[5];
} ac_trace_chunk_t;

_Static_assert(sizeof(ac_trace_chunk_t) == 64, "events follow on a cache line");

#endif

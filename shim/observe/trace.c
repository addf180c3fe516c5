/* Lanes, chunks and events of the recorder; see trace.h, and trace_format.h for the format.
 *
 * A lane belongs to one thread from ac_trace_lane_take to _return.  The next thread that takes it continues in its
 * chunk.  Only its owner reads and writes it.
 *
 * The order of sequence numbers is right for this reason.  A free draws its number before the free is made, and an
 * allocation draws it after the allocation was made.  The allocator or driver synchronises the hand-over of an
 * address, so the first draw happens before the second.  A draw is a read-modify-write of one word.  The changes of
 * one word have a single order, which agrees with "happens before".
 *
 * If an allocation's event finds no room, the recording ends before the caller has the address.  The thread that
 * frees that address then finds `recording` false and writes no free.  Other lanes write only events of blocks with
 * allocations in the file. */
#include "observe/trace.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "observe/filter.h"
#include "observe/live.h"
#include "observe/log.h"
#include "observe/raw.h"
#include "observe/trace_file.h"
#include "observe/trace_int.h"
#include "lock.h"

/* Most words that one call writes: THREAD, BASE, PLACE, the event itself, and the final 0. */
enum { ROOM = 2 + 3 + 2 + AC_TRACE_MOST_WORDS + 1 };

/* Places by a hash of device, context and stream, WAYS of them to a row. */
enum { WAYS = 4, PLACE_ROWS = AC_TRACE_PLACES / WAYS };

typedef struct {
    uint64_t stream;
    uint64_t where; /* device and context, and DEFINED; 0: empty */
} place_t;
#define DEFINED ((uint64_t)1 << 32)

struct ac_trace_lane {
    uint64_t *at;   /* the next event, a 0; NULL: no front yet */
    uint64_t *full; /* beyond this there may be no room for a call's events */
    uint64_t base_sequence, base_ticks;
    place_t place;         /* the newest one used ... */
    unsigned place_number; /* ... and its number */
    bool announce;         /* the owner is new */
    uint32_t tid;
    uint64_t thread;
    ac_trace_chunk_t *front;
    struct ac_trace_lane *next;     /* spare ones */
    unsigned char turn[PLACE_ROWS]; /* of the next way to be overwritten */
    place_t places[AC_TRACE_PLACES];
    ac_trace_known_t known;
};

static _Atomic bool recording;
/* The next sequence number, which all threads draw.  It is alone on its cache line to avoid false sharing. */
static struct {
    _Alignas(64) _Atomic uint64_t next;
    char rest[56];
} sequence;

static _Atomic uint64_t file_end; /* the next unit */
static _Atomic uint32_t fronts;   /* lanes that have one */

/* Guards `spare`, and the header once it exists.  It may be taken while any other lock is held. */
static ac_mutex_t lock = AC_MUTEX(LEAF);
static ac_trace_lane_t *spare;

int ac_trace_open(const char *pattern, char *path, size_t size, int *other) {
    *other = 0;
    if (strcmp(pattern, "none") == 0)
        return 0;
    int failure = ac_trace_file_create(pattern, path, size, other);
    if (failure == 0) {
        atomic_store(&file_end, AC_TRACE_UNIT);
        atomic_store(&recording, true);
    }
    return failure;
}

/* --- lanes --- */

ac_trace_lane_t *ac_trace_lane_take(uint64_t thread) {
    if (!atomic_load_explicit(&recording, memory_order_acquire))
        return NULL;
    ac_lock(&lock);
    ac_trace_lane_t *lane = spare;
    if (lane)
        spare = lane->next;
    ac_unlock(&lock);
    if (!lane) {
        void *memory =
            mmap(NULL, sizeof *lane, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) {
            ac_log_once(AC_LOG_WARNING, "host memory is short: what some threads allocate is "
                                        "missing from the trace");
            return NULL;
        }
        lane = memory;
    }
    lane->thread = thread;
    lane->tid = (uint32_t)ac_raw_gettid();
    lane->announce = true;
    return lane;
}

void ac_trace_lane_return(ac_trace_lane_t *lane) {
    if (!lane)
        return;
    ac_lock(&lock);
    lane->next = spare;
    spare = lane;
    ac_unlock(&lock);
}

/* --- chunks --- */

/* Ends the recording; the file keeps its events.  Called under the lock. */
static void stop(int failure) {
    if (!atomic_exchange(&recording, false) || failure == ECHILD)
        return;
    ac_trace_header->stop_error = failure;
    ac_trace_header->state = AC_TRACE_STOPPED;
    if (failure == ESTALE)
        ac_log(AC_LOG_WARNING, "the trace %s was moved or removed: recording has ended",
               ac_trace_file_path());
    else if (failure == EPERM)
        ac_log(
            AC_LOG_WARNING,
            "the program has put its system calls behind a seccomp filter: recording to %s has "
            "ended",
            ac_trace_file_path());
    else
        ac_log(AC_LOG_WARNING,
               "no more room for the trace %s: %s; recording has ended, what was recorded "
               "before is whole",
               ac_trace_file_path(), strerror(failure));
}

/* Copies new devices from the live page to the header.  The page has each device before its first block.  Called
 * under the lock. */
static void note_devices(void) {
    uint64_t devices = __atomic_load_n(&ac_live->devices, __ATOMIC_ACQUIRE);
    for (unsigned i = 0; i < AC_TRACE_DEVICES && i < AC_LIVE_DEVICES; i++) {
        const ac_live_device_t *from = ac_live_device_at(ac_live, i);
        ac_trace_device_t *to = &ac_trace_header->device[i];
        if (to->used || !(devices >> i & 1))
            continue;
        to->ordinal = from->ordinal;
        memcpy(to->name, from->name, sizeof to->name);
        memcpy(to->uuid, from->uuid, sizeof to->uuid);
        to->total_memory = ac_live->total_memory[i];
        __atomic_store_n(&to->used, 1, __ATOMIC_RELEASE);
    }
}

static uint64_t *events_of(ac_trace_chunk_t *chunk) {
    return (uint64_t *)(void *)(chunk + 1);
}

/* Makes the front the next chunk.  Until the ordinal changes, readers ignore the front and use the copy of the
 * previous chunk.  From then on the front is a chunk without events. */
static void begin_front(ac_trace_lane_t *lane, uint64_t ordinal, uint64_t number,
                        uint64_t ticks) {
    ac_trace_chunk_t *front = lane->front;
    uint64_t *first = events_of(front);
    __atomic_store_n(first, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&front->sequence, number, __ATOMIC_RELAXED);
    __atomic_store_n(&front->ticks, ticks, __ATOMIC_RELAXED);
    __atomic_store_n(&front->thread, lane->thread, __ATOMIC_RELAXED);
    __atomic_store_n(&front->tid, lane->tid, __ATOMIC_RELAXED);
    __atomic_store_n(&front->ordinal, ordinal, __ATOMIC_RELEASE);
    lane->base_sequence = number;
    lane->base_ticks = ticks;
    lane->announce = false;
    lane->full = first + (AC_TRACE_UNIT - sizeof *front) / sizeof *first - ROOM;
    lane->at = first;
}

static int next_front(ac_trace_lane_t *lane, uint64_t number, uint64_t ticks) {
    uint64_t offset = atomic_fetch_add(&file_end, AC_TRACE_UNIT), ordinal = 0;
    int failure;
    if (lane->front) {
        failure = ac_trace_file_copy(offset, lane->front);
        ordinal = lane->front->ordinal + 1;
    } else {
        failure = ac_trace_file_front(offset, &lane->front);
    }
    if (failure)
        return failure;
    begin_front(lane, ordinal, number, ticks);
    /* A lane gets its number only with its front, so that threads without events take no number. */
    if (ordinal == 0)
        lane->front->lane = atomic_fetch_add(&fronts, 1);
    __atomic_store_n(&lane->front->magic, AC_TRACE_FRONT, __ATOMIC_RELEASE);
    return 0;
}

/* Cancellation is disabled and errno kept, because this runs in a thread of the program.  The check of the pid is for
 * a child made without fork handlers: it has a copy of this state and must not write. */
static __attribute__((noinline)) bool next_chunk(ac_trace_lane_t *lane, uint64_t number,
                                                 uint64_t ticks) {
    int saved = errno, cancel;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    int failure = ECHILD;
    if (ac_trace_header->pid == (int32_t)ac_raw_getpid())
        failure = ac_filter_now() ? EPERM : next_front(lane, number, ticks);
    ac_lock(&lock);
    if (failure) {
        stop(failure);
    } else {
        note_devices();
        ac_trace_file_time();
    }
    ac_unlock(&lock);
    pthread_setcancelstate(cancel, NULL);
    errno = saved;
    return failure == 0;
}

/* --- events --- */

/* The stores have this order because a kill may come between any two of them.  The word after the event is cleared
 * first, so that it ends the chunk.  The first word is stored last, because it makes the words an event. */
static inline void put2(ac_trace_lane_t *lane, uint64_t word, uint64_t second) {
    uint64_t *at = lane->at;
    __atomic_store_n(&at[2], 0, __ATOMIC_RELAXED);
    __atomic_store_n(&at[1], second, __ATOMIC_RELAXED);
    __atomic_store_n(&at[0], word, __ATOMIC_RELEASE);
    lane->at = at + 2;
}

static inline void put3(ac_trace_lane_t *lane, uint64_t word, uint64_t second, uint64_t third) {
    uint64_t *at = lane->at;
    __atomic_store_n(&at[3], 0, __ATOMIC_RELAXED);
    __atomic_store_n(&at[2], third, __ATOMIC_RELAXED);
    __atomic_store_n(&at[1], second, __ATOMIC_RELAXED);
    __atomic_store_n(&at[0], word, __ATOMIC_RELEASE);
    lane->at = at + 3;
}

typedef struct {
    bool good; /* there is room for the event */
    uint64_t stamp;
} stamp_t;

/* Writes the rare events that precede an event: a new owner, and a new base if the old one is too far back. */
static __attribute__((noinline)) void put_before(ac_trace_lane_t *lane, uint64_t number,
                                                 uint64_t ticks) {
    if (lane->announce)
        put2(lane, ac_trace_word(AC_TRACE_THREAD, lane->tid), lane->thread);
    lane->announce = false;
    put3(lane, ac_trace_word(AC_TRACE_BASE, 0), number, ticks);
    lane->base_sequence = number;
    lane->base_ticks = ticks;
}

/* Draws a number and makes room for an event.  If the counter ran back a little, because the thread changed its
 * processor, the elapsed time is 0. */
static inline stamp_t begin_event(ac_trace_lane_t *lane) {
    if (!atomic_load_explicit(&recording, memory_order_relaxed))
        return (stamp_t){false, 0};
    uint64_t number = atomic_fetch_add_explicit(&sequence.next, 1, memory_order_relaxed);
    uint64_t ticks = ac_trace_ticks();
    if (__builtin_expect(!lane->at || lane->at > lane->full, 0) &&
        !next_chunk(lane, number, ticks))
        return (stamp_t){false, 0};
    uint64_t since = ticks > lane->base_ticks ? ticks - lane->base_ticks : 0;
    uint64_t time = since >> ac_trace_shift, apart = number - lane->base_sequence;
    if (__builtin_expect(lane->announce || (time | apart) > UINT32_MAX, 0)) {
        put_before(lane, number, ticks);
        time = apart = 0;
    }
    return (stamp_t){true, time << 32 | apart};
}

static __attribute__((noinline)) unsigned find_place(ac_trace_lane_t *lane, place_t place) {
    uint64_t hash = (place.stream ^ place.where << 40 ^ place.where) * 0x9e3779b97f4a7c15u;
    unsigned row = (unsigned)(hash >> 32) % PLACE_ROWS, way = 0;
    place_t *ways = &lane->places[row * WAYS];
    while (way < WAYS && (ways[way].stream != place.stream || ways[way].where != place.where))
        way++;
    if (way == WAYS) {
        way = lane->turn[row]++ % WAYS;
        ways[way] = place;
        put2(lane,
             ac_trace_place_word(row * WAYS + way, (unsigned)(place.where >> 16 & 0xffff),
                                 (unsigned)(place.where & 0xffff)),
             place.stream);
    }
    lane->place = place;
    lane->place_number = row * WAYS + way;
    return lane->place_number;
}

static inline unsigned place_of(ac_trace_lane_t *lane, ac_trace_place_t at) {
    place_t place = {at.stream, DEFINED | (uint64_t)at.device << 16 | at.context};
    if (__builtin_expect(place.stream == lane->place.stream && place.where == lane->place.where,
                         1))
        return lane->place_number;
    return find_place(lane, place);
}

void ac_trace_write_alloc(ac_trace_lane_t *lane, unsigned kind, uint64_t address, uint64_t bytes,
                          ac_trace_place_t place) {
    stamp_t stamp = begin_event(lane);
    if (stamp.good) {
        unsigned number = place_of(lane, place);
        put3(lane, ac_trace_word(kind, address), stamp.stamp, ac_trace_size_word(number, bytes));
    }
}

void ac_trace_write_free(ac_trace_lane_t *lane, uint64_t address) {
    stamp_t stamp = begin_event(lane);
    if (stamp.good)
        put2(lane, ac_trace_word(AC_TRACE_FREE, address), stamp.stamp);
}

void ac_trace_write_free_on(ac_trace_lane_t *lane, uint64_t address, ac_trace_place_t place) {
    stamp_t stamp = begin_event(lane);
    if (stamp.good) {
        unsigned number = place_of(lane, place);
        put3(lane, ac_trace_word(AC_TRACE_FREE_ON, address), stamp.stamp,
             ac_trace_size_word(number, 0));
    }
}

void ac_trace_write_unfree(ac_trace_lane_t *lane) {
    stamp_t stamp = begin_event(lane);
    if (stamp.good)
        put2(lane, ac_trace_word(AC_TRACE_UNFREE, 0), stamp.stamp);
}

void ac_trace_write_at(ac_trace_lane_t *lane, unsigned kind, ac_trace_place_t place) {
    stamp_t stamp = begin_event(lane);
    if (stamp.good) {
        unsigned number = place_of(lane, place);
        put2(lane, ac_trace_word(kind, number), stamp.stamp);
    }
}

void ac_trace_write_event_sync(ac_trace_lane_t *lane, uint64_t event) {
    stamp_t stamp = begin_event(lane);
    if (stamp.good)
        put2(lane, ac_trace_word(AC_TRACE_SYNC_EVENT, event), stamp.stamp);
}

/* --- for definitions (trace_sites.c) --- */

bool ac_trace_has_room(ac_trace_lane_t *lane) {
    if (!atomic_load_explicit(&recording, memory_order_relaxed))
        return false;
    return (lane->at && lane->at <= lane->full) ||
           next_chunk(lane, atomic_load_explicit(&sequence.next, memory_order_relaxed),
                      ac_trace_ticks());
}

void ac_trace_put2(ac_trace_lane_t *lane, uint64_t word, uint64_t second) {
    put2(lane, word, second);
}

void ac_trace_put3(ac_trace_lane_t *lane, uint64_t word, uint64_t second, uint64_t third) {
    put3(lane, word, second, third);
}

ac_trace_known_t *ac_trace_known(ac_trace_lane_t *lane) {
    return &lane->known;
}

/* --- the end --- */

void ac_trace_close(void) {
    if (!ac_trace_header || ac_trace_header->pid != (int32_t)ac_raw_getpid())
        return;
    /* A permanently stopped thread may own the lock, so the exit waits for at most a second. */
    struct timespec limit = ac_raw_time(CLOCK_REALTIME);
    limit.tv_sec += 1;
    if (!ac_lock_until(&lock, &limit))
        return;
    ac_trace_file_time();
    if (atomic_exchange(&recording, false))
        ac_trace_header->state = AC_TRACE_COMPLETE;
    ac_unlock(&lock);
}

void ac_trace_fork_child(void) {
    atomic_store(&recording, false);
    lock = (ac_mutex_t)AC_MUTEX(LEAF);
    spare = NULL;
    ac_trace_file_fork_child();
}

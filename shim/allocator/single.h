/* The single-stream rule: while one stream does all the work of a context, the order of that
 * stream protects freed memory, and a free needs no fence.
 *
 * A free that finds work pending on the only stream in use (the *home*) is ready at once: whoever
 * gets the memory next can use it only through work, and work on the home comes later than what
 * is pending there.  Such a free *leans* on the home.  Before work goes to a second stream, that
 * stream is made to wait, on the device, for all that the home had been given (the *turn*); from
 * then on frees take fences, and each further stream waits for the turn before its first
 * work, until the turn is known to be over.
 *
 *   NONE     nothing is pending: the next stream becomes the home
 *   ONE      the home does all the work: frees lean on it
 *   LEAVING  another stream was seen, frees lean no more; the turn is being recorded
 *   JOINING  the turn is recorded: streams but the home wait for it before their first work
 *   MANY     nothing leans on anything: fences decide.  A synchronisation leads back to NONE
 *   NEVER    as MANY, for good
 *
 * A turn makes streams wait that the program meant to run side by side.  So a context that had
 * one is asked for patience: frees lean again only after a longer stretch of work on one stream
 * (of frees or requests with work in between: such is the clock, fence.h), four times as long
 * after each further turn.
 *
 * A turn that is recorded when the second stream comes covers all that the home was given, also a
 * kernel that waits for what the second stream will do: it would never end.  So turns are
 * recorded early as well, before the work that follows a free: the first, second, fourth, ... of
 * them that leans, as long as none was needed AC_SINGLE_EARLY times.  Whoever leaves takes the
 * early one if no free has leaned since.
 *
 * Not protected by a stream's order, so that the rule ends for good where they occur:
 * programmatic launches, other contexts that reach the memory, other processes and devices that
 * were given it, submissions that nobody sees.  Memory that was reused already is then waited for
 * by the host.
 *
 * What a free leans on is in the driver when it happens: work on the memory has returned from its
 * call, or its kernel ran.  So it is on the home, whoever is inside, and covered by every stamp
 * that is taken later (fence.h): by a turn whose record comes after the lean, and by `done`
 * once that reaches the clock that the free found.
 *
 * Two pairs must not miss each other.
 *   A free sets `leaned`, then finds `word` unchanged; who leaves changes `word`, then reads
 *   `leaned`.  All four are sequentially consistent.  A free that finds `leaned` set already only
 *   reads: it read a value that whoever leaves later has to find as well.
 *   A submission stores that it is inside, then reads `word`, or finds the clock as it was when
 * it last did; who makes a home of the next stream (NONE or LEAVING to ONE) wrote `word` and
 * moved the clock, then looks at who is inside.  The submission has no barrier but
 * ac_barrier_light; the other side, which is rare, has ac_barrier_heavy, and goes to MANY where
 * that fails.  Nobody else decides by who is inside: a turn is recorded for what was leaned on,
 * which no look at `word` can miss.
 *
 * Invariants (under the lock): `fence` is set in JOINING only; `leaned` was set before any free
 * that leaned saw its `word` a second time.  The lock is never held over a device call. */
#ifndef AC_SINGLE_H
#define AC_SINGLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct ac_fence_line ac_fence_line_t;

typedef enum {
    AC_SINGLE_NONE,
    AC_SINGLE_ONE,
    AC_SINGLE_LEAVING,
    AC_SINGLE_JOINING,
    AC_SINGLE_MANY,
    AC_SINGLE_NEVER
} ac_single_mode_t;

/* Streams are keys (device.h) of at most 48 bits; 0 is none. */
enum { AC_SINGLE_MODE_BITS = 3, AC_SINGLE_KEY_BITS = 48, AC_SINGLE_EARLY = 64 };

typedef struct {
    /* mode, home, and a count of changes in the bits above; read without the lock */
    _Atomic uint64_t word;
    _Atomic uint64_t leaned; /* the clock of the newest free that leaned on the home; 0: none */
    _Atomic uint64_t since;  /* the clock from which on they may */
    _Atomic bool due;        /* the next work for the home is preceded by an early turn */
    _Atomic uint64_t leans;  /* how many have since a synchronisation; some may be lost */
    pthread_mutex_t lock;    /* guards what follows and all changes of `word` */
    uint64_t patience;       /* epochs that a new home has to see alone before that */
    bool waited;             /* a stream was made to wait for this turn */
    void *fence;             /* the turn, an object of the device */
    uint64_t turn;           /* its number; grows */
    uint64_t clock;          /* `done` at this one: all that was leaned on is complete */
    void *early;             /* a turn that was recorded before anybody left */
    uint64_t early_clock;    /* covers what was leaned on up to this clock; 0: nothing */
    _Atomic unsigned early_left; /* how many more of them */
    _Atomic unsigned naming;     /* threads that record a turn: they name the home */
    pthread_cond_t named;        /* none any more */
    unsigned users;              /* threads that wait for `fence`, or make a stream wait */
    void *old;                   /* a fence that was dropped while it had users */
} ac_single_t;

/* What a thread remembers of the streams that it made wait.  Forgetting costs one more wait. */
enum { AC_SINGLE_JOINS = 16 };
typedef struct {
    struct {
        const void *line;
        uint64_t stream, turn;
    } slot[AC_SINGLE_JOINS];
} ac_joins_t;

/* Streams become homes only while this is set: the setting `single_stream`. */
extern _Atomic bool ac_single_wanted;

static inline ac_single_mode_t ac_single_mode(uint64_t word) {
    return (ac_single_mode_t)(word & ((1u << AC_SINGLE_MODE_BITS) - 1));
}

static inline uint64_t ac_single_home(uint64_t word) {
    return word >> AC_SINGLE_MODE_BITS & (((uint64_t)1 << AC_SINGLE_KEY_BITS) - 1);
}

/* Whether work for `stream` needs no more than this look. */
static inline bool ac_single_passes(const ac_single_t *single, uint64_t stream) {
    uint64_t word = atomic_load(&single->word);
    ac_single_mode_t mode = ac_single_mode(word);
    return mode >= AC_SINGLE_MANY || (mode == AC_SINGLE_ONE && ac_single_home(word) == stream &&
                                      !atomic_load_explicit(&single->due, memory_order_relaxed));
}

/* Before work goes to `stream`, inside and before the first mark (fence.h).  May make the stream
 * wait on the device; where that is impossible it blocks until the turn is over.  A stream that
 * captures takes no work: nothing is done.  `joins` is the calling thread's, NULL: none. */
void ac_single_pass(ac_fence_line_t *line, uint64_t stream, ac_joins_t *joins);

/* Whether the order of the only stream in use protects memory that is freed now; it then counts
 * as leaned on. */
bool ac_single_protects(ac_fence_line_t *line);

/* Before the program waits for `stream`: a stamp up to which it was given all of the context's
 * work, so that a wait that succeeds is worth a synchronisation (ac_fence_synced); 0: others were
 * given some. */
uint64_t ac_single_alone(const ac_fence_line_t *line, uint64_t stream);

/* Frees lean on no stream any more, and the turn is recorded where they did.  Called before
 * something that ends a stream's order, or makes recording impossible: a capture. */
void ac_single_leave(ac_fence_line_t *line);

/* The stream that work is about to go to may be held by it until the program does something else,
 * maybe on another stream: none may be made to wait for that.  The turn is recorded before it. */
void ac_single_hold(ac_fence_line_t *line);

/* The stream is about to be destroyed: its key may come back for another one, and from the return
 * on nobody names it. */
void ac_single_stream_gone(ac_fence_line_t *line, uint64_t stream);

/* The same, and the host waits until the turn is over: from the return on all free memory is out
 * of reach of the device or waits for a fence.  `forever`: the rule ends. */
void ac_single_settle(ac_fence_line_t *line, bool forever);

/* A synchronisation found the context idle: a stream may become the home. */
void ac_single_synced(ac_fence_line_t *line);

/* No stream becomes a home, and no free leans on one, between the two: around the beginning of a
 * capture. */
void ac_single_close(void);
void ac_single_open(void);

/* The context is gone: drop the turn. */
void ac_single_end(ac_fence_line_t *line);

/* Nonzero if an invariant does not hold. */
int ac_single_check(ac_fence_line_t *line);

#endif

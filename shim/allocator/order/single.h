/* The single-stream rule: while one stream does all the work of a context, the order of that
 * stream protects freed memory, and a free needs no fence.
 *
 * A free that finds work pending on the only stream in use (the *home*) is ready at once: the next
 * owner can use the memory only through work, and work on the home comes later than what is
 * pending there.  Such a free *leans* on the home.  The next work for the home is preceded by a
 * fence, recorded on the home: the *turn*.  From the first work on a second stream on frees take
 * fences.  If the program holds memory by then that was freed under the rule and handed out again,
 * that stream is made to wait, on the device, for the newest turn, and so is each further one
 * before its first work, until the turn is known to be over.  Else no stream waits: what is free
 * of such memory is kept from new owners until the turn is over (*quarantine*).
 *
 *   NONE     nothing is pending: the next stream becomes the home
 *   ONE      the home does all the work: frees lean on it
 *   LEAVING  frees lean no more, and what leaned last has no turn yet: it is being recorded, or
 *            could not be recorded
 *   JOINING  the turn is recorded: streams but the home wait for it before their first work
 *   MANY     nothing leans on anything: fences decide.  A synchronisation leads back to NONE.
 *            A quarantine leads from LEAVING and JOINING to here
 *   NEVER    as MANY, for good
 *
 * A turn makes streams wait that the program meant to run side by side.  So a context that had
 * one is asked for patience: frees lean again only after a longer stretch of work on one stream
 * (of frees or requests with work in between: such is the clock, fence.h), four times as long
 * after each further turn.
 *
 * What a turn covers.  All that leaned, and no work that was submitted to the home after the free:
 * such work may wait for what the program does next, on the host or on another stream, and a wait
 * for the turn would never end.  What the turn does cover, the driver's own free would have waited
 * for.  So the host may wait for it without a limit, too.
 *   A submission to the home that begins after a free leaned on it finds `leaned` above `covered`
 *   and records the turn first.  It looks where the clock moved since it last did; so the free
 *   ends the epoch after it has raised `leaned`, unless that was done after an earlier free that
 *   still has no turn (`due`).  `covered` is raised to the turn's stamp when the turn is in the
 *   ring, not before: all that submit until then record a turn of their own.  The first to come
 *   back with a turn for all that leaned is taken; those that come later may have been recorded
 *   behind work of others.
 *   The turn lies in the context's ring of fences.  While one stream does all the work, what is
 *   complete there is complete in the context: such a turn is a fence as any other, and what
 *   leaned is known to be complete when `done` reaches its stamp.  The ring drops other fences
 *   where it is full, not the newest turn.
 *
 * Quarantine.  Memory that leaned, and whose work is not known to be over, lies in free memory or
 * in blocks that were handed out since: *early* ones.  Where the program holds none of these, a
 * second stream cannot touch any of it before it is handed out again, and that can be put off.
 *   Which blocks are early.  The first free that leans on a home sets `early` to one above the
 * clock that it found, ends the epoch, and only then sets `due`: whichever free returns finds
 * `early` set, and the clock has reached it.  Memory that leaned is handed out after that return,
 * with a clock not below `early`; nor below the clock of its free, which is above `done` as long
 * as the work is not over.  So a block
 * with a clock below `early`, or not above `done`, is not early.  Others may be taken for early
 * that are not: those that were handed out after the first such free out of other memory.
 *   The walk (quarantine.c) looks at all blocks of the context in LEAVING or JOINING, when no free
 * leans any more, with the allocator's lock and all owners kept out of their caches.  A free that
 * leaned was decided inside a cache or under that lock, and is over when the walk has both.  So
 * it finds each piece of such memory once, in a block that is held or in free memory, and what it
 * takes out of use is all: none comes after it.  That is
 *     what caches keep, which goes to the free memory first;
 *     free blocks whose stamp (block.h) is not reached: it comes later than the last free there;
 *     slabs with free slots, where that of their segment is not.
 * They wait for a stamp that covers all that leaned, as blocks do for their fence; a block that
 * waits for a fence anyway, waits for its memory's former work as well.  What the walk cannot tell
 * counts as held: blocks freed in the order of a stream before their fence is reached, and those
 * that were handed on in such an order, because that stream may be a second one that has not come
 * here yet; blocks that graphs may use; pages that a thread maps or moves just then; a cache whose
 * owner does not come out.  While a stream captures there is no quarantine: what waits could not
 * be asked for.
 *   No home is made between the walk and what follows from it: who asked for it is inside.
 *
 * Not protected by a stream's order, so that the rule ends for good where they occur:
 * programmatic launches, other contexts that reach the memory, other processes and devices that
 * were given it, submissions that are not seen.  The host then waits for the turn; a programmatic
 * launch is made an ordinary one for as long as the turn is not over.
 *
 * What a free leans on is in the driver when it happens: work on the memory has returned from its
 * call, or its kernel ran.  So it is on the home, whichever thread is inside, and covered by every
 * stamp that is taken later (fence.h): by a turn whose stamp is not below the clock that the free
 * found, and by `done` once that reaches this clock.
 *
 * Two pairs must not miss each other.
 *   A free raises `leaned`, then finds `word` unchanged; a thread that leaves changes `word`, then
 *   reads `leaned`.  All four are sequentially consistent.  A free that finds `leaned` high enough
 *   only reads: it read a value that a thread which leaves later has to find as well.
 *   A submission stores that it is inside, then reads `word`, or finds the clock as it was when
 *   it last did; a thread that makes a home of the next stream (NONE or LEAVING to ONE) wrote
 *   `word` and moved the clock, then looks at which threads are inside.  The submission has no
 *   barrier but ac_barrier_light; the other side, which is rare, has ac_barrier_heavy, and goes to
 *   MANY where that fails.  Nothing else is decided by which threads are inside: a turn is recorded
 *   for what leaned, which no look at `word` can miss.
 * And for what a turn covers: `leaned` is raised before the epoch ends; a submission reads the
 * clock before it compares `leaned` with `covered`.
 *
 * Invariants (under the line's lock): in JOINING the fence with the clock `covered` is in the ring,
 * or `done` has reached it; `leaned` was raised before any free that leaned saw its `word` a second
 * time.  The lock is never held over a device call. */
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
enum { AC_SINGLE_MODE_BITS = 3, AC_SINGLE_KEY_BITS = 48 };

/* The lock is that of the line. */
typedef struct {
    /* mode, home, and a count of changes in the bits above; changed under the lock */
    _Atomic uint64_t word;
    _Atomic uint64_t leaned;  /* the clock of the newest free that leaned on the home */
    _Atomic uint64_t covered; /* the stamp of the newest turn; changed under the lock */
    _Atomic uint64_t due;     /* an epoch was ended after `leaned` had reached this clock */
    _Atomic uint64_t since;   /* the clock from which on frees may lean */
    uint64_t left;            /* in LEAVING: a stamp that covers all that leaned */
    uint64_t patience;        /* epochs that a new home has to see alone before that */
    _Atomic uint64_t early;   /* what leaned on this home is handed out from here on; 0: none */
    uint64_t turn;            /* counts those that streams have to wait for */
    bool waited;              /* a stream would have run beside this home */
    _Atomic unsigned naming;  /* threads that record a turn: they name the home */
    unsigned awaiting;        /* threads that wait for them; under the lock */
    pthread_cond_t named;     /* none any more */
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

/* Whether frees leaned that have no turn yet. */
static inline bool ac_single_due(const ac_single_t *single) {
    return atomic_load_explicit(&single->leaned, memory_order_acquire) >
           atomic_load_explicit(&single->covered, memory_order_acquire);
}

/* Whether work for `stream` needs no more than this look. */
static inline bool ac_single_passes(const ac_single_t *single, uint64_t stream) {
    uint64_t word = atomic_load(&single->word);
    ac_single_mode_t mode = ac_single_mode(word);
    return mode >= AC_SINGLE_MANY ||
           (mode == AC_SINGLE_ONE && ac_single_home(word) == stream && !ac_single_due(single));
}

/* Before work goes to `stream`, inside and before the first mark (fence.h).  Takes the locks of
 * the line's allocator.  May make the stream wait on the device; where that is impossible it
 * blocks until the turn is over.  A stream that captures takes no work: nothing is done.  `joins`
 * is the calling thread's, NULL: none. */
void ac_single_pass(ac_fence_line_t *line, uint64_t stream, ac_joins_t *joins);

/* Whether the order of the only stream in use protects memory that is freed now; it then counts
 * as leaned on. */
bool ac_single_protects(ac_fence_line_t *line);

/* Blocks with a lower clock are not early.  Any thread. */
uint64_t ac_single_early(const ac_fence_line_t *line);

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
 * on no call of ours names it. */
void ac_single_stream_gone(ac_fence_line_t *line, uint64_t stream);

/* As _leave, and the host waits until the turn is over: from the return on all free memory is out
 * of reach of the device or waits for a fence.  `forever`: the rule ends. */
void ac_single_settle(ac_fence_line_t *line, bool forever);

/* Work is about to come that keeps no stream's order.  True: the rule has ended for good, and no
 * memory relies on it.  False: the turn is not over; ask again later.  Does not wait for it. */
bool ac_single_unorder(ac_fence_line_t *line);

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

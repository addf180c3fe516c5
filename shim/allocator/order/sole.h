/* The single-stream rule: while one stream does all the work of a context, the order of that stream
 * protects freed memory, and a free needs no fence.
 *
 * A free that finds work pending on the only stream in use (the *sole stream*) may be ready at once: the
 * next owner can use the memory only through work, and later work on the sole stream runs after the
 * pending work.  Such a free *relies* on the sole stream.  Before the next work for the sole stream a
 * fence is recorded on it: the *join event*.  From the first work on a second stream on, frees take
 * fences.  If the program then holds memory that was freed under the rule and handed out again, the
 * second stream is made to wait, on the device, for the newest join event.  So is each further stream
 * before its first work, until the join event is known to be over.  If the program holds none, no stream
 * waits: free memory of this kind is kept from new owners until the join event is over (*quarantine*).
 *
 * When a free relies on order.  Each free that relies costs an event before the next work, while frees
 * that wait share a fence.  So a free waits, as it would with several streams, unless memory would be
 * short:
 *   - The frees that wait in the context would exceed the bound: AC_SOLE_BYTES, or 1/AC_SOLE_SHARE of
 *     the high-water mark if so much is reserved beyond it.  The bound is no more than the device or
 *     the limit has left.
 *   - A request found no free memory recently while memory waited that could have relied (`tight`).
 * The free itself decides.  It could rely later only if nothing was submitted since, which no block
 * tells.  Waiting is safe in every mode, so a rough count of the waiting bytes is enough.
 *
 *   NONE     nothing is pending: the next stream becomes the sole stream
 *   ONE      the sole stream does all the work: frees rely on it
 *   LEAVING  frees no longer rely, and the last ones have no join event yet: it is being recorded, or
 *            could not be recorded
 *   JOINING  the join event is recorded: streams but the sole stream wait for it before their first
 *            work
 *   MANY     nothing relies on anything: fences decide.  A synchronisation leads back to NONE.  A
 *            quarantine leads from LEAVING and JOINING to here
 *   NEVER    MANY, permanently
 *
 * A join event makes streams wait that the program meant to run side by side.  So a context that had one
 * backs off: frees rely on order again only after a longer stretch of work on one stream, four times as
 * long after each further join event.  The stretch is measured by the clock (fence.h).
 *
 * What a join event covers: all that relied on order, and no work that was submitted to the sole stream
 * after the free.  Later work may wait for the program's next step, on the host or on another stream, and
 * a wait for the join event would never end.  The driver's own free would have waited for all that the
 * join event covers.  So the host may wait for it without a limit, too.
 *   A submission to the sole stream that begins after a free relied on it finds `relied` above
 *   `covered` and records the join event first.  It looks only if the clock moved since its last look.
 *   So the free ends the epoch after it has raised `relied`, unless an earlier free that still has no
 *   join event did so (`due`).  `covered` is raised to the join event's stamp when the join event is
 *   in the ring, not before: submissions until then record join events of their own.  The first one to
 *   come back with a join event for all that relied on order is taken; later ones may have been
 *   recorded behind work of others.
 *   The join event lies in the context's ring of fences.  While one stream does all the work, a
 *   fence of that stream is a fence of the context.  So memory that relied is known to be ready when
 *   `done` reaches the join event's stamp.  A full ring drops other fences, not the newest join event.
 *
 * Quarantine.  Memory that relied on order, and that work may still use, lies in free memory or in blocks
 * that were handed out since: *early* blocks.  If the program holds none of these, a second stream cannot
 * touch any of that memory before it is handed out again, and the allocator can put that off.
 *   Which blocks are early.  The first free that relies on a sole stream sets `early` to one above the
 *   clock that it found, ends the epoch, and only then sets `due`.  So every free that returns finds
 *   `early` set, and the clock has reached it.  Memory that relied on order is handed out after that
 *   return, with a clock not below `early`; nor below the clock of its free, which is above `done`
 *   while the work is not over.  So a block with a clock below `early`, or not above `done`, is not
 *   early.  A block that was handed out from other memory after the first free that relied may be
 *   taken for early.
 *   The walk (quarantine.c) looks at all blocks of the context in LEAVING or JOINING, when no free
 *   relies on order any more, with the allocator's lock and all owners kept out of their caches.  A
 *   free that relied was decided inside a cache or under that lock, and is over when the walk has
 *   both.  So the walk finds each piece of this memory once, in a block that is held or in free
 *   memory, and none comes after it.  It takes out of use
 *     blocks that caches keep, which go to the free memory first;
 *     free blocks with a stamp (block.h) that is not reached: it comes later than the last free there;
 *     slabs with free slots, if the stamp of their segment is not reached.
 *   They wait for a stamp that covers all that relied on order, as blocks wait for their fence.  A block
 *   that waits for a fence anyway waits for its memory's former work as well.  The walk counts the
 *   blocks that it cannot judge as held: blocks freed in the order of a stream before their fence is
 *   reached, and blocks handed on in that order, because that stream may be a second one that has not
 *   come here yet; blocks that graphs may use; pages that a thread is mapping or moving; a cache with
 *   an owner that does not come out.  While a stream captures there is no quarantine: no fence could
 *   tell when the wait ends.
 *   No sole stream is made between the walk and its effect: the thread that asked for it is inside.
 *
 * Some work is not protected by a stream's order, so the rule ends permanently when it occurs:
 * programmatic launches, other contexts that reach the memory, other processes and devices that were
 * given it, submissions that no hook sees.  The host then waits for the join event.  A programmatic
 * launch is made an ordinary one while the join event is not over.
 *
 * The work on which a free relies is in the driver when the free happens: its call has returned, or its
 * kernel ran.  So it is on the sole stream, whichever thread is inside.  Every later stamp covers it
 * (fence.h): a join event with a stamp not below the clock that the free found, and `done` once that
 * reaches this clock.
 *
 * Two pairs must not miss each other.
 *   A free raises `relied`, then finds `word` unchanged; a thread that leaves changes `word`, then
 *   reads `relied`.  All four are sequentially consistent.  A free that finds `relied` high enough
 *   only reads: a thread that leaves later has to find the value that it read, too.
 *   A submission stores that it is inside, then reads `word`, or finds the clock as it was at its last
 *   look.  A thread that makes the next stream a sole stream (NONE or LEAVING to ONE) wrote `word` and
 *   moved the clock, then looks for threads that are inside.  The submission has no barrier but
 *   ac_barrier_light.  The other side is rare: it has ac_barrier_heavy, and goes to MANY if that fails.
 *   Nothing else is decided by which threads are inside: a join event is recorded for all that relied
 *   on order, which no look at `word` can miss.
 * For the cover of a join event, `relied` is raised before the epoch ends, and a submission reads the
 * clock before it compares `relied` with `covered`.
 *
 * Invariants (under the timeline's lock): in JOINING the fence with the clock `covered` is in the ring,
 * or `done` has reached it; `relied` was raised before any free that relied on order saw its `word` a
 * second time.  The lock is never held over a device call. */
#ifndef AC_SOLE_H
#define AC_SOLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "allocator/policy.h"
#include "lock.h"

typedef struct ac_timeline ac_timeline_t;

typedef enum {
    AC_SOLE_NONE,
    AC_SOLE_ONE,
    AC_SOLE_LEAVING,
    AC_SOLE_JOINING,
    AC_SOLE_MANY,
    AC_SOLE_NEVER
} ac_sole_mode_t;

/* Streams are keys (device.h) of at most 48 bits; 0 is none. */
enum { AC_SOLE_MODE_BITS = 3, AC_SOLE_KEY_BITS = 48 };

/* The state of the rule in one context.  The timeline's lock guards the plain members. */
typedef struct {
    /* mode, sole, and a count of changes in the bits above; changed under the lock */
    _Atomic uint64_t word;
    _Atomic uint64_t relied;  /* the clock of the newest free that relied on the sole stream */
    _Atomic uint64_t covered; /* the stamp of the newest join event; changed under the lock */
    _Atomic uint64_t due;     /* an epoch was ended after `relied` had reached this clock */
    _Atomic uint64_t since;   /* the clock from which on frees may rely on order */
    _Atomic uint64_t bound;   /* bytes of frees that may wait rather than rely on order */
    _Atomic uint64_t tight;   /* until this clock frees rely on order whatever the bound */
    uint64_t left;            /* in LEAVING: a stamp that covers all that relied on order */
    uint64_t backoff;         /* epochs that a new sole stream has to see alone before that */
    _Atomic uint64_t
        early;     /* from this clock on, memory that relied on this sole stream may be handed out; 0: none */
    uint64_t join; /* number of join events that streams had to wait for */
    bool waited;   /* a stream could have run in parallel to this sole stream */
    _Atomic unsigned naming; /* threads that record a join event: they name the sole stream */
    unsigned awaiting;       /* threads that wait for them; under the lock */
    ac_cond_t named;         /* none any more */
} ac_sole_t;

/* The streams that a thread made wait, as far as it remembers.  Forgetting one costs one more wait. */
enum { AC_SOLE_JOINS = 16 };
typedef struct {
    struct {
        const void *timeline;
        uint64_t stream, join;
    } slot[AC_SOLE_JOINS];
} ac_joins_t;

/* Streams become sole streams only while this is set: the setting `single_stream`. */
extern _Atomic bool ac_sole_wanted;

/* Set by tests: every bound is 0, so that each free relies on order if it may. */
extern _Atomic bool ac_sole_eager;

static inline ac_sole_mode_t ac_sole_mode(uint64_t word) {
    return (ac_sole_mode_t)(word & ((1u << AC_SOLE_MODE_BITS) - 1));
}

static inline uint64_t ac_sole_stream(uint64_t word) {
    return word >> AC_SOLE_MODE_BITS & (((uint64_t)1 << AC_SOLE_KEY_BITS) - 1);
}

/* Returns true if frees relied on order that have no join event yet. */
static inline bool ac_sole_due(const ac_sole_t *single) {
    return atomic_load_explicit(&single->relied, memory_order_acquire) >
           atomic_load_explicit(&single->covered, memory_order_acquire);
}

/* Returns true if work for `stream` needs no more than this look. */
static inline bool ac_sole_passes(const ac_sole_t *single, uint64_t stream) {
    uint64_t word = atomic_load(&single->word);
    ac_sole_mode_t mode = ac_sole_mode(word);
    return mode >= AC_SOLE_MANY ||
           (mode == AC_SOLE_ONE && ac_sole_stream(word) == stream && !ac_sole_due(single));
}

/* Called before work goes to `stream`, inside and before the first mark (fence.h).  Takes the locks of
 * the timeline's allocator.  May make the stream wait on the device; if that is impossible, blocks until
 * the join event is over.  Does nothing for a stream that captures.  `joins` belongs to the calling
 * thread; NULL: none. */
void ac_sole_pass(ac_timeline_t *timeline, uint64_t stream, ac_joins_t *joins);

/* Returns true if the order of the only stream in use protects memory that is freed now; the free then
 * relies on it. */
bool ac_sole_protects(ac_timeline_t *timeline);

/* Sets the context's bound.  All blocks of the allocator had at most `live` bytes at a time, of `reserved`
 * bytes.  The device and the limit have `left` bytes. */
void ac_sole_set_bound(ac_timeline_t *timeline, uint64_t live, uint64_t reserved, uint64_t left);

/* While one stream does all the work: returns true if a free of `bytes` is to wait for a fence nevertheless.
 * Ends the epoch if half of the bound waits, which is worth a fence. */
bool ac_sole_waits(ac_timeline_t *timeline, uint64_t bytes);

/* Returns true if one stream does all the work, or nothing is pending. */
bool ac_sole_may_begin(const ac_timeline_t *timeline);

/* Returns true if memory waits that could have relied on order: a request that lacks it grows and does not
 * wait. */
bool ac_sole_lacks(const ac_timeline_t *timeline);

/* Called when a request finds no free memory.  If ac_sole_lacks, frees rely for a while, whatever the bound. */
void ac_sole_lacked(ac_timeline_t *timeline);

/* Returns the clock below which a block that was handed out is not early.  Any thread. */
uint64_t ac_sole_early(const ac_timeline_t *timeline);

/* Called before the program waits for `stream`.  Returns a stamp up to which that stream was given all of
 * the context's work: if the wait succeeds, it counts as a synchronisation (ac_fence_synced).  Returns 0
 * if other streams were given work. */
uint64_t ac_sole_alone(const ac_timeline_t *timeline, uint64_t stream);

/* Ends reliance on the sole stream, and records the join event if frees relied on it.  Called before an
 * event that ends a stream's order, or that makes recording impossible: a capture. */
void ac_sole_leave(ac_timeline_t *timeline);

/* Called before work that the program may hold back on its stream until it does something else, maybe on
 * another stream.  Records the join event first: no stream may be made to wait for that work. */
void ac_sole_hold(ac_timeline_t *timeline);

/* Called before the stream is destroyed: its key may come back for another stream, and after the return
 * no call of ours names it. */
void ac_sole_stream_gone(ac_timeline_t *timeline, uint64_t stream);

/* Does what ac_sole_leave does, and waits until the join event is over.  On return, all free memory is
 * out of reach of the device or waits for a fence.  `forever`: the rule ends. */
void ac_sole_settle(ac_timeline_t *timeline, bool forever);

/* Called before work that keeps no stream's order.  Returns true if the rule has ended permanently and no
 * memory relies on it; false if the join event is not over, and the caller has to ask again later.  Does
 * not wait for it. */
bool ac_sole_unorder(ac_timeline_t *timeline);

/* Lets a stream become the sole stream again, after a synchronisation found the context idle. */
void ac_sole_synced(ac_timeline_t *timeline);

/* Around the beginning of a capture: no stream becomes a sole stream, and no free relies on one. */
void ac_sole_close(void);
void ac_sole_open(void);

/* Prepares the timeline, after its context has gone, for another context. */
void ac_sole_begin(ac_timeline_t *timeline);

/* Drops the join event after the context has gone. */
void ac_sole_end(ac_timeline_t *timeline);

/* Returns nonzero if an invariant does not hold. */
int ac_sole_check(ac_timeline_t *timeline);

#endif

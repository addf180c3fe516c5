/* The stream-ordered part of the allocator (ordered.c, edges.c): requests and frees that name a stream,
 * and the order of streams as far as the program's own calls prove it (order.h).
 *
 * A block that was freed in the order of a stream is pending as any freed block is, and becomes free
 * memory when its fence is reached.  Before that it may serve
 *   - a request of the same stream, at once;
 *   - a request of a stream that is known to come after the free;
 *   - any request that names a stream, if the alternative is to grow past the budget or the limit:
 *     the allocator then makes one stream wait for the other;
 *   - any request, once the host knows that the free's place in its stream is complete.
 * A free and a request put nothing into the stream, while the driver's would.  The legacy default stream
 * and streams that synchronise with it wait for each other's work without being told to, but only for
 * work that is in a stream: work that is ordered before the free may not be before a synchronisation of
 * the stream, or before work of a third stream.  If such a stream takes memory back, and other work may
 * have come before the free in this way, the allocator first puts something into the stream.
 *
 * All of this is off in an arena with work that does not follow stream order (ac_arena_unordered), or
 * once work may go to streams unseen.
 *
 * All functions are thread-safe and take the allocator's lock themselves. */
#ifndef AC_STREAMS_H
#define AC_STREAMS_H

#include "allocator/space/block.h"
#include "allocator/order/order.h"

/* The legacy default stream's key. */
enum { AC_STREAM_LEGACY = 1 };

/* Set by the first request or free that names a stream: no edge has any use before.  Also set if each
 * submission has to be looked at for another reason (green contexts). */
extern AC_HIDDEN _Atomic bool ac_streams_tracked;

/* Returns true if it is known whether a stream on which memory was freed is independent, which means that it
 * waits for no other stream without being told to.  ac_arena_stream_is notes the answer. */
bool ac_arena_stream_asked(ac_arena_t *arena, ac_stream_t stream);
void ac_arena_stream_is(ac_arena_t *arena, ac_stream_t stream, bool independent);

/* Declares that work of this arena's context does not follow the order of its streams any more; call it
 * before that work.  No memory is handed on by stream order from now on.  With `wait` it waits for half a
 * second at most until earlier handouts are over.  Returns false if they are not: this work has to keep
 * to the order, and the next call asks again. */
bool ac_arena_unordered(ac_arena_t *arena, bool wait);

/* Calls ac_arena_unordered for all arenas, with `wait`. */
void ac_streams_unordered(void);

/* Declares that work may go where no hook sees it (ac_fence_unseen), and ends handing on by the order of
 * streams, whatever events prove.  This is the one function for anything unseen: a way into the driver, a
 * submission, a context. */
void ac_streams_unseen(void);

/* Notes that something was put into a stream of the arena's context, after it happened: the legacy
 * default stream, or another. */
void ac_arena_submitted(ac_arena_t *arena, bool legacy);

/* Forgets the stream, which is about to be destroyed, or whose handle may stand for another one.  Waits
 * until no call of ours uses its handle. */
void ac_arena_stream_gone(ac_arena_t *arena, ac_stream_t stream);

/* The proof that a call under way would bring. */
typedef struct {
    ac_arena_t *arena; /* NULL: nothing */
    ac_order_mark_t mark;
} ac_edge_t;

/* Around a record of `event` on a stream of the arena's context.  `good`: it succeeded, and was
 * not captured. */
void ac_edge_record_begin(ac_edge_t *edge, ac_arena_t *arena, uint64_t event, ac_stream_t stream);
void ac_edge_record_end(const ac_edge_t *edge, bool good);

/* Called before a wait for `event` (in `arena`; NULL: in any) or for the end of `stream`: notes the work
 * that was put into the stream. */
void ac_edge_of_event(ac_edge_t *edge, ac_arena_t *arena, uint64_t event);
void ac_edge_of_stream(ac_edge_t *edge, ac_arena_t *arena, ac_stream_t stream);

/* Called after the wait succeeded.  _joined: `stream` comes after that work.  _completed: the host saw it
 * complete. */
void ac_edge_joined(const ac_edge_t *edge, ac_stream_t stream);
void ac_edge_completed(const ac_edge_t *edge);

/* Forgets the event: it is about to be destroyed, or was recorded in a way that is not followed. */
void ac_event_forget(uint64_t event);

/* Notes that the event may be recorded unseen from now on, until _trust, before it is destroyed.  Returns
 * true if that was not known before. */
bool ac_event_distrust(uint64_t event);
bool ac_event_trust(uint64_t event); /* true if it was distrusted */

#endif

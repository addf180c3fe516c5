/* Finds out which graphs may still use memory that was freed during a capture.
 *
 * Captures that overlap in time form a *capture session*.  Memory that is freed meanwhile
 * waits for the session (allocator/order/capture.h).  A *link* says that a holder keeps a
 * session.  Holders are a graph that was captured in it and everything made from that graph:
 * executable graphs, clones, graphs with it as a child.  If a session is over and has no link,
 * no graph of it can be launched any more: its memory is released.
 *
 * If the library cannot follow a graph, the memory stays until the context ends, and is
 * counted.  This happens to links that the table has no room for.  It happens to everything
 * once the program has a graph function that no table knows, or the graph inside a node
 * (`unseen`).
 *
 * Invariants (ac_graphs_check): links name sessions that began; no two links are alike; no
 * session keeps itself; only the open session has no link.
 *
 * All functions are thread-safe.  They take a lock of their own, then allocator locks, and
 * make no driver call.  If no capture ever held memory, each function is one load. */
#ifndef AC_GRAPHS_H
#define AC_GRAPHS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum {
    AC_HOLDER_NONE,
    AC_HOLDER_GRAPH,
    AC_HOLDER_EXEC,
    AC_HOLDER_SESSION, /* its captures launched an executable graph and so contain it */
    AC_HOLDER_LEAVING, /* it is being destroyed */
    AC_HOLDER_EVER     /* cannot be followed: keeps its sessions until the end */
} ac_holder_kind_t;

typedef struct {
    ac_holder_kind_t kind;
    uint64_t name; /* the handle, or a number that the library chose */
} ac_holder_t;

#define AC_GRAPH(handle) ((ac_holder_t){AC_HOLDER_GRAPH, (uint64_t)(uintptr_t)(handle)})
#define AC_EXEC(handle)  ((ac_holder_t){AC_HOLDER_EXEC, (uint64_t)(uintptr_t)(handle)})

/* Functions that act on the memory of sessions.  They are called without the allocators'
 * locks. */
typedef struct {
    void (*begin)(uint64_t session);
    void (*end)(void);
    bool (*holds)(uint64_t session); /* returns true if the session holds memory */
    void (*release)(uint64_t session);
    bool (*unseen)(void); /* returns true if the program may make graphs from others unseen */
    void (*lost)(void);   /* called when a session's graphs cannot be followed */
} ac_graphs_memory_t;

void ac_graphs_setup(const ac_graphs_memory_t *memory);

/* Called around every capture: before the driver's call that begins it, and when it is over or
 * did not begin.  `graph`: the graph that came of it (AC_HOLDER_NONE: none). */
void ac_graphs_capture_began(void);
void ac_graphs_capture_ended(ac_holder_t graph);

/* Makes `to` keep all sessions that `from` keeps.  `instead`: `to` then keeps nothing else. */
void ac_graphs_inherit(ac_holder_t to, ac_holder_t from, bool instead);

/* Notes that `inner` is part of `outer` and is destroyed with it: work captured into it
 * belongs to `outer`. */
void ac_graphs_inside(ac_holder_t inner, ac_holder_t outer);

/* Called when the driver has just made this graph: it is part of no other, whatever its handle
 * meant before. */
void ac_graphs_fresh(ac_holder_t graph);

/* Called when the executable graph was launched into a capture: it is now part of the graph
 * captured there. */
void ac_graphs_launched(ac_holder_t exec);

/* Called before the driver destroys `holder`.  Its links no longer use its name, because a new
 * graph may get the same handle.  The caller passes the result to _left, with the driver's
 * answer. */
ac_holder_t ac_graphs_leaving(ac_holder_t holder);
void ac_graphs_left(ac_holder_t leaving, ac_holder_t holder, bool destroyed);

/* Called after contexts ended, and their memory with them: forgets sessions that hold nothing. */
void ac_graphs_prune(void);

/* Returns nonzero if an invariant does not hold. */
int ac_graphs_check(void);

#endif

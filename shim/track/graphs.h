/* Which graphs may still use what was freed during a capture.
 *
 * Captures that overlap in time form a *capture session*; what is freed meanwhile waits for it
 * (allocator/order/capture.h).  A *link* says that a holder keeps a session: a graph that was
 * captured in it, and whatever came of that graph: executable graphs, clones, graphs that took it
 * in as a child.  A session that is over and that no link names any more has nothing left to be
 * launched: its memory is released.
 *
 * What cannot be followed keeps its memory until the context ends, and is counted: links beyond
 * the table's size, and everything once the program got hold of a function for graphs that no
 * table knows or of the graph inside a node (`unseen`).
 *
 * Invariants (ac_graphs_check): links name sessions that began; no two links are alike; no
 * session keeps itself; only the open session is named by none.
 *
 * All functions are thread-safe; they take a lock of their own, then those of allocators, and
 * make no driver call.  Where no capture ever held memory each is one load. */
#ifndef AC_GRAPHS_H
#define AC_GRAPHS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum {
    AC_HOLDER_NONE,
    AC_HOLDER_GRAPH,
    AC_HOLDER_EXEC,
    AC_HOLDER_SESSION, /* its captures took in an executable graph by launching it */
    AC_HOLDER_LEAVING, /* being destroyed */
    AC_HOLDER_EVER     /* cannot be followed: keeps what it names until the end */
} ac_holder_kind_t;

typedef struct {
    ac_holder_kind_t kind;
    uint64_t name; /* the handle, or a number of ours */
} ac_holder_t;

#define AC_GRAPH(handle) ((ac_holder_t){AC_HOLDER_GRAPH, (uint64_t)(uintptr_t)(handle)})
#define AC_EXEC(handle)  ((ac_holder_t){AC_HOLDER_EXEC, (uint64_t)(uintptr_t)(handle)})

/* What the links are for; all called without the allocators' locks. */
typedef struct {
    void (*begin)(uint64_t session);
    void (*end)(void);
    bool (*holds)(uint64_t session); /* anything at all? */
    void (*release)(uint64_t session);
    bool (*unseen)(void); /* graphs may come of others without our seeing it */
    void (*lost)(void);   /* a session's graphs cannot be followed */
} ac_graphs_memory_t;

void ac_graphs_setup(const ac_graphs_memory_t *memory);

/* Around every capture: before the driver's call that begins it, and when it is over or did not
 * begin after all, with the graph it gave (AC_HOLDER_NONE: none). */
void ac_graphs_capture_began(void);
void ac_graphs_capture_ended(ac_holder_t graph);

/* All that `from` keeps, `to` keeps as well; with `instead` nothing else any more. */
void ac_graphs_inherit(ac_holder_t to, ac_holder_t from, bool instead);

/* `inner` is part of `outer` and goes with it: what is captured into it belongs to `outer`. */
void ac_graphs_inside(ac_holder_t inner, ac_holder_t outer);

/* The driver made this graph just now: it is part of no other, whatever its handle once was. */
void ac_graphs_fresh(ac_holder_t graph);

/* The executable graph was launched into a capture, and so became part of what comes of it. */
void ac_graphs_launched(ac_holder_t exec);

/* The driver is about to destroy `holder`: its links no longer go by its name, which may come
 * back for another.  Returns what to give to _left, with the driver's answer. */
ac_holder_t ac_graphs_leaving(ac_holder_t holder);
void ac_graphs_left(ac_holder_t leaving, ac_holder_t holder, bool destroyed);

/* Contexts went, and their memory with them: forget sessions that hold nothing. */
void ac_graphs_prune(void);

/* Nonzero if an invariant does not hold. */
int ac_graphs_check(void);

#endif

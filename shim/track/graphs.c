/* Sessions and links (graphs.h).  The table is searched from end to end.  It is empty in
 * programs that free nothing while they capture; in others it has two entries for each graph. */
#include "track/graphs.h"

#include <pthread.h>
#include <stdatomic.h>

#include "lock.h"
#include "failpoint.h"

enum { LINKS = 4096, INNER = 256 };

typedef struct {
    ac_holder_t holder;
    uint64_t session;
} ac_link_t;

static ac_mutex_t lock = AC_MUTEX(GRAPHS);
static ac_graphs_memory_t memory;
static ac_link_t links[LINKS];
static _Atomic unsigned link_count;
static struct { ac_holder_t inner, outer; } inners[INNER]; /* graphs that are part of others */
static _Atomic unsigned inner_count;
static _Atomic unsigned capturing; /* number of captures of the open session */
static uint64_t session;           /* number of the newest session */
static bool open_lost;             /* the open one cannot be followed */
static uint64_t numbers;           /* numbers of leaving holders */
static bool inners_lost;           /* more than the table has room for */

void ac_graphs_setup(const ac_graphs_memory_t *with) {
    memory = *with;
}

static bool same(ac_holder_t a, ac_holder_t b) {
    return a.kind == b.kind && a.name == b.name;
}

static bool idle(void) {
    return atomic_load_explicit(&link_count, memory_order_relaxed) == 0;
}

static bool is_open(uint64_t which) {
    return capturing && which == session;
}

/* Returns the outermost graph that contains `holder`. */
static ac_holder_t outermost(ac_holder_t holder) {
    for (unsigned depth = 0; depth < INNER; depth++) {
        unsigned i = 0;
        while (i < inner_count && !same(inners[i].inner, holder))
            i++;
        if (i == inner_count)
            break;
        holder = inners[i].outer;
    }
    return holder;
}

static bool named(uint64_t which) {
    for (unsigned i = 0; i < link_count; i++)
        if (links[i].session == which)
            return true;
    return false;
}

static void unlink_at(unsigned i) {
    links[i] = links[--link_count];
}

static bool linked(ac_holder_t holder, uint64_t which) {
    for (unsigned i = 0; i < link_count; i++)
        if (links[i].session == which && same(links[i].holder, holder))
            return true;
    return false;
}

/* Makes `to` keep what `from` kept. */
static void pass_on(ac_holder_t from, ac_holder_t to) {
    for (unsigned i = link_count; i-- > 0;) {
        if (!same(links[i].holder, from))
            continue;
        if (linked(to, links[i].session))
            unlink_at(i);
        else
            links[i].holder = to;
    }
}

static ac_holder_t as_holder(uint64_t which) {
    return (ac_holder_t){AC_HOLDER_SESSION, which};
}

static const ac_holder_t for_ever = {AC_HOLDER_EVER, 0};

/* Stops following the session: its memory stays until the context ends.  Removes its links,
 * and makes the sessions that it keeps permanent. */
static void lose(uint64_t which) {
    for (unsigned i = link_count; i-- > 0;)
        if (links[i].session == which)
            unlink_at(i);
    pass_on(as_holder(which), for_ever);
    if (is_open(which))
        open_lost = true;
    memory.lost();
}

/* Removes links of a session that holds no memory and keeps no other: they serve no purpose. */
static bool forget_empty(uint64_t which) {
    if (is_open(which) || memory.holds(which))
        return false;
    for (unsigned i = 0; i < link_count; i++)
        if (same(links[i].holder, as_holder(which)))
            return false;
    for (unsigned i = link_count; i-- > 0;)
        if (links[i].session == which)
            unlink_at(i);
    return true;
}

static void prune(void) {
    for (unsigned i = 0; i < link_count;)
        i += !forget_empty(links[i].session); /* links before name other sessions and stay */
}

static void link_up(ac_holder_t holder, uint64_t which) {
    if (is_open(which) && open_lost)
        return;
    if (linked(holder, which) || same(holder, as_holder(which)))
        return; /* a session that kept itself would never end */
    if (link_count == LINKS)
        prune();
    if (link_count == LINKS)
        lose(which);
    else
        links[link_count++] = (ac_link_t){holder, which};
}

static void inherit(ac_holder_t to, ac_holder_t from) {
    uint64_t done = 0;
    for (;;) { /* by number, not by place: adding a link may move or remove links */
        uint64_t next = UINT64_MAX;
        for (unsigned i = 0; i < link_count; i++)
            if (same(links[i].holder, from) && links[i].session > done && links[i].session < next)
                next = links[i].session;
        if (next == UINT64_MAX)
            return;
        link_up(to, next);
        done = next;
    }
}

/* Removes one link of a leaving holder.  Returns the session if this was its last link, else
 * 0.  The sessions that it kept then leave with it.  *more: links remain. */
static uint64_t take_one(ac_holder_t leaving, bool *more) {
    unsigned i = 0;
    while (i < link_count && !same(links[i].holder, leaving))
        i++;
    *more = i < link_count;
    if (!*more)
        return 0;
    uint64_t which = links[i].session;
    unlink_at(i);
    if (named(which) || is_open(which))
        return 0;
    if (inners_lost || memory.unseen()) {
        lose(which);
        return 0;
    }
    pass_on(as_holder(which), leaving);
    return which;
}

static void release_all(ac_holder_t leaving) {
    bool more = true;
    while (more) {
        ac_lock(&lock);
        uint64_t which = take_one(leaving, &more);
        ac_unlock(&lock);
        if (which)
            memory.release(which);
    }
}

static ac_holder_t new_leaving(void) {
    return (ac_holder_t){AC_HOLDER_LEAVING, ++numbers};
}

void ac_graphs_capture_began(void) {
    ac_lock(&lock);
    if (capturing++ == 0) {
        open_lost = false;
        memory.begin(++session);
    }
    ac_unlock(&lock);
}

void ac_graphs_capture_ended(ac_holder_t graph) {
    ac_lock(&lock);
    if (graph.kind)
        link_up(outermost(graph), session);
    uint64_t ended = --capturing == 0 ? session : 0;
    ac_holder_t leaving = new_leaving();
    bool barren = false; /* no graph came of it */
    if (ended) {
        memory.end();
        barren = !open_lost && !named(ended);
        if (!barren && !open_lost)
            forget_empty(ended);
        else
            pass_on(as_holder(ended), open_lost ? for_ever : leaving);
    }
    ac_unlock(&lock);
    if (barren)
        memory.release(ended);
    release_all(leaving);
}

void ac_graphs_inherit(ac_holder_t to, ac_holder_t from, bool instead) {
    if (idle())
        return;
    if (AC_FAILPOINT(graph_memory_released) && to.kind == AC_HOLDER_EXEC)
        return;
    ac_lock(&lock);
    ac_holder_t leaving = new_leaving();
    to = outermost(to);
    if (instead)
        pass_on(to, leaving);
    inherit(to, outermost(from));
    ac_unlock(&lock);
    if (instead)
        release_all(leaving);
}

void ac_graphs_inside(ac_holder_t inner, ac_holder_t outer) {
    ac_lock(&lock);
    pass_on(inner, outermost(outer));
    if (inner_count < INNER) {
        inners[inner_count].inner = inner;
        inners[inner_count++].outer = outer;
    } else {
        inners_lost = true;
    }
    ac_unlock(&lock);
}

void ac_graphs_fresh(ac_holder_t graph) {
    if (atomic_load(&inner_count) == 0)
        return;
    ac_lock(&lock);
    for (unsigned i = inner_count; i-- > 0;)
        if (same(inners[i].inner, graph))
            inners[i] = inners[--inner_count];
    ac_unlock(&lock);
}

void ac_graphs_launched(ac_holder_t exec) {
    if (atomic_load_explicit(&capturing, memory_order_relaxed) == 0 ||
        AC_FAILPOINT(captured_launch_forgotten))
        return;
    ac_lock(&lock);
    if (capturing)
        inherit(as_holder(session), exec);
    ac_unlock(&lock);
}

ac_holder_t ac_graphs_leaving(ac_holder_t holder) {
    if (idle() && atomic_load(&inner_count) == 0)
        return (ac_holder_t){AC_HOLDER_NONE, 0};
    ac_lock(&lock);
    ac_holder_t leaving = new_leaving();
    pass_on(holder, leaving);
    ac_unlock(&lock);
    return leaving;
}

void ac_graphs_left(ac_holder_t leaving, ac_holder_t holder, bool destroyed) {
    if (!leaving.kind)
        return;
    ac_lock(&lock);
    if (!destroyed)
        pass_on(leaving, holder);
    for (unsigned i = inner_count; destroyed && i-- > 0;)
        if (same(inners[i].outer, holder))
            inners[i] = inners[--inner_count];
    ac_unlock(&lock);
    if (destroyed)
        release_all(leaving);
}

void ac_graphs_prune(void) {
    if (idle())
        return;
    ac_lock(&lock);
    prune();
    ac_unlock(&lock);
}

int ac_graphs_check(void) {
    int wrong = 0;
    ac_lock(&lock);
    for (unsigned i = 0; i < link_count; i++) {
        wrong |= links[i].session == 0 || links[i].session > session || !links[i].holder.kind;
        wrong |= same(links[i].holder, as_holder(links[i].session));
        for (unsigned j = 0; j < i; j++)
            wrong |= links[j].session == links[i].session &&
                     same(links[j].holder, links[i].holder) &&
                     links[i].holder.kind != AC_HOLDER_EVER;
    }
    ac_unlock(&lock);
    return wrong;
}

/* Steps before and after the driver's call, for hooks that give work to a stream. */
#ifndef AC_SUBMIT_HOOKS_H
#define AC_SUBMIT_HOOKS_H

#include "track/context.h"

/* A submission under way. */
typedef struct {
    ac_context_t *context; /* NULL: not known; the work may go to any (ac_fence_untracked_begin) */
    CUstream stream;
    bool slotted; /* the thread's slot says that it is inside (fence.h) */
    bool marked;  /* the stream is marked for the fences */
    bool holds;   /* the program may hold the work: ac_submit_hold */
    bool stray;   /* between ac_fence_untracked_begin and _end */
} ac_submit_t;

/* Called before work goes to `stream`.  `per_thread`: handle 0 means the per-thread default
 * stream.  Returns false if the submission is not tracked; then no other function of it is
 * called. */
bool ac_submit_begin(ac_submit_t *submit, ac_thread_t *thread, CUstream stream, bool per_thread);

/* Checks whether memory that the call names belongs to the submitting context; if not, contexts
 * reach each other's memory from now on. */
void ac_submit_reach(const ac_submit_t *submit, uint64_t address);

/* Records that the work may hold its stream until the program acts elsewhere. */
void ac_submit_hold(ac_submit_t *submit);

/* Records that a graph got a node that may hold its stream.  From now on each launch of any graph
 * counts as work that may. */
void ac_graphs_hold(void);

/* Called after the submitting call returned `result`. */
void ac_submit_end(const ac_submit_t *submit, ac_thread_t *thread, CUresult result);

#endif

/* What the hooks that give work to a stream do around the driver's call. */
#ifndef AC_SUBMIT_HOOKS_H
#define AC_SUBMIT_HOOKS_H

#include "track/context.h"

/* A submission under way. */
typedef struct {
    ac_context_t *context; /* NULL: not known, the work may go to any (ac_fence_untracked_begin) */
    CUstream stream;
    bool slotted; /* inside by the thread's slot */
    bool marked;  /* the stream, for the fences */
    bool holds;   /* the program may hold the work: ac_submit_hold */
    bool stray;   /* between ac_fence_untracked_begin and _end */
} ac_submit_t;

/* Before work goes to `stream` (`per_thread`: what handle 0 means).  False: nothing to keep. */
bool ac_submit_begin(ac_submit_t *submit, ac_thread_t *thread, CUstream stream, bool per_thread);

/* The call names device memory itself: does it belong to the submitting context? */
void ac_submit_reach(const ac_submit_t *submit, uint64_t address);

/* The work may hold its stream until the program does something else. */
void ac_submit_hold(ac_submit_t *submit);

/* A graph got a node of such work: each launch of a graph may be one of it from now on. */
void ac_graphs_hold(void);

/* The submitting call returned `result`. */
void ac_submit_end(const ac_submit_t *submit, ac_thread_t *thread, CUresult result);

#endif

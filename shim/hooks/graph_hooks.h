/* Setup of the graph hooks (graph_hooks.c). */
#ifndef AC_GRAPH_HOOKS_H
#define AC_GRAPH_HOOKS_H

/* Gives graphs.h the functions that find and release memory held by capture sessions.  Called at
 * activation. */
void ac_graph_hooks_setup(void);

#endif

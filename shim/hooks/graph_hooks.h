/* Hooks of graphs (graph_hooks.c): what they start with. */
#ifndef AC_GRAPH_HOOKS_H
#define AC_GRAPH_HOOKS_H

/* Tell graphs.h what memory its capture sessions hold; at activation. */
void ac_graph_hooks_setup(void);

#endif

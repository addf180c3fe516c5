/* Pinned memory by address: a treap of nodes in records of others.  It is sorted by address, and a heap by a hash
 * of the address.  It finds the node around an address.  The owner of the tree holds the lock.  The tree has no
 * memory of its own. */
#ifndef AC_HOST_INDEX_H
#define AC_HOST_INDEX_H

#include <stddef.h>
#include <stdint.h>

typedef struct ac_host_node ac_host_node_t;
struct ac_host_node {
    uint64_t address; /* of no other node in the tree */
    ac_host_node_t *below, *above;
};

void ac_host_index_insert(ac_host_node_t **root, ac_host_node_t *node);
void ac_host_index_remove(ac_host_node_t **root, const ac_host_node_t *node);

/* The one with the highest address <= `address`, and with the lowest above it; NULL: there is
 * none. */
ac_host_node_t *ac_host_index_floor(ac_host_node_t *root, uint64_t address);
ac_host_node_t *ac_host_index_next(ac_host_node_t *root, uint64_t address);

#endif

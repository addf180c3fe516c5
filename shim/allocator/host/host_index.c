/* See host_index.h. */
#include "allocator/host/host_index.h"

static uint64_t rank_of(const ac_host_node_t *node) {
    return node->address * 0x9e3779b97f4a7c15u;
}

/* Cut the tree in two: what lies below the address, and the rest. */
static void cut(ac_host_node_t *root, uint64_t address, ac_host_node_t **below,
                ac_host_node_t **above) {
    while (root) {
        if (root->address < address) {
            *below = root;
            below = &root->above;
            root = root->above;
        } else {
            *above = root;
            above = &root->below;
            root = root->below;
        }
    }
    *below = *above = NULL;
}

void ac_host_index_insert(ac_host_node_t **root, ac_host_node_t *node) {
    uint64_t rank = rank_of(node);
    while (*root && rank_of(*root) >= rank)
        root = node->address < (*root)->address ? &(*root)->below : &(*root)->above;
    cut(*root, node->address, &node->below, &node->above);
    *root = node;
}

void ac_host_index_remove(ac_host_node_t **root, const ac_host_node_t *node) {
    while (*root != node)
        root = node->address < (*root)->address ? &(*root)->below : &(*root)->above;
    ac_host_node_t *below = node->below, *above = node->above;
    while (below && above) {
        if (rank_of(below) >= rank_of(above)) {
            *root = below;
            root = &below->above;
            below = below->above;
        } else {
            *root = above;
            root = &above->below;
            above = above->below;
        }
    }
    *root = below ? below : above;
}

ac_host_node_t *ac_host_index_floor(ac_host_node_t *root, uint64_t address) {
    ac_host_node_t *found = NULL;
    while (root) {
        if (root->address <= address)
            found = root;
        root = root->address <= address ? root->above : root->below;
    }
    return found;
}

ac_host_node_t *ac_host_index_next(ac_host_node_t *root, uint64_t address) {
    ac_host_node_t *found = NULL;
    while (root) {
        if (root->address > address)
            found = root;
        root = root->address > address ? root->below : root->above;
    }
    return found;
}

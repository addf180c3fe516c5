/* Treaps over 64-bit keys.  The tree is balanced with high probability, for any order of
 * insertion.  Insertion and removal are a few lines.  The caller locks. */
#include "sim.h"

static uint32_t next_priority(void) {
    static uint32_t state = 2463534242u; /* xorshift: deterministic, so runs repeat */
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

/* Splits `root` into keys < key and keys > key. */
static void split(sim_node_t *root, uint64_t key, sim_node_t **less, sim_node_t **more) {
    while (root) {
        if (root->key < key) {
            *less = root;
            less = &root->child[1];
            root = root->child[1];
        } else {
            *more = root;
            more = &root->child[0];
            root = root->child[0];
        }
    }
    *less = *more = NULL;
}

void sim_tree_insert(sim_node_t **root, sim_node_t *node) {
    node->priority = next_priority();
    while (*root && (*root)->priority >= node->priority)
        root = &(*root)->child[(*root)->key < node->key];
    split(*root, node->key, &node->child[0], &node->child[1]);
    *root = node;
}

void sim_tree_remove(sim_node_t **root, sim_node_t *node) {
    while (*root != node)
        root = &(*root)->child[(*root)->key < node->key];
    sim_node_t *less = node->child[0], *more = node->child[1];
    while (less && more) {
        if (less->priority > more->priority) {
            *root = less;
            root = &less->child[1];
            less = *root;
        } else {
            *root = more;
            root = &more->child[0];
            more = *root;
        }
    }
    *root = less ? less : more;
}

sim_node_t *sim_tree_find(sim_node_t *root, uint64_t key) {
    while (root && root->key != key)
        root = root->child[root->key < key];
    return root;
}

sim_node_t *sim_tree_floor(sim_node_t *root, uint64_t key) {
    sim_node_t *best = NULL;
    while (root) {
        if (root->key == key)
            return root;
        if (root->key < key) {
            best = root;
            root = root->child[1];
        } else {
            root = root->child[0];
        }
    }
    return best;
}

sim_node_t *sim_tree_ceil(sim_node_t *root, uint64_t key) {
    sim_node_t *best = NULL;
    while (root) {
        if (root->key == key)
            return root;
        if (root->key > key) {
            best = root;
            root = root->child[0];
        } else {
            root = root->child[1];
        }
    }
    return best;
}

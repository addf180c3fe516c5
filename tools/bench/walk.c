/* walk CASE: one call of the runtime by a function of its own, for callgrind; see walk.py.
 *
 *   hit         a request that the thread's cache serves.
 *   free        a free of a block that the thread's cache takes.
 *   miss        a request of a new size that free memory serves.  No peak rises, nothing waits, and
 *               no large free block is broken up. */
#include "work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer_runtime.h"

/* Functions with names of their own, for callgrind. */
void *walked_take(size_t bytes);
void walked_give(void *pointer);

#define MIB ((size_t)1 << 20)

void work_fail(const char *what, unsigned code) {
    fprintf(stderr, "walk: %s: %u\n", what, code);
    exit(1);
}

__attribute__((noinline, noclone)) void *walked_take(size_t bytes) {
    void *pointer = peer_take(bytes, NULL);
    __asm__ volatile("" : : "r"(pointer) : "memory");
    return pointer;
}

__attribute__((noinline, noclone)) void walked_give(void *pointer) {
    peer_give(pointer, 0, NULL);
    __asm__ volatile("" : : : "memory");
}

/* Leaves free blocks of 20 MiB between others, and less memory in use than before. */
static void make_free_memory(void) {
    enum { BLOCKS = 40 };
    void *block[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++)
        block[i] = peer_take(20 * MIB + 512 * (i % 7), NULL);
    for (int i = 0; i < BLOCKS; i += 2)
        peer_give(block[i], 0, NULL);
    for (size_t i = 5; i < 9; i++)
        peer_take(i * MIB, NULL);
}

int main(int argc, char **argv) {
    const char *name = argc == 2 ? argv[1] : "";
    peer_open();
    for (int i = 0; i < 4; i++) /* the second request makes the size's entry */
        peer_give(peer_take(MIB, NULL), MIB, NULL);
    if (!strcmp(name, "hit")) {
        walked_take(MIB);
    } else if (!strcmp(name, "free")) {
        walked_give(peer_take(MIB, NULL));
    } else if (!strcmp(name, "miss")) {
        make_free_memory();
        walked_take(5 * MIB + 512);
    } else {
        fprintf(stderr, "usage: walk hit|free|miss\n");
        return 64;
    }
    return 0;
}

/* Two allocation patterns that are hard on an allocator, each alone (gen.h): a buffer that grows,
 * and small blocks that stay among large ones that come and go. */
#include "gen.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

/* In each round a slightly larger buffer replaces the old one, after a copy of its contents.  The
 * results of a round stay in a few small blocks.  A step is one buffer that grows from 64 MiB to
 * 4 GiB.  The small blocks of a step are freed early in the step after the next one. */
void gen_grow(gen_t *gen) {
    enum { KEPT = 4096 };
    gen_block_t kept[2][KEPT] = {{0}};
    for (unsigned step = 0; !gen_enough(gen); step++) {
        unsigned count = 0;
        uint64_t bytes = 64 * MIB;
        gen_block_t buffer = gen_alloc(gen, bytes, 0);
        for (unsigned i = 0; i < KEPT; i++)
            gen_drop(gen, &kept[step % 2][i]);
        while (bytes < 4096 * MIB) {
            unsigned found = (unsigned)gen_between(gen, 1, 5);
            for (unsigned i = 0; i < found && count < KEPT; i++)
                kept[step % 2][count++] = gen_alloc(gen, gen_between(gen, 70, 700) * KIB, 0);
            bytes += bytes / 1000 * gen_between(gen, 8, 25);
            gen_block_t larger = gen_alloc(gen, bytes, 0);
            gen_free(gen, buffer);
            buffer = larger;
        }
        gen_sync(gen);
        gen_free(gen, buffer);
    }
}

/* Large blocks come and go in waves, at random.  Every third round also allocates a small block,
 * which stays until 3000 others have come. */
void gen_islands(gen_t *gen) {
    enum { LARGE = 100, SMALL = 3000 };
    gen_block_t large[LARGE] = {0}, small[SMALL] = {0};
    for (uint64_t round = 0; !gen_enough(gen); round++) {
        /* Between half of them and all of them, up and down in 4000 rounds. */
        uint64_t wave = round % 4000 < 2000 ? round % 4000 : 4000 - round % 4000;
        uint64_t most = LARGE / 2 + LARGE / 2 * wave / 2000;
        uint64_t at = gen_between(gen, 0, LARGE - 1);
        gen_drop(gen, &large[at]);
        if (at < most)
            large[at] = gen_alloc(gen, gen_between(gen, 4 * KIB, 60 * KIB) * KIB, 0);
        if (round % 3 == 0) {
            gen_drop(gen, &small[round / 3 % SMALL]);
            small[round / 3 % SMALL] = gen_alloc(gen, gen_between(gen, 65, 256) * KIB, 0);
        }
        if (round % 100 == 99)
            gen_sync(gen);
    }
}

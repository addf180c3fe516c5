/* RMM's random benchmark (gen.h), in 2 * N rounds with uniformly drawn sizes.  While any block is
 * live, 73 of 100 rounds allocate, if N and the cap allow it.  The other rounds free a block chosen
 * at random.  Memory grows to a plateau, then drains. */
#include "gen.h"
#include "command.h"

#include <stdlib.h>

#define MIB ((uint64_t)1 << 20)

void gen_rmm(gen_t *gen) {
    const uint64_t cap = 16000 * MIB;
    uint64_t largest = gen->most_bytes ? gen->most_bytes : 1024 * MIB;
    uint64_t wanted = (gen->wanted + 1) / 2, allocated = 0;
    gen_block_t *live = cmd_alloc(wanted * sizeof *live);
    size_t count = 0;
    if (largest > cap)
        largest = cap;
    for (uint64_t round = 0; round < 2 * wanted; round++) {
        uint64_t bytes = gen_between(gen, 1, largest);
        bool may = allocated < wanted && gen->live + bytes < cap;
        if (count == 0 || (gen_chance(gen, 73) && may)) {
            if (allocated == wanted)
                break;
            live[count++] = gen_alloc(gen, bytes, 0);
            allocated++;
            continue;
        }
        size_t chosen = gen_between(gen, 0, count - 1);
        gen_free(gen, live[chosen]);
        live[chosen] = live[--count];
    }
    free(live);
}

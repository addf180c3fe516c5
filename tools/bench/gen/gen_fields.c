/* An adaptive-mesh simulation (gen.h).  A box is covered by patches, each a small grid with several
 * fields.  Patches with activity are covered by finer ones of half the spacing.  Every step each
 * patch takes scratch memory for fluxes and for its borders.  Every few steps new patches of other
 * sizes replace the finer levels; data is copied from the old patches before they are freed.  Now
 * and then a snapshot gathers one field of all patches. */
#include "gen.h"
#include "command.h"

#include <stdlib.h>

enum { LEVELS = 4, FIELDS = 6, MOST_PATCHES = 160, REGRID = 4, SNAPSHOT = 25 };

typedef struct {
    unsigned size[3]; /* cells */
    gen_block_t field[FIELDS];
} patch_t;

typedef struct {
    patch_t patch[MOST_PATCHES];
    unsigned count;
} level_t;

static uint64_t cells(const patch_t *patch, unsigned border) {
    uint64_t n = 1;
    for (int i = 0; i < 3; i++)
        n *= patch->size[i] + 2 * border;
    return n;
}

/* Fills a level with patches.  Their lengths fit the features that they cover, in steps of four
 * cells. */
static void fill_level(gen_t *gen, level_t *level, unsigned number) {
    level->count = (unsigned)gen_between(gen, 8 + 8 * number, 24 + 24 * number);
    for (unsigned i = 0; i < level->count; i++) {
        patch_t *patch = &level->patch[i];
        for (int d = 0; d < 3; d++)
            patch->size[d] = 4 * (unsigned)gen_between(gen, 3, number ? 14 : 16);
        for (int f = 0; f < FIELDS; f++)
            patch->field[f] = gen_alloc(gen, cells(patch, 2) * 8, 0);
    }
}

static void drop_level(gen_t *gen, level_t *level) {
    for (unsigned i = 0; i < level->count; i++)
        for (int f = 0; f < FIELDS; f++)
            gen_drop(gen, &level->patch[i].field[f]);
    level->count = 0;
}

static void regrid(gen_t *gen, level_t *levels, unsigned from) {
    static level_t old;
    for (unsigned l = from; l < LEVELS; l++) {
        gen_block_t tags = gen_alloc(gen, gen_between(gen, 1, 4) << 18, 0);
        gen_block_t boxes = gen_alloc(gen, gen_between(gen, 20, 200) * 48, 0);
        old = levels[l];
        fill_level(gen, &levels[l], l); /* the copy still reads the old level */
        drop_level(gen, &old);
        gen_free(gen, boxes);
        gen_free(gen, tags);
    }
}

static void advance_patch(gen_t *gen, const patch_t *patch) {
    gen_block_t flux[3], border;
    border = gen_alloc(gen, (cells(patch, 2) - cells(patch, 0)) * FIELDS * 8, 1);
    for (int d = 0; d < 3; d++)
        flux[d] = gen_alloc(gen, cells(patch, 1) * FIELDS * 8, 0);
    gen_free(gen, border);
    gen_block_t update = gen_alloc(gen, cells(patch, 0) * FIELDS * 8, 0);
    for (int d = 0; d < 3; d++)
        gen_free(gen, flux[d]);
    gen_free(gen, update);
}

static void snapshot(gen_t *gen, const level_t *levels) {
    gen_block_t *part = cmd_alloc(LEVELS * MOST_PATCHES * sizeof *part);
    unsigned count = 0;
    for (unsigned l = 0; l < LEVELS; l++)
        for (unsigned i = 0; i < levels[l].count; i++)
            part[count++] = gen_alloc(gen, cells(&levels[l].patch[i], 0) * 4, 1);
    for (unsigned i = 0; i < count; i++)
        gen_free(gen, part[i]);
    free(part);
    gen_sync(gen);
}

void gen_amr(gen_t *gen) {
    level_t *levels = cmd_alloc(LEVELS * sizeof *levels);
    for (unsigned l = 0; l < LEVELS; l++)
        fill_level(gen, &levels[l], l);
    for (unsigned step = 1; !gen_enough(gen); step++) {
        /* Finer levels take more, shorter steps. */
        for (unsigned l = 0; l < LEVELS; l++)
            for (unsigned pass = 0; pass <= l / 2; pass++)
                for (unsigned i = 0; i < levels[l].count; i++)
                    advance_patch(gen, &levels[l].patch[i]);
        gen_block_t least = gen_alloc(gen, 8, 0); /* of all time steps, for the host */
        gen_sync(gen);
        gen_free(gen, least);
        if (step % REGRID == 0)
            regrid(gen, levels, gen_chance(gen, 25) ? 1 : 2);
        if (step % SNAPSHOT == 0)
            snapshot(gen, levels);
    }
    free(levels);
}

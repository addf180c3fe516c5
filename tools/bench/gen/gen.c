/* `accelcache-dev gen`: generates, from a seed, traces like those of known kinds of programs. */
#include "gen.h"
#include "command.h"
#include "replay/replay_options.h"
#include "base/sizes.h"

#include <errno.h>
#include "base/option.h"
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *doc;
    gen_kind_fn *function;
} kinds[] = {
    {"fixed", "full training of a 28-layer decoder, 4 x 2048 tokens in each step", gen_fixed},
    {"varlen", "the same with batches of varying length, two a step, and evaluations",
     gen_varlen},
    {"lora", "adapters beside sharded parameters that are gathered per layer; three streams",
     gen_lora},
    {"serving", "requests of varying length with caches that grow token by token", gen_serving},
    {"amr", "a simulation on patches that are refined and coarsened", gen_amr},
    {"graph", "learning on sampled neighbourhoods of a graph; two streams", gen_graph},
    {"grow", "a buffer that grows round by round, with small blocks that stay between", gen_grow},
    {"islands", "small blocks that stay among large ones that come and go", gen_islands},
    {"rmm", "RMM's random benchmark: uniform sizes up to --max, at most 16000 MiB live", gen_rmm},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static int print_help(void) {
    fputs("Usage: accelcache-dev gen KIND [OPTION...]\n"
          "Writes an allocation trace to the standard output, one operation a line:\n"
          "  a ID BYTES STREAM   allocates, f ID frees, s: the program waits for the device\n\n"
          "Kinds:\n",
          stdout);
    for (int i = 0; i < KINDS; i++)
        printf("  %-8s %s\n", kinds[i].name, kinds[i].doc);
    fputs(
        "\n  --seed N    another trace of the same kind (1); the same one for the same number\n"
        "  --ops N     about how many operations (200000): the step under way is finished, and\n"
        "              what is still allocated then is freed\n"
        "  --max SIZE  rmm: the largest block (1024M)\n"
        "  -o FILE     write to FILE\n\n"
        "Exit status: 0 done, 1 the trace could not be written, 2 wrong usage.\n",
        stdout);
    return CMD_OK;
}

/* ------------------------------------------------------------------ operations */

gen_block_t gen_alloc(gen_t *gen, uint64_t bytes, unsigned stream) {
    if (gen->blocks + 1 >= gen->room) {
        gen->room = gen->room ? gen->room * 2 : 4096;
        gen->bytes = cmd_resize(gen->bytes, gen->room * sizeof *gen->bytes);
    }
    gen_block_t block = (gen_block_t)++gen->blocks;
    gen->bytes[block] = bytes ? bytes : 1;
    fprintf(gen->out, "a %u %llu %u\n", block, (unsigned long long)gen->bytes[block], stream);
    gen->live += gen->bytes[block];
    if (gen->live > gen->peak)
        gen->peak = gen->live;
    gen->count++;
    return block;
}

void gen_free(gen_t *gen, gen_block_t block) {
    if (!block)
        return;
    fprintf(gen->out, "f %u\n", block);
    gen->live -= gen->bytes[block];
    gen->bytes[block] = 0;
    gen->count++;
}

void gen_drop(gen_t *gen, gen_block_t *block) {
    gen_free(gen, *block);
    *block = 0;
}

void gen_sync(gen_t *gen) {
    fputs("s\n", gen->out);
    gen->count++;
}

/* ------------------------------------------------------------------ chance */

/* splitmix64: an odd constant is added, the sum mixed by shifts and multiplications. */
uint64_t gen_random(gen_t *gen) {
    uint64_t z = gen->random += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

uint64_t gen_between(gen_t *gen, uint64_t low, uint64_t high) {
    /* Ranges are far below 2^64, so the bias is negligible. */
    return low + gen_random(gen) % (high - low + 1);
}

bool gen_chance(gen_t *gen, unsigned percent) {
    return gen_between(gen, 0, 99) < percent;
}

unsigned gen_length(gen_t *gen) {
    /* Quantiles in steps of 1/8, with linear interpolation between them. */
    static const unsigned quantile[] = {32, 160, 256, 368, 512, 720, 1088, 1920, 8192};
    unsigned at = (unsigned)gen_between(gen, 0, 7);
    return (unsigned)gen_between(gen, quantile[at], quantile[at + 1]);
}

/* ------------------------------------------------------------------ */

static int generate(gen_t *gen, int kind, uint64_t seed, const char *path) {
    gen->out = path ? fopen(path, "w") : stdout;
    if (!gen->out) {
        cmd_say("%s: %s", path, strerror(errno));
        return CMD_FAILED;
    }
    gen->random = seed;
    fprintf(gen->out, "# accelcache-dev gen %s --seed %llu --ops %llu\n", kinds[kind].name,
            (unsigned long long)seed, (unsigned long long)gen->wanted);
    kinds[kind].function(gen);
    for (size_t i = 1; i <= gen->blocks; i++)
        if (gen->bytes[i])
            gen_free(gen, (gen_block_t)i);
    fprintf(gen->out, "# %llu operations, peak live %llu bytes\n", (unsigned long long)gen->count,
            (unsigned long long)gen->peak);
    free(gen->bytes);
    bool lost = ferror(gen->out) != 0;
    if (path)
        lost |= fclose(gen->out) != 0;
    if (lost)
        cmd_say("%s: the trace could not be written: %s", path ? path : "standard output",
                strerror(errno));
    return lost ? CMD_FAILED : CMD_OK;
}

static int take_most(const char *text, void *bytes) {
    return cmd_size_parse(text, 0, bytes) ? CMD_OK : cmd_usage("--max %s: a size like 64M", text);
}

int cmd_gen(int argc, char **argv) {
    gen_t gen = {.wanted = 200000};
    const char *path = NULL;
    uint64_t seed = 1;
    int status, kind = 0;
    const cmd_option_t options[] = {
        {"seed", .number = &seed, .high = (double)UINT64_MAX, .expected = "a whole number"},
        {"ops", .number = &gen.wanted, .low = 1, .high = 1000000000, .expected = "a number from 1 to 1000000000"},
        {"max", .take = take_most, .arg = &gen.most_bytes},
        {"output", 'o', .text = &path},
        {"help", 'h', .stop = print_help},
        {.name = NULL}};
    if (!cmd_options(argc, argv, options, NULL, &status))
        return status;
    if (argc - optind != 1)
        return cmd_usage(optind == argc ? "KIND is missing" : "one KIND at a time");
    while (kind < KINDS && strcmp(argv[optind], kinds[kind].name) != 0)
        kind++;
    if (kind == KINDS)
        return cmd_usage_names("kind", argv[optind], &kinds[0].name, sizeof *kinds, KINDS);
    if (gen.most_bytes && kinds[kind].function != gen_rmm)
        return cmd_usage("--max goes with rmm alone");
    return generate(&gen, kind, seed, path);
}

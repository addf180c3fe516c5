/* Draws the character of a random program: settings, weights, sizes. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "generate_int.h"

__attribute__((format(printf, 2, 3))) static void add(char *text, const char *format, ...) {
    va_list list;
    size_t length = strlen(text);
    if (length)
        text[length++] = ',';
    va_start(list, format);
    vsnprintf(text + length, SETTINGS - length, format, list);
    va_end(list);
}

/* Depends only on the seed, so that the rest of the program is independent of pages. */
static void add_pages(const gen_t *g) {
    unsigned long seed = g->program->seed;
    if (seed % 3 == 2)
        add(g->program->conf, "expandable_segments:%s,page_size_mb:%u",
            seed % 9 == 2 ? "auto" : "true", seed % 2 ? 2 : 8);
    if (seed % 12 == 2)
        add(g->program->conf, "page_budget:0.02");
}

static void add_pins(gen_t *g) {
    g->pins = g->program->seed % 4 == 3;
    if (g->pins)
        add(g->program->conf, "pinned_cache:%s", g->program->seed % 3 ? "true" : "1M");
}

static bool draw_settings(gen_t *g) {
    static const char *const fences[] = {"ctx", "streams", "sync"};
    static const char *const divisions[] = {"2", "8", "[1:8,4:2,>:1]"};
    static const unsigned segments[] = {2, 4, 20, 64}, limits[] = {24, 48, 96, 192};
    static const unsigned drivers[] = {11040, 12020, 12040, 12080};
    program_t *program = g->program;
    char *conf = program->conf, *sim = program->sim;
    unsigned segment = 20, limit = 0;
    if (gen_chance(g, 60))
        add(conf, "fence:%s", fences[gen_below(g, 3)]);
    if (gen_chance(g, 30))
        add(conf, "large_segment_size_mb:%u", segment = segments[gen_below(g, 4)]);
    if (gen_chance(g, 25))
        add(conf, "max_split_size_mb:%u", segment + gen_below(g, 20));
    if (gen_chance(g, 25))
        add(conf, "roundup_power2_divisions:%s", divisions[gen_below(g, 3)]);
    if (gen_chance(g, 25))
        add(conf, "memory_limit:%uM", limit = limits[gen_below(g, 4)]);
    if (limit && gen_chance(g, 40))
        add(conf, "garbage_collection_threshold:0.%u", 2 + gen_below(g, 7));
    if (gen_chance(g, 10))
        add(conf, "free_sync:true");
    if (gen_chance(g, 30))
        add(conf, "single_stream:false");
    bool small = gen_chance(g, 20);
    if (small)
        add(sim, "memory:%uM", 64u << gen_below(g, 3));
    if (gen_chance(g, 35))
        add(sim, "ctx_record_event:false");
    if (gen_chance(g, 20))
        add(sim, "driver:%u", drivers[gen_below(g, 4)]);
    if (gen_chance(g, 20))
        add(sim, "costs:published");
    add_pages(g);
    add_pins(g);
    return limit || small;
}

/* Restricts some programs to one stream, or to default streams, which have their own rules. */
static void draw_mood(gen_t *g) {
    unsigned mood = gen_below(g, 100);
    if (mood >= 35)
        return;
    g->program->devices = 1;
    g->program->loose = false;
    g->weight[ACT_CONTEXT] = 0;
    if (mood < 20) {
        g->streams_most = 1;
        g->special_percent = 0;
        static const act_t others[] = {ACT_STREAM, ACT_NOW, ACT_CAPTURE};
        for (unsigned i = 0; i < 3; i++)
            g->weight[others[i]] = gen_chance(g, 70) ? 0 : gen_below(g, 3);
        g->programmatic_percent = gen_chance(g, 50) ? 0 : gen_below(g, 80);
    } else {
        g->special_percent = 100;
        g->weight[ACT_STREAM] = 0;
    }
}

void gen_settings(gen_t *g) {
    static const uint32_t sizes[] = {64,    512,    700,     4096,    30000,   65536,
                                     65537, 200000, 1 << 20, 3 << 20, 9 << 20, 21 << 20};
    /*                                     take give kern tran now wait strm cap grph ctx ask pool
     * time
     */
    static const unsigned most[ACT_COUNT] = {30, 30, 40, 20, 6, 15, 8, 3, 8, 3, 3, 4, 5},
                          least[ACT_COUNT] = {10, 10, 10, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    program_t *program = g->program;
    program->threads = gen_chance(g, 40) ? 1 : 1 + gen_below(g, THREADS);
    program->devices = gen_chance(g, 60) ? 1 : 1 + gen_below(g, DEVICES);
    g->finds = gen_chance(g, program->devices > 1 ? 25 : 5);
    bool tight = draw_settings(g);
    program->loose = program->devices > 1 && !tight && gen_chance(g, 60);
    for (unsigned i = 0; i < ACT_COUNT; i++) {
        g->weight[i] = least[i] + gen_below(g, most[i] + 1);
        if (!least[i] && gen_chance(g, 25))
            g->weight[i] = 0;
    }
    if (gen_chance(g, 10)) /* short-lived streams */
        g->weight[ACT_STREAM] += 40;
    g->threads_stay = 1 + gen_below(g, 20);
    g->blocks_most = 2 + gen_below(g, gen_chance(g, 50) ? 12 : 120);
    g->streams_most = 1 + gen_below(g, gen_chance(g, 50) ? 5 : STREAMS);
    g->async_percent = gen_chance(g, 30) ? 0 : gen_below(g, 100);
    g->special_percent = gen_below(g, gen_chance(g, 50) ? 10 : 80);
    g->programmatic_percent = gen_chance(g, 60) ? 0 : gen_below(g, 50);
    g->order_percent = gen_below(g, 100);
    g->slow_percent = gen_below(g, 40);
    g->pools_touched = gen_chance(g, 10);
    if (gen_chance(g, 50))
        g->weight[ACT_POOL] = 0;
    if (gen_chance(g, 15)) /* short-lived contexts */
        g->weight[ACT_CONTEXT] += 15;
    g->sizes = 1 + gen_below(g, SIZES);
    for (unsigned i = 0; i < g->sizes; i++)
        g->size[i] = sizes[gen_below(g, tight ? 10 : 12)];
    draw_mood(g);
    for (unsigned i = 0; i < ACT_COUNT; i++)
        g->weights += g->weight[i];
}

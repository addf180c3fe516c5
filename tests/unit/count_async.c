/* count_async CACHES PAIRS: makes PAIRS pairs of a stream-ordered request and its free on the fake
 * device. CACHES caches of other threads exist, each of which has served a request. count_async.py
 * counts the instructions. */
#include <stdio.h>
#include <stdlib.h>

#include "allocator/allocator_int.h"
#include "fake_device.h"
#include "fake_settings.h"

enum { MOST_CACHES = 64 };

int main(int argc, char **argv) {
    static ac_cache_tally_t tally[MOST_CACHES];
    static ac_device_stats_t stats;
    static ac_device_counters_t counters;
    static fake_device_t device;
    static fake_context_t context;
    int caches = argc > 2 ? atoi(argv[1]) : -1, pairs = argc > 2 ? atoi(argv[2]) : 0;
    uint64_t address;
    if (caches < 0 || caches > MOST_CACHES) {
        fprintf(stderr, "usage: count_async CACHES PAIRS, %d caches at most\n", MOST_CACHES);
        return 2;
    }
    ac_settings_t settings = fake_settings("thread_cache_mb:8");
    fake_device_init(&device, (uint64_t)1 << 30);
    fake_context_init(&context, &device);
    ac_allocator_t *allocator = ac_allocator_create(&settings, &stats, &counters);
    ac_arena_t *arena = allocator ? ac_arena_create(allocator, &fake_ops, &context) : NULL;
    if (!arena)
        return 1;
    for (int i = 0; i < caches; i++) {
        ac_cache_t *cache = ac_cache_open(arena, &tally[i]);
        for (int k = 0; k < 3; k++)
            if (ac_cache_alloc(cache, 65536, false, &address) != AC_OK ||
                ac_cache_free(cache, address) != AC_OK)
                return 1;
    }
    for (int i = 0; i < pairs; i++)
        if (ac_arena_alloc_on(arena, 16, 65536, false, &address) != AC_OK ||
            ac_block_free_on(arena, 16, address) != AC_OK)
            return 1;
    return 0;
}

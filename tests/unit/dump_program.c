/* Fills the live page and writes dumps for dump_schema.py: `dump_program PATTERN [CONF]`. Prints
 * the path. Uses a locale with a decimal comma if the machine has one. */
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "observe/dump.h"
#include "observe/live.h"

static const char hooks[] = "cuMemAlloc_v2\0cuMemFree_v2\0cudaMalloc";

int main(int argc, char **argv) {
    char path[1024];
    bool shared;
    if (argc < 2)
        return 2;
    setlocale(LC_ALL, "de_DE.UTF-8");
    /* A page that cannot be shared gives the same dump. */
    ac_live_open(argc > 2 ? argv[2] : NULL, hooks, sizeof hooks, 3);
    ac_live_row_t *row = ac_live_row_take(&shared);
    row->counter[AC_COUNT_submissions] = 7;
    row->counter[AC_COUNT_join_events] = 9;
    row->counter[AC_COUNT_HOOKS + 2] = 5;
    for (int i = 0; i < 2; i++) {
        ac_live_device_t *device = ac_live_device_take(3 * (unsigned)i, &shared);
        device->ordinal = 3 * i;
        strcpy(device->name, "Device \"\xe9\" of tests");
        memset(device->uuid, i ? 0xa5 : 0, sizeof device->uuid);
        ac_live->total_memory[3 * i] = (uint64_t)80 << 30;
        device->stats.max_split_size = -1;
        ac_stat_pools_up(device->stats.allocated_bytes, AC_POOL_SMALL, 512);
        device->counters.cached_allocs = 11;
        device->counters.capture_deferred_blocks = 3;
        ac_live_device_publish(3 * (unsigned)i);
    }
    for (int i = 0; i < AC_LIVE_WARNINGS + 2; i++) {
        char text[32];
        snprintf(text, sizeof text, "warning %d", i);
        ac_live_warn(text);
    }
    int failure = ac_dump_write(argv[1], "request", NULL, path, sizeof path);
    ac_live_close();
    if (failure) {
        fprintf(stderr, "%s: %s\n", path, strerror(failure));
        return 1;
    }
    puts(path);
    return 0;
}

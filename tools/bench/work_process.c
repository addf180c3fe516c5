/* Whole processes: the cost of starting one, and the host memory of blocks. */
#include "work.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include PEER_HEADER

/* Returns the KiB of a name in /proc/self/status. */
static long status_kib(const char *name) {
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    long value = 0;
    size_t length = strlen(name);
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, name, length) && line[length] == ':')
            value = strtol(line + length + 1, NULL, 10);
    if (file)
        fclose(file);
    return value;
}

static long private_kib(void) {
    return status_kib("RssAnon") + status_kib("RssShmem");
}

void work_start(const work_t *w) {
    peer_give(peer_take((size_t)w->bytes, NULL), (size_t)w->bytes, NULL);
    printf("\"bytes\": %ld", w->bytes);
}

void work_small(const work_t *w) {
    work_start(w);
    printf(", \"rss_kib\": %ld, \"private_kib\": %ld", status_kib("VmRSS"), private_kib());
}

/* Measures the host memory of blocks.  The array of pointers is written before, so that it does
 * not count. */
void work_held(const work_t *w) {
    void **slot = work_alloc((size_t)(w->live + 1) * sizeof *slot);
    memset(slot, 1, (size_t)(w->live + 1) * sizeof *slot);
    peer_give(peer_take((size_t)w->bytes, NULL), (size_t)w->bytes, NULL);
    long before = private_kib();
    for (long i = 0; i < w->live; i++)
        slot[i] = peer_take((size_t)w->bytes, NULL);
    long after = private_kib();
    printf("\"blocks\": %ld, \"bytes\": %ld, \"host_kib\": %ld", w->live, w->bytes,
           after - before);
    for (long i = 0; i < w->live; i++)
        peer_give(slot[i], (size_t)w->bytes, NULL);
    free(slot);
}

/* Prints properties of the peer.  Allocates one block first, which shows that the peer works. */
void work_info(const work_t *w) {
    peer_give(peer_take((size_t)w->bytes, NULL), (size_t)w->bytes, NULL);
    printf("\"device_memory\": %s, \"simulated\": %s, \"library\": %s",
           work_peer_device() ? "true" : "false",
           dlsym(RTLD_DEFAULT, "simcuda_version") || dlsym(RTLD_DEFAULT, "free_driver") ? "true"
                                                                                        : "false",
           dlsym(RTLD_DEFAULT, "accel_initialized") ? "true" : "false");
}

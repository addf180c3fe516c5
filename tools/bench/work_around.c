/* Pairs with something around them: calls that programs make before each request, requests from many
 * pages of code, a capture that is open meanwhile. */
#include "work.h"

#include <dlfcn.h>
#include <string.h>

#include PEER_HEADER

/* Functions that do the same, each on its own page of code. */
typedef void site_fn(size_t bytes);
#define SITES(n)    SITE(n##0) SITE(n##1) SITE(n##2) SITE(n##3)
#define SITES_16(n) SITES(n##0) SITES(n##1) SITES(n##2) SITES(n##3)
#define SITES_64    SITES_16(0) SITES_16(1) SITES_16(2) SITES_16(3)
#define SITE(n)                                                                                  \
    __attribute__((noinline, aligned(4096))) static void site_##n(size_t bytes) {                \
        __asm__ volatile("" : : "i"(n)); /* otherwise the compiler merges them */           \
        void *pointer = peer_take(bytes, NULL);                                                  \
        WORK_USED(pointer);                                                                      \
        peer_give(pointer, bytes, NULL);                                                         \
    }
SITES_64
#undef SITE
#define SITE(n) site_##n,
static site_fn *const sites[] = {SITES_64};
enum { SITE_COUNT = sizeof sites / sizeof *sites };

/* Calls of the runtime, found at run time: not every peer links one. */
enum { NOTHING, SET_DEVICE, INFO, FAILS };
static struct {
    int (*set_device)(int device);
    int (*info)(size_t *available, size_t *total);
    int (*take)(void **pointer, size_t bytes);
    size_t available, total;
} runtime;

static void find(void *function, const char *name) {
    void *found = dlsym(RTLD_DEFAULT, name);
    if (!found)
        work_fail(name, 0);
    memcpy(function, &found, sizeof found);
}

static void call(long before) {
    void *pointer;
    if (before == SET_DEVICE)
        runtime.set_device(0);
    else if (before == INFO)
        runtime.info(&runtime.available, &runtime.total);
    else if (before == FAILS && !runtime.take(&pointer, runtime.total))
        work_fail("a request for the whole device was served", 0);
}

static double pass(const work_t *w, long pairs) {
    long apart = w->pages ? SITE_COUNT / w->pages : 0; /* distance of sites, as large as possible */
    double begin = work_clock(w);
    for (long i = 0, at = 0; i < pairs; i++, at = at + 1 < w->pages ? at + 1 : 0) {
        if (w->before)
            call(w->before);
        if (w->pages)
            sites[at * apart]((size_t)w->bytes);
    }
    return work_clock(w) - begin;
}

void work_around(const work_t *w) {
    if (w->before) {
        find(&runtime.set_device, "cudaSetDevice");
        find(&runtime.info, "cudaMemGetInfo");
        find(&runtime.take, "cudaMalloc");
        runtime.info(&runtime.available, &runtime.total);
    }
    work_hold(w);
    if (w->capture)
        work_device_capture(work_device_open(1));
    work_measure(w, pass);
    work_release(w);
}

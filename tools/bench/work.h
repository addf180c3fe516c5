/* The programs behind `accelcache-dev bench`: one source, built once for every allocator (a "peer").
 *
 *   bench_<peer> WORKLOAD [KEY=VALUE...] [+ KEY=VALUE...]...
 *
 * Prints one JSON object to stdout.  Each + runs the workload once more, with the previous keys,
 * except the keys that follow.  On a GPU a process takes longer to start than to measure.
 *
 * A peer is a header (peer_*.h) with inline functions, so that the timed call is the call of a real
 * program:
 *   PEER_NAME, PEER_DEVICE (1: device memory, and work can be submitted)
 *   peer_open()           once; ends the program if the peer cannot work here
 *   peer_thread()         in every further thread
 *   peer_take(bytes, stream)           never NULL: peers end the program when memory runs out
 *   peer_give(pointer, bytes, stream)  size and stream of the block's peer_take
 * A peer with calls that take no stream ignores `stream`.  NULL is the default stream.
 * `accelcache-dev bench` starts the programs in turns and collects the figures. */
#ifndef BENCH_WORK_H
#define BENCH_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The keys of a command line: WORK_KEY(name, default, least, most, what). */
#define WORK_KEYS                                                                                \
    WORK_KEY(bytes, 1 << 20, 1, 1L << 40, "size of a block")                                     \
    WORK_KEY(low, 512, 1, 1L << 40, "least size where sizes are random (log-uniform)")           \
    WORK_KEY(high, 64L << 20, 1, 1L << 40, "greatest of them")                                   \
    WORK_KEY(live, 1000, 0, 10000000, "blocks held meanwhile")                                   \
    WORK_KEY(count, 200, 1, 1 << 14, "different sizes, or blocks of a step")                     \
    WORK_KEY(batch, 256, 1, 1 << 20, "blocks that one thread hands to another")                  \
    WORK_KEY(launch, 0, 0, 1, "1: a launch behind every request, on `streams` in turn")          \
    WORK_KEY(threads, 1, 1, 1024, "threads")                                                     \
    WORK_KEY(idle, 0, 0, 1000, "threads that took a block once and wait since")                  \
    WORK_KEY(streams, 1, 1, 512, "streams that are used")                                        \
    WORK_KEY(grow, 0, 0, 1000, "sizes grow by so many thousandths each, from `low`; 0: random")  \
    WORK_KEY(before, 0, 0, 3, "around: 1 cudaSetDevice, 2 cudaMemGetInfo, 3 a request that fails") \
    WORK_KEY(pages, 1, 0, 64, "around: pages of code that have pairs, in turn; 0: no pairs")     \
    WORK_KEY(capture, 0, 0, 1, "around: 1: a stream captures meanwhile")                         \
    WORK_KEY(kind, 0, 0, 5, "copy: 0 on the device, 1 from the host, 2 the same by cuMemcpy, 3 a fill, " \
                            "4 rows, 5 a fill of rows")                                          \
    WORK_KEY(stride, 0, 0, 4096, "copy: bytes from one address to the next")                     \
    WORK_KEY(us, 10000, 1, 60000000, "about how long a pass lasts, in microseconds")             \
    WORK_KEY(pairs, 0, 0, 1L << 40, "pairs of a pass; 0: as many as fit into `us`")              \
    WORK_KEY(passes, 3, 1, 101, "measured passes")                                               \
    WORK_KEY(cpu, 0, 0, 1, "1: count CPU time where one thread works")                           \
    WORK_KEY(counted, 0, 0, 1, "1: two lengths for callgrind in place of passes")

typedef struct {
#define WORK_KEY(name, fallback, least, most, what) long name;
    WORK_KEYS
#undef WORK_KEY
} work_t;

/* One pass: does its work `pairs` times, and returns the ns spent in all of it. */
typedef double work_pass_fn(const work_t *w, long pairs);

/* Returns the number of pairs that last about `us`, by trying passes. */
long work_fit(const work_t *w, work_pass_fn *pass); /* work_fit.c */

/* Finds the number of pairs, which warms up, runs the passes and prints their ns per pair.  The
 * output is a member "ns" of a JSON object that the caller opened.
 *
 * With `counted` it runs a pass to warm up, a pass, and a pass that is WORK_LONGER times as long.  It
 * calls bench_mark after each.  Callgrind then writes its counts and starts again at zero.  The last
 * count minus the one before is the cost of "counted" pairs. */
enum { WORK_LONGER = 5 };
void work_measure(const work_t *w, work_pass_fn *pass);

/* Workloads, by file. */
typedef void work_fn(const work_t *w);
work_fn work_hot, work_replace, work_ring;            /* work_pairs.c */
work_fn work_cycle, work_step;                        /* work_sizes.c */
work_fn work_threads, work_tail, work_cross, work_brief; /* work_threads.c */
work_fn work_launch, work_pair_launch;                /* work_device.c */
work_fn work_copy;                                    /* work_copy.c */
work_fn work_around;                                  /* work_around.c */
work_fn work_start, work_small, work_held, work_info; /* work_process.c */

double work_now(void);    /* ns of the monotonic clock */
double work_thread(void); /* ns of CPU time of the calling thread */
/* Wall or CPU time, chosen by the key `cpu`.  If nothing waits, both are equal, but CPU time leaves
 * out the time that other programs take on the core. */
double work_clock(const work_t *w);

void *work_alloc(size_t bytes); /* host memory; never NULL */
void work_fail(const char *what, unsigned code) __attribute__((noreturn));

/* Returns sizes from low to high, the same in every program: log-uniform, or by the key
 * `grow`. */
enum { WORK_SIZES = 1 << 14 };
const size_t *work_sizes(const work_t *w);
static inline uint64_t work_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Allocate and free `live` blocks of random sizes (work_pairs.c). */
void work_hold(const work_t *w);
void work_release(const work_t *w);

/* Returns the statistics of the library as a JSON text, "null" if it is not in the process; the
 * caller frees it. */
char *work_statistics(void);

/* The peer as functions that are not inlined, for code that is not timed. */
void work_peer_open(void);
void work_peer_thread(void);
void *work_peer_take(size_t bytes);
void work_peer_give(void *pointer, size_t bytes);
bool work_peer_device(void);

/* The device (work_device.c): streams that were given work, and a kernel that does nothing. */
typedef struct work_device work_device_t;
work_device_t *work_device_open(long streams);
void work_device_thread(const work_device_t *device);
void work_device_launch(const work_device_t *device, long stream);
void *work_device_stream(const work_device_t *device, long stream);
void work_device_wait(const work_device_t *device); /* until all work is over */
void work_device_capture(const work_device_t *device); /* its first stream captures from now on */

/* Calls `pass`(work, pairs, device, launch) according to the keys.  The last two are constants in
 * its loop. */
#define WORK_BY_KEYS(pass, w, pairs, device)                                                     \
    (!(device)      ? pass(w, pairs, NULL, false)                                                \
     : (w)->launch ? pass(w, pairs, device, true)                                               \
                    : pass(w, pairs, device, false))

/* Returns the device, if the keys name a launch or streams; otherwise NULL. */
work_device_t *work_launches(const work_t *w);
/* Starts the threads of the key `idle`.  Returns when each has allocated and freed its block. */
void work_idle(const work_t *w);

/* Keeps an allocation alive.  The compiler knows malloc, and would otherwise remove pairs. */
#define WORK_USED(pointer) __asm__ volatile("" : : "r"(pointer) : "memory")

#endif

/* `accelcache-dev bench`: shared declarations of its files.
 *
 * bench.c        command line, the order of parts
 * bench_child.c  starting the programs of tools/bench and reading their output
 * bench_files.c  checks that the programs and the library stay the same files
 * bench_parts.c  the measured parts, and the peers that are there
 * bench_rows.c   the part "rows": one thing each, the library and the peers (bench_rows.def)
 * bench_observe.c  the part "observe": the cost of each way of observing (bench_observe.def)
 * bench_count.c  instructions, counted by valgrind
 * bench_machine.c  the machine, its noise
 * bench_figure.c samples, medians and figures computed from them
 * bench_print.c  the figures as text and Markdown */
#ifndef CMD_BENCH_H
#define CMD_BENCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Measurements in which a peer takes part. */
enum {
    BENCH_HOT = 1,
    BENCH_REPLACE = 2,
    BENCH_THREADS = 4,
    BENCH_CROSS = 8,
    BENCH_TAIL = 16,
    BENCH_ROWS = 32,
    BENCH_ASYNC = 64 /* rows of stream-ordered calls */
};
#define BENCH_ALL (BENCH_HOT | BENCH_REPLACE | BENCH_THREADS | BENCH_CROSS)

/* The peers, in the order of the columns.
 *   BENCH_PEER(id, program and first arguments, preload, where, parts, "label", "if missing")
 * where: ANY, or GPU for peers that make sense only with a real driver. */
#define BENCH_PEERS                                                                              \
    BENCH_PEER(accelcache, "bench_runtime", true, ANY, BENCH_ALL | BENCH_TAIL, "accelcache",     \
               "the simulated device was not built")                                             \
    BENCH_PEER(static, "bench_static", true, ANY, BENCH_HOT, "static cudart",                    \
               "the simulated device was not built")                                             \
    BENCH_PEER(cudart, "bench_cudart", true, GPU, BENCH_HOT, "NVIDIA's static cudart",           \
               "no libcudart_static.a of a CUDA toolkit")                                        \
    BENCH_PEER(driver, "bench_driver", true, ANY, BENCH_HOT, "cuMemAlloc",                       \
               "the simulated device was not built")                                             \
    BENCH_PEER(c_api, "bench_c_api", true, ANY, BENCH_HOT, "C API",                              \
               "the simulated device was not built")                                             \
    BENCH_PEER(bare, "bench_runtime", false, ANY, BENCH_ALL | BENCH_TAIL, "bare driver",         \
               "the simulated device was not built")                                             \
    BENCH_PEER(cub, "bench_cub", false, ANY, BENCH_ALL | BENCH_ROWS, "CUB",                      \
               "no CUDA toolkit with CUB, or no C++ compiler")                                   \
    BENCH_PEER(rmm_pool, "bench_rmm", false, ANY, BENCH_ALL | BENCH_ROWS, "RMM pool",            \
               "no CUDA toolkit, or no AC_RMM_INCLUDE_DIR")                                      \
    BENCH_PEER(glibc, "bench_host", false, ANY, BENCH_ALL, "glibc", "not installed")             \
    BENCH_PEER(mimalloc, "bench_mimalloc", false, ANY, BENCH_ALL, "mimalloc",                    \
               "no mimalloc (Debian: libmimalloc-dev)")                                          \
    BENCH_PEER(async, "bench_async", false, GPU, BENCH_HOT | BENCH_REPLACE | BENCH_ASYNC,        \
               "cudaMallocAsync", "the simulated device was not built")                          \
    BENCH_PEER(rmm, "peers.py rmm", false, GPU, BENCH_HOT | BENCH_REPLACE, "RMM (Python)",       \
               "not installed")                                                                  \
    BENCH_PEER(torch, "peers.py torch", false, GPU, BENCH_HOT | BENCH_REPLACE,                   \
               "PyTorch (Python)", "not installed")

typedef enum {
#define BENCH_PEER(id, program, preload, where, parts, label, missing) BENCH_##id,
    BENCH_PEERS
#undef BENCH_PEER
        BENCH_PEER_COUNT
} bench_peer_id_t;

typedef struct {
    const char *id, *program;
    bool preload, gpu_only;
    unsigned parts;
    const char *label, *missing;
} bench_peer_t;
extern const bench_peer_t bench_peers[BENCH_PEER_COUNT];

/* The rows (tools/bench/bench_rows.def). */
typedef enum {
#define BENCH_ROW(id, ours, conf, peers, counted, arguments, what) BENCH_ROW_##id,
#include "bench_rows.def"
#undef BENCH_ROW
    BENCH_ROW_COUNT
} bench_row_id_t;

typedef enum { BENCH_TIMED, BENCH_COUNTED, BENCH_SHAPE } bench_counted_t;
typedef struct {
    const char *id, *ours, *conf;
    unsigned peers;
    bench_counted_t counted;
    const char *arguments, *what;
} bench_row_t;
extern const bench_row_t bench_rows[BENCH_ROW_COUNT];

/* The rows of the part "observe" (bench_observe.def). */
enum {
#define BENCH_OBSERVE(id, conf, what) BENCH_OBSERVE_##id,
#include "bench_observe.def"
#undef BENCH_OBSERVE
    BENCH_OBSERVE_COUNT
};
typedef struct {
    const char *id, *conf, *what;
} bench_observe_t;
extern const bench_observe_t bench_observe[BENCH_OBSERVE_COUNT];

/* Times of a loop that does the same work each time, in ns.  Their spread comes from the machine. */
typedef struct {
    double least, greatest, cpu, wall; /* of one; sums of all */
    int count;
} bench_noise_t;

typedef struct {
    bool quick, json, markdown, spread, force_simulated, instructions;
    int part, part_count; /* current one, and number in a round */
    const char *library_given, *conf_given;
    long rounds, pass_us, pairs;       /* 0: by `quick` */
    long round;                        /* under way */
    unsigned only, without; /* bit per part, peer */
    uint64_t only_rows;            /* bit per row */
    /* Determined before the first part. */
    bool simulated;
    bool usable[BENCH_PEER_COUNT];
    char *library, *conf;
    char *simulator; /* folder of the driver and the runtime, NULL: the system's */
    char *
        free_driver; /* folder of the driver that comes first, unless a part chooses another */
    char *runtime;   /* library to preload if the system has none, else NULL */
    /* Figures.  `samples` has an array for each path "part/row/column" or "part/column".  From
     * it come `figures` (medians) and `passes` (least, greatest, number). */
    json_t *samples, *figures, *passes, *skipped;
    bool failed; /* the library itself could not be measured */
    json_t *files; /* path: identity of the file at its first use */
    char *changed; /* message that one of them changed: nothing more is measured; NULL: none */
    json_t *machine;
    bench_noise_t noise;
} bench_t;

/* ---- bench_child.c ---- */
typedef struct {
    const char *program; /* of tools/bench, with first arguments; or an absolute path */
    bool preload;
    const char *sim;  /* settings of the simulated device; NULL: the free driver in its place */
    const char *conf; /* ACCEL_ALLOC_CONF, NULL: that of the run */
    bool count;       /* under callgrind; `counted` gets its output, malloc'd */
    char *counted;
} bench_child_t;

/* Starts the program with `arguments` (separated by blanks), waits, and reads the JSON objects that
 * it printed into an array.  NULL: *error is the reason, malloc'd. */
json_t *bench_child_run(bench_t *b, bench_child_t *child, const char *arguments,
                        char **error);
/* Run time and CPU time of a program.  bench_child_time starts it and discards its output. */
typedef struct {
    double wall_ns, cpu_ns; /* negative if it failed */
} bench_time_t;
bench_time_t bench_child_time(bench_t *b, const bench_child_t *child, const char *arguments);

/* ---- bench_files.c ---- */
/* Returns true if the files of the child at the absolute path `program` are the same as at its first start;
 * sets b->changed if not.  _missed: no program of that name is found any more. */
bool bench_files_same(bench_t *b, const bench_child_t *child, const char *program);
void bench_files_missed(bench_t *b, const char *program);

/* ---- bench_parts.c ---- */
typedef void bench_part_fn(bench_t *b, long round);
typedef struct {
    const char *name;
    bench_part_fn *run;
    const char *what;
    bool apart; /* runs only if it is named */
} bench_part_t;
extern const bench_part_t bench_parts[];
extern const int bench_part_count;

/* Records why `peer` has no figure in `part`.  Without the library itself the run has failed. */
void bench_leave_out(bench_t *b, bench_peer_id_t peer, const char *part, const char *error);
bool bench_is_left_out(const bench_t *b, bench_peer_id_t peer, const char *part);

/* Finds the device and the peers that work.  Returns 0, or -1 after a message. */
int bench_probe(bench_t *b);

/* ---- bench_rows.c ---- */
bench_part_fn bench_run_rows;

/* ---- bench_observe.c ---- */
bench_part_fn bench_run_observe;

/* ---- bench_count.c ---- */
/* Returns true if valgrind can count here; if not, records the reason under `name`. */
bool bench_can_count(bench_t *b, const char *name);
/* Counts instructions per pair of each turn of a workload, into `each`.  Returns the number of turns;
 * 0: *error is the reason. */
int bench_count(bench_t *b, const bench_child_t *child, const char *arguments, double *each,
                int room, char **error);

/* ---- bench_machine.c ---- */
void bench_machine_begin(bench_t *b);
void bench_machine_end(bench_t *b);
void bench_sample_noise(bench_t *b); /* once a round, some 20 ms */
/* Shows the progress of the run on a terminal. */
void bench_progress(const bench_t *b, long round, const char *what);

/* ---- bench_figure.c ---- */
void bench_sample(bench_t *b, double value, const char *path, ...)
    __attribute__((format(printf, 3, 4)));
/* Records the reason for a missing figure; the first reason for a name stays. */
void bench_skip(bench_t *b, const char *name, const char *reason);
/* Computes medians of all samples, then the figures that depend on several of them. */
void bench_finish(bench_t *b);
json_t *bench_document(const bench_t *b);

/* ---- bench_print.c ---- */
void bench_print(const bench_t *b);

#endif

/* `accelcache-dev bench`: the measured parts; see bench.h.
 *
 * A part runs once per round, and starts its programs in turns, so that other load on the machine
 * affects all peers alike.  A program that fails is left out from then on; its message is recorded
 * as the reason. */
#include "bench.h"
#include "command.h"
#include "base/conf.h"
#include "run/place.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const long sizes[] = {512, 64 << 10, 1 << 20, 64 << 20};
enum { SIZES = sizeof sizes / sizeof *sizes };

const bench_peer_t bench_peers[BENCH_PEER_COUNT] = {
#define ANY false
#define GPU true
#define BENCH_PEER(id, program, preload, where, parts, label, missing)                           \
    {#id, program, preload, where, parts, label, missing},
    BENCH_PEERS
#undef BENCH_PEER
#undef ANY
#undef GPU
};

/* ---------------------------------------------------------------- starting a workload */

void bench_leave_out(bench_t *b, bench_peer_id_t peer, const char *part, const char *error) {
    if (b->changed)
        return;
    char *name = cmd_format("%s/%s", part, bench_peers[peer].id);
    if (bench_peers[peer].preload && !b->failed)
        cmd_say("%s: %s", name, error);
    b->failed |= bench_peers[peer].preload;
    bench_skip(b, name, error);
    free(name);
}

bool bench_is_left_out(const bench_t *b, bench_peer_id_t peer, const char *part) {
    char *name = cmd_format("%s/%s", part, bench_peers[peer].id);
    bool left_out = !b->usable[peer] || json_object_get(b->skipped, name);
    free(name);
    return left_out;
}

/* Returns the objects that a workload prints, one for each turn (work.h), or NULL if it prints
 * none; the caller decrefs them.  Passes are `longer` times as long as usual. */
static json_t *work_turns(bench_t *b, bench_peer_id_t peer, const char *part,
                          const char *arguments, long longer) {
    if (bench_is_left_out(b, peer, part))
        return NULL;
    bench_child_t child = {.program = bench_peers[peer].program,
                           .preload = bench_peers[peer].preload};
    char *error = NULL;
    int name = (int)strcspn(arguments, " ");
    char *whole =
        cmd_format("%.*s passes=%d us=%ld pairs=%ld cpu=%d %s", name, arguments, b->quick ? 5 : 7,
                   b->pass_us * longer, b->pairs, b->simulated, arguments + name);
    json_t *all = bench_child_run(b, &child, whole, &error);
    if (!all)
        bench_leave_out(b, peer, part, error);
    free(error);
    free(whole);
    return all;
}

/* Runs a workload of a single turn and returns its object. */
static json_t *work(bench_t *b, bench_peer_id_t peer, const char *part, const char *arguments,
                    long longer) {
    json_t *all = work_turns(b, peer, part, arguments, longer);
    json_t *result = json_incref(json_array_get(all, 0));
    json_decref(all);
    return result;
}

/* Adds the passes of a turn as samples under `path`, which is taken over. */
static void sample_passes(bench_t *b, const json_t *result, char *path) {
    json_t *ns;
    size_t i;
    json_array_foreach(json_object_get(result, "ns"), i, ns) {
        bench_sample(b, json_number_value(ns), "%s", path);
    }
    free(path);
}

/* Runs a workload of a single turn; both strings are taken over. */
static void sample(bench_t *b, bench_peer_id_t peer, const char *part, long longer,
                   char *arguments, char *path) {
    json_t *result = work(b, peer, part, arguments, longer);
    sample_passes(b, result, path);
    json_decref(result);
    free(arguments);
}

/* Loops over the peers that take part in a measurement. */
#define FOR_PEERS(b, peer, part_bit)                                                             \
    for (bench_peer_id_t peer = 0; peer < BENCH_PEER_COUNT; peer++)                              \
        if ((b)->usable[peer] && bench_peers[peer].parts & (part_bit))

/* ---------------------------------------------------------------- pairs */

static void run_hot_pair(bench_t *b, long round) {
    (void)round;
    FOR_PEERS(b, peer, BENCH_HOT) {
        char *arguments = cmd_format("hot live=0 bytes=%ld + bytes=%ld + bytes=%ld + bytes=%ld",
                                     sizes[0], sizes[1], sizes[2], sizes[3]);
        json_t *all = work_turns(b, peer, "hot_pair", arguments, 1), *turn;
        size_t i;
        json_array_foreach(all, i, turn) {
            sample_passes(b, turn,
                          cmd_format("hot_pair/%ld/%s_ns", sizes[i], bench_peers[peer].id));
        }
        json_decref(all);
        free(arguments);
    }
}

static void run_replace(bench_t *b, long round) {
    (void)round;
    FOR_PEERS(b, peer, BENCH_REPLACE) {
        sample(b, peer, "replace_ns", 5, cmd_format("replace live=1000"),
               cmd_format("replace_ns/%s", bench_peers[peer].id));
    }
}

static void run_threads(bench_t *b, long round) {
    static const int counts[] = {1, 2, 4, 8, 16};
    (void)round;
    FOR_PEERS(b, peer, BENCH_THREADS) {
        char *arguments = cmd_format("threads bytes=65536"), *rest;
        for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++, free(rest)) {
            rest = arguments;
            arguments = cmd_format("%s %s threads=%d us=%ld", rest, i ? "+" : "", counts[i],
                                   b->pass_us * ((counts[i] + 1) / 2));
        }
        json_t *all = work_turns(b, peer, "threads", arguments, 1), *turn;
        size_t i;
        json_array_foreach(all, i, turn) {
            sample_passes(b, turn, cmd_format("threads/%d/%s", counts[i], bench_peers[peer].id));
        }
        json_decref(all);
        free(arguments);
    }
}

/* A GPU has no room for 100,000 blocks of 6 MiB on average. */
static void run_blocks(bench_t *b, long round) {
    static const long counts[] = {1000, 10000, 100000};
    long high = b->simulated ? 64 << 20 : 256 << 10;
    (void)round;
    for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++) {
        sample(b, BENCH_accelcache, "blocks", 1,
               cmd_format("hot bytes=65536 live=%ld high=%ld", counts[i], high),
               cmd_format("blocks/%ld", counts[i]));
        sample(b, BENCH_accelcache, "blocks_replace", 5,
               cmd_format("replace live=%ld high=%ld", counts[i], high),
               cmd_format("blocks_replace/%ld", counts[i]));
    }
}

static void run_cross(bench_t *b, long round) {
    (void)round;
    FOR_PEERS(b, peer, BENCH_CROSS) {
        sample(b, peer, "cross_ns", 2, cmd_format("cross bytes=65536"),
               cmd_format("cross_ns/%s", bench_peers[peer].id));
    }
}

static void run_tail(bench_t *b, long round) {
    static const char *const figures[] = {"p50_ns",       "p99_ns",       "p999_ns",
                                          "clock_ns",     "quiet_p50_ns", "quiet_p99_ns",
                                          "quiet_p999_ns"};
    (void)round;
    FOR_PEERS(b, peer, BENCH_TAIL) {
        char *arguments =
            cmd_format("tail bytes=65536 threads=16 streams=32 pairs=%ld", b->pairs   ? b->pairs
                                                                           : b->quick ? 64000l
                                                                                      : 320000l);
        json_t *result = work(b, peer, "tail", arguments, 1);
        for (unsigned i = 0; result && i < sizeof figures / sizeof *figures; i++)
            bench_sample(b, json_number_value(json_object_get(result, figures[i])), "tail/%s/%s",
                         bench_peers[peer].id, figures[i]);
        json_decref(result);
        free(arguments);
    }
}

/* ---------------------------------------------------------------- work in between */

static double counter(const json_t *document, const char *const *names) {
    double sum = 0;
    for (; *names; names++) {
        const json_t *device = json_array_get(json_object_get(document, "devices"), 0);
        const json_t *own = json_object_get(json_object_get(document, "counters"), *names);
        sum += json_number_value(
            own ? own : json_object_get(json_object_get(device, "counters"), *names));
    }
    return sum;
}

static void sample_fences(bench_t *b, const json_t *result, int streams) {
    static const char *const fences[] = {"fences_ctx", "fences_streams", "fences_legacy",
                                         "fences_sync", NULL};
    static const char *const frees[] = {"ready_frees", "ordered_frees", "fenced_frees",
                                        "capture_deferred_frees", NULL};
    const json_t *before = json_object_get(result, "before"),
                 *after = json_object_get(result, "after");
    double freed = counter(after, frees) - counter(before, frees);
    if (freed > 0)
        bench_sample(b, 64 * (counter(after, fences) - counter(before, fences)) / freed,
                     "launch/%d/fences_per_64", streams);
}

/* Takes more turns than other parts: the results are differences of some ns between figures above
 * 100. */
enum { TURNS = 3 };

static void run_launch(bench_t *b, long round) {
    static const int streams[] = {1, 4};
    (void)round;
    for (unsigned i = 0; i < TURNS; i++) {
        json_t *launch = work_turns(b, BENCH_bare, "launch", "launch streams=1 + streams=4", 1);
        json_t *pair = work(b, BENCH_accelcache, "launch", "hot live=0 bytes=1048576", 1);
        json_t *both = work_turns(b, BENCH_accelcache, "launch",
                                  "pair-launch bytes=1048576 streams=1 + streams=4", 1);
        for (unsigned k = 0; k < 2; k++) {
            int n = streams[k];
            sample_passes(b, json_array_get(launch, k),
                          cmd_format("launch/%d/bare_launch_ns", n));
            sample_passes(b, pair, cmd_format("launch/%d/pair_ns", n));
            sample_passes(b, json_array_get(both, k), cmd_format("launch/%d/pair_launch_ns", n));
            sample_fences(b, json_array_get(both, k), n);
        }
        json_decref(launch);
        json_decref(pair);
        json_decref(both);
    }
}

static void run_hooks(bench_t *b, long round) {
    static const char *const calls[][2] = {{"launch", "cuLaunchKernel"},
                                           {"copy", "cuMemcpyAsync"}};
    static const bench_peer_id_t peers[] = {BENCH_bare, BENCH_accelcache};
    (void)round;
    for (int turn = 0; turn < TURNS; turn++)
        for (int i = 0; i < 2; i++)
            for (int p = 0; p < 2; p++)
                sample(b, peers[p], "hooks", 1, cmd_format("%s", calls[i][0]),
                       cmd_format("hooks/%s/%s_ns", calls[i][1], bench_peers[peers[p]].id));
}

/* Runs on the simulated device with published driver costs, in virtual time: one run is
 * enough. */
static void run_multistream(bench_t *b, long round) {
    int iterations = b->pairs ? 2 : 50;
    if (round)
        return;
    for (int preload = 0; preload < 2; preload++) {
        bench_peer_id_t peer = preload ? BENCH_accelcache : BENCH_bare;
        if (bench_is_left_out(b, peer, "multistream"))
            continue;
        bench_child_t child = {.program = "bench_multistream",
                               .preload = preload,
                               .sim = "clock:virtual,costs:published,memory:64G"};
        char *error = NULL, *arguments = cmd_format("--passes %d --iterations %d",
                                                    b->simulated ? 1 : 5, iterations);
        json_t *all = bench_child_run(b, &child, arguments, &error), *way, *ns;
        size_t i, pass;
        if (!all)
            bench_leave_out(b, peer, "multistream", error);
        json_array_foreach(all, i, way) {
            json_array_foreach(json_object_get(way, "ns"), pass, ns) {
                bench_sample(b, json_number_value(ns) / iterations / 1000, "multistream/%s/%s_us",
                             json_string_value(json_object_get(way, "way")),
                             bench_peers[peer].id);
            }
        }
        json_decref(all);
        free(arguments);
        free(error);
    }
}

/* ---------------------------------------------------------------- instructions */

static void count_peer(bench_t *b, bench_peer_id_t peer) {
    double each[SIZES];
    bench_child_t child = {.program = bench_peers[peer].program,
                           .preload = bench_peers[peer].preload};
    char *error = NULL,
         *arguments = cmd_format("hot live=0 bytes=%ld + bytes=%ld + bytes=%ld + bytes=%ld",
                                 sizes[0], sizes[1], sizes[2], sizes[3]);
    int turns = bench_count(b, &child, arguments, each, SIZES, &error);
    if (error) {
        char *name = cmd_format("instructions/%s", bench_peers[peer].id);
        bench_skip(b, name, error);
        free(name);
    }
    for (int i = 0; i < turns; i++) {
        bench_sample(b, each[i], "instructions/%ld/%s", sizes[i], bench_peers[peer].id);
        if (peer == BENCH_accelcache)
            bench_sample(b, each[i], "hot_pair/%ld/instructions", sizes[i]);
    }
    free(error);
    free(arguments);
}

/* Counts instructions.  The counts do not vary, so one round is enough. */
static void run_instructions(bench_t *b, long round) {
    if (round || !bench_can_count(b, "instructions"))
        return;
    FOR_PEERS(b, peer, BENCH_HOT) {
        count_peer(b, peer);
    }
}

/* ---------------------------------------------------------------- pinned memory */

/* Measures pinned memory of the driver, and pinned memory kept by pinned_cache. */
static void run_pinned(bench_t *b, long round) {
    static const long bytes[] = {4 << 10, 1 << 20, 64 << 20};
    static const bench_peer_id_t peers[] = {BENCH_bare, BENCH_accelcache};
    char *conf = b->conf, *error = NULL;
    char *arguments = cmd_format("hot passes=%d us=%ld pairs=%ld cpu=%d live=0 bytes=%ld + "
                                 "bytes=%ld + bytes=%ld",
                                 b->quick ? 5 : 7, b->pass_us, b->pairs, b->simulated, bytes[0],
                                 bytes[1], bytes[2]);
    (void)round;
    b->conf = cmd_conf_set(conf, "pinned_cache", "true");
    for (unsigned p = 0; p < sizeof peers / sizeof *peers; p++) {
        const bench_peer_t *peer = &bench_peers[peers[p]];
        if (bench_is_left_out(b, peers[p], "pinned"))
            continue;
        bench_child_t child = {.program = "bench_pinned", .preload = peer->preload};
        json_t *all = bench_child_run(b, &child, arguments, &error), *turn;
        size_t i;
        if (!all && b->simulated) /* the driver that costs nothing has no pinned memory */
            bench_skip(b, "pinned", error);
        else if (!all)
            bench_leave_out(b, peers[p], "pinned", error);
        json_array_foreach(all, i, turn) {
            sample_passes(b, turn, cmd_format("pinned/%ld/%s_ns", bytes[i], peer->id));
        }
        json_decref(all);
        free(error);
        error = NULL;
    }
    free(b->conf);
    b->conf = conf;
    free(arguments);
}

/* ---------------------------------------------------------------- processes */

/* Settings of the simulated device with all its bookkeeping, but without costs.  Addresses are
 * plentiful, and unwritten memory takes none. */
static const char books_sim[] = "clock:virtual,costs:none,kernel_us:0,memory:4T";

static void run_startup(bench_t *b, long round) {
    static const struct {
        const char *name, *program, *arguments;
        bool dump;
    } rows[] = {{"cuda", "bench_driver", "start", false},
                {"cuda_dump", "bench_driver", "start", true},
                {"true", "/bin/true", "", false}};
    int turns = b->pairs ? 1 : !b->simulated ? 3 : b->quick ? 15 : 30;
    char *conf = b->conf;
    (void)round;
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int turn = 0; turn < 2 * turns; turn++) {
            bench_peer_id_t peer = turn % 2 ? BENCH_accelcache : BENCH_bare;
            if (bench_is_left_out(b, peer, "startup"))
                continue;
            bench_child_t child = {
                .program = rows[i].program, .preload = turn % 2, .sim = books_sim};
            /* A dump with its full cost, but without a file. */
            b->conf = rows[i].dump ? cmd_conf_set(conf, "dump", "/dev/null") : conf;
            bench_time_t time = bench_child_time(b, &child, rows[i].arguments);
            const char *id = bench_peers[peer].id;
            if (time.wall_ns < 0) {
                bench_leave_out(b, peer, "startup", "a program failed to start");
            } else {
                bench_sample(b, time.wall_ns / 1e6, "startup/%s/%s_ms", rows[i].name, id);
                bench_sample(b, time.cpu_ns / 1e6, "startup/%s/%s_cpu_ms", rows[i].name, id);
            }
            if (b->conf != conf)
                free(b->conf);
            b->conf = conf;
        }
}

static void run_memory(bench_t *b, long round) {
    static const struct { long bytes, live; } rows[] = {{64 << 10, 16384}, {512, 262144}};
    static const bench_peer_id_t peers[] = {BENCH_bare, BENCH_accelcache};
    (void)round;
    for (int p = 0; p < 2; p++) {
        json_t *result = work(b, peers[p], "memory", "small", 1);
        if (result)
            bench_sample(b, json_number_value(json_object_get(result, "rss_kib")),
                         "memory/small_cuda/%s_kib", bench_peers[peers[p]].id);
        json_decref(result);
    }
    for (int i = 0; !round && i < 2; i++) {
        long live = b->pairs ? b->pairs : rows[i].live;
        char *arguments = cmd_format("held bytes=%ld live=%ld", rows[i].bytes, live);
        json_t *result = work(b, BENCH_accelcache, "memory", arguments, 1);
        if (result) {
            double kib = json_number_value(json_object_get(result, "host_kib"));
            bench_sample(b, kib, "memory/blocks_%ld/accelcache_kib", rows[i].bytes);
            bench_sample(b, kib * 1024 / ((double)live * (double)rows[i].bytes) * 100,
                         "memory/blocks_%ld/percent", rows[i].bytes);
        }
        json_decref(result);
        free(arguments);
    }
}

const bench_part_t bench_parts[] = {
    {"rows", bench_run_rows, "one thing each, beside other allocators: the rows below", false},
    {"hot_pair", run_hot_pair, "one block allocated and freed again and again, by size", false},
    {"replace", run_replace, "1,000 live blocks of 512 B to 64 MiB, a random one replaced",
     false},
    {"threads", run_threads, "64 KiB pairs by 1 to 16 threads: CPU time per pair", false},
    {"blocks", run_blocks, "10^3 to 10^5 live blocks: 64 KiB pairs, and random replacement",
     false},
    {"cross", run_cross, "one thread allocates, another frees: CPU time of both per pair", false},
    {"tail", run_tail, "16 threads and 32 streams: every call timed by itself", false},
    {"launch", run_launch, "a kernel launch between malloc and free, on 1 and 4 streams", false},
    {"hooks", run_hooks, "what the library adds to calls that submit work", false},
    {"multistream", run_multistream, "temporary buffers on several streams", false},
    {"instructions", run_instructions, "instructions per pair, counted by valgrind", false},
    {"pinned", run_pinned, "pinned host memory: the driver's, and kept by pinned_cache", false},
    {"startup", run_startup, "what the library adds to starting a program", false},
    {"memory", run_memory, "the library's own host memory", false},
    {"observe", bench_run_observe, "what each way of observing costs (--observe)", true},
};
const int bench_part_count = sizeof bench_parts / sizeof *bench_parts;

/* ---------------------------------------------------------------- what is there */

static bool is_true(const json_t *info, const char *key) {
    return json_is_true(json_object_get(info, key));
}

/* Asks a program with its workload "info".  Returns its object, or NULL with *error. */
static json_t *ask(bench_t *b, const bench_peer_t *peer, char **error) {
    bench_child_t child = {.program = peer->program, .preload = peer->preload};
    json_t *all = bench_child_run(b, &child, "info bytes=512", error);
    json_t *info = all ? json_incref(json_array_get(all, 0)) : NULL;
    json_decref(all);
    return info;
}

/* Chooses the stand-in runtime if a GPU's driver has no runtime that works with it.  A search path
 * would find the simulated driver, too, so the runtime is preloaded instead. */
static void choose_runtime(bench_t *b, const char *folder) {
    char *error = NULL;
    json_t *info = ask(b, &bench_peers[BENCH_bare], &error);
    if (!info && folder) {
        char *reason = cmd_format("does not work here (%s): programs get the stand-in runtime, "
                                  "which calls the real driver",
                                  error);
        b->runtime = cmd_format("%s/libcudart.so.13", folder);
        bench_skip(b, "libcudart", reason);
        free(reason);
    }
    json_decref(info);
    free(error);
}

/* Chooses the driver that a program finds by itself.  Without one, or with --sim, it chooses the
 * simulated device.  `b->simulator` is its folder, and NULL if it is not needed. */
static void choose_device(bench_t *b) {
    char *folder = b->simulator, *error = NULL;
    b->simulated = true;
    if (b->force_simulated)
        return;
    b->simulator = NULL;
    json_t *info = ask(b, &bench_peers[BENCH_driver], &error);
    /* LD_LIBRARY_PATH may also lead to the simulated device, which then gets our settings. */
    if (info && !is_true(info, "simulated")) {
        b->simulated = false;
        choose_runtime(b, folder);
        free(folder);
    } else {
        b->simulator = folder;
    }
    free(error);
    json_decref(info);
}

/* Finds the folder of the driver that costs nothing, malloc'd; NULL after a message. */
static char *find_free_driver(void) {
    char *error = NULL, *path = cmd_place_helper("free/libcuda.so.1", &error);
    if (path)
        *strrchr(path, '/') = '\0';
    else
        cmd_say("%s", error);
    free(error);
    return path;
}

int bench_probe(bench_t *b) {
    b->free_driver = find_free_driver();
    if (!b->free_driver)
        return -1;
    choose_device(b);
    if (b->simulated && !b->simulator) {
        cmd_say("no CUDA driver works here, and the simulated device is not installed");
        return -1;
    }
    for (bench_peer_id_t peer = 0; peer < BENCH_PEER_COUNT; peer++) {
        const bench_peer_t *p = &bench_peers[peer];
        char *error = NULL, *missing = NULL;
        if (b->without & 1u << peer) {
            bench_skip(b, p->id, "left out as --without says");
            continue;
        }
        if (p->gpu_only && b->simulated) {
            bench_skip(b, p->id, "measured on a GPU only");
            continue;
        }
        json_t *info = ask(b, p, &error);
        b->usable[peer] = info && p->preload == is_true(info, "library");
        if (info && !p->preload && !b->usable[peer]) {
            bench_skip(b, p->id, "LD_PRELOAD of the environment loads the library: unset it");
        } else if (!b->usable[peer]) {
            if (error && strstr(error, "was not found next to"))
                missing = cmd_format("%s is not there: %s", p->program, p->missing);
            bench_skip(b, p->id,
                       missing ? missing
                       : error ? error
                               : "the library was not loaded into the program");
        }
        json_decref(info);
        free(error);
        free(missing);
    }
    /* The stand-in serves only if NVIDIA's static runtime is missing. */
    if (b->usable[BENCH_cudart] && b->usable[BENCH_static]) {
        b->usable[BENCH_static] = false;
        bench_skip(b, bench_peers[BENCH_static].id, "NVIDIA's runtime is there: cudart");
    }
    if (b->changed) {
        cmd_say("%s", b->changed);
        return -1;
    }
    if (!b->usable[BENCH_accelcache]) {
        cmd_say("the library cannot be measured: %s",
                json_string_value(json_object_get(b->skipped, "accelcache")));
        return -1;
    }
    return 0;
}

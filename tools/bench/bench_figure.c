/* `accelcache-dev bench`: from samples to figures; see bench.h. */
#include "bench.h"
#include "command.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void bench_sample(bench_t *b, double value, const char *path, ...) {
    va_list args;
    char *name = NULL;
    va_start(args, path);
    if (vasprintf(&name, path, args) < 0)
        name = NULL;
    va_end(args);
    if (!name)
        return;
    json_t *values = json_object_get(b->samples, name);
    if (!values) {
        values = json_array();
        json_object_set_new(b->samples, name, values);
    }
    json_array_append_new(values, json_real(value));
    free(name);
}

void bench_skip(bench_t *b, const char *name, const char *reason) {
    if (!b->changed && !json_object_get(b->skipped, name)) { /* else b->changed is the reason */
        json_object_set_new(b->skipped, name, cmd_json_text(reason));
    }
}

/* ---------------------------------------------------------------- medians */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Rounds to a thousandth: more digits are only noise. */
static double rounded(double value) {
    return (double)(long long)(value * 1000 + (value < 0 ? -0.5 : 0.5)) / 1000;
}

/* Sets `value` (taken over) in `root` under "a/b/c". */
static void set_path(json_t *root, const char *path, json_t *value) {
    char *copy = cmd_format("%s", path), *state, *part = strtok_r(copy, "/", &state), *next;
    while ((next = strtok_r(NULL, "/", &state))) {
        json_t *inner = json_object_get(root, part);
        if (!inner) {
            inner = json_object();
            json_object_set_new(root, part, inner);
        }
        root = inner;
        part = next;
    }
    json_object_set_new(root, part, value);
    free(copy);
}

static const json_t *get_path(const json_t *root, const char *path) {
    char *copy = cmd_format("%s", path), *state;
    for (char *part = strtok_r(copy, "/", &state); part; part = strtok_r(NULL, "/", &state))
        root = json_object_get(root, part);
    free(copy);
    return root;
}

static void find_median(bench_t *b, const char *path, const json_t *samples) {
    size_t count = json_array_size(samples);
    double *value = cmd_alloc(count * sizeof *value);
    for (size_t i = 0; i < count; i++)
        value[i] = json_real_value(json_array_get(samples, i));
    qsort(value, count, sizeof *value, by_value);
    double median = count % 2 ? value[count / 2] : (value[count / 2 - 1] + value[count / 2]) / 2;
    set_path(b->figures, path, json_real(rounded(median)));
    set_path(b->passes, path,
             json_pack("{s:f, s:f, s:i}", "least", rounded(value[0]), "greatest",
                       rounded(value[count - 1]), "passes", (int)count));
    free(value);
}

/* ---------------------------------------------------------------- differences and quotients */

/* Figures computed from medians: DERIVED(result, first, second, third, kind).
 * LESS: first - second - third (if it is given).  OVER: first / second. */
static const struct derived {
    const char *result, *first, *second, *third;
    enum { LESS, OVER } kind;
} derived[] = {
    {"launch/1/beyond_ns", "launch/1/pair_launch_ns", "launch/1/bare_launch_ns",
     "launch/1/pair_ns", LESS},
    {"launch/4/beyond_ns", "launch/4/pair_launch_ns", "launch/4/bare_launch_ns",
     "launch/4/pair_ns", LESS},
    {"hooks/cuLaunchKernel/added_ns", "hooks/cuLaunchKernel/accelcache_ns",
     "hooks/cuLaunchKernel/bare_ns", NULL, LESS},
    {"hooks/cuMemcpyAsync/added_ns", "hooks/cuMemcpyAsync/accelcache_ns",
     "hooks/cuMemcpyAsync/bare_ns", NULL, LESS},
#define STARTUP(program, unit)                                                                   \
    {                                                                                            \
        "startup/" program "/added_" unit, "startup/" program "/accelcache_" unit,               \
            "startup/" program "/bare_" unit, NULL, LESS                                         \
    }
    STARTUP("cuda", "ms"),
    STARTUP("cuda", "cpu_ms"),
    STARTUP("cuda_dump", "ms"),
    STARTUP("cuda_dump", "cpu_ms"),
    STARTUP("true", "ms"),
    STARTUP("true", "cpu_ms"),
#undef STARTUP
    {"memory/small_cuda/added_kib", "memory/small_cuda/accelcache_kib",
     "memory/small_cuda/bare_kib", NULL, LESS},
    {"multistream/once/accelcache_ratio", "multistream/once/accelcache_us",
     "multistream/once/bare_us", NULL, OVER},
    {"multistream/plain/accelcache_ratio", "multistream/plain/accelcache_us",
     "multistream/once/bare_us", NULL, OVER},
    {"multistream/plain/bare_ratio", "multistream/plain/bare_us", "multistream/once/bare_us",
     NULL, OVER},
    {"multistream/async/accelcache_ratio", "multistream/async/accelcache_us",
     "multistream/once/bare_us", NULL, OVER},
    {"multistream/async/bare_ratio", "multistream/async/bare_us", "multistream/once/bare_us",
     NULL, OVER},
};

static void derive(bench_t *b, const struct derived *row) {
    const json_t *first = get_path(b->figures, row->first),
                 *second = get_path(b->figures, row->second),
                 *third = row->third ? get_path(b->figures, row->third) : NULL;
    if (!first || !second || (row->third && !third))
        return;
    double value =
        row->kind == LESS
            ? json_number_value(first) - json_number_value(second) - json_number_value(third)
        : json_number_value(second) > 0 ? json_number_value(first) / json_number_value(second)
                                        : 0;
    set_path(b->figures, row->result, json_real(rounded(value)));
}

/* Computes the added cost of observing, compared with everything off. */
static void derive_observed(bench_t *b, const char *row, const char *loop) {
    char *path[3] = {cmd_format("observe/%s/%s_added_ns", row, loop),
                     cmd_format("observe/%s/%s_ns", row, loop),
                     cmd_format("observe/%s/%s_ns", bench_observe[0].id, loop)};
    derive(b, &(struct derived){path[0], path[1], path[2], NULL, LESS});
    for (int i = 0; i < 3; i++)
        free(path[i]);
}

void bench_finish(bench_t *b) {
    const char *path;
    json_t *samples;
    json_object_foreach(b->samples, path, samples) {
        find_median(b, path, samples);
    }
    for (unsigned i = 0; i < sizeof derived / sizeof *derived; i++)
        derive(b, &derived[i]);
    for (int i = 1; i < BENCH_OBSERVE_COUNT; i++) {
        derive_observed(b, bench_observe[i].id, "hit");
        derive_observed(b, bench_observe[i].id, "miss");
    }
    /* Present even if empty, for any selection of parts: readers of the JSON rely on them. */
    static const char *const always[] = {"hot_pair", "replace_ns", "threads", "blocks"};
    for (unsigned i = 0; i < sizeof always / sizeof *always; i++)
        if (!json_object_get(b->figures, always[i]))
            json_object_set_new(b->figures, always[i], json_object());
}

json_t *bench_document(const bench_t *b) {
    json_t *whole = json_pack(
        "{s:s, s:i, s:s, s:b, s:b, s:i, s:i, s:i}", "schema", "accelcache-bench", "version", 1,
        "accelcache", AC_VERSION, "quick", b->quick, "simulated", b->simulated, "rounds",
        (int)b->rounds, "pass_us", (int)b->pass_us, "cpus", (int)sysconf(_SC_NPROCESSORS_ONLN));
    json_object_set(whole, "machine", b->machine);
    json_object_update(whole, b->figures);
    if (b->changed)
        json_object_set_new(whole, "stopped", cmd_json_text(b->changed));
    json_object_set(whole, "skipped", b->skipped);
    json_object_set(whole, "passes", b->passes);
    return whole;
}

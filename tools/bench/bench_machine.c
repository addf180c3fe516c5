/* `accelcache-dev bench`: the machine, other load on it, and the progress of the run; see
 * bench.h. */
#include "bench.h"
#include "command.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Returns the first "model name" of the system, malloc'd. */
static char *cpu_model(void) {
    char *text = cmd_file_read("/proc/cpuinfo", NULL);
    const char *at = text ? strstr(text, "model name") : NULL;
    at = at ? strchr(at, ':') : NULL;
    char *model =
        at ? cmd_format("%.*s", (int)strcspn(at + 2, "\n"), at + 2) : cmd_format("unknown CPU");
    free(text);
    return model;
}

static json_t *load_now(void) {
    double load[1] = {0};
    return json_real(getloadavg(load, 1) == 1 ? load[0] : 0);
}

/* Runs the same work again and again: differences in time come from the machine.  The figures are
 * CPU time.  Wall time, measured too, tells whether other programs took the core. */
void bench_sample_noise(bench_t *b) {
    enum { TURNS = 20, STEPS = 400000 };
    for (int i = 0; i < TURNS; i++) {
        double cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID), wall = clock_ns(CLOCK_MONOTONIC);
        for (volatile int step = 0; step < STEPS; step++)
            continue;
        cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
        wall = clock_ns(CLOCK_MONOTONIC) - wall;
        bench_noise_t *noise = &b->noise;
        noise->least = !noise->count || cpu < noise->least ? cpu : noise->least;
        noise->greatest = cpu > noise->greatest ? cpu : noise->greatest;
        noise->cpu += cpu;
        noise->wall += wall;
        noise->count++;
    }
}

void bench_machine_begin(bench_t *b) {
    char *model = cpu_model();
    b->machine = json_object();
    json_object_set_new(b->machine, "cpu", cmd_json_text(model));
    json_object_set_new(b->machine, "cpus", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
    json_object_set_new(b->machine, "load_before", load_now());
    free(model);
}

static double rounded(double value) {
    return (double)(long long)(value * 1000 + 0.5) / 1000;
}

void bench_machine_end(bench_t *b) {
    const bench_noise_t *noise = &b->noise;
    json_object_set_new(b->machine, "load_after", load_now());
    if (!noise->count)
        return;
    json_object_set_new(b->machine, "noise_mean",
                        json_real(rounded(noise->cpu / noise->count / noise->least)));
    json_object_set_new(b->machine, "noise_worst",
                        json_real(rounded(noise->greatest / noise->least)));
    json_object_set_new(b->machine, "waited", json_real(rounded(noise->wall / noise->cpu)));
}

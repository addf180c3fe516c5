/* bench_pair: nanoseconds for one cudaMalloc + cudaFree pair, through the dynamic symbols.
 *
 *   bench_pair [PAIRS [PASSES]]      one line per size: bytes, median, least, greatest
 *
 * tools/bench/run starts it without and with the shim in turn.  Nothing is submitted between the
 * calls, so every pair after the first is a cache hit. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cuda_runtime_min.h"

enum { MAX_PASSES = 101 };

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void pair(size_t bytes) {
    void *pointer;
    if (cudaMalloc(&pointer, bytes) != cudaSuccess || cudaFree(pointer) != cudaSuccess) {
        fprintf(stderr, "bench_pair: cudaMalloc of %zu bytes failed\n", bytes);
        exit(1);
    }
}

int main(int argc, char **argv) {
    static const size_t sizes[] = {512, 64 << 10, 1 << 20, 64 << 20};
    long pairs = argc > 1 ? atol(argv[1]) : 200000;
    int passes = argc > 2 ? atoi(argv[2]) : 7;
    if (pairs < 1 || passes < 1 || passes > MAX_PASSES) {
        fprintf(stderr, "usage: bench_pair [PAIRS [PASSES, at most %d]]\n", MAX_PASSES);
        return 2;
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        double ns[MAX_PASSES];
        pair(sizes[i]);
        for (int pass = 0; pass < passes; pass++) {
            double begin = now_ns();
            for (long n = 0; n < pairs; n++)
                pair(sizes[i]);
            ns[pass] = (now_ns() - begin) / (double)pairs;
        }
        qsort(ns, (size_t)passes, sizeof *ns, by_value);
        printf("%zu %.1f %.1f %.1f\n", sizes[i], ns[passes / 2], ns[0], ns[passes - 1]);
    }
    return 0;
}

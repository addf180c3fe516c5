/* Number of blocks that fit into a device (contract 3), compared with the driver alone.
 *
 * A driver hands out memory in pages of 2 MiB; the simulated one in 512 bytes.
 *   - Equal blocks of whole pages: as many as without the library.
 *   - Equal blocks of other sizes: as many as with a driver that rounds each block up to pages,
 *     and at least 63/64 of the number without the library.  Segments are rounded up to pages.
 *   - Two sizes in turn: the limits of equal blocks, less one pair and another 64th.  The rest of
 *     a segment may fit neither size.
 * Equal blocks are freed and requested a second time.
 *
 * usage: fit [bare]   `bare`: exactly as many as the simulated driver serves */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "answers.h"

enum { MANY = 40000, PAGE_KIB = 2048 };
static const uint64_t DEVICE = (uint64_t)16 << 30;
static CUdeviceptr held[MANY];

/* Sizes in KiB. The second is 0, or alternates with the first. */
static const struct {
    unsigned kib[2];
} cases[] = {
    {{1024}},           {{1331}},
    {{2048}},           {{3072}},
    {{5120}},           {{7168}},
    {{10240}},          {{11264}},
    {{13312}},          {{17408}},
    {{19968}},          {{20480}},
    {{21504}},          {{24576}},
    {{33792}},          {{49152}},
    {{65536}},          {{79565}},
    {{102400}},         {{131072}},
    {{153600}},         {{204800}},
    {{262144}},         {{307200}},
    {{341299}},         {{409600}},
    {{512000}},         {{524288}},
    {{614400}},         {{716800}},
    {{786432}},         {{921600}},
    {{1024000}},        {{1048576}},
    {{1126400}},        {{1331200}},
    {{1536000}},        {{2048000}},
    {{2097152}},        {{2560000}},
    {{3072001}},        {{3145728}},
    {{307200, 102400}}, {{307200, 174080}},
    {{716800, 307200}}, {{262144, 65536}},
    {{30720, 17408}},   {{10240, 3072}},
    {{102400, 33792}},  {{1048576, 786432}},
    {{2048000, 3072}},  {{512000, 20480}},
    {{65536, 1024}},    {{132096, 130048}},
    {{92160, 71680}},
};

/* Blocks of the case that fit into the device, each rounded up to `unit` KiB. */
static unsigned expected(const unsigned kib[2], unsigned unit) {
    uint64_t room = DEVICE >> 10;
    for (unsigned n = 0;; n++) {
        uint64_t size = kib[kib[1] ? n % 2 : 0];
        size = (size + unit - 1) / unit * unit;
        if (size > room)
            return n;
        room -= size;
    }
}

static unsigned take(const unsigned kib[2]) {
    unsigned n = 0;
    while (n < MANY && cuMemAlloc_v2(&held[n], (size_t)kib[kib[1] ? n % 2 : 0] << 10) == 0)
        n++;
    return n;
}

/* Frees every other block first, then the rest. */
static void give(unsigned n) {
    for (unsigned first = 0; first < 2; first++)
        for (unsigned i = first; i < n; i += 2)
            MUST(cuMemFree_v2(held[i]));
}

static unsigned least(const unsigned kib[2], bool bare) {
    unsigned fine = expected(kib, 1), pages = expected(kib, PAGE_KIB);
    if (bare)
        return fine;
    unsigned most = fine - fine / 64 - (fine % 64 != 0);
    if (kib[1])
        return most - fine / 64 < pages ? most - fine / 64 - 2 : pages - 2;
    return most > pages ? most : pages;
}

typedef struct {
    const unsigned *kib;
    bool bare;
} ask_t;

static void count(const void *arg) {
    const ask_t *ask = arg;
    unsigned wanted = least(ask->kib, ask->bare), failures = 0;
    test_device(0);
    for (unsigned round = 0; round < (ask->kib[1] ? 1 : 2); round++) {
        unsigned n = take(ask->kib);
        give(n);
        if (n >= wanted)
            continue;
        printf("not so: %u blocks of %u and %u KiB fit (round %u), at least %u should; "
               "%u without the library\n",
               n, ask->kib[0], ask->kib[1], round, wanted, expected(ask->kib, 1));
        failures++;
    }
    fflush(stdout);
    _exit(failures != 0);
}

int main(int argc, char **argv) {
    bool failed = false;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ask_t ask = {cases[i].kib, argc > 1 && !strcmp(argv[1], "bare")};
        failed |= in_child("fit", count, &ask) != 0;
    }
    return failed;
}

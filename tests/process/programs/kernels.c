/* The kernels of random programs: host functions that write and compare a block's head. */
#include <stdatomic.h>
#include <string.h>

#include "execute_int.h"

/* (block, its bytes, block read, its bytes, value to write, value expected or 0, operation) */
#define ENTRY(name)                                                                              \
    ".visible .entry " name "(.param .u64 a, .param .u32 b, .param .u64 c, .param .u32 d, "      \
    ".param .u32 e, .param .u32 f, .param .u32 g) { ret; }\n"
const char run_ptx[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n" ENTRY("fill0") ENTRY("fill1") ENTRY("fill2")
        ENTRY("check0") ENTRY("check1") ENTRY("check2") ENTRY("mix0") ENTRY("mix1") ENTRY("mix2");

static atomic_uint mismatches;
static struct {
    size_t at;
    uint32_t expect, found;
} first_mismatch;

void run_mismatch(size_t at, uint32_t expect, uint32_t found) {
    if (!atomic_fetch_add(&mismatches, 1)) {
        first_mismatch.at = at;
        first_mismatch.expect = expect;
        first_mismatch.found = found;
    }
}

void run_check_mismatch(void) {
    if (atomic_load(&mismatches))
        run_fail("operation %zu found 0x%x where 0x%x was written", first_mismatch.at,
                 first_mismatch.found, first_mismatch.expect);
}

uint32_t run_mixed(uint32_t value) {
    uint32_t mixed = value * 2654435761u + 12345;
    return mixed ? mixed : 1;
}

static void write_head(CUdeviceptr to, uint32_t value) {
    uint32_t *words = simcuda_host(to);
    for (unsigned i = 0; words && i < HEAD / 4; i++)
        words[i] = value;
}

static uint32_t read_head(CUdeviceptr from, uint32_t expect, uint32_t at) {
    const uint32_t *words = simcuda_host(from);
    for (unsigned i = 0; words && expect && i < HEAD / 4; i++)
        if (words[i] != expect) {
            run_mismatch(at, expect, words[i]);
            break;
        }
    return words ? *words : 0;
}

#define ARGUMENT(launch, i, type) (*(const type *)(launch)->params[i])

static void fill(const simcuda_launch_t *launch) {
    write_head(ARGUMENT(launch, 0, CUdeviceptr), ARGUMENT(launch, 4, uint32_t));
}

static void check(const simcuda_launch_t *launch) {
    read_head(ARGUMENT(launch, 0, CUdeviceptr), ARGUMENT(launch, 5, uint32_t),
              ARGUMENT(launch, 6, uint32_t));
}

static void mix(const simcuda_launch_t *launch) {
    uint32_t value = read_head(ARGUMENT(launch, 2, CUdeviceptr), ARGUMENT(launch, 5, uint32_t),
                               ARGUMENT(launch, 6, uint32_t));
    write_head(ARGUMENT(launch, 0, CUdeviceptr), run_mixed(value));
}

void run_register_kernels(void) {
    static const unsigned short sizes[] = {8, 4, 8, 4, 4, 4, 4};
    static const simcuda_access_t writes[] = {{0, 1, 1, 1}}, reads[] = {{0, 1, 1, 0}},
                                  mixes[] = {{0, 1, 1, 1}, {2, 3, 1, 0}};
    static const struct {
        const char *name[LAUNCH_SPEEDS];
        simcuda_kernel_fn *fn;
        unsigned count;
        const simcuda_access_t *access;
    } kernels[] = {{{"fill0", "fill1", "fill2"}, fill, 1, writes},
                   {{"check0", "check1", "check2"}, check, 1, reads},
                   {{"mix0", "mix1", "mix2"}, mix, 2, mixes}};
    static const long long ns[LAUNCH_SPEEDS] = {1000, 20000, 500000};
    for (unsigned i = 0; i < KERNELS; i++)
        for (unsigned j = 0; j < LAUNCH_SPEEDS; j++) {
            simcuda_kernel_t kernel = {kernels[i].name[j], kernels[i].fn,    ns[j], 7, sizes,
                                       kernels[i].count,   kernels[i].access};
            if (simcuda_register_kernel(&kernel))
                run_fail("kernel %s cannot be registered", kernels[i].name[j]);
        }
}

/* Kernels of the demonstration, in both forms; see kernels.h.  The simulated device finds the host
 * functions by their names, simcuda_kernel_<kernel>, in the program's dynamic symbols. */
#include "kernels.h"

#include <stddef.h>
#include <string.h>

#include "../simcuda/simcuda.h"

/* Shared beginnings of the three entries: global thread number into %r4, n into %r5. */
#define PTX_INDEX                                                                                \
    "    ld.param.u32 %r5, [n];\n"                                                               \
    "    mov.u32 %r1, %ctaid.x;\n"                                                               \
    "    mov.u32 %r2, %ntid.x;\n"                                                                \
    "    mov.u32 %r3, %tid.x;\n"                                                                 \
    "    mad.lo.s32 %r4, %r1, %r2, %r3;\n"
#define PTX_REGISTERS                                                                            \
    "    .reg .pred %p<2>;\n"                                                                    \
    "    .reg .f32 %f<5>;\n"                                                                     \
    "    .reg .b32 %r<8>;\n"                                                                     \
    "    .reg .b64 %rd<8>;\n"
/* One PTX instruction a line. */
/* clang-format off */
#define PTX_POINTER(register, name)                                                              \
    "    ld.param.u64 " register ", [" name "];\n"                                               \
    "    cvta.to.global.u64 " register ", " register ";\n"

const char demo_ptx[] =
    ".version 6.4\n"
    ".target sm_50\n"
    ".address_size 64\n"
    "\n"
    ".visible .entry saxpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y,\n"
    "                      .param .u64 out)\n"
    "{\n"
    PTX_REGISTERS
    PTX_INDEX
    "    setp.ge.u32 %p1, %r4, %r5;\n"
    "    @%p1 bra done;\n"
    PTX_POINTER("%rd1", "x")
    PTX_POINTER("%rd2", "y")
    PTX_POINTER("%rd3", "out")
    "    mul.wide.u32 %rd4, %r4, 4;\n"
    "    add.s64 %rd5, %rd1, %rd4;\n"
    "    add.s64 %rd6, %rd2, %rd4;\n"
    "    add.s64 %rd7, %rd3, %rd4;\n"
    "    ld.global.f32 %f2, [%rd5];\n"
    "    ld.global.f32 %f3, [%rd6];\n"
    "    ld.param.f32 %f1, [a];\n"
    "    fma.rn.f32 %f4, %f1, %f2, %f3;\n"
    "    st.global.f32 [%rd7], %f4;\n"
    "done:\n"
    "    ret;\n"
    "}\n"
    "\n"
    ".visible .entry product(.param .u32 n, .param .u64 x, .param .u64 y, .param .u64 out)\n"
    "{\n"
    PTX_REGISTERS
    PTX_INDEX
    "    setp.ge.u32 %p1, %r4, %r5;\n"
    "    @%p1 bra done;\n"
    PTX_POINTER("%rd1", "x")
    PTX_POINTER("%rd2", "y")
    PTX_POINTER("%rd3", "out")
    "    mul.wide.u32 %rd4, %r4, 4;\n"
    "    add.s64 %rd5, %rd1, %rd4;\n"
    "    add.s64 %rd6, %rd2, %rd4;\n"
    "    add.s64 %rd7, %rd3, %rd4;\n"
    "    ld.global.f32 %f2, [%rd5];\n"
    "    ld.global.f32 %f3, [%rd6];\n"
    "    mul.rn.f32 %f4, %f2, %f3;\n"
    "    st.global.f32 [%rd7], %f4;\n"
    "done:\n"
    "    ret;\n"
    "}\n"
    "\n"
    ".visible .entry stripes(.param .u32 n, .param .u64 x, .param .u64 out)\n"
    "{\n"
    PTX_REGISTERS
    PTX_INDEX
    PTX_POINTER("%rd1", "x")
    PTX_POINTER("%rd2", "out")
    "    mov.u32 %r6, %nctaid.x;\n"
    "    mul.lo.u32 %r6, %r6, %r2;\n"
    "    mov.f32 %f1, 0f00000000;\n"
    "    mov.u32 %r7, %r4;\n"
    "next:\n"
    "    setp.ge.u32 %p1, %r7, %r5;\n"
    "    @%p1 bra done;\n"
    "    mul.wide.u32 %rd3, %r7, 4;\n"
    "    add.s64 %rd4, %rd1, %rd3;\n"
    "    ld.global.f32 %f2, [%rd4];\n"
    "    add.f32 %f1, %f1, %f2;\n"
    "    add.u32 %r7, %r7, %r6;\n"
    "    bra next;\n"
    "done:\n"
    "    mul.wide.u32 %rd5, %r4, 4;\n"
    "    add.s64 %rd6, %rd2, %rd5;\n"
    "    st.global.f32 [%rd6], %f1;\n"
    "    ret;\n"
    "}\n";
/* clang-format on */

static demo_host_fn *host_address;

void demo_kernels_on_host(demo_host_fn *lookup) {
    host_address = lookup;
}

static unsigned count_arg(const simcuda_launch_t *launch, unsigned index) {
    unsigned value;
    memcpy(&value, launch->params[index], sizeof(value));
    return value;
}

static float *floats_arg(const simcuda_launch_t *launch, unsigned index) {
    CUdeviceptr address;
    memcpy(&address, launch->params[index], sizeof(address));
    return host_address(address);
}

simcuda_kernel_fn simcuda_kernel_saxpy, simcuda_kernel_product, simcuda_kernel_stripes;

void simcuda_kernel_saxpy(const simcuda_launch_t *launch) {
    unsigned n = count_arg(launch, 0);
    const float *x = floats_arg(launch, 2), *y = floats_arg(launch, 3);
    float *out = floats_arg(launch, 4), a;
    memcpy(&a, launch->params[1], sizeof(a));
    for (unsigned i = 0; i < n; i++)
        out[i] = a * x[i] + y[i];
}

void simcuda_kernel_product(const simcuda_launch_t *launch) {
    unsigned n = count_arg(launch, 0);
    const float *x = floats_arg(launch, 1), *y = floats_arg(launch, 2);
    float *out = floats_arg(launch, 3);
    for (unsigned i = 0; i < n; i++)
        out[i] = x[i] * y[i];
}

void simcuda_kernel_stripes(const simcuda_launch_t *launch) {
    unsigned n = count_arg(launch, 0), threads = launch->grid[0] * launch->block[0];
    const float *x = floats_arg(launch, 1);
    float *out = floats_arg(launch, 2);
    memset(out, 0, threads * sizeof(*out));
    for (unsigned base = 0; base < n; base += threads) {
        unsigned count = n - base < threads ? n - base : threads;
        for (unsigned t = 0; t < count; t++)
            out[t] += x[base + t];
    }
}

/* Stands for the bodies of the hooks where the resolver is tested alone: a function for every
 * symbol of the driver and of the runtime but those that lookup.c defines. */
#include "track/running.h"
#include "bind/resolve.h"
#include "track/thread.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"
#define cuGetProcAddress    unused_cuGetProcAddress
#define cuGetProcAddress_v2 unused_cuGetProcAddress_v2
#define cuGetExportTable    unused_cuGetExportTable
#define CU_FN(symbol, name, since, mode, params, args)                                           \
    CUresult symbol params;                                                                      \
    CUresult symbol params {                                                                     \
        return CUDA_ERROR_UNKNOWN;                                                               \
    }
#include "device/cuda_functions.def"
#undef CU_FN

#define cudaGetDriverEntryPoint               unused_cudaGetDriverEntryPoint
#define cudaGetDriverEntryPoint_ptsz          unused_cudaGetDriverEntryPoint_ptsz
#define cudaGetDriverEntryPointByVersion      unused_cudaGetDriverEntryPointByVersion
#define cudaGetDriverEntryPointByVersion_ptsz unused_cudaGetDriverEntryPointByVersion_ptsz
#define HOOK_RUNTIME(symbol, params)                                                             \
    ac_runtime_error_t symbol params;                                                            \
    ac_runtime_error_t symbol params {                                                           \
        return 0;                                                                                \
    }
#define HOOK_NVML(symbol, params)                                                                \
    int symbol params {                                                                          \
        return 0;                                                                                \
    }
#include "bind/hooks.def"

extern unsigned stub_forgotten;

_Atomic int ac_state;

extern bool stub_guest;
bool stub_guest; /* whether the calling thread runs a host function */

bool ac_ask_refused(void) {
    return stub_guest || atomic_load(&ac_state) == AC_STATE_INERT;
}

/* What it stands for may use every register that a call may change. */
void __real_ac_streams_unseen(void);
void __wrap_ac_streams_unseen(void);
extern void (*stub_meanwhile)(void);
void (*stub_meanwhile)(void); /* what another thread does before that is over, once */
void __wrap_ac_streams_unseen(void) {
    void (*meanwhile)(void) = stub_meanwhile;
    stub_meanwhile = NULL;
    if (meanwhile)
        meanwhile();
    __real_ac_streams_unseen();
#if defined(__x86_64__)
    __asm__ volatile("movq $0, %%rax\n movq $-1, %%rdi\n movq $-1, %%rsi\n"
                     "movq $-1, %%rdx\n movq $-1, %%rcx\n movq $-1, %%r8\n"
                     "movq $-1, %%r9\n movq $-1, %%r10\n movq $-1, %%r11\n"
                     "pcmpeqb %%xmm0, %%xmm0\n pcmpeqb %%xmm1, %%xmm1\n"
                     "pcmpeqb %%xmm2, %%xmm2\n pcmpeqb %%xmm3, %%xmm3\n"
                     "pcmpeqb %%xmm4, %%xmm4\n pcmpeqb %%xmm5, %%xmm5\n"
                     "pcmpeqb %%xmm6, %%xmm6\n pcmpeqb %%xmm7, %%xmm7"
                     :
                     :
                     : "rax", "rdi", "rsi", "rdx", "rcx", "r8", "r9", "r10", "r11", "xmm0",
                       "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7");
#elif defined(__aarch64__)
    __asm__ volatile("mov x0, #-1\n mov x1, #-1\n mov x2, #-1\n mov x3, #-1\n"
                     "mov x4, #-1\n mov x5, #-1\n mov x6, #-1\n mov x7, #-1\n"
                     "mov x8, #-1\n mov x16, #-1\n mov x17, #-1\n"
                     "movi v0.16b, #255\n movi v1.16b, #255\n movi v2.16b, #255\n"
                     "movi v3.16b, #255\n movi v4.16b, #255\n movi v5.16b, #255\n"
                     "movi v6.16b, #255\n movi v7.16b, #255"
                     :
                     :
                     : "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x16", "x17", "v0",
                       "v1", "v2", "v3", "v4", "v5", "v6", "v7");
#endif
}

bool ac_ask_strips_deepbind(void) {
    return true;
}

unsigned stub_forgotten; /* how often a thread was told to forget its context */

void ac_tell_context_unknown(void) {
    stub_forgotten++;
}

/* The thunks of watch.h.
 *
 * Thunk n jumps to ac_watch_to[n] with n in a register that no argument uses.  The target is
 * ac_watch_first until a call has come back from ac_watch_called, and then the driver's function.
 *
 *   void *ac_watch_called(n)   does the work of a first call; returns the function to jump to
 *
 * All registers that carry arguments are as the caller left them when the driver's function runs,
 * and so are the stack and the return address.  Vector registers are kept as far as arguments of
 * the base ABI reach: 16 bytes each. */
#include "bind/watch.h"

#if defined(__x86_64__)

#ifdef __CET__
#include <cet.h>
#else
#define _CET_ENDBR
#endif

    .text
    .hidden ac_watch_called
    .hidden ac_watch_to

    .globl ac_watch_first
    .hidden ac_watch_first
    .type ac_watch_first, @function
    .p2align 4
ac_watch_first:
    .cfi_startproc
    _CET_ENDBR
    pushq %rbp
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %rbp, 0
    movq %rsp, %rbp
    .cfi_def_cfa_register %rbp
    subq $192, %rsp
    andq $-16, %rsp
    movq %rdi, (%rsp)
    movq %rsi, 8(%rsp)
    movq %rdx, 16(%rsp)
    movq %rcx, 24(%rsp)
    movq %r8, 32(%rsp)
    movq %r9, 40(%rsp)
    movq %rax, 48(%rsp) /* how many vector registers a variadic call uses */
    movaps %xmm0, 64(%rsp)
    movaps %xmm1, 80(%rsp)
    movaps %xmm2, 96(%rsp)
    movaps %xmm3, 112(%rsp)
    movaps %xmm4, 128(%rsp)
    movaps %xmm5, 144(%rsp)
    movaps %xmm6, 160(%rsp)
    movaps %xmm7, 176(%rsp)
    movl %r11d, %edi
    call ac_watch_called
    movq %rax, %r11
    movq (%rsp), %rdi
    movq 8(%rsp), %rsi
    movq 16(%rsp), %rdx
    movq 24(%rsp), %rcx
    movq 32(%rsp), %r8
    movq 40(%rsp), %r9
    movq 48(%rsp), %rax
    movaps 64(%rsp), %xmm0
    movaps 80(%rsp), %xmm1
    movaps 96(%rsp), %xmm2
    movaps 112(%rsp), %xmm3
    movaps 128(%rsp), %xmm4
    movaps 144(%rsp), %xmm5
    movaps 160(%rsp), %xmm6
    movaps 176(%rsp), %xmm7
    leave
    .cfi_def_cfa %rsp, 8
    .cfi_restore %rbp
    jmpq *%r11
    .cfi_endproc
    .size ac_watch_first, . - ac_watch_first

    .globl ac_watch_thunks
    .hidden ac_watch_thunks
    .type ac_watch_thunks, @function
    .p2align 4
ac_watch_thunks:
    .cfi_startproc
    .set n, 0
    .rept AC_WATCHES
    .p2align 4
    _CET_ENDBR
    movl $n, %r11d
    jmpq *ac_watch_to + 8 * n(%rip)
    .set n, n + 1
    .endr
    .p2align 4
    .cfi_endproc
    .size ac_watch_thunks, . - ac_watch_thunks

#elif defined(__aarch64__)

    .text
    .hidden ac_watch_called
    .hidden ac_watch_to

    .globl ac_watch_first
    .hidden ac_watch_first
    .type ac_watch_first, %function
    .p2align 4
ac_watch_first:
    .cfi_startproc
    hint #34 /* bti c */
    stp x29, x30, [sp, #-224]!
    .cfi_def_cfa_offset 224
    .cfi_offset x29, -224
    .cfi_offset x30, -216
    mov x29, sp
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    str x8, [sp, #80]
    stp q0, q1, [sp, #96]
    stp q2, q3, [sp, #128]
    stp q4, q5, [sp, #160]
    stp q6, q7, [sp, #192]
    mov w0, w17
    bl ac_watch_called
    mov x16, x0
    ldp x0, x1, [sp, #16]
    ldp x2, x3, [sp, #32]
    ldp x4, x5, [sp, #48]
    ldp x6, x7, [sp, #64]
    ldr x8, [sp, #80]
    ldp q0, q1, [sp, #96]
    ldp q2, q3, [sp, #128]
    ldp q4, q5, [sp, #160]
    ldp q6, q7, [sp, #192]
    ldp x29, x30, [sp], #224
    .cfi_restore x29
    .cfi_restore x30
    .cfi_def_cfa_offset 0
    br x16
    .cfi_endproc
    .size ac_watch_first, . - ac_watch_first

    .globl ac_watch_thunks
    .hidden ac_watch_thunks
    .type ac_watch_thunks, %function
    .p2align 5
ac_watch_thunks:
    .cfi_startproc
    .set n, 0
    .rept AC_WATCHES
    .p2align 5
    hint #34 /* bti c */
    mov w17, #n
    adrp x16, ac_watch_to + 8 * n
    ldr x16, [x16, #:lo12:ac_watch_to + 8 * n]
    br x16
    .set n, n + 1
    .endr
    .p2align 5
    .cfi_endproc
    .size ac_watch_thunks, . - ac_watch_thunks

#else
#error "accelcache knows x86-64 and aarch64"
#endif

    .section .note.GNU-stack, "", %progbits

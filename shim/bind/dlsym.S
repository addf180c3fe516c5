/* The entries of dlsym, dlopen and dlmopen.
 *
 * The loader finds the calling object by the return address.  RTLD_NEXT and RTLD_DEFAULT search
 * from that object; dlopen uses its RUNPATH and its namespace.  A wrapper must therefore be gone
 * from the stack when the real function runs; for dlopen only if that makes a difference.  A
 * compiler does not always make a tail call, but these entries do.  They call a C function in
 * lookup.c, and then return its answer, or jump to the real function with the caller's registers
 * and stack.
 *
 *   ac_route_t ac_dlsym_route(handle, name, caller)   answer, or a function to jump to
 *   ac_route_t ac_dlopen_route(file, mode, caller)    answer, or the mode to use and a function
 *                                                     to jump to
 *   ac_route_t ac_dlmopen_route(space, file, mode, caller)   likewise
 *
 * An ac_route_t comes back in two registers. */

#if defined(__x86_64__)

#ifdef __CET__
#include <cet.h>
#else
#define _CET_ENDBR
#endif

    .text
    .hidden ac_dlsym_route
    .hidden ac_dlopen_route
    .hidden ac_dlmopen_route

    .globl dlsym
    .type dlsym, @function
    .p2align 4
dlsym:
    .cfi_startproc
    _CET_ENDBR
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    movq 16(%rsp), %rdx
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    call ac_dlsym_route
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    testq %rdx, %rdx
    jz 1f
    jmpq *%rdx
1:  ret
    .cfi_endproc
    .size dlsym, . - dlsym

    .globl dlopen
    .type dlopen, @function
    .p2align 4
dlopen:
    .cfi_startproc
    _CET_ENDBR
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    movq 8(%rsp), %rdx
    call ac_dlopen_route
    popq %rdi
    .cfi_adjust_cfa_offset -8
    testq %rdx, %rdx
    jz 1f
    movl %eax, %esi
    jmpq *%rdx
1:  ret
    .cfi_endproc
    .size dlopen, . - dlopen

    .globl dlmopen
    .type dlmopen, @function
    .p2align 4
dlmopen:
    .cfi_startproc
    _CET_ENDBR
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    pushq %rdx
    .cfi_adjust_cfa_offset 8
    movq 24(%rsp), %rcx
    call ac_dlmopen_route
    movq %rdx, %r11
    popq %rdx
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    testq %r11, %r11
    jz 1f
    movl %eax, %edx
    jmpq *%r11
1:  ret
    .cfi_endproc
    .size dlmopen, . - dlmopen

#elif defined(__aarch64__)

    .text
    .hidden ac_dlsym_route
    .hidden ac_dlopen_route
    .hidden ac_dlmopen_route

    .globl dlsym
    .type dlsym, %function
    .p2align 4
dlsym:
    .cfi_startproc
    hint #34 /* bti c */
    stp x29, x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    .cfi_offset x29, -32
    .cfi_offset x30, -24
    mov x29, sp
    stp x0, x1, [sp, #16]
    mov x2, x30
    bl ac_dlsym_route
    mov x16, x1
    cbz x16, 1f
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #32
    .cfi_remember_state
    .cfi_restore x29
    .cfi_restore x30
    .cfi_def_cfa_offset 0
    br x16
1:  .cfi_restore_state
    ldp x29, x30, [sp], #32
    .cfi_restore x29
    .cfi_restore x30
    .cfi_def_cfa_offset 0
    ret
    .cfi_endproc
    .size dlsym, . - dlsym

    .globl dlopen
    .type dlopen, %function
    .p2align 4
dlopen:
    .cfi_startproc
    hint #34 /* bti c */
    stp x29, x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    .cfi_offset x29, -32
    .cfi_offset x30, -24
    mov x29, sp
    str x0, [sp, #16]
    mov x2, x30
    bl ac_dlopen_route
    mov x16, x1
    cbz x16, 1f
    mov x1, x0
    ldr x0, [sp, #16]
    ldp x29, x30, [sp], #32
    .cfi_remember_state
    .cfi_restore x29
    .cfi_restore x30
    .cfi_def_cfa_offset 0
    br x16
1:  .cfi_restore_state
    ldp x29, x30, [sp], #32
    .cfi_restore x29
    .cfi_restore x30
    .cfi_def_cfa_offset 0
    ret
    .cfi_endproc
    .size dlopen, . - dlopen

    .globl dlmopen
    .type dlmopen, %function
    .p2align 4
dlmopen:
    .cfi_startproc
    hint #34 /* bti c */
    stp x29, x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    .cfi_offset x29, -32
    .cfi_offset x30, -24
    mov x29, sp
    stp x0, x1, [sp, #16]
    mov x3, x30
    bl ac_dlmopen_route
    mov x16, x1
    cbz x16, 1f
    mov x2, x0
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #32
    .cfi_remember_state
    .cfi_restore x29
    .cfi_restore x30
    .cfi_def_cfa_offset 0
    br x16
1:  .cfi_restore_state
    ldp x29, x30, [sp], #32
    .cfi_restore x29
    .cfi_restore x30
    .cfi_def_cfa_offset 0
    ret
    .cfi_endproc
    .size dlmopen, . - dlmopen

#else
#error "accelcache knows x86-64 and aarch64"
#endif

    .section .note.GNU-stack, "", %progbits

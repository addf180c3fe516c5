/* The entry of syscall, through which programs install seccomp filters (sandbox.h).
 *
 * All other calls jump to the next definition with the caller's registers and stack: a call may return
 * twice, or on another stack.  Before the constructor has found that definition the kernel is asked here. */

#if defined(__x86_64__)

#ifdef __CET__
#include <cet.h>
#else
#define _CET_ENDBR
#endif

#define SYS_SECCOMP 317

    .text
    .hidden ac_sandbox_seccomp
    .hidden ac_sandbox_failed
    .hidden ac_sandbox_next

    .globl syscall
    .type syscall, @function
    .p2align 4
syscall:
    .cfi_startproc
    _CET_ENDBR
    cmpq $SYS_SECCOMP, %rdi
    je ac_sandbox_seccomp
    movq ac_sandbox_next(%rip), %r11
    testq %r11, %r11
    jz 1f
    jmpq *%r11
1:  movq %rdi, %rax
    movq %rsi, %rdi
    movq %rdx, %rsi
    movq %rcx, %rdx
    movq %r8, %r10
    movq %r9, %r8
    movq 8(%rsp), %r9
    syscall
    cmpq $-4095, %rax
    jae 2f
    ret
2:  movq %rax, %rdi
    jmp ac_sandbox_failed
    .cfi_endproc
    .size syscall, . - syscall

#elif defined(__aarch64__)

#define SYS_SECCOMP 277

    .text
    .hidden ac_sandbox_seccomp
    .hidden ac_sandbox_failed
    .hidden ac_sandbox_next

    .globl syscall
    .type syscall, %function
    .p2align 4
syscall:
    .cfi_startproc
    hint #34 /* bti c */
    cmp x0, #SYS_SECCOMP
    b.eq ac_sandbox_seccomp
    adrp x16, ac_sandbox_next
    ldr x16, [x16, :lo12:ac_sandbox_next]
    cbz x16, 1f
    br x16
1:  mov x8, x0
    mov x0, x1
    mov x1, x2
    mov x2, x3
    mov x3, x4
    mov x4, x5
    mov x5, x6
    svc 0
    cmn x0, #4095
    b.cs ac_sandbox_failed
    ret
    .cfi_endproc
    .size syscall, . - syscall

#else
#error "accelcache knows x86-64 and aarch64"
#endif

    .section .note.GNU-stack, "", %progbits

/* Unwind rules, remembered by return address. A normal unwinder computes the rule of every frame of every
 * stack from the unwind tables. Here each rule is computed once and kept.
 *
 * A rule covers almost all code that GCC and clang make for x86-64 and aarch64. It holds the end of the frame
 * as an offset to the stack pointer or the frame pointer. It also holds the places of the return address and
 * of the caller's frame pointer. Other code has no rule: signal frames, other registers, longer expressions,
 * code without tables. The compiler's unwinder unwinds a stack with a frame of this kind (unwind.c).
 *
 * A rule holds until the next dlopen, like the numbers of callers.h. A rule of code that is never unloaded
 * holds permanently. A stack through other code counts only if the loader has loaded or unloaded nothing
 * since the first rule after the last dlopen.
 *
 * Any thread may call this. It takes no lock of the library and allocates nothing. The caller is inside the
 * gate of loader_gate.h. */
#ifndef AC_FRAME_RULES_H
#define AC_FRAME_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "track/thread.h"

/* Finds at most `room` return addresses of `thread`, the calling thread, each less one. The innermost comes
 * first: the place in this function's caller. Returns false if a frame has no rule; then `pc` and `count`
 * mean nothing. */
bool ac_frame_walk(ac_thread_t *thread, uintptr_t *pc, unsigned room, unsigned *count);

#endif

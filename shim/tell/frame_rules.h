/* How the frame of a piece of code is left: what an unwinder computes for each frame of each stack anew from
 * the unwind tables is computed once for a return address, and remembered.
 *
 * A rule holds what almost all code needs, with GCC and clang on x86-64 and aarch64: the frame's end as an
 * offset to the stack or the frame pointer, and where the return address and the caller's frame
 * pointer lie.  For all else (signal frames, other registers, longer expressions, code without tables)
 * there is no rule, and the unwinder proper does the whole stack (unwind.c).
 *
 * A rule holds until the next dlopen, as what is remembered of callers does (callers.h), and for ever of code that
 * is never unloaded.  A stack that passes through other code is trusted only where the loader has loaded nothing
 * else meanwhile.  Any
 * thread, no lock of ours, no allocation; inside the gate of loader_gate.h. */
#ifndef AC_FRAME_RULES_H
#define AC_FRAME_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "track/thread.h"

/* Return addresses of `thread`, the calling one, less one, innermost first, from the caller's own on; at most
 * `room`.  False: a frame has no rule, and what was found is worth nothing. */
bool ac_frame_walk(ac_thread_t *thread, uintptr_t *pc, unsigned room, unsigned *count);

#endif

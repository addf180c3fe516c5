/* The call stack of the calling thread, as frames of sites.h.
 *
 * The unwinder is GCC's, linked in hidden (libgcc_eh): it reads the unwind tables of loaded objects and
 * the thread's own stack, takes no lock but the loader's list lock where the C library is older than
 * 2.35, and allocates nothing.  Where it meets code without unwind tables, or tables that make no
 * sense, the stack ends.  It needs some 2 KiB of stack. */
#ifndef AC_UNWIND_H
#define AC_UNWIND_H

#include "track/thread.h"
#include "observe/sites.h"

/* Find what the unwinder needs of the C library.  Once, before the first unwinding. */
void ac_unwind_start(void);

/* The frame of code that was called from `pc`, a return address. */
uint64_t ac_unwind_frame(const void *pc);

/* Frames from the innermost one outside the library and the runtime that it was called by on.  The code
 * at `caller` is one of them, or NULL where that is not known.  Python's frames follow those of the
 * interpreter's callees, in place of the interpreter's own.  While another thread forks there is
 * nothing of the stack but the caller.  Returns how many there are. */
unsigned ac_unwind(ac_thread_t *thread, const void *caller, uint64_t frame[AC_SITE_FRAMES]);

/* Python's frames of the calling thread, innermost first; 0: there are none that may be read.  *interpreter: the object
 * that has the interpreter.  *locked: the thread holds its lock.  Without it the frames count only if the thread's stack
 * has one of the interpreter.  python_frames.c */
unsigned ac_python_frames(uint64_t *frame, unsigned room, uintptr_t *interpreter, bool *locked);

#endif

/* The call stack of the calling thread, as frames of sites.h.
 *
 * The unwinder is GCC's libgcc_eh, linked with hidden symbols. It reads the unwind tables of loaded objects
 * and the thread's own stack. It allocates nothing. It takes no lock, except for the lock of the loader's
 * list with a C library older than 2.35. The stack ends at code without unwind tables, or with tables that
 * make no sense. The unwinder needs some 2 KiB of stack. */
#ifndef AC_UNWIND_H
#define AC_UNWIND_H

#include "track/thread.h"
#include "observe/sites.h"

/* Finds the function of the C library that the unwinder needs. Called once, before the first unwinding. */
void ac_unwind_start(void);

/* Returns the frame of the call that returns to `pc`. */
uint64_t ac_unwind_frame(const void *pc);

/* Stores the frames of the stack and returns their number. The first one is the innermost frame outside the
 * library and the runtime that called it. The code at `caller` is one of them; NULL if it is not known.
 * Python's frames follow those of the functions that the interpreter called, and replace the interpreter's
 * own. While another thread forks, the stack is `caller` alone. */
unsigned ac_unwind(ac_thread_t *thread, const void *caller, uint64_t frame[AC_SITE_FRAMES]);

/* Stores Python's frames of the calling thread, innermost first, and returns their number; 0: none can be
 * read. `*interpreter` gets the load address of the interpreter's object. `*locked` tells if the thread holds
 * the interpreter's lock. Without it the frames count only if the thread's stack has a frame of the
 * interpreter. Defined in python_frames.c. */
unsigned ac_python_frames(uint64_t *frame, unsigned room, uintptr_t *interpreter, bool *locked);

#endif

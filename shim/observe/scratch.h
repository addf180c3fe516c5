/* Buffers for data that is too large for a stack.  The library runs on threads of the program.  Their stacks may
 * have only 16 KiB, including the part of the C library.  So no function has a frame of more than 4 KiB (Release
 * builds fail otherwise), and no call path exceeds the limit of tests/process/stacks.py.  Larger data uses a
 * buffer from here.
 *
 * The functions work in any thread, at any time, in a fork child and at exit.  They take no lock, do not call
 * malloc, and keep errno.  One buffer is kept for reuse; further ones are mapped and unmapped. */
#ifndef AC_SCRATCH_H
#define AC_SCRATCH_H

enum { AC_SCRATCH = 32 << 10 };

/* Returns a page-aligned buffer of AC_SCRATCH bytes with undefined contents; NULL if host memory is short.
 * ac_scratch_give releases it. */
void *ac_scratch_take(void);

/* Releases a buffer; NULL is allowed. */
void ac_scratch_give(void *scratch);

#endif

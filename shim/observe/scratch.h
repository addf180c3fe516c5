/* Room for what is too large for a stack.  The library runs on threads of the program, whose stacks may be
 * of 16 KiB, the C library's part included: no function has a frame of more than 4 KiB (Release builds fail
 * there), no path takes more than tests/process/stacks.py allows, and what needs more takes a piece here.
 *
 * From any thread, at any time, in a fork child and at exit as well: no lock, malloc is not called, errno stays.
 * One piece is kept for the next one who asks; more of them are mapped and unmapped. */
#ifndef AC_SCRATCH_H
#define AC_SCRATCH_H

enum { AC_SCRATCH = 32 << 10 };

/* AC_SCRATCH bytes with any contents, aligned to a page; NULL: host memory is short.  The caller gives
 * them back. */
void *ac_scratch_take(void);

/* NULL is given back as well. */
void ac_scratch_give(void *scratch);

#endif

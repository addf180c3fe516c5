/* Host memory for small records that live as long as the process: zeroed, aligned to a cache line, never
 * given back.  So a reader without a lock never reads freed memory.
 *
 * From 6 MiB on it is on huge pages if the kernel has them: up to 2 MiB more than in use.  A thread that
 * writes to the first record of a huge page waits until the kernel has zeroed 2 MiB, for a block's record
 * with the allocator's lock held.
 *
 * Not malloc: the host program may have replaced it, and hooks run inside of it. */
#ifndef AC_CARVE_H
#define AC_CARVE_H

#include <stddef.h>

enum { AC_CARVE_ALIGN = 64 };

/* Returns `bytes` (at most 64 KiB) of this memory; NULL if host memory is short.  Thread-safe.  Its own
 * lock is held over nothing but the mapping of more memory, and may be taken inside any other. */
void *ac_carve(size_t bytes);

/* Returns memory for a table that stays mostly untouched.  It begins on a page, away from records that
 * are used whole, so only touched pages take host memory. */
void *ac_carve_table(size_t bytes);

/* In a fork child: another thread may have held the lock, or be halfway through a cut. */
void ac_carve_fork_child(void);

#endif

/* Host memory for small records that live as long as the process: zeroed, aligned to a cache
 * line, never given back, so that a reader without a lock never reads freed memory.
 * From 6 MiB on it is on huge pages where the kernel has them: up to 2 MiB more than is used.  Who
 * writes to the first record of such a page waits until the kernel has zeroed 2 MiB, with the
 * allocator's lock held where the record is a block's.
 * Not malloc: the host program may have replaced it, and hooks run inside of it. */
#ifndef AC_CARVE_H
#define AC_CARVE_H

#include <stddef.h>

enum { AC_CARVE_ALIGN = 64 };

/* `bytes` (at most 64 KiB) of such memory; NULL when host memory is short.  Thread-safe: its own
 * lock is held over nothing but the mapping of more memory, and may be taken inside any other. */
void *ac_carve(size_t bytes);

/* The same for a table most of which is never touched: it begins on a page, apart from records
 * that are used whole, so that it takes host memory where it is used and nowhere else. */
void *ac_carve_table(size_t bytes);

/* In a fork child: another thread may have held the lock, or be halfway through a cut. */
void ac_carve_fork_child(void);

#endif

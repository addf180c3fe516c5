/* Between live.c and live_rows.c: counter rows of threads that the page has none for.  Any thread, but for
 * _fork_child; no lock. */
#ifndef AC_LIVE_ROWS_H
#define AC_LIVE_ROWS_H

#include "observe/live.h"

/* A row for the calling thread alone; NULL: there is no memory.  The page's rows_more or rows_beside
 * counts it. */
ac_live_row_t *ac_live_more_take(void);
void ac_live_more_return(ac_live_row_t *row);

/* Each of this process after `row` (NULL: the first one) that was ever used; NULL: no more. */
const ac_live_row_t *ac_live_more_next(const ac_live_row_t *row);

/* Remove the file, with that of the page at `page`, whose name in ac_live_file is gone: from then on no thread
 * leaves a file. */
void ac_live_more_close(const char *page);
void ac_live_more_fork_child(void);

#endif

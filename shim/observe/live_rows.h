/* Counter rows for threads that find no row in the page (live.c calls live_rows.c).  All functions except
 * _fork_child are thread-safe and take no lock. */
#ifndef AC_LIVE_ROWS_H
#define AC_LIVE_ROWS_H

#include "observe/live.h"

/* Returns a row for the calling thread alone; NULL if there is no memory.  The page's rows_more or rows_beside
 * counts the row. */
ac_live_row_t *ac_live_more_take(void);
void ac_live_more_return(ac_live_row_t *row);

/* Returns the next row of this process that was ever used, after `row` or the first one for NULL; NULL at the end. */
const ac_live_row_t *ac_live_more_next(const ac_live_row_t *row);

/* Removes the file of the rows; called when the page's file `page` is removed.  The name in ac_live_file is already
 * empty, so that no thread makes a file from then on. */
void ac_live_more_close(const char *page);
void ac_live_more_fork_child(void);

#endif

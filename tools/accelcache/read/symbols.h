/* Functions and lines of code by its place in a file: from DWARF (lines.h), else from the symbol tables. */
#ifndef CMD_SYMBOLS_H
#define CMD_SYMBOLS_H

#include "read/lines.h"

/* Returns the number of functions at the offset, an address of the file as in its symbol tables: inlined ones
 * first, C++ names demangled.  The texts belong to the caller.  0: nothing is known.
 *
 * `id` is the build ID that the code had when it ran; NULL: not known.  If the file is gone, or has another ID
 * by now, /usr/lib/debug/.build-id is asked.  If that does not have it either, a message names the other ID
 * once.  Files stay open. */
size_t cmd_symbols_at(const char *path, const char *id, uint64_t offset, cmd_line_t line[CMD_LINES]);

#endif

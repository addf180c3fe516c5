/* Source lines and inlined functions, read from DWARF by elfutils' libdw.
 *
 * The build needs libdw's headers, the command loads the library when it names the first frame.  libdw finds debug
 * information in the file itself, by .gnu_debuglink, in /usr/lib/debug/.build-id, and by debuginfod if DEBUGINFOD_URLS
 * is set; it checks build IDs. */
#ifndef CMD_LINES_H
#define CMD_LINES_H

#include <stddef.h>
#include <stdint.h>

/* A function at an address of code. */
typedef struct {
    char *function; /* as the linker or the source names it; NULL: not known */
    char *file;     /* of the source; NULL: not known */
    int64_t line;   /* 0: not known */
} cmd_line_t;

/* Inlined functions of an address that are kept, with the function that they are in. */
enum { CMD_LINES = 16 };

typedef struct cmd_lines cmd_lines_t;

/* Opens a file of code; NULL if it cannot be read.  Says once on stderr if it has lines and this command cannot read
 * them. */
cmd_lines_t *cmd_lines_open(const char *path);

/* Returns the number of functions at the address, the innermost inlined one first; 0: nothing is known.  The texts
 * belong to the caller. */
size_t cmd_lines_at(cmd_lines_t *lines, uint64_t address, cmd_line_t line[CMD_LINES]);

#endif

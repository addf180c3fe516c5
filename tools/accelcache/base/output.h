/* Where a subcommand writes its result: the standard output, or a file that appears under its
 * name when it is whole. */
#ifndef CMD_OUTPUT_H
#define CMD_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct {
    FILE *file;
    char *path;      /* NULL: the standard output; malloc'd; the target of a link */
    char *temporary; /* NULL: none */
} cmd_output_t;

/* `path` NULL or "-" is the standard output; what exists and is no regular file (a pipe, /dev/null)
 * is written to as it is.  False, with a message: it cannot be written there, or `binary` and a
 * terminal. */
bool cmd_output_open(cmd_output_t *output, const char *path, bool binary);

/* Names a folder that goes with the command: a signal that ends the command also ends its bound child (child.h), and
 * removes this folder with the files in it, but no folders in it.  NULL: none any more. */
void cmd_folder_guard(const char *folder);

/* With `keep` the file gets its name, else nothing stays.  Returns the exit status, with a message if not all
 * could be written. */
int cmd_output_close(cmd_output_t *output, bool keep);

#endif

/* Files of this installation, and the environment that a program gets from them. */
#ifndef CMD_PLACE_H
#define CMD_PLACE_H

#include <stdbool.h>

/* Finds libaccelcache.so next to this command: of the build tree or installed.  `given` (may be NULL) wins.
 * malloc'd absolute path; or NULL, and *error is one line with cause and remedy, malloc'd. */
char *cmd_place_library(const char *given, char **error);

/* The folder with the simulated device's libcuda.so.1, in the same way. */
char *cmd_place_simulator(char **error);

/* A program that only this command starts, by its name, in the same way. */
char *cmd_place_helper(const char *name, char **error);

/* LD_PRELOAD with `library`.  An order that names the library already is kept; else it comes in front.  Runtimes of
 * sanitizers come before all.  malloc'd. */
char *cmd_place_preload(const char *library, const char *existing);

/* Put `folder` in front of the colon-separated `existing` (may be NULL).  malloc'd. */
char *cmd_place_prepend(const char *folder, const char *existing);

#endif

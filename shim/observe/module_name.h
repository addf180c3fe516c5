/* Names of modules, as the live page has them, for dumps and messages. */
#ifndef AC_MODULE_NAME_H
#define AC_MODULE_NAME_H

#include "observe/json.h"
#include "observe/live.h"

/* Returns the path of module `number`; NULL if not known.  `exe`: the program's file (ac_live_exe). */
const char *ac_module_path(const ac_live_t *page, unsigned number, const char *exe);

/* Returns the file name without its folder, as a part of `path`. */
const char *ac_module_file(const char *path);

/* Adds `name` (the file name without its folder) and `path` of a module; null if the module is not known. */
void ac_module_put(json_t *json, const char *path, bool *failed);

/* Writes the file name of a module of this process for a message, or `unknown`.  Long names are cut. */
enum { AC_MODULE_LABEL = 64 };
char *ac_module_label(char text[AC_MODULE_LABEL], unsigned number, const char *unknown);

#endif

/* Names of modules, as the live page has them, for dumps and messages. */
#ifndef AC_MODULE_NAME_H
#define AC_MODULE_NAME_H

#include "observe/json.h"
#include "observe/live.h"

/* The file of the module of that number; `exe`: the program's (ac_live_exe).  NULL: not known. */
const char *ac_module_path(const ac_live_t *page, unsigned number, const char *exe);

/* A file's name without its folder: a part of `path`. */
const char *ac_module_file(const char *path);

/* `name` (the file's, without its folder) and `path` of a module; null where it is not known. */
void ac_module_put(json_t *json, const char *path, bool *failed);

/* The module of this process for a line on stderr: the file's name, cut where it is very long, or
 * `unknown`. */
enum { AC_MODULE_LABEL = 64 };
char *ac_module_label(char text[AC_MODULE_LABEL], unsigned number, const char *unknown);

#endif
